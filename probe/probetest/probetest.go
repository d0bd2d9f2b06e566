// Package probetest has a pair of nodes on a fake fabric for tests of packages that use the probe: workers, control
// channel and TCP are real.
package probetest

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
)

// WorkerVariable is set in the environment of worker processes, which are the test binary: its TestMain calls
// [probe.WorkerMain] then.
const WorkerVariable = "RAILSCOPE_TEST_WORKER"

// Rails is how many rails each node has: mlx5_0 and mlx5_1.
const Rails = 2

// Pair are the nodes a, which asks, and b, which answers.
type Pair struct {
	Address string // of b

	tb     testing.TB
	fabric *fakeverbs.Fabric
	b      *probe.Node
	stop   func() // of b

	planting sync.WaitGroup
	end      context.Context // of the test
}

// New starts b, with these options; without C the test is skipped. The devices carry 1.6 of 2.5 Gb/s.
func New(tb testing.TB, opts probe.Options) *Pair {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &Pair{tb: tb, fabric: fakeverbs.New(tb), end: ctx}
	for _, node := range []string{"a", "b"} {
		for i := range Rails {
			d := fakeverbs.Device{Name: device(i), Netdev: netdev(i), GIDs: fakeverbs.RoCE(address(node, i)),
				PortRate: "2.5 Gb/sec (1X SDR)", Firmware: "28.39.1002"}
			d.Rate = 200e6
			p.fabric.Add(node, d)
		}
	}
	o := probe.NodeOptions{Version: "unknown", Name: "b"}
	p.Options("b", &o)
	finder := rail.NewFinder(o.Sysfs, rail.Options{}, nil, time.Second)
	o.Rails, o.Missing = finder.Rails, func() []rail.Missing { return finder.Snapshot().Missing }
	p.b = probe.NewNode(o)
	answers := make(chan string, 1)
	ignore := func(string, error) {}
	service := probe.NewService(p.b, func(probe.Result) {}, probe.Events{
		Answering: func(a net.Addr) { answers <- a.String() }, Stopped: func(error) {}, Peers: func([]string) {},
		Resolved: func(string, int, error) {}, SecretFile: ignore, WeakToken: func(string, int) {}})
	opts.Name, opts.Listen = "b", "127.0.0.1:0"
	change, err := service.Prepare(&opts, false)
	if err != nil {
		tb.Fatal(err)
	}
	change.Commit(ctx)
	p.Address, p.stop = <-answers, service.Close
	tb.Cleanup(func() {
		cancel()
		p.planting.Wait()
		p.stop()
	})
	return p
}

func device(i int) string { return fmt.Sprintf("mlx5_%d", i) }
func netdev(i int) string { return fmt.Sprintf("fabric%d", i) }

// address is that of rail i of a node. It can be bound on the loopback interface.
func address(node string, i int) string { return fmt.Sprintf("127.7.%d.%d", i, node[0]-'a'+1) }

// Sysfs is that of a node.
func (p *Pair) Sysfs(node string) string { return p.fabric.Sysfs(node) }

// Options sets those of a node that make it one of the fabric.
func (p *Pair) Options(node string, o *probe.NodeOptions) {
	o.Sysfs, o.Class = p.fabric.Sysfs(node), nil
	o.Worker, o.Env = os.Args[:1], append(p.fabric.Env(node), WorkerVariable+"=1")
	o.Log = func(line string) { p.tb.Logf("worker of %s: %.200s", node, line) }
	o.Addresses = func() (map[string][]netip.Prefix, error) {
		all := map[string][]netip.Prefix{}
		for i := range Rails {
			all[netdev(i)] = []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr(address(node, i)), 24)}
		}
		return all, nil
	}
}

// Plant makes the fault of words: "NODE RAIL FAULT VALUE", or "NODE FAULT"; separated by "; ".
func (p *Pair) Plant(faults string) {
	p.tb.Helper()
	for words := range strings.SplitSeq(faults, "; ") {
		f := strings.Fields(words)
		if len(f) < 2 {
			continue // nothing
		}
		node, i, what := f[0], 0, f[1:]
		if n, err := strconv.Atoi(f[1]); err == nil {
			i, what = n, f[2:]
		}
		if !p.plant(node, i, what[0], append(what[1:], "")[0]) {
			p.tb.Fatalf("unknown fault %q", words)
		}
	}
}

func (p *Pair) plant(node string, i int, what, value string) bool {
	number, _ := strconv.ParseFloat(value, 64)
	set := func(change func(*fakeverbs.Knobs)) { p.fabric.Set(node, device(i), change) }
	switch what {
	case "down":
		set(func(k *fakeverbs.Knobs) { k.Down = true })
	case "blocked": // packets are lost
		set(func(k *fakeverbs.Knobs) { k.Blocked = true })
	case "drops": // packets of more bytes, as a switch with a smaller MTU does
		set(func(k *fakeverbs.Knobs) { k.DropLarger = uint64(number) })
	case "mtu": // enum ibv_mtu: 3 is 1024
		set(func(k *fakeverbs.Knobs) { k.OddMTU = uint64(number) })
	case "latency": // ms
		set(func(k *fakeverbs.Knobs) { k.Latency = time.Duration(number * float64(time.Millisecond)) })
	case "rate": // bytes per second
		set(func(k *fakeverbs.Knobs) { k.Rate = uint64(number) })
	case "wire": // that all with this number share
		set(func(k *fakeverbs.Knobs) { k.Group = int(number) })
	case "corrupts": // a write of every round
		p.repeat(50*time.Millisecond, func() { set(func(k *fakeverbs.Knobs) { k.Corrupt = 4 }) })
	case "loses": // this part of its packets
		p.repeat(2*time.Millisecond, func() { p.count(node, i, number) })
	case "foreign": // bytes per second that others send, and take from it
		set(func(k *fakeverbs.Knobs) { k.Rate -= uint64(number) })
		p.count(node, i, 0) // the driver counts retransmissions, so that others' bytes can be told apart
		const every = 5 * time.Millisecond
		p.repeat(every, func() { p.fabric.Foreign(node, device(i), uint64(number*every.Seconds())) })
	case "local": // only link-local GIDs are left
		p.fabric.SetGIDs(node, device(i), fakeverbs.RoCE(address(node, i))[:2])
	case "bonded": // the GIDs are those of a bond, which does not carry RDMA
		gids := fakeverbs.RoCE(address(node, i))
		for g := range gids {
			gids[g].Netdev = "bond0"
		}
		p.fabric.SetGIDs(node, device(i), gids)
		set(func(k *fakeverbs.Knobs) { k.RTRErrno = uint64(unix.EINVAL) })
	case "deleted":
		if err := os.Remove(filepath.Join(p.Sysfs(node), "class/infiniband", device(i))); err != nil {
			p.tb.Fatal(err)
		}
	case "killed": // its worker, whenever there is one
		p.repeat(20*time.Millisecond, func() { p.kill(node) })
	case "stopped":
		p.stop()
	default:
		return false
	}
	return true
}

// repeat does something until the test ends.
func (p *Pair) repeat(every time.Duration, do func()) {
	p.planting.Go(func() {
		for p.end.Err() == nil {
			do()
			time.Sleep(every)
		}
	})
}

// count writes the retransmissions of a rail: this part of the packets that it has sent so far.
func (p *Pair) count(node string, i int, part float64) {
	port := filepath.Join(p.Sysfs(node), "class/infiniband", device(i), "ports/1")
	text, _ := os.ReadFile(filepath.Join(port, "counters/port_xmit_packets")) // until it exists, none
	sent, _ := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
	lost := fmt.Appendf(nil, "%d\n", int(sent*part))
	path := filepath.Join(port, "hw_counters/packet_seq_err")
	_ = os.MkdirAll(filepath.Dir(path), 0o755)
	_ = os.WriteFile(path, lost, 0o644) // after the test, there is no directory
}

// kill ends the worker of a node, if it runs. The nodes of one fabric differ in the environment of their workers.
func (p *Pair) kill(node string) {
	env := p.fabric.Env(node)
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, task := range tasks {
		list, _ := os.ReadFile(task)
		for pid := range strings.FieldsSeq(string(list)) {
			vars, _ := os.ReadFile("/proc/" + pid + "/environ") // of one that has ended: nothing
			ours := !slices.ContainsFunc(env, func(one string) bool { return !strings.Contains(string(vars), one+"\x00") })
			if n, err := strconv.Atoi(pid); err == nil && ours && len(vars) > 0 {
				_ = unix.Kill(n, unix.SIGKILL) // it may have ended
			}
		}
	}
}
