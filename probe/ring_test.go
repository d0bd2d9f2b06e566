package probe

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/internal/history"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/round"
	"github.com/railscope/railscope/probe/internal/target"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// deadPeer is a peer of every node in a ring. Nobody listens there.
const deadPeer = "127.0.0.1:2"

// ringOfThree serves nodes a, b and c, which have each other and a dead node as peers, and returns their addresses.
func ringOfThree(t *testing.T, p *pairOfNodes, allow func(node string) bool) (addresses []string) {
	t.Helper()
	addresses, _ = ringOf(t, p, allow)
	return addresses
}

func ringOf(t *testing.T, p *pairOfNodes, allow func(node string) bool) (addresses []string, nodes []*node.Node) {
	t.Helper()
	for i := range 2 {
		p.fabric.Add("c", device("c", i, nil))
	}
	nodes = []*node.Node{p.a, p.b, p.node("c", 2)}
	var listeners []net.Listener
	for range nodes {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners, addresses = append(listeners, l), append(addresses, l.Addr().String())
	}
	for i, n := range nodes {
		opts := p.opts
		opts.Peers, opts.AllowRing = append(slices.Clone(addresses), deadPeer), allow(n.Name())
		opts.AllowGate = opts.AllowRing
		n.SetBudget(opts.Budget)
		r, err := target.NewResponder(n, opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(serve(t, r, listeners[i], target.RequestTime))
	}
	return addresses, nodes
}

func everybody(string) bool { return true }

// TestRingOfThree: each node is measured to its successor alone, then all at once, and nothing is left behind.
func TestRingOfThree(t *testing.T) { // runs alone: three nodes poll at once
	p := preparePair(t, 2, func(node string, i int, d *fakeverbs.Device) {
		if node == "b" {
			d.Rate = 100e6 // half of the other rates
		}
	})
	nodes := ringOfThree(t, p, everybody)
	var order []string
	res, err := Ring(t.Context(), p.opts.Security, nodes, func(node string) { order = append(order, node) })
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range res.Members {
		if m.Failure != nil || m.Alone == nil || m.Together == nil || m.TCP == nil || m.Rails != 2 || m.AllRails != 2 ||
			m.Node != nodes[i] {
			t.Fatalf("%+v: %v", m, m.Failure)
		}
		t.Logf("%s: alone %.1f MB/s, in the ring %.1f, TCP %.1f", m.Node, *m.Alone/1e6, *m.Together/1e6, *m.TCP/1e6)
		if *m.Together > 1.1**m.Alone {
			t.Errorf("%s carries more in the ring than alone", m.Node)
		}
	}
	if half := *res.Members[1].Alone / *res.Members[0].Alone; half < 0.4 || half > 0.6 {
		t.Errorf("b carries %.2f of a", half)
	}
	if want := append(slices.Clone(nodes), ""); !slices.Equal(order, want) {
		t.Errorf("%q", order)
	}
	measured, predicted, tcp := res.Seconds(1 << 30)
	if each := 4.0 / 3 * (1 << 30); measured == nil || predicted == nil || tcp == nil ||
		*predicted != each / *res.Members[1].Alone || *measured < *predicted*0.9 {
		t.Errorf("measured %v, predicted %v, TCP %v", measured, predicted, tcp)
	}
	if left := p.fabric.Left(); len(left) > 0 {
		time.Sleep(time.Second) // the last member releases its lease after its answer
		left = p.fabric.Left()
		if len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	}
}

// TestRingRefused: a node takes part only if it allows rings, towards one of its own peers, and in one ring at a
// time.
func TestRingRefused(t *testing.T) {
	p := preparePair(t, 2, nil)
	nodes := ringOfThree(t, p, func(node string) bool { return node != "b" })
	for _, tc := range []struct {
		why    string
		nodes  []string
		member int
		detail string
	}{
		{"b does not allow it", nodes, 1, "probe.allow_ring"},
		{"a stranger", []string{nodes[0], "127.0.0.1:1"}, 0, "not a peer"},
	} {
		res, err := Ring(t.Context(), p.opts.Security, tc.nodes, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		m := res.Members[tc.member]
		if m.Failure == nil || m.Failure.Reason != failure.Unauthorized ||
			!strings.Contains(m.Failure.Detail, tc.detail) ||
			m.Together != nil {
			t.Errorf("%s: %+v, %v", tc.why, m, m.Failure)
		}
	}
	for _, bad := range [][]string{nil, nodes[:1], {nodes[0], nodes[1], nodes[0]}} {
		if _, err := Ring(t.Context(), p.opts.Security, bad, func(string) {}); err == nil {
			t.Errorf("a ring of %q", bad)
		}
	}
}

// TestBudgetOfLease: the leases of a ring member and of a benchmark with all tables of the tutorials fit into the
// default budget, from 25 Gb/s on.
func TestBudgetOfLease(t *testing.T) {
	limit := node.NewBudget(options.DefaultOptions().Budget.PerHour(0)).MaxLease()
	var sizes []int
	for size := 64 << 10; size <= 64<<20; size *= 2 {
		sizes = append(sizes, size)
	}
	suite := []result.Extra{{Kind: result.Reads}, {Kind: result.Messages, Values: []int{4096}}, {Kind: result.Sweep,
		Values: sizes}, {Kind: result.GPU},
		{Kind: result.KVCache, Values: []int{16 << 10, 18 << 10, 32 << 10}},
		{Kind: result.TCPTime, Values: []int{8, 4096}},
		{Kind: result.Bond},
		{Kind: result.OneTCP}}
	for _, tc := range []struct {
		rails int
		rate  float64 // bytes per second of each rail
	}{{1, 3.125e9}, {2, 6.25e9}, {2, 12.5e9}, {2, 25e9}, {8, 50e9}, {8, 100e9}, {16, 50e9}} {
		var paths []*round.Flow
		for i := range tc.rails {
			p := &round.Flow{Peer: &protocol.HelloRail{Active: true, Capacity: tc.rate},
				Result: &result.RailResult{Capacity: &tc.rate}}
			p.Local.Name, p.Local.Capacity, p.Local.Status.Limits.Active = strconv.Itoa(i), tc.rate, true
			paths = append(paths, p)
		}
		bonds := []round.BondRoute{{Capacity: 2 * tc.rate}}
		for what, p := range map[string]round.Plan{
			"a member of a ring, alone": {Full: true, Ring: new(round.RingMember), Runs: 1},
			"a member of a ring":        {Ring: new(round.RingMember), Runs: 1},
			"a benchmark":               {Full: true, Interactive: true, Runs: history.SingleRuns, ExtrasNow: suite},
		} {
			p.Options, p.Rails, p.Rate = options.DefaultOptions(), tc.rails, float64(tc.rails)*tc.rate
			p.QueuePairs = 1
			if p.Ring != nil {
				p.Burst = result.RingWindow
			}
			need := options.RailTime(p.Bytes(paths, paths)+p.ExtraBytes(paths, paths, bonds), p.Rate)
			t.Logf("%d rails of %.0f Gb/s, %s: %v", tc.rails, tc.rate/125e6, what, need)
			if need > limit {
				t.Errorf("%d rails of %.0f Gb/s, %s: %v of %v", tc.rails, tc.rate/125e6, what, need, limit)
			}
		}
	}
}

// TestRingMemberFails: a member that cannot reach its successor reports it and is free for the next ring at once. A
// member whose rails carry a job takes no part. If one rail of a member is broken, the others carry data.
func TestRingMemberFails(t *testing.T) {
	p := preparePair(t, 2, func(node string, i int, d *fakeverbs.Device) {
		if node == "a" && i == 1 {
			d.GIDs = nil
		}
	})
	nodes := ringOfThree(t, p, everybody)
	p.a.UseTraffic(func(rail.Rail) (rail.MeanTraffic, bool) {
		return rail.MeanTraffic{Over: time.Second}, true
	})
	var busy atomic.Bool
	p.b.UseTraffic(func(rail.Rail) (m rail.MeanTraffic, ok bool) {
		m.Over = time.Second
		if busy.Load() {
			m.Rate[rail.Transmit] = 0.5 * 1.25e9
		}
		return m, true
	})
	ring := func(nodes ...string) result.RingResult {
		res, err := Ring(t.Context(), p.opts.Security, nodes, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	busy.Store(true)
	if f := ring(nodes...).Members[1].Failure; f == nil || f.Reason != failure.Busy {
		t.Errorf("b is busy: %v", f)
	}
	busy.Store(false)
	for range 2 {
		if f := ring(nodes[2], deadPeer).Members[0].Failure; f == nil || f.Reason != failure.PeerUnreachable {
			t.Errorf("the successor of c is dead: %v", f)
		}
	}
	a := ring(nodes...).Members[0]
	if a.Failure != nil || a.Rails != 1 || a.AllRails != 2 || a.RailFailure == nil || a.Alone == nil {
		t.Errorf("a has one rail: %+v, %v", a, a.Failure)
	}
}

// TestRingNeverFallsBack: if no start request follows, or RDMA fails, nothing is sent over TCP.
func TestRingNeverFallsBack(t *testing.T) {
	err := failure.New(failure.StageConnect, failure.Timeout, "no answer")
	r := round.Round{}
	if !round.FallsBack(t.Context(), r.Plan, err) {
		t.Error("a round does not fall back")
	}
	r.Plan.Ring = new(round.RingMember)
	if round.FallsBack(t.Context(), r.Plan, err) {
		t.Error("a ring falls back")
	}
}

// TestDisturbedAlone: a ring is repeated only if processors were busy and nothing else failed.
func TestDisturbedAlone(t *testing.T) {
	members := func(reasons ...failure.Reason) (list []result.RingMember) {
		for _, r := range reasons {
			m := result.RingMember{}
			if r != "" {
				m.Failure = failure.New(failure.StageStriped, r, "")
			}
			list = append(list, m)
		}
		return list
	}
	for _, tc := range []struct {
		members []result.RingMember
		want    bool
	}{
		{members("", ""), false},
		{members("", failure.Disturbed), true},
		{members(failure.Disturbed, failure.Disturbed), true},
		{members(failure.Disturbed, failure.Timeout), false},
	} {
		if got := disturbedAlone(tc.members); got != tc.want {
			t.Errorf("%v: %v", tc.members, got)
		}
	}
}

// TestRingSeconds: the slowest node counts, and without its figure nothing is known.
func TestRingSeconds(t *testing.T) {
	r := result.RingResult{Members: []result.RingMember{{Alone: new(100.0), Together: new(80.0)},
		{Alone: new(50.0), Together: new(40.0)}}}
	measured, predicted, tcp := r.Seconds(1000)
	if *measured != 25 || *predicted != 20 || tcp != nil {
		t.Errorf("%v, %v, %v", *measured, *predicted, tcp)
	}
	if m, _, _ := (result.RingResult{}).Seconds(1); m != nil {
		t.Error("a ring of nobody")
	}
}
