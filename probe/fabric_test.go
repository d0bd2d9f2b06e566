package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/internal/history"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/round"
	"github.com/railscope/railscope/probe/internal/target"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// pairOfNodes is two nodes on a fake fabric: a asks, b answers. Everything else is real: worker processes, control
// channel, TCP over the loopback interface.
type pairOfNodes struct {
	t      *testing.T
	fabric *fakeverbs.Fabric
	a, b   *node.Node
	opts   options.Options
	peer   string // address of b
	stop   context.CancelFunc
	resp   *target.Responder
}

// device returns rail i of a node, with addresses that can be bound on the loopback interface.
func device(node string, i int, change func(*fakeverbs.Device)) fakeverbs.Device {
	d := fakeverbs.Device{Name: fmt.Sprintf("mlx5_%d", i), Netdev: fmt.Sprintf("fabric%d", i),
		GIDs: fakeverbs.RoCE(address4(node, i)), PortRate: "10 Gb/sec (1X QDR)"}
	d.Rate = 200e6
	if change != nil {
		change(&d)
	}
	return d
}

func address4(node string, i int) string {
	last := map[string]int{"a": 1, "b": 2, "c": 3}[node]
	return fmt.Sprintf("127.7.%d.%d", i, last)
}

// newPair starts both nodes with this number of rails each.
func newPair(t *testing.T, rails int, change func(node string, i int, d *fakeverbs.Device)) *pairOfNodes {
	t.Helper()
	p := preparePair(t, rails, change)
	p.serve()
	return p
}

// impatientPair is newPair with one rail and the limits of real nodes, for a worker that hangs.
func impatientPair(t *testing.T) *pairOfNodes {
	t.Helper()
	p := preparePair(t, 1, nil)
	p.a.Patience, p.b.Patience = 0, 0
	p.serve()
	return p
}

// preparePair is newPair without b's responder.
func preparePair(t *testing.T, rails int, change func(node string, i int, d *fakeverbs.Device)) *pairOfNodes {
	t.Helper()
	if !builtWithC {
		t.Skip("built without C: there is no RDMA to be had")
	}
	return makePair(t, rails, change)
}

func makePair(t *testing.T, rails int, change func(node string, i int, d *fakeverbs.Device)) *pairOfNodes {
	t.Helper()
	p := &pairOfNodes{t: t, fabric: fakeverbs.New(t)}
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.opts = options.DefaultOptions()
	p.opts.Security.TokenFile = token
	p.opts.LatencySamples = 20
	p.opts.Depth = 128 // writes in flight last 60 ms per rail: longer than a busy machine delays the polling thread
	p.opts.Timeout = 40 * time.Second
	p.opts.WhenBusy = options.WhenBusySkip
	p.opts.MinOfExpected = 0 // the devices are slower than their rate, and the machine may be busy
	for _, name := range []string{"a", "b"} {
		for i := range rails {
			p.fabric.Add(name, device(name, i, func(d *fakeverbs.Device) {
				if change != nil {
					change(name, i, d)
				}
			}))
		}
	}
	p.a, p.b = p.node("a", rails), p.node("b", rails)
	return p
}

func (p *pairOfNodes) node(name string, rails int) *node.Node {
	p.t.Helper()
	finder := rail.NewFinder(p.fabric.Sysfs(name), rail.Options{}, nil, time.Second)
	n := node.NewNode(node.Options{Version: "1.2.3", Sysfs: p.fabric.Sysfs(name), Rails: finder.Rails,
		Missing: func() []rail.Missing { return finder.Snapshot().Missing },
		Worker:  workerCommand(), Env: append(p.fabric.Env(name), "RAILSCOPE_TEST_WORKER=1"),
		Log: func(line string) { p.logged(name, line) },
		Addresses: func() (map[string][]netip.Prefix, error) {
			all := map[string][]netip.Prefix{}
			for i := range rails {
				all[fmt.Sprintf("fabric%d",
					i)] = []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr(address4(name, i)), 24)}
			}
			return all, nil
		}})
	n.SetName(name)
	n.Emulated = true
	n.Patience = 20 * time.Second // the processes of tests start slowly beside others
	if raceEnabled {              // handshakes take ten times as long
		n.StrangersWork = 0.5
	}
	p.t.Cleanup(n.Close)
	return n
}

// otherWorker is the variable with the command of a worker of another architecture and its emulator
// (scripts/arm64.sh).
const otherWorker = "RAILSCOPE_TEST_WORKER_COMMAND"

// workerCommand returns this binary, or the command in otherWorker.
func workerCommand() []string {
	if other := strings.Fields(os.Getenv(otherWorker)); len(other) > 0 {
		return other
	}
	return os.Args[:1]
}

// logged receives stderr of the workers, which are this binary, including the race detector's reports.
func (p *pairOfNodes) logged(node, line string) {
	if strings.Contains(line, "DATA RACE") {
		p.t.Errorf("worker of %s: %s", node, line)
		return
	}
	p.t.Logf("worker of %s: %.200s", node, line)
}

// serve starts b's responder, on its previous address if that is free.
func (p *pairOfNodes) serve() {
	p.t.Helper()
	where := p.peer
	if where == "" {
		where = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", where)
	if errors.Is(err, unix.EADDRINUSE) {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		p.t.Fatal(err)
	}
	p.serveOn(l)
}

// serveOn starts b's responder on a listener.
func (p *pairOfNodes) serveOn(l net.Listener) {
	p.t.Helper()
	p.peer = l.Addr().String()
	resp, err := target.NewResponder(p.b, p.opts)
	if err != nil {
		p.t.Fatal(err)
	}
	p.resp, p.stop = resp, serve(p.t, resp, l, target.RequestTime)
	p.t.Cleanup(p.stopServing)
}

// stopServing ends b's responder.
func (p *pairOfNodes) stopServing() {
	if p.stop == nil {
		return
	}
	start := time.Now()
	p.stop()
	if took := time.Since(start); took > 20*time.Second {
		p.t.Errorf("the responder ends after %v", took)
	}
	p.stop = nil
}

// round runs one full round from a to b, and checks that nothing is left behind.
func (p *pairOfNodes) round() result.Result {
	p.t.Helper()
	res := Bench(context.Background(), p.a, p.opts, p.peer, func(result.Progress) {})
	p.clean()
	return res
}

// clean checks that a round has left no queue pair, memory, lease or taken slot.
func (p *pairOfNodes) clean() {
	p.t.Helper()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		left := p.fabric.Left()
		if p.resp.Leases() > 0 {
			left = append(left, "a lease")
		}
		for _, n := range []*node.Node{p.a, p.b} {
			if holder := n.Slot.Holder(); holder != "" {
				left = append(left, n.Name()+" is "+holder)
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			p.t.Errorf("left after the round: %q", left)
			return
		}
	}
}

// scheduled runs one full round from a node to b as the schedule does, which does not wait for its turn.
func (p *pairOfNodes) scheduled(from *node.Node) result.Result {
	r := round.Round{Pairing: round.Pairing{Node: from}, Plan: round.Plan{Options: p.opts, Full: true,
		Runs: history.SingleRuns}, Peer: p.peer,
		Progress: func(result.Progress) {}}
	return r.Run(context.Background())
}

// ask runs one full round from a to b.
func (p *pairOfNodes) ask() result.Result {
	return Bench(context.Background(), p.a, p.opts, p.peer, func(result.Progress) {})
}
