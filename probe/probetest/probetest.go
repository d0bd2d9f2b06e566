// Package probetest provides a pair of nodes on a fake fabric for tests of packages that use the probe. Workers,
// control channel and TCP are real.
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
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// WorkerVariable is set in the environment of worker processes, which are the test binary: its TestMain must call
// [probe.WorkerMain] if it is set.
const WorkerVariable = "RAILSCOPE_TEST_WORKER"

// Rails is the number of rails of each node: mlx5_0 and mlx5_1.
const Rails = 2

// Pair is the asking node a and the answering node b.
type Pair struct {
	Address string // address of b

	tb     testing.TB
	fabric *fakeverbs.Fabric
	b      *node.Node
	stop   func() // stops b

	planting sync.WaitGroup
	end      context.Context // context of the test
}

// New starts b with these options. Without C the test is skipped. The devices carry 1.6 of 2.5 Gb/s.
func New(tb testing.TB, opts options.Options) *Pair {
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
	o := node.Options{Version: "unknown", Name: "b"}
	p.Options("b", &o)
	finder := rail.NewFinder(o.Sysfs, rail.Options{}, nil, time.Second)
	o.Rails, o.Missing = finder.Rails, func() []rail.Missing { return finder.Snapshot().Missing }
	p.b = node.NewNode(o)
	answers := make(chan string, 1)
	ignore := func(string, error) {}
	service := probe.NewService(p.b, func(result.Result) {}, options.Events{
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

// address returns the address of rail i of a node, which can be bound on the loopback interface.
func address(node string, i int) string { return fmt.Sprintf("127.7.%d.%d", i, node[0]-'a'+1) }

// Sysfs returns the sysfs of a node.
func (p *Pair) Sysfs(node string) string { return p.fabric.Sysfs(node) }

// Options sets the options that make a node one of the fabric.
func (p *Pair) Options(node string, o *node.Options) {
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

// Plant plants faults: "NODE RAIL FAULT VALUE" or "NODE FAULT", separated by "; ".
func (p *Pair) Plant(faults string) {
	p.tb.Helper()
	for words := range strings.SplitSeq(faults, "; ") {
		f := strings.Fields(words)
		if len(f) < 2 {
			continue // no fault
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
	case "drops": // larger packets are lost, as on a switch with a smaller MTU
		set(func(k *fakeverbs.Knobs) { k.DropLarger = uint64(number) })
	case "mtu": // enum ibv_mtu: 3 is 1024
		set(func(k *fakeverbs.Knobs) { k.OddMTU = uint64(number) })
	case "latency": // ms
		set(func(k *fakeverbs.Knobs) { k.Latency = time.Duration(number * float64(time.Millisecond)) })
	case "rate": // bytes per second
		set(func(k *fakeverbs.Knobs) { k.Rate = uint64(number) })
	case "wire": // shared by all rails with this number
		set(func(k *fakeverbs.Knobs) { k.Group = int(number) })
	case "corrupts": // one write of every round
		p.repeat(50*time.Millisecond, func() { set(func(k *fakeverbs.Knobs) { k.Corrupt = 4 }) })
	case "loses": // fraction of the rail's packets
		p.repeat(2*time.Millisecond, func() { p.count(node, i, number) })
	case "foreign": // bytes per second that others send over the rail, at its cost
		set(func(k *fakeverbs.Knobs) { k.Rate -= uint64(number) })
		p.count(node, i, 0) // the driver counts retransmissions, which separates them from bytes of others
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
	case "killed": // the worker is killed whenever there is one
		p.repeat(20*time.Millisecond, func() { p.kill(node) })
	case "stopped":
		p.stop()
	default:
		return false
	}
	return true
}

// repeat calls do until the test ends.
func (p *Pair) repeat(every time.Duration, do func()) {
	p.planting.Go(func() {
		for p.end.Err() == nil {
			do()
			time.Sleep(every)
		}
	})
}

// count sets the retransmissions of a rail to a fraction of the packets sent so far.
func (p *Pair) count(node string, i int, part float64) {
	port := filepath.Join(p.Sysfs(node), "class/infiniband", device(i), "ports/1")
	text, _ := os.ReadFile(filepath.Join(port, "counters/port_xmit_packets")) // 0 until the file exists
	sent, _ := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
	lost := fmt.Appendf(nil, "%d\n", int(sent*part))
	path := filepath.Join(port, "hw_counters/packet_seq_err")
	_ = os.MkdirAll(filepath.Dir(path), 0o755)
	_ = os.WriteFile(path, lost, 0o644) // the directory is gone after the test
}

// kill kills the worker of a node, if it runs. The nodes of one fabric differ in the environment of their workers.
func (p *Pair) kill(node string) {
	env := p.fabric.Env(node)
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, task := range tasks {
		list, _ := os.ReadFile(task)
		for pid := range strings.FieldsSeq(string(list)) {
			vars, _ := os.ReadFile("/proc/" + pid + "/environ") // empty for an exited process
			ours := !slices.ContainsFunc(env,
				func(one string) bool { return !strings.Contains(string(vars), one+"\x00") })
			if n, err := strconv.Atoi(pid); err == nil && ours && len(vars) > 0 {
				_ = unix.Kill(n, unix.SIGKILL) // it may have ended
			}
		}
	}
}
