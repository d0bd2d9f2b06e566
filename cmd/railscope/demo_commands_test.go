package main

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/railscope/railscope/bench/suite"
)

// TestDemoCommands: bench, doctor and check with the demo's files report the demo's state.
func TestDemoCommands(t *testing.T) {
	t.Parallel()
	first := fourPorts(t)
	host, text, _ := net.SplitHostPort(first)
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	r := follow(t, command(t, nil, "demo", "--web.listen-address="+first, "--log.format=json", "--rate=0.2",
		"--degrade=rail1=0.3"))
	files := r.line(t, `"files":"([^"]+)"`)
	peer := fmt.Sprintf("%s:%d", host, port+3)
	r.line(t, `"msg":"(Probe finished)","node":"demo-1","peer":"`+peer+`","result":"degraded","transport":"simulated"`)
	node := []string{"--path.sysfs=" + files + "/1/sys", "--path.procfs=" + files + "/1/proc"}
	run := func(args ...string) (out string, code int) {
		cmd := command(t, nil, append(args, node...)...)
		b, _ := cmd.Output() // the exit code is checked
		return string(b), cmd.ProcessState.ExitCode()
	}
	var round struct{ Outcome, Transport string }
	out, code := run("bench", peer, "--format=json")
	if err := json.Unmarshal([]byte(out), &round); err != nil || code != 1 || round.Outcome != "degraded" ||
		round.Transport != "simulated" {
		t.Errorf("bench: exit %d, %v: %s", code, err, out)
	}
	if out, _ := run("bench", peer); !strings.HasPrefix(out, "Simulated by railscope demo: ") ||
		!strings.Contains(out, " is degraded: 2 rails carry ") {
		t.Errorf("bench: %s", out)
	}
	out, _ = run("doctor", "--peer="+peer, "--token-file="+files+"/token")
	if !strings.Contains(out, "demo-1: rail 1  goodput_below_expected") || strings.Contains(out, "fallback") {
		t.Errorf("doctor: %s", out)
	}
	r.line(t, `"msg":"(Finding)","node":"demo-1","check":"goodput_below_expected"`)
	out, code = run("check", "--min-severity=warning")
	if !strings.HasPrefix(out, "railscope: critical: ") || !strings.Contains(out, "goodput below expected") ||
		code != 1 {
		t.Errorf("check: exit %d, %s", code, out)
	}
	var measured struct {
		Rows, Sweep []suite.Row
	}
	out, code = run("bench", peer, "--format=json", "--op=read", "--sweep=64KiB..128KiB")
	err = json.Unmarshal([]byte(out), &measured)
	i := slices.IndexFunc(measured.Rows, func(r suite.Row) bool { return r.Name == "all rails, READ" })
	if err != nil || code != 1 || i < 0 || measured.Rows[i].Goodput == nil || len(measured.Sweep) != 2 ||
		len(measured.Sweep[1].Latency) != 1 {
		t.Errorf("bench --op=read --sweep: exit %d, %v: %s", code, err, out)
	}
	if code := r.stop(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit %d", code)
	}
}
