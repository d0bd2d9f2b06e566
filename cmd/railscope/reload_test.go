package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
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
	r := &reloading{start(t, []string{"RAILSCOPE_PATH_SYSFS=" + tree(t)}, "--no-source.gpu", "--config.file="+path),
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
		{"an unknown check", "findings: {silence: [{check: mtu_lw, reason: a, until: 2027-01-31}]}\n", `mtu_low`},
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
	r := &reloading{start(t, []string{"RAILSCOPE_PATH_SYSFS=" + tree(t)}, "--no-source.gpu", "--config.file="+path),
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

// TestConfigCheck: a configuration is checked as by a reload, and nothing is started.
func TestConfigCheck(t *testing.T) {
	good := file(t, "rails: {include: ^mlx5_}\n")
	for _, tt := range []struct {
		args []string
		code int
		want string // regular expression
	}{
		{[]string{"--config.file=" + good}, 0, `The configuration is valid\.`},
		{nil, 0, `The configuration is valid\.`},
		{[]string{"--config.file=" + file(t, "# soon\n")}, 2, `railscope: .* is empty: a reload refuses it, .*`},
		{[]string{"--config.file=" + file(t, "rails:\n  inclde: a\n")}, 2, `railscope: .*:2: unknown key "inclde" .*`},
		{[]string{"--config.file=" + file(t, "findings: {silence: [{check: mtu_lw, reason: a, until: 2027-01-31}]}\n")}, 2,
			`railscope: .*:1: unknown check "mtu_lw" in findings\.silence; did you mean "mtu_low"\?`},
		{[]string{"--config.file=" + good, "--web.config.file=" + file(t, "tls: {}\n")}, 2,
			`railscope: --web\.config\.file (?s:.*)`},
	} {
		cmd := command(t, nil, append([]string{"serve", "--config.check", "--web.listen-address=nonsense"}, tt.args...)...)
		out, _ := cmd.CombinedOutput() // the exit code is checked
		if code := cmd.ProcessState.ExitCode(); code != tt.code || !regexp.MustCompile(`^`+tt.want+`\n$`).Match(out) {
			t.Errorf("%q: exit %d, %q, want %d and %s", tt.args, code, out, tt.code, tt.want)
		}
	}
}
