package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/doctor/verdict"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/serve"
	"github.com/railscope/railscope/internal/status"
	"github.com/railscope/railscope/internal/statussock"
)

// checkOf returns the settings of check without flags, on a machine with two healthy rails.
func checkOf(t *testing.T) checkSettings {
	t.Helper()
	empty := t.TempDir()
	m := serve.Machine{Sysfs: tree(t), Procfs: empty, Rootfs: empty}
	return checkSettings{common: &common{Machine: m}, minSeverity: "critical", format: "text"}
}

// outcome returns the output of check, and its exit code.
func (s checkSettings) outcome(t *testing.T) (text string, exit int) {
	t.Helper()
	var b bytes.Buffer
	err := s.run(t.Context(), newShutdownTracker(), &b)
	switch {
	case errors.Is(err, errUnknown):
		exit = verdict.ExitUnknown
	case errors.Is(err, errReported):
		exit = verdict.ExitBad
	case err != nil:
		t.Fatal(err)
	}
	return strings.TrimSuffix(b.String(), "\n"), exit
}

func raised(check string, severity finding.Severity, subject string) finding.Raised {
	return finding.Raised{Finding: finding.Finding{Check: check, Severity: severity, Subject: subject}}
}

// statusOf returns the status of a node with 8 rails that are up, and these findings.
func statusOf(found ...finding.Raised) status.Status {
	at, up := time.Now(), true
	s := status.Status{Version: status.Version, At: at, Examination: status.Examination{At: &at, Done: 2},
		Findings: found}
	for range 8 {
		s.Rails = append(s.Rails, status.Rail{Up: &up})
	}
	return s
}

// answer serves a status on the socket of a new directory.
func answer(t *testing.T, handler http.HandlerFunc) (dir string) {
	t.Helper()
	return answerIn(t, t.TempDir(), handler)
}

// answerIn serves a status on the socket of dir.
func answerIn(t *testing.T, dir string, handler http.HandlerFunc) string {
	t.Helper()
	open := make(chan error, 1) // the socket exists before it accepts connections
	go statussock.New(dir, handler).Run(t.Context(), func() bool { return true }, func(err error) { open <- err })
	if err := <-open; err != nil {
		t.Fatal(err)
	}
	return dir
}

func asJSON(s status.Status) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(s) }
}

// TestCheck: the status of a running railscope is reported in one line.
func TestCheck(t *testing.T) {
	down, slow := raised("port_down", finding.Critical, "rail 3"), raised("pcie_link_low", finding.Warning, "rail 1")
	lost, started := raised("rate_lost", finding.Critical, "rail 5"), statusOf()
	started.Examination = status.Examination{}
	for _, tt := range []struct {
		name   string
		status status.Status
		change func(*checkSettings)
		want   string
		exit   int
	}{
		{"nothing", statusOf(), nil, "ok: 8 rails up", 0},
		{"more", statusOf(slow, down, lost), nil, "critical: rail 3: port down (+1 more)", 1},
		{"more that count", statusOf(slow, down, lost), func(s *checkSettings) { s.minSeverity = "warning" },
			"critical: rail 3: port down (+2 more)", 1},
		{"ignored", statusOf(down, slow), func(s *checkSettings) { s.ignoreText = "port_down, pcie_link_low" },
			"ok: 8 rails up", 0},
		{"others only", statusOf(down, lost), func(s *checkSettings) { s.onlyText = "rate_lost" },
			"critical: rail 5: rate lost", 1},
		{"just started: looks itself", started, nil, "ok: 2 rails up", 0},
		{"another version", status.Status{Version: 2}, nil,
			"unknown: status version 2, this railscope reads 1: use the same ve...", 2},
	} {
		s := checkOf(t)
		s.stateDir = answer(t, asJSON(tt.status))
		if tt.change != nil {
			tt.change(&s)
		}
		got, exit := s.outcome(t)
		if got != "railscope: "+tt.want || exit != tt.exit || len(got) > 80 {
			t.Errorf("%s: %q, exit %d, want %q, exit %d", tt.name, got, exit, tt.want, tt.exit)
		}
	}
}

// TestCheckAlone: without a running railscope, check examines the node itself, and reads the maintenance file.
func TestCheckAlone(t *testing.T) {
	s := checkOf(t)
	s.stateDir = t.TempDir()
	if got, exit := s.outcome(t); got != "railscope: ok: 2 rails up" || exit != 0 {
		t.Errorf("a healthy machine: %q, exit %d", got, exit)
	}
	write(t, filepath.Join(s.Sysfs, "class/infiniband/mlx5_1/ports/1/state"), "1: DOWN\n")
	if got, exit := s.outcome(t); got != "railscope: critical: rail 1: port down" || exit != 1 {
		t.Errorf("a port that is down: %q, exit %d", got, exit)
	}
	s.format = "json"
	text, exit := s.outcome(t)
	var out verdict.Verdict
	if err := json.Unmarshal([]byte(text), &out); err != nil || exit != 1 || out.Exit != 1 || out.Source != "self" ||
		out.Level != "critical" || out.Findings[0].Check != "port_down" {
		t.Errorf("%v, %s", err, text)
	}
	s.format, s.configFile = "text", file(t, "maintenance: "+filepath.Join(s.stateDir, "maintenance")+"\n")
	write(t, filepath.Join(s.stateDir, "maintenance"), "")
	if got, exit := s.outcome(t); got != "railscope: ok: maintenance, nothing is judged" || exit != 0 {
		t.Errorf("maintenance: %q, exit %d", got, exit)
	}
	s.configFile = file(t, "findings: {silence: [{check: port_down, subject: rail 1, reason: a, until: 2999-12-31}]}\n")
	if got, exit := s.outcome(t); got != "railscope: ok: 1 rail up, 1 down and silenced" || exit != 0 {
		t.Errorf("a silence: %q, exit %d", got, exit)
	}
	s.configFile = file(t, "nonsense: 1\n")
	if got, exit := s.outcome(t); !strings.HasPrefix(got, "railscope: unknown: /") || exit != 2 || len(got) > 80 {
		t.Errorf("an invalid configuration: %q, exit %d", got, exit)
	}
}

// TestCheckTimeout: without an answer in time, the state is unknown.
func TestCheckTimeout(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	s := checkOf(t)
	s.stateDir = answer(t, func(http.ResponseWriter, *http.Request) { <-release })
	s.timeout = 50 * time.Millisecond
	start := time.Now()
	got, exit := s.outcome(t)
	if !strings.HasPrefix(got, "railscope: unknown: ") || exit != 2 || time.Since(start) > 10*time.Second {
		t.Errorf("%q, exit %d after %v", got, exit, time.Since(start))
	}
}

// TestCheckURL: a railscope elsewhere is asked with a password, over TLS, and the password goes nowhere else.
func TestCheckURL(t *testing.T) {
	var reached bool
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	defer other.Close()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		switch {
		case r.URL.Path == "/moved/-/status":
			http.Redirect(w, r, other.URL, http.StatusFound)
		case user != "prometheus" || password != "sesame" || r.URL.Path != "/node/-/status":
			http.Error(w, "not you", http.StatusUnauthorized)
		default:
			asJSON(statusOf(raised("port_down", finding.Critical, "rail 3")))(w, r)
		}
	}))
	defer server.Close()
	ca, password := filepath.Join(t.TempDir(), "ca.pem"), filepath.Join(t.TempDir(), "password")
	write(t, ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	write(t, password, "sesame\n")
	address := strings.Replace(server.URL, "https://", "https://prometheus@", 1)
	for _, tt := range []struct {
		url, ca, password, want string
		exit                    int
	}{
		{address + "/node", ca, password, "critical: rail 3: port down", 1},
		{address + "/node/", ca, password, "critical: rail 3: port down", 1},
		{address + "/node", ca, "", "unknown: HTTP 401: not you", 2},
		{address + "/moved", ca, password, "unknown: HTTP 302: ", 2},
		{address + "/node", "", password, "unknown: Get ", 2},
		{address + "/node", ca, "/no/such/file", "unknown: --password-file: ", 2},
		{"http://127.0.0.1:1", "", "", "unknown: Get ", 2},
	} {
		s := checkOf(t)
		s.stateDir, s.url, s.caFile, s.passwordFile = t.TempDir(), tt.url, tt.ca, tt.password
		if got, exit := s.outcome(t); !strings.HasPrefix(got, "railscope: "+tt.want) || exit != tt.exit {
			t.Errorf("%s: %q, exit %d, want %q, exit %d", tt.url, got, exit, tt.want, tt.exit)
		}
	}
	if reached {
		t.Error("a redirect was followed")
	}
}

// TestCheckMisuse: an invalid flag is refused with its valid values.
func TestCheckMisuse(t *testing.T) {
	for want, change := range map[string]func(*checkSettings){
		`--ignore: unknown check "port_dwn"; did you mean "port_down"?`: func(s *checkSettings) { s.ignoreText = "port_dwn" },
		`--only: unknown check "x"; the checks are acs_enabled, `:       func(s *checkSettings) { s.onlyText = "mtu_low,x" },
		"--only and --ignore leave no check": func(s *checkSettings) {
			s.onlyText, s.ignoreText = "mtu_low", "mtu_low"
		},
		"--ca-file and --password-file need --url":            func(s *checkSettings) { s.caFile = "a" },
		"--url must be http://HOST:PORT or https://HOST:PORT": func(s *checkSettings) { s.url = "http://a\x7f" },
		`--url must be http://HOST:PORT or https://HOST:PORT, such as https://spark-02:10091, not "ftp://u:xxxxx@a"`: func(
			s *checkSettings) {
			s.url = "ftp://u:password@a"
		},
		"--ca-file needs a --url that begins with https://": func(s *checkSettings) {
			s.url, s.caFile = "http://a", "b"
		},
		"--password-file needs a user name in --url": func(s *checkSettings) {
			s.url, s.passwordFile = "http://a", "b"
		},
		"--timeout must be above 0":         func(s *checkSettings) { s.timeout = -1 },
		"--peer must be host or host:port,": func(s *checkSettings) { s.peer = "a b" },
	} {
		s := checkOf(t)
		change(&s)
		err := s.run(t.Context(), newShutdownTracker(), new(bytes.Buffer))
		if _, ok := errors.AsType[misuse](err); !ok || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestCheckPeer: a round with the peer is judged as well.
func TestCheckPeer(t *testing.T) {
	for severity, want := range map[string]string{
		"critical": "railscope: ok: 2 rails up, 1 warning\n0",
		"warning":  "railscope: warning: peer 127.0.0.1:1: probe failed\n1",
	} {
		empty := t.TempDir()
		cmd := command(t, nil, "check", "--path.sysfs="+tree(t), "--path.procfs="+empty, "--path.rootfs="+empty,
			"--state.dir="+empty, "--peer=127.0.0.1:1", "--timeout=20s", "--min-severity="+severity)
		out, _ := cmd.Output() // the exit code is checked
		if got := fmt.Sprintf("%s%d", out, cmd.ProcessState.ExitCode()); got != want {
			t.Errorf("%s: %q, want %q", severity, got, want)
		}
	}
}
