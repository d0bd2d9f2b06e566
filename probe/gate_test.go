package probe

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// gateOf returns the nodes of a gate over nodes a, b and c, which are reserved until the test ends.
func gateOf(t *testing.T, security options.Security, addresses []string) (nodes []*GateNode) {
	t.Helper()
	for _, address := range addresses {
		n, err := NewGateNode(address, "GATE", security)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(n.Leave)
		nodes = append(nodes, n)
	}
	return nodes
}

// TestGateVisit: a node tries its rails with a peer, with and without bursts. The bursts are charged to the budget of
// gates, and those of the schedule wait. Nothing is left behind.
func TestGateVisit(t *testing.T) {
	p := preparePair(t, 2, func(node string, i int, d *fakeverbs.Device) {
		if node == "a" && i == 1 {
			d.Rate = 50e6 // a quarter of the other rates
		}
	})
	addresses, own := ringOf(t, p, everybody)
	nodes := gateOf(t, p.opts.Security, addresses)
	for i, n := range nodes {
		name, _, err := n.Greet(t.Context())
		if want := []string{"a", "b", "c"}[i]; err != nil || name != want {
			t.Fatalf("%q, %v", name, err)
		}
	}
	if other := own[0].Reserved.Against(""); other != "reserved for a ring or gate" {
		t.Errorf("a is %q", other)
	}
	asked, gates := own[0].AskBudget.Remaining(), own[0].GateBudget.Remaining()
	v, err := nodes[0].Visit(t.Context(), []string{"nobody:1", addresses[1]}, false)
	if err != nil || v.Transport != result.RDMA || v.Peer != "b" || len(v.Rails) != 2 {
		t.Fatalf("%+v, %v", v, err)
	}
	for _, r := range v.Rails {
		if r.Failure != nil || r.Goodput != nil || r.Left != nil {
			t.Errorf("rail %s: %+v", r.Rail, r)
		}
	}
	// A second visit at once: a round of the schedule would have to wait for half an interval.
	if again, err := nodes[0].Visit(t.Context(), []string{addresses[1]}, false); err != nil ||
		again.Transport != result.RDMA {
		t.Errorf("again: %+v, %v", again, err)
	}
	if own[0].GateBudget.Remaining() < gates-0.001 {
		t.Error("a visit without bursts is charged")
	}
	v, err = nodes[0].Visit(t.Context(), []string{addresses[1]}, true)
	if err != nil || v.Transport != result.RDMA {
		t.Fatalf("%+v, %v", v, err)
	}
	rates := map[string]float64{}
	for _, r := range v.Rails {
		if r.Failure != nil || r.Goodput == nil {
			t.Fatalf("rail %s: %+v", r.Rail, r)
		}
		rates[r.Rail] = *r.Goodput
	}
	if ratio := rates["1"] / rates["0"]; ratio < 0.15 || ratio > 0.4 {
		t.Errorf("%v", rates)
	}
	if own[0].GateBudget.Remaining() >= gates || own[0].AskBudget.Remaining() < asked-0.001 {
		t.Errorf("gates had %v and have %v, rounds had %v and have %v", gates, own[0].GateBudget.Remaining(), asked,
			own[0].AskBudget.Remaining())
	}
	if !nodes[2].Answers(t.Context()) {
		t.Error("c does not answer")
	}
	for _, n := range nodes {
		n.Leave()
	}
	if other := own[0].Reserved.Against(""); other != "" {
		t.Errorf("a is still %s", other)
	}
	if left := p.fabric.Left(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestGateRefused: a node visits nobody unless it allows gates, is reserved for this one, and has the other as a peer.
func TestGateRefused(t *testing.T) {
	p := preparePair(t, 2, nil)
	addresses, own := ringOf(t, p, func(node string) bool { return node != "b" })
	nodes := gateOf(t, p.opts.Security, addresses)
	visit := func(i int, peer, want string) {
		t.Helper()
		v, err := nodes[i].Visit(t.Context(), []string{peer}, false)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v, %v, want %q", v, err, want)
		}
	}
	visit(0, addresses[1], "not reserved for this gate")
	if _, _, err := nodes[1].Greet(t.Context()); err == nil || !strings.Contains(err.Error(), "probe.allow_gate") {
		t.Errorf("%v", err)
	}
	visit(1, addresses[0], "probe.allow_gate")
	if _, _, err := nodes[0].Greet(t.Context()); err != nil {
		t.Fatal(err)
	}
	visit(0, "127.0.0.1:1", "not among the peers")
	visit(0, strings.Repeat("x", 300), "malformed")
	other, err := NewGateNode(addresses[0], "OTHER", p.opts.Security)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = other.Greet(t.Context())
	if err == nil || !strings.Contains(err.Error(), "reserved for a ring or gate") {
		t.Errorf("%v", err)
	}
	other.Leave()
	if own[0].Reserved.Against("") == "" {
		t.Error("another gate has released the node")
	}
}

// TestGateKilled: a node makes one visit at a time. When its connection ends, its round ends, and nothing is left.
func TestGateKilled(t *testing.T) {
	p := preparePair(t, 2, nil)
	addresses, own := ringOf(t, p, everybody)
	nodes := gateOf(t, p.opts.Security, addresses)
	if _, _, err := nodes[0].Greet(t.Context()); err != nil {
		t.Fatal(err)
	}
	until := func(what string, holds func() bool) {
		for end := time.Now().Add(time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: not within a minute", what)
			}
		}
	}
	ctx, kill := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = nodes[0].Visit(ctx, []string{addresses[1]}, true)
	}()
	until("the round has the slot", func() bool { return own[0].Slot.Holder() != "" })
	_, err := nodes[0].Visit(t.Context(), []string{addresses[1]}, false)
	select {
	case <-ended: // before the second one, on a slow machine
	default:
		if err == nil || !strings.Contains(err.Error(), "another visit") {
			t.Errorf("a second visit at the same time: %v", err)
		}
	}
	kill()
	<-ended
	until("both slots are free", func() bool { return own[0].Slot.Holder() == "" && own[1].Slot.Holder() == "" })
	until("nothing is left", func() bool { return len(p.fabric.Left()) == 0 })
}

// TestGateBusy: where others use rails, at either end, they are reached, and their rates stay unknown. Other rails have
// figures.
func TestGateBusy(t *testing.T) {
	p := preparePair(t, 2, nil)
	addresses, _ := ringOf(t, p, everybody)
	p.a.UseTraffic(func(rail.Rail) (rail.MeanTraffic, bool) { return rail.MeanTraffic{Over: time.Second}, true })
	p.b.UseTraffic(func(r rail.Rail) (m rail.MeanTraffic, ok bool) {
		m.Over = time.Second
		if r.Name == "1" {
			m.Rate[rail.Transmit] = 0.5 * 1.25e9
		}
		return m, true
	})
	nodes := gateOf(t, p.opts.Security, addresses)
	for _, n := range nodes[:2] {
		if _, _, err := n.Greet(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for from, to := range []int{1, 0} {
		v, err := nodes[from].Visit(t.Context(), []string{addresses[to]}, true)
		if err != nil || v.Transport != result.RDMA || len(v.Rails) != 2 {
			t.Fatalf("%+v, %v", v, err)
		}
		if r := v.Rails[0]; r.Failure != nil || r.Goodput == nil {
			t.Errorf("from %d, rail 0: %+v", from, r)
		}
		if r := v.Rails[1]; r.Failure != nil || r.Goodput != nil || r.Left == nil || r.Left.Reason != failure.Busy {
			t.Errorf("from %d, rail 1: %+v", from, r)
		}
	}
}

// TestGateDead: a rail that is dead at either end has the reason.
func TestGateDead(t *testing.T) {
	p := preparePair(t, 2, func(node string, i int, d *fakeverbs.Device) {
		if node == "b" && i == 1 {
			d.GIDs = nil
		}
	})
	addresses, _ := ringOf(t, p, everybody)
	nodes := gateOf(t, p.opts.Security, addresses)
	for _, n := range nodes[:2] {
		if _, _, err := n.Greet(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for from, to := range []int{1, 0} {
		for _, burst := range []bool{false, true} {
			v, err := nodes[from].Visit(t.Context(), []string{addresses[to]}, burst)
			if err != nil || v.Transport != result.RDMA || len(v.Rails) != 2 || v.Rails[0].Failure != nil ||
				v.Rails[1].Failure == nil {
				t.Errorf("from %d, burst %v: %+v, %v", from, burst, v, err)
			}
		}
	}
}

// TestCheckVisit: what no railscope reports is refused, and what becomes a message is cleaned.
func TestCheckVisit(t *testing.T) {
	good := func() result.Visit {
		return result.Visit{Peer: "b", Transport: result.RDMA, Rails: []result.VisitRail{{Rail: "0", Leaf: "leaf-a",
			Goodput: new(5e9), Expected: new(6e9), Left: &result.Failure{Detail: "a\x1b[31m"}}}}
	}
	v := good()
	if err := protocol.CheckVisit(&v); err != nil || strings.Contains(v.Rails[0].Left.Detail, "\x1b") {
		t.Errorf("%+v, %v", v, err)
	}
	for why, change := range map[string]func(*result.Visit){
		"twice":          func(v *result.Visit) { v.Rails = append(v.Rails, v.Rails[0]) },
		"no name":        func(v *result.Visit) { v.Rails[0].Rail = "" },
		"too many":       func(v *result.Visit) { v.Rails = make([]result.VisitRail, 1000) },
		"negative":       func(v *result.Visit) { v.Rails[0].Goodput = new(-1.) },
		"too fast":       func(v *result.Visit) { v.Rails[0].Expected = new(1e16) },
		"not a rate":     func(v *result.Visit) { v.Rails[0].Goodput = new(math.NaN()) },
		"a long name":    func(v *result.Visit) { v.Peer = strings.Repeat("x", 300) },
		"a hostile leaf": func(v *result.Visit) { v.Rails[0].Leaf = "\x1b[2J" },
	} {
		v := good()
		change(&v)
		if err := protocol.CheckVisit(&v); err == nil {
			t.Errorf("%s: accepted", why)
		}
	}
}

// TestNewVisit: corrupt data accuses the rail over which it came, or all, and a rail that an end lacks is dead.
func TestNewVisit(t *testing.T) {
	rails := []result.RailResult{{Rail: "0", PeerRail: "0"}, {Rail: "1", PeerRail: "1"}, {Rail: "2"}}
	corrupt := func(rail string) result.Result {
		f := failure.New(failure.StageVerify, failure.DataMismatch, "wrong bytes")
		f.Rail = rail
		return result.Result{Transport: result.NoTransport, Reason: failure.DataMismatch, Rails: rails,
			Failures: []failure.Failure{*f}}
	}
	for _, tc := range []struct {
		why  string
		res  result.Result
		dead []string
	}{
		{"corrupt on rail 1", corrupt("1"), []string{"1"}},
		{"corrupt somewhere", corrupt(""), []string{"0", "1"}},
		{"the peer lacks rail 2", result.Result{Transport: result.RDMA, Rails: rails,
			Missing: []result.MissingRail{{Rail: "2", Peer: true, Known: true}}}, []string{"2"}},
		{"perhaps no rail", result.Result{Transport: result.RDMA, Rails: rails,
			Missing: []result.MissingRail{{Rail: "2"}}}, nil},
	} {
		v := result.NewVisit(tc.res, true)
		var dead []string
		for _, r := range v.Rails {
			if r.Failure != nil {
				dead = append(dead, r.Rail)
			}
		}
		if v.Transport != result.RDMA || !slices.Equal(dead, tc.dead) {
			t.Errorf("%s: %+v", tc.why, v)
		}
	}
	if v := result.NewVisit(result.Result{Transport: result.TCP, Reason: failure.NoLibrary}, true); !v.OfRailscope ||
		v.Failure == nil || len(v.Rails) > 0 {
		t.Errorf("%+v", v)
	}
}
