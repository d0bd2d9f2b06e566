package kubernetes

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	sigsyaml "sigs.k8s.io/yaml"
)

// TestInitContainer: the pod of the recipe is valid, and its init container succeeds only on a node without a
// critical finding.
func TestInitContainer(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "deploy/integrations/kubernetes-init.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var pod core.Pod
	if err := sigsyaml.UnmarshalStrict(text, &pod); err != nil {
		t.Fatal(err)
	}
	args := pod.Spec.InitContainers[0].Args
	bin, empty := binary(t), bareSysfs(t)
	for _, tc := range []struct {
		severity string
		examined int
		code     int
		line     string
	}{
		{"warning", 2, 0, "railscope: ok: 1 rail up, 1 warning"},
		{"critical", 2, 1, "railscope: critical: rail 3: port down"},
		{"warning", 0, 2, "railscope: unknown: railscope has not examined the node yet"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			now := time.Now().Format(time.RFC3339)
			fmt.Fprintf(w, `{"version": 1, "at": %q, "examination": {"at": %q, "done": %d}, "rails": [{"up": true}],
				"findings": [{"check": "port_down", "severity": %q, "subject": "rail 3"}]}`, now, now, tc.examined, tc.severity)
		}))
		var given []string
		for _, a := range args {
			given = append(given, strings.ReplaceAll(a, "http://$(NODE_IP):10091", server.URL))
		}
		cmd := exec.Command(bin, append(given, "--state.dir="+empty, "--path.sysfs="+empty)...)
		out, _ := cmd.Output()
		server.Close()
		if code := cmd.ProcessState.ExitCode(); code != tc.code || string(out) != tc.line+"\n" {
			t.Errorf("%q: exit %d, %q; want %d, %q", given, code, out, tc.code, tc.line)
		}
	}
}

// TestGateJob: the Job of the recipe is valid, and its command is one of railscope, which says that it reaches no name
// here.
func TestGateJob(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "deploy/integrations/kubernetes-gate.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var job batch.Job
	if err := sigsyaml.UnmarshalStrict(text, &job); err != nil {
		t.Fatal(err)
	}
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("a token of more than 16 bytes\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var args []string
	for _, a := range job.Spec.Template.Spec.Containers[0].Args {
		args = append(args, strings.ReplaceAll(a, "/run/secrets/railscope/token", token))
	}
	out, _ := exec.Command(binary(t), args...).CombinedOutput()
	if !strings.HasPrefix(string(out), "railscope: --nodes: lookup railscope-peers") {
		t.Errorf("%q: %s", args, out)
	}
}

// TestReadiness: the readiness probe of docs/integrations.md is valid, runs the image's program with existing
// flags, and allows more time than it needs. A node that has an adapter and no rail is not ready. A node without
// RDMA hardware is.
func TestReadiness(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/integrations.md"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)```yaml\n(readinessProbe:.*?)```").FindSubmatch(text)
	if m == nil {
		t.Fatal("no readinessProbe")
	}
	var c core.Container
	if err := sigsyaml.UnmarshalStrict(m[1], &c); err != nil {
		t.Fatal(err)
	}
	image, err := os.ReadFile(filepath.Join(root, "deploy/container/Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	command := c.ReadinessProbe.Exec.Command
	if !strings.Contains(string(image), fmt.Sprintf("ENTRYPOINT [%q]", command[0])) {
		t.Errorf("the image has no %s", command[0])
	}
	here := strings.ReplaceAll(strings.Join(command[1:], " "), "/var/lib/railscope", t.TempDir())
	adapter := t.TempDir()
	function := filepath.Join(adapter, "bus/pci/devices/0000:41:00.0")
	if err := os.MkdirAll(function, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"vendor": "0x15b3", "device": "0x1021", "class": "0x020000"} {
		if err := os.WriteFile(filepath.Join(function, name), []byte(value+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for sys, want := range map[string]string{
		adapter:     "railscope: critical: node: no rails\n",
		t.TempDir(): "railscope: ok: no RDMA hardware on this node\n",
	} {
		if out := run(binary(t), nil, append(strings.Fields(here), "--path.sysfs="+sys)...); out != want {
			t.Errorf("%q: %q, want %q", command, out, want)
		}
	}
	if c.ReadinessProbe.TimeoutSeconds < 3 {
		t.Errorf("timeoutSeconds: %d; check takes up to 2 s", c.ReadinessProbe.TimeoutSeconds)
	}
}
