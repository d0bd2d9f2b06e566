package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/railscope/railscope/fleet/gate"
	"github.com/railscope/railscope/probe/probetest"
)

// gatedFleet starts railscopes that have each other as peers, and returns the file that lists them.
func gatedFleet(t *testing.T, env func(node int) []string, nodes int) (list, token string, fleet []*running) {
	t.Helper()
	dir := t.TempDir()
	list, token = filepath.Join(dir, "nodes"), filepath.Join(dir, "token")
	var addresses []string
	for range nodes {
		addresses = append(addresses, unused(t))
	}
	for name, text := range map[string]string{list: strings.Join(addresses, "\n") + "\n",
		token: "a token of more than 16 bytes\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i, address := range addresses {
		conf := file(t, fmt.Sprintf("probe: {name: node-%d, listen: '%s', token_file: %s, peers: ['%s'], interval: 1h, "+
			"allow_gate: true, events: false, burst: 20ms, depth: 64, budget: 10%%, latency_samples: 20}\n", i, address, token,
			strings.Join(slices.Concat(addresses[:i], addresses[i+1:]), "', '")))
		fleet = append(fleet, launch(t, env(i), "--config.file="+conf, "--no-source.gpu"))
	}
	for _, r := range fleet {
		r.line(t, `"msg":"(Answering) probes"`)
	}
	return list, token, fleet
}

// addressesIn returns the lines of a file.
func addressesIn(t *testing.T, list string) []string {
	t.Helper()
	text, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(text))
}

// gateNodes runs the gate over nodes, and returns its result.
func gateNodes(t *testing.T, list, token string, args ...string) (r gate.Report, exit int) {
	t.Helper()
	cmd := command(t, nil, append([]string{"fleet", "gate", "--nodes=" + list, "--token-file=" + token, "--format=json"},
		args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if jsonErr := json.Unmarshal(out.Bytes(), &r); jsonErr != nil {
		t.Fatalf("%v, %v: %s%s", err, jsonErr, &out, &errs)
	}
	return r, cmd.ProcessState.ExitCode()
}

// TestGate: a gate over real processes names the rail that is slow, and passes without it. A node that has died is
// unknown.
func TestGate(t *testing.T) {
	const nodes, slow = 5, 3
	fabric := probetest.NewFleet(t, nodes, func(node, rail int) uint64 {
		if node == slow && rail == 1 {
			return 40e6
		}
		return 200e6
	})
	list, token, fleet := gatedFleet(t, fabric.Env, nodes)
	r, exit := gateNodes(t, list, token)
	if exit != 1 || r.Verdict != gate.LeaveOut || len(r.LeaveOut) != 1 ||
		r.LeaveOut[0].Node != addressesIn(t, list)[slow] || r.Pairs != 10 || r.Paths != 20 || len(r.Start) != nodes-1 {
		t.Errorf("exit code %d: %+v", exit, r)
	}
	t.Logf("%s %d visits", r.Headline(), r.Visits)
	if left := fabric.Left(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	_ = fleet[slow].Process.Signal(syscall.SIGKILL)
	_ = fleet[slow].Wait()
	r, exit = gateNodes(t, list, token)
	if exit != 2 || r.Verdict != gate.Unknown || len(r.Unknown) != 1 || len(r.Start) != nodes-1 {
		t.Errorf("exit code %d: %+v", exit, r)
	}
	t.Logf("%s %d visits", r.Headline(), r.Visits)
}
