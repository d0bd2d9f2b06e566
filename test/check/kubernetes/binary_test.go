package kubernetes

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
)

// TestBinary: railscope accepts the flags, variables and configuration of every installation.
func TestBinary(t *testing.T) {
	bin := binary(t)
	for from, list := range rendered(t) {
		c := only[apps.DaemonSet](t, list).Spec.Template.Spec.Containers[0]
		env := []string{"PATH=" + os.Getenv("PATH")}
		for _, e := range c.Env {
			env = append(env, e.Name+"="+e.Value)
		}
		// Values are validated after all flags are parsed, and --help ends the program there.
		if out := run(bin, env, append(c.Args, "--help")...); !strings.Contains(out, "usage: railscope ") {
			t.Errorf("%s: %q: %s", from, c.Args, out)
		}
		if out := run(bin, env, append(c.Args, "--no-such-flag", "--help")...); !strings.Contains(out,
			"unknown flag --no-such-flag") {
			t.Fatalf("a flag that there is not passes: %s", out)
		}
		dir := t.TempDir()
		token := filepath.Join(dir, "token")
		file := filepath.Join(dir, "railscope.yml")
		write(t, token, "sesame")
		write(t, file, strings.ReplaceAll(configuration(t, list), "/run/secrets/railscope/token", token))
		if out := run(bin, nil, "rails", "--config.file="+file, "--path.sysfs="+bareSysfs(t)); !strings.HasPrefix(out,
			"No rails: ") {
			t.Errorf("%s: its configuration: %s\n%s", from, out, configuration(t, list))
		}
		// kubectl exec runs a command with the container's variables, but without its arguments. The file does not
		// exist here, so the error names the file that is read; nor does the host's root, which the volume mounts.
		for i := range env {
			env[i] = strings.Replace(env[i], "=/host", "="+dir, 1)
			env[i] = strings.Replace(env[i], "=/etc/railscope/", "="+dir+"/none/", 1)
		}
		if out := run(bin, env, "rails"); !strings.Contains(out, "open "+dir+"/none/railscope.yml: no such file") {
			t.Errorf("%s: railscope rails in the pod reads another configuration: %s", from, out)
		}
	}
}

// binary builds railscope without cgo: flags and configuration are the same.
func binary(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "railscope")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", bin, "./cmd/railscope")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return bin
}

func run(bin string, env []string, args ...string) string {
	cmd := exec.Command(bin, args...)
	cmd.Env = env
	out, _ := cmd.CombinedOutput() // the output shows how it ended
	return string(out)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// bareSysfs returns a sysfs without devices.
func bareSysfs(t *testing.T) string {
	t.Helper()
	sys := t.TempDir()
	if err := os.Mkdir(filepath.Join(sys, "class"), 0o755); err != nil {
		t.Fatal(err)
	}
	return sys
}
