package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/railscope/railscope/fleet/gate"
	"github.com/railscope/railscope/internal/netnstest"
	"github.com/railscope/railscope/probe/certtest"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/probetest"
)

// gated is a fleet of railscopes that have each other as peers.
type gated struct {
	env       func(node int) []string
	addresses []string
	security  func(node int) string                 // keys of probe
	in        func(node int, fn func() error) error // calls fn where the node runs
	list      string                                // file with the addresses
	nodes     []*running
}

// start starts the fleet.
func (g *gated) start(t *testing.T) {
	t.Helper()
	g.list = file(t, strings.Join(g.addresses, "\n")+"\n")
	for i, address := range g.addresses {
		conf := file(t, fmt.Sprintf("probe: {name: node-%d, listen: '%s', %s, peers: ['%s'], interval: 1h, "+
			"allow_gate: true, events: false, burst: 20ms, depth: 64, budget: 10%%, latency_samples: 20}\n", i, address,
			g.security(i), strings.Join(slices.Concat(g.addresses[:i], g.addresses[i+1:]), "', '")))
		if err := g.in(i, func() error {
			g.nodes = append(g.nodes, launch(t, g.env(i), "--config.file="+conf, "--no-source.gpu"))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range g.nodes {
		r.line(t, `"msg":"(Answering) probes"`)
	}
}

// gatedFleet starts a fleet with a token on this machine.
func gatedFleet(t *testing.T, env func(node int) []string, nodes int) (g *gated, token string) {
	t.Helper()
	token = filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("a token of more than 16 bytes\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g = &gated{env: env, security: func(int) string { return "token_file: " + token },
		in: func(_ int, fn func() error) error { return fn() }}
	for range nodes {
		g.addresses = append(g.addresses, unused(t))
	}
	g.start(t)
	return g, token
}

// try runs the gate over the fleet, and returns its result.
func (g *gated) try(t *testing.T, args ...string) (r gate.Report, exit int) {
	t.Helper()
	cmd := command(t, nil, append([]string{"fleet", "gate", "--nodes=" + g.list, "--format=json"}, args...)...)
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
	g, token := gatedFleet(t, fabric.Env, nodes)
	r, exit := g.try(t, "--token-file="+token)
	if exit != 1 || r.Verdict != gate.LeaveOut || len(r.LeaveOut) != 1 ||
		r.LeaveOut[0].Node != g.addresses[slow] || r.Pairs != 10 || r.Paths != 20 || len(r.Start) != nodes-1 {
		t.Errorf("exit code %d: %+v", exit, r)
	}
	t.Logf("%s %d visits", r.Headline(), r.Visits)
	if left := fabric.Left(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	_ = g.nodes[slow].Process.Signal(syscall.SIGKILL)
	_ = g.nodes[slow].Wait()
	r, exit = g.try(t, "--token-file="+token)
	if exit != 2 || r.Verdict != gate.Unknown || len(r.Unknown) != 1 || len(r.Start) != nodes-1 {
		t.Errorf("exit code %d: %+v", exit, r)
	}
	t.Logf("%s %d visits", r.Headline(), r.Visits)
}

// TestGateNamespaces: a gate over eight nodes, each in a network namespace of its own behind a bridge, that know each
// other by certificates alone. A node that the bridge has lost is unknown, and a gate without a certificate of their
// authority learns nothing.
func TestGateNamespaces(t *testing.T) {
	const nodes, slow = 8, 5
	fabric := probetest.NewFleet(t, nodes, func(node, rail int) uint64 {
		if node == slow && rail == 0 {
			return 40e6
		}
		return 200e6
	})
	bridge := netnstest.New(t, "link add br0 type bridge\nlink set br0 up\naddress add 10.77.0.254/24 dev br0\n")
	var spaces []netnstest.Namespace
	ca := certtest.NewAuthority(t)
	g := &gated{env: fabric.Env, in: func(node int, fn func() error) error { return spaces[node].In(fn) }}
	for i := range nodes {
		spaces = append(spaces, netnstest.New(t, "link set lo up\n"))
		if err := bridge.IP(fmt.Sprintf("link add v%[1]d type veth peer name eth0 netns %[2]s\nlink set v%[1]d master br0 up\n", i,
			spaces[i].Path())); err != nil {
			t.Fatal(err)
		}
		if err := spaces[i].IP(fmt.Sprintf("address add 10.77.0.%d/24 dev eth0\nlink set eth0 up\n", i+1)); err != nil {
			t.Fatal(err)
		}
		ca.Addresses = append(ca.Addresses, net.IPv4(10, 77, 0, byte(i+1)))
		g.addresses = append(g.addresses, fmt.Sprintf("10.77.0.%d:10092", i+1))
	}
	g.security = func(node int) string { return tlsKeys(ca.Issue(t.TempDir(), fmt.Sprintf("node-%d", node))) }
	g.start(t)
	try := func(security string) (r gate.Report, exit int) {
		t.Helper()
		conf := file(t, fmt.Sprintf("probe: {peers: ['%s'], %s}\n", g.addresses[0], security))
		if err := bridge.In(func() error {
			r, exit = g.try(t, "--config.file="+conf)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s %d visits", r.Headline(), r.Visits)
		return r, exit
	}
	known := g.security(nodes)
	if r, exit := try(known); exit != 1 || len(r.LeaveOut) != 1 || r.LeaveOut[0].Node != "10.77.0.6" || r.Pairs != 28 ||
		r.Paths != 56 || len(r.Start) != nodes-1 {
		t.Errorf("exit code %d: %+v", exit, r)
	}
	if r, exit := try(tlsKeys(certtest.NewAuthority(t).Issue(t.TempDir(), "stranger"))); exit != 2 || r.Visits != 0 ||
		len(r.Unknown) != nodes {
		t.Errorf("a stranger, exit code %d: %+v", exit, r)
	}
	if err := bridge.IP("link set v2 nomaster\n"); err != nil {
		t.Fatal(err)
	}
	if r, _ := try(known); len(r.Unknown) != 1 || r.Unknown[0].Node != "10.77.0.3" || len(r.LeaveOut) != 1 {
		t.Errorf("%+v", r)
	}
}

func tlsKeys(s options.Security) string {
	return fmt.Sprintf("tls: {cert_file: %s, key_file: %s, client_ca_file: %s}", s.CertFile, s.KeyFile, s.ClientCAFile)
}
