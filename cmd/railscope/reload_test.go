package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// reloading is a railscope whose configuration the test changes.
type reloading struct {
	*running
	t    *testing.T
	file string
}

// reload writes a configuration and sends SIGHUP.
func (r *reloading) reload(config string) {
	r.t.Helper()
	if err := os.WriteFile(r.file, []byte(config), 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := r.Process.Signal(syscall.SIGHUP); err != nil {
		r.t.Fatal(err)
	}
}

// has fails unless the metrics have these lines.
func (r *reloading) has(when string, lines ...string) {
	r.t.Helper()
	_, body := r.get(r.t, "/metrics")
	for _, line := range lines {
		if !strings.Contains(body, "\n"+line+"\n") {
			r.t.Errorf("%s: no %s", when, line)
		}
	}
}

// answers reports whether the probe port accepts a connection.
func (r *reloading) answers(address string) bool {
	r.t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		return false
	}
	c.Close()
	return true
}

func freePort(t *testing.T) string {
	t.Helper()
	l := silence(t)
	_ = l.Close()
	return l.Addr().String()
}

// TestRefusedReload: a refused reload changes nothing, and reloading the same file restarts nothing.
func TestRefusedReload(t *testing.T) {
	taken, address := silence(t).Addr().String(), freePort(t)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("sesame sesame sesame"), 0o600); err != nil {
		t.Fatal(err)
	}
	config := func(rail, listen string) string {
		return fmt.Sprintf("rails: {names: {%s: mlx5_0/1}}\nprobe: {listen: %q, token_file: %s}\n", rail, listen, token)
	}
	good := config("east", address)
	path := file(t, good)
	r := &reloading{start(t, []string{"RAILSCOPE_PATH_SYSFS=" + tree(t)}, "--no-collector.gpu", "--config.file="+path),
		t, path}
	r.line(t, `"msg":"(Answering)`)
	same := []string{`railscope_port_up{device="mlx5_0",port="1",rail="east"} 1`, "railscope_probe_up 1",
		"railscope_config_last_reload_successful 0"}
	for _, tc := range []struct{ name, config, says string }{
		{"a taken port", config("west", taken), `address already in use`},
		{"an empty file", "", `is empty`},
		{"comments only", "# soon\n", `is empty`},
		{"nothing but the beginning", "---\n", `is empty`},
		{"no security", "rails: {names: {west: mlx5_0/1}}\nprobe: {listen: \"" + address + "\"}\n", `token_file`},
		{"no YAML", "rails: {names", `invalid YAML`},
	} {
		r.reload(tc.config)
		r.line(t, `"msg":"(Reload refused)[^}]*`+tc.says)
		r.has(tc.name, same...)
		if !r.answers(address) {
			t.Errorf("%s: the probe port is closed", tc.name)
		}
	}
	r.reload(good)
	r.line(t, `"msg":"(Configuration reloaded)"`)
	r.has("the old file again", "railscope_probe_up 1", "railscope_config_last_reload_successful 1")
	for _, line := range r.passed {
		if strings.Contains(line, "Answering") || strings.Contains(line, "not opened") {
			t.Errorf("the probe was restarted: %s", line)
		}
	}
	r.reload("{}\n")
	r.line(t, `"msg":"(Configuration reloaded)"`)
	if r.answers(address) {
		t.Error("the probe port is open without a probe in the configuration")
	}
	if code := r.stop(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// TestPortTakenAtStart: with a probe port in use, metrics are served, and the port is opened when it is free.
func TestPortTakenAtStart(t *testing.T) {
	other := silence(t)
	path := file(t, fmt.Sprintf("probe: {listen: %q, insecure: true}\n", other.Addr()))
	r := &reloading{start(t, []string{"RAILSCOPE_PATH_SYSFS=" + tree(t)}, "--no-collector.gpu", "--config.file="+path),
		t, path}
	r.line(t, `"msg":"(Probe port not opened)[^}]*address already in use`)
	r.has("while it is taken", "railscope_probe_up 0")
	other.Close()
	r.line(t, `"msg":"(Answering)`)
	r.has("when it is free", "railscope_probe_up 1")
	if code := r.stop(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit %d", code)
	}
}
