package probe

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
)

// ringOfThree serves nodes a, b and c, which have each other as peers, and returns their addresses.
func ringOfThree(t *testing.T, p *pairOfNodes, allow func(node string) bool) (addresses []string) {
	t.Helper()
	for i := range 2 {
		p.fabric.Add("c", device("c", i, nil))
	}
	nodes := []*Node{p.a, p.b, p.node("c", 2)}
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
		opts.Peers, opts.AllowRing = addresses, allow(n.name())
		opts.Budget = Budget{Share: 1}
		n.setBudget(opts.Budget)
		r, err := NewResponder(n, opts)
		if err != nil {
			t.Fatal(err)
		}
		serve(t, r, listeners[i])
	}
	return addresses
}

func everybody(string) bool { return true }

// TestRingOfThree: each node carries to its successor alone, then all at once, and nothing is left.
func TestRingOfThree(t *testing.T) { // not beside others: three nodes poll at once
	p := preparePair(t, 2, func(node string, i int, d *fakeverbs.Device) {
		if node == "b" {
			d.Rate = 100e6 // half of the others
		}
	})
	nodes := ringOfThree(t, p, everybody)
	var order []string
	res, err := Ring(t.Context(), p.opts.Security, nodes, func(node string) { order = append(order, node) })
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range res.Members {
		if m.Failure != nil || m.Alone == nil || m.Together == nil || m.TCP == nil || m.Rails != 2 || m.Node != nodes[i] {
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
		time.Sleep(time.Second) // the last member releases its lease after it has answered
		if left = p.fabric.Left(); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	}
}

// TestRingRefused: a node takes part only if it allows that, towards one of its own peers, once at a time.
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
		if m.Failure == nil || m.Failure.Reason != failure.Unauthorized || !strings.Contains(m.Failure.Detail, tc.detail) ||
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

// TestRingSeconds: the slowest node counts, and without its figure nothing is known.
func TestRingSeconds(t *testing.T) {
	r := RingResult{Members: []RingMember{{Alone: new(100.0), Together: new(80.0)},
		{Alone: new(50.0), Together: new(40.0)}}}
	measured, predicted, tcp := r.Seconds(1000)
	if *measured != 25 || *predicted != 20 || tcp != nil {
		t.Errorf("%v, %v, %v", *measured, *predicted, tcp)
	}
	if m, _, _ := (RingResult{}).Seconds(1); m != nil {
		t.Error("a ring of nobody")
	}
}
