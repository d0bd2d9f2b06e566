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
	exporterpage "github.com/railscope/railscope/exporter/page"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe"
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
		out, errs, code := doctor1(t, t.TempDir(), tc.args...)
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

// found runs doctor and returns what it found of rails and of the peer, as
// "check subject"; the exit code must fit.
func found(t *testing.T, sys string, args ...string) (list []string, nodes int) {
	t.Helper()
	out, errs, code := doctor1(t, sys, append(args, "--format=json")...)
	var r struct {
		Nodes    []struct{ Node string }
		Findings []struct{ Check, Subject, Severity, Read string }
		Faults   int
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil || errs != "" || code != min(r.Faults, 1) {
		t.Fatalf("exit %d, %q, %q: %v", code, out, errs, err)
	}
	for _, f := range r.Findings {
		if strings.HasPrefix(f.Subject, "rail ") || f.Check == "peer" || f.Check == "no_rails" {
			list = append(list, f.Check+" "+f.Subject+" "+f.Read)
		}
	}
	return list, len(r.Nodes)
}

// TestDoctor runs it over a made-up machine, whole and broken, and with a peer.
func TestDoctor(t *testing.T) {
	sys := tree(t)
	if list, nodes := found(t, sys); len(list) > 0 || nodes != 1 {
		t.Errorf("a whole machine: %q", list)
	}
	state := filepath.Join(sys, "class/infiniband/mlx5_1/ports/1/state")
	if err := os.WriteFile(state, []byte("1: DOWN\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if list, _ := found(t, sys); len(list) != 1 || !strings.HasPrefix(list[0], "port_down rail 1 (mlx5_1)") {
		t.Errorf("a port that is down: %q", list)
	}
	named := "--config.file=" + file(t, "rails: {names: {east: mlx5_1/1}}\n")
	if list, _ := found(t, sys, named); len(list) != 1 || !strings.HasPrefix(list[0], "port_down rail east (mlx5_1)") {
		t.Errorf("a port that has a name: %q", list)
	}
	if list, _ := found(t, t.TempDir()); len(list) != 1 || !strings.HasPrefix(list[0], "no_rails") {
		t.Errorf("an empty machine: %q", list)
	}
}

// TestDoctorPeer: a peer is asked over the probe's control channel, and one that
// cannot be asked is a fault.
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
	if !strings.Contains(out, "2 rails on ") || !strings.Contains(out, "peer_rails") {
		t.Errorf("a rail less: %s", out)
	}
	named, _, _ := doctor1(t, sys, "--peer="+peer,
		"--config.file="+file(t, "probe: {name: spark-01, peers: [nobody], token_file: "+token+"}\n"))
	same, _, _ := doctor1(t, sys, "--peer="+peer, "--token-file="+token, "--node.name=spark-02")
	if !strings.Contains(named, "WARNING  spark-01: spark-01 and spark-02  peer_rails") || !strings.Contains(same,
		"spark-02 and spark-02 at "+peer+"  peer_rails") {
		t.Errorf("nodes are not called what they call themselves: %s%s", named, same)
	}
	config := "--config.file=" + file(t, "probe: {peers: [nobody], token_file: "+token+"}\n")
	if list, nodes := found(t, sys, "--peer="+peer, config); len(list) > 0 || nodes != 2 {
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

// TestDoctorStopped: who stops it gets no report of half of the facts.
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
	conn, err := l.Accept() // it is waiting for an answer now
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

// TestPeerFix: what is to be done depends on why the peer could not be asked.
func TestPeerFix(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("%w: it is version 0.0.9", probe.ErrNoFacts), "same version"},
		{fmt.Errorf("%w: the peer speaks version 2, this node 3", facts.ErrVersion), "same version"},
		{&probe.Failure{Reason: "unauthorized"}, "--token-file=FILE"},
		{&probe.Failure{Reason: "tls"}, "probe.tls"},
		{&probe.Failure{Reason: "protocol"}, "not to that of its metrics"},
		{&probe.Failure{Reason: "peer_unreachable"}, "this port open"},
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

// TestDoctorColours: colours are for terminals, and for those who want them.
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
		cmd := command(t, nil, "doctor", "--path.sysfs="+t.TempDir(), "--path.procfs="+t.TempDir(),
			"--path.rootfs="+t.TempDir())
		cmd.Env = append(append(env, "RAILSCOPE_TEST_MAIN=1"), tc.env...)
		cmd.Stdout = tty
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		tty.Close()
		read := make(chan string, 1)
		go func() {
			text, _ := io.ReadAll(screen) // EIO when the last one has closed the other end
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
	if tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Skipf("this machine has no pseudo terminals: %v", err)
	}
	t.Cleanup(func() { tty.Close() })
	return screen, tty
}

// TestComplaints: the page lists what could not be read, which is not known to be healthy.
func TestComplaints(t *testing.T) {
	sys := tree(t)
	ask := pageFindings(gatherer(&common{sysfs: sys, procfs: t.TempDir(), rootfs: t.TempDir()},
		rail.NewFinder(sys, rail.Options{}, nil, doctorBudget)))
	unread := func() (list []exporterpage.Finding) {
		all, err := ask(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range all {
			if f.Subject == "not read" {
				list = append(list, f)
			}
		}
		return list
	}
	if got := unread(); got != nil {
		t.Errorf("of a node that can be read: %+v", got)
	}
	for i := range 2 {
		state := filepath.Join(sys, fmt.Sprintf("class/infiniband/mlx5_%d/ports/1/state", i))
		if err := os.Remove(state); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(state, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if got := unread(); len(got) != 1 || got[0].Fault || !strings.Contains(got[0].Read,
		"mlx5_0/ports/1/state") || !strings.Contains(got[0].Read, "mlx5_1/ports/1/state") {
		t.Errorf("of states that cannot be read: %+v", got)
	}
	if got := unjudged([]string{"a", "b", "c", "d", "e"}); got[0].Read != "a; b; c; and 2 more" {
		t.Errorf("%+v", got)
	}
}
