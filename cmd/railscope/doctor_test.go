package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/status"
	"github.com/railscope/railscope/probe"
	"github.com/railscope/railscope/probe/result"
)

// TestDoctorMisuse: errors that the user fixes on the command line exit with code 2.
func TestDoctorMisuse(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"an invalid peer", []string{"--peer=a b"}, `railscope: --peer must be host or host:port, .*, not "a b"`},
		{"a peer without a name", []string{"--peer="}, `railscope: --peer must be host or host:port, .*, not ""`},
		{"no such token file", []string{"--peer=a", "--token-file=/no/such/file"},
			`railscope: --token-file "/no/such/file": no such file or directory; it must hold the secret that all ` +
				`peers share, or two of them, one per line`},
		{"no such format", []string{"--format=table"},
			`railscope: invalid --format: enum value must be one of text,json, got 'table'; .*`},
		{"no such configuration", []string{"--config.file=/no/such/file"},
			`railscope: read configuration: .*no such file or directory; --config.file needs a readable file, .*`},
	} {
		out, errs, code := doctor1(t, bareSysfs(t), tc.args...)
		if code != 2 || out != "" || !regexp.MustCompile(`^`+tc.want+`\n$`).MatchString(errs) {
			t.Errorf("%s: exit %d, it said %q and %q, want 2 and %q", tc.name, code, out, errs, tc.want)
		}
	}
}

// doctor1 runs doctor over a tree and returns what it printed and its exit code.
func doctor1(t *testing.T, sys string, args ...string) (out, errs string, code int) {
	t.Helper()
	cmd := command(t, nil, append([]string{"doctor", "--path.sysfs=" + sys, "--path.procfs=" + t.TempDir(),
		"--path.rootfs=" + t.TempDir()}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	timer := time.AfterFunc(60*time.Second, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	_ = cmd.Run() // the exit code is checked
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

// found runs doctor and returns its findings about rails and the peer, as "check subject". The exit code must
// match.
func found(t *testing.T, sys string, args ...string) (list []string, nodes int) {
	t.Helper()
	out, errs, code := doctor1(t, sys, append(args, "--format=json")...)
	var r struct {
		Nodes    []struct{ Node string }
		Findings []struct{ Check, Subject, Severity, Evidence string }
		Critical int
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil || errs != "" || code != min(r.Critical, 1) {
		t.Fatalf("exit %d, %q, %q: %v", code, out, errs, err)
	}
	for _, f := range r.Findings {
		if strings.HasPrefix(f.Subject, "rail ") || f.Check == "peer" || f.Check == "no_rails" {
			list = append(list, f.Check+" "+f.Subject+" "+f.Evidence)
		}
	}
	return list, len(r.Nodes)
}

// TestDoctor: doctor examines a synthetic machine, healthy and broken, and with a peer.
func TestDoctor(t *testing.T) {
	sys := tree(t)
	if list, nodes := found(t, sys); len(list) > 0 || nodes != 1 {
		t.Errorf("a whole machine: %q", list)
	}
	state := filepath.Join(sys, "class/infiniband/mlx5_1/ports/1/state")
	if err := os.WriteFile(state, []byte("1: DOWN\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if list, _ := found(t, sys); len(list) != 1 || !strings.HasPrefix(list[0], "port_down rail 1") {
		t.Errorf("a port that is down: %q", list)
	}
	named := "--config.file=" + file(t, "rails: {names: {east: mlx5_1/1}}\n")
	if list, _ := found(t, sys, named); len(list) != 1 || !strings.HasPrefix(list[0], "port_down rail east") {
		t.Errorf("a port that has a name: %q", list)
	}
	if list, _ := found(t, bareSysfs(t)); len(list) != 1 || !strings.HasPrefix(list[0], "no_rails") {
		t.Errorf("an empty machine: %q", list)
	}
}

// TestDoctorPeer: a peer is asked over the probe's control channel. A peer that cannot be asked is a fault.
func TestDoctorPeer(t *testing.T) {
	sys, dir := tree(t), t.TempDir()
	token, wrong := filepath.Join(dir, "token"), filepath.Join(dir, "wrong")
	for path, text := range map[string]string{token: "sesame", wrong: "open"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	other := tree(t)
	if err := os.RemoveAll(filepath.Join(other, "class/infiniband/mlx5_1")); err != nil {
		t.Fatal(err)
	}
	answering := launch(t, []string{"RAILSCOPE_PATH_SYSFS=" + other},
		"--config.file="+file(t, "probe: {name: spark-02, listen: 127.0.0.1:0, token_file: "+token+"}\n"))
	peer := answering.line(t, `"msg":"Answering.*"listen":"([^"]+)"`)
	out, _, _ := doctor1(t, sys, "--peer="+peer, "--token-file="+token)
	if !strings.Contains(out, "rail 1 is unpaired: spark-02 has 1 rail, ") || strings.Count(out, "unpaired:") != 1 {
		t.Errorf("a rail less: %s", out)
	}
	named, _, _ := doctor1(t, sys, "--peer="+peer,
		"--config.file="+file(t, "probe: {name: spark-01, peers: [nobody], token_file: "+token+"}\n"))
	same, _, _ := doctor1(t, sys, "--peer="+peer, "--token-file="+token, "--node.name=spark-02")
	if !strings.Contains(named, "INFO  spark-01: rail 1  unpaired\n  found  rail 1 is unpaired: spark-02 has 1 rail, "+
		"spark-01 2") || !strings.Contains(same, "unpaired: spark-02 at "+peer+" has 1 rail, spark-02 2") {
		t.Errorf("nodes are not called what they call themselves: %s%s", named, same)
	}
	config := "--config.file=" + file(t, "probe: {peers: [nobody], token_file: "+token+"}\n")
	if list, nodes := found(t, sys, "--peer="+peer, config); len(list) != 1 || nodes != 2 ||
		!strings.HasPrefix(list[0], "unpaired rail 1 ") {
		t.Errorf("the token of the configuration: %q, %d nodes", list, nodes)
	}
	if list, nodes := found(t, sys, "--peer="+peer,
		"--token-file="+wrong); nodes != 1 || len(list) != 1 || !strings.Contains(list[0], "unauthorized") {
		t.Errorf("the wrong token: %q, %d nodes", list, nodes)
	}
	if code := answering.stop(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit %d after SIGTERM", code)
	}
	if list, _ := found(t, sys, "--peer="+peer, "--token-file="+token); len(list) != 1 || !strings.Contains(list[0],
		"peer_unreachable") {
		t.Errorf("nobody there: %q", list)
	}
}

// TestDoctorStopped: a doctor that is stopped prints no report of incomplete facts.
func TestDoctorStopped(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // never answers
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cmd := command(t, nil, "doctor", "--path.sysfs="+tree(t), "--path.procfs="+t.TempDir(),
		"--path.rootfs="+t.TempDir(), "--peer="+l.Addr().String())
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	conn, err := l.Accept() // doctor is waiting for an answer now
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the exit code is checked
	if code := cmd.ProcessState.ExitCode(); code != 1 || stdout.Len() > 0 || stderr.String() !=
		"railscope: stopped before everything was read\n" {
		t.Errorf("exit %d, %q, %q", code, &stdout, &stderr)
	}
}

// TestPeerFix: the fix depends on why the peer could not be asked.
func TestPeerFix(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("%w: it is version 0.0.9", probe.ErrNoFacts), "same version"},
		{fmt.Errorf("%w: the peer speaks version 2, this node 3", facts.ErrVersion), "same version"},
		{&result.Failure{Reason: "unauthorized"}, "--token-file=FILE"},
		{&result.Failure{Reason: "tls"}, "probe.tls"},
		{&result.Failure{Reason: "protocol"}, "not to that of its metrics"},
		{&result.Failure{Reason: "peer_unreachable"}, "this port open"},
		{errors.New("the peer's facts make no sense"), "same version"},
	} {
		list := peerFix(tc.err)
		if len(list) == 0 || !strings.Contains(list[0], tc.want) || slices.ContainsFunc(list, func(s string) bool {
			return !strings.HasPrefix(s, "# ")
		}) {
			t.Errorf("%v: %q, want %q", tc.err, list, tc.want)
		}
	}
}

// TestDoctorColours: colours appear on terminals, and on request.
func TestDoctorColours(t *testing.T) {
	for _, tc := range []struct {
		env     []string
		colours bool
	}{
		{[]string{"TERM=xterm"}, true},
		{[]string{"TERM=xterm", "NO_COLOR=1"}, false},
		{[]string{"TERM=dumb"}, false},
	} {
		screen, tty := terminalPair(t)
		env := slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "NO_COLOR=") })
		cmd := command(t, nil, "doctor", "--path.sysfs="+bareSysfs(t), "--path.procfs="+t.TempDir(),
			"--path.rootfs="+t.TempDir())
		cmd.Env = append(append(env, "RAILSCOPE_TEST_MAIN=1"), tc.env...)
		cmd.Stdout = tty
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		tty.Close()
		read := make(chan string, 1)
		go func() {
			text, _ := io.ReadAll(screen) // EIO when the last process has closed the other end
			read <- string(text)
		}()
		_ = cmd.Wait() // exit 1: there are no rails
		text := <-read
		if !strings.Contains(text, "no_rails") || strings.Contains(text, "\x1b[") != tc.colours {
			t.Errorf("%v: %q", tc.env, text)
		}
	}
}

// terminalPair returns both ends of a pseudo terminal.
func terminalPair(t *testing.T) (screen, tty *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("this machine has no pseudo terminals: %v", err)
	}
	t.Cleanup(func() { screen.Close() })
	if err := unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Skipf("this machine has no pseudo terminals: %v", err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("this machine has no pseudo terminals: %v", err)
	}
	t.Cleanup(func() { tty.Close() })
	return screen, tty
}

// TestDoctorRound: with a peer, doctor also judges a round: the last one of the running railscope, else one of its
// own. Two nodes without faults are not good if RDMA between them fails.
func TestDoctorRound(t *testing.T) {
	token := file(t, "sesame, sesame")
	peer := launch(t, []string{"RAILSCOPE_PATH_SYSFS=" + tree(t)}, "--config.file="+
		file(t, "probe: {name: spark-02, listen: 127.0.0.1:0, token_file: "+token+"}\n")).
		line(t, `"msg":"Answering.*"listen":"([^"]+)"`)
	old, fresh := statusOf(), statusOf()
	round := status.Round{Start: time.Now(), Outcome: "degraded", Findings: []finding.Finding{{
		Check: "goodput_below_expected", Severity: finding.Critical, Subject: "rail 1", Evidence: "64 %",
		Fix: []string{"# raise the rate"}}}}
	fresh.Peers = []status.Peer{{Name: peer, Last: &round}}
	past := round
	past.Start = past.Start.Add(-time.Hour)
	old.Peers = []status.Peer{{Name: peer, Last: &past}}
	drained := old
	drained.Maintenance = true
	for _, tt := range []struct {
		status    status.Status
		code      int
		want, not string
	}{
		{fresh, 1, "goodput_below_expected", "RDMA to"},
		{old, 1, "RDMA to " + peer + " failed", "goodput_below_expected"},
		{drained, 0, "a round with " + peer + ": maintenance", "goodput_below_expected"},
	} {
		out, errs, code := doctor1(t, tree(t), "--peer="+peer, "--token-file="+token, "--state.dir="+
			answer(t, asJSON(tt.status)), "--ignore=libibverbs,memlock")
		if code != tt.code || !strings.Contains(out, tt.want) || strings.Contains(out, tt.not) ||
			strings.Contains(out, "Nothing wrong:") || strings.Contains(out, "doctor --peer") {
			t.Errorf("exit %d, want %d and %s: %s%s", code, tt.code, tt.want, out, errs)
		}
	}
}
