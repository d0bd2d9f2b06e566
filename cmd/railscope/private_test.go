package main

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/doctor/report"
	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/rdmanl"
	"github.com/railscope/railscope/internal/serve"
)

// private returns texts that strangers and peers must not see: PIDs, names of processes, and values of their
// environments.
func private() []string {
	return []string{"4193337", "4193338", "4193339", "hushjob", "hush1", "hush2", "hush3", "4711", "hush5", "hush6",
		"UCX_", "NCCL_"}
}

// privateProcesses returns a procfs with three processes: one with findings, one with meaningless values, and one
// that cannot be read. A file for all jobs is in the root.
func privateProcesses(t *testing.T) (procfs, rootfs string) {
	t.Helper()
	procfs, rootfs = t.TempDir(), t.TempDir()
	for path, content := range map[string]string{
		"4193337/comm": "hushjob\n",
		"4193337/environ": "NCCL_IB_DISABLE=1hush1\x00NCCL_NET=Socket\x00NCCL_IB_HCA==hush3\x00NCCL_IB_GID_INDEX=4711\x00" +
			"UCX_TLS=tcp\x00UCX_NET_DEVICES=hush6:1\x00HOME=/hush1\x00",
		"4193338/comm":    "hushjob2\n",
		"4193338/environ": "NCCL_IB_DISABLE=hush1\x00NCCL_NET=hush2\x00NCCL_IB_HCA=hush3\x00NCCL_IB_GID_INDEX=4711hush\x00UCX_TLS=hush5\x00UCX_NET_DEVICES=hush6\x00",
		"4193339/comm":    "hushjob3\n",
	} {
		write(t, filepath.Join(procfs, path), content)
	}
	if err := os.Mkdir(filepath.Join(procfs, "4193339/environ"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(rootfs, "etc/nccl.conf"), "NCCL_IB_HCA=hush3\n")
	return procfs, rootfs
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestEnvironmentsStayPrivate: neither the web port nor the control channel sends values of environments, or PIDs.
// Doctor on the node shows them. Doctor on a peer shows the check and the number of processes.
func TestEnvironmentsStayPrivate(t *testing.T) {
	t.Parallel()
	procfs, rootfs := privateProcesses(t)
	sources := serve.DefaultSources()
	*sources.On["process"] = true // environments are then examined
	m := serve.Machine{Sysfs: tree(t), Procfs: procfs, Rootfs: rootfs, RDMA: rdmanl.New(time.Second)}
	n := assembled(t, serve.Options{Machine: m, Sources: sources}, &config.Config{}, slog.New(slog.DiscardHandler))
	runTasks(t, n.Tasks())
	handler := n.Handler(nil)
	defer handler.Close()
	server := httptest.NewServer(handler)
	defer server.Close()
	served := map[string]string{"the event stream": eventsUntil(t, server.URL,
		"nccl_ib_disable")}
	for _, path := range []string{"/", "/metrics", "/-/status", "/-/healthy", "/-/ready", "/nothing"} {
		served[path] = get(t, server.URL+path)
	}
	shared, err := serve.SharedFacts(n.Gatherer(nil))(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	served["the facts"] = string(shared)
	named := []string{"hushjob", "UCX_", "NCCL_"} // a node that exports its processes names them in findings
	for what, text := range served {
		if len(text) == 0 {
			t.Errorf("%s: empty", what)
		}
		for _, secret := range private() {
			if strings.Contains(text, secret) && (what == "the facts" || !slices.Contains(named, secret)) {
				t.Errorf("%s: %q is in it", what, secret)
			}
		}
	}
	there, err := facts.Parse(shared)
	if err != nil {
		t.Fatal(err)
	}
	there.Node = "spark-02"
	judged := report.Examine(there, nil, nil)
	byHand := report.Examine(n.Gatherer(nil).Gather(t.Context(), facts.All), nil, nil)
	var checks, text strings.Builder
	for _, f := range judged.Findings {
		if strings.HasPrefix(f.Check, "nccl_") || strings.HasPrefix(f.Check, "ucx_") {
			checks.WriteString(f.Check + " " + f.Subject + ": " + f.Evidence + "\n")
		}
	}
	if err := byHand.WriteText(&text, report.Page{Columns: 1000}); err != nil {
		t.Fatal(err)
	}
	const said = ": the node itself found it wrong in 1 process"
	for _, want := range []string{"nccl_ib_disable node: NCCL_IB_DISABLE" + said, "nccl_net node: NCCL_NET" + said,
		"ucx_tls node: UCX_TLS" + said,
		"ucx_net_devices node: UCX_NET_DEVICES: the node itself found it wrong in 2 processes",
		"nccl_ib_hca node: NCCL_IB_HCA: the node itself found it wrong in 1 configuration file"} {
		if !strings.Contains(checks.String(), want) {
			t.Errorf("a peer's doctor does not say %q:\n%s", want, &checks)
		}
	}
	for _, want := range []string{"NCCL_IB_DISABLE=1hush1", "NCCL_NET=Socket", "=hush3", "UCX_TLS=tcp", "hush6",
		"4193337", "4193339", "hushjob"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("doctor by hand does not show %q:\n%s", want, &text)
		}
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// eventsUntil reads the page's stream until it has the text.
func eventsUntil(t *testing.T, url, text string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/-/page/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var all strings.Builder
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		all.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), text) {
			return all.String()
		}
	}
	t.Fatalf("the stream ended without %q: %v", text, lines.Err())
	return ""
}
