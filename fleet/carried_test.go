package fleet_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/railscope/railscope/fleet"
)

// TestUnknownRates: on a fleet whose jobs fill the rails, rounds reach and measure nothing. Paths of unknown rate speak
// against a dead rail, and say nothing of a slow one.
func TestUnknownRates(t *testing.T) {
	node := func(i int) fleet.Node { return fleet.Node{Name: fmt.Sprintf("node-%d", i)} }
	for _, tc := range []struct {
		name string
		// round returns what a round over rail 0 came to.
		round func(from, to int) fleet.Round
		want  []string
	}{
		{"all reached", func(int, int) fleet.Round { return fleet.Round{Up: true} }, nil},
		{"a dead rail", func(from, to int) fleet.Round { return fleet.Round{Up: from != 2 && to != 2} },
			[]string{"rail 0 of node-2: rail_down"}},
		{"three dead paths of eight", func(from, to int) fleet.Round {
			return fleet.Round{Up: from != 2 || to > 4}
		}, []string{"node-0 and node-2: dead_path", "node-1 and node-2: dead_path", "node-2 and node-3: dead_path",
			"node-2 and node-4: dead_path"}},
		{"a slow rail, measured with three", func(from, to int) fleet.Round {
			switch {
			case from == 2 && to < 4:
				return fleet.Round{Up: true, Goodput: 4, Expected: 10}
			case from < 4 && to < 4:
				return fleet.Round{Up: true, Goodput: 10, Expected: 10}
			}
			return fleet.Round{Up: true}
		}, []string{"rail 0 of node-2: slow_rail"}},
	} {
		s := fleet.NewState()
		for from := range 9 {
			for to := range 9 {
				if p := (fleet.Pair{From: node(from), To: node(to)}); from != to {
					s.Pairs[p] = "rdma"
					r := tc.round(from, to)
					r.Retransmits = -1
					s.Rounds[fleet.Path{Pair: p, Rail: "0"}] = &r
				}
			}
		}
		var got []string
		for _, b := range fleet.Judge(s).Blames {
			what := b.Subject()
			if b.Peer != "" {
				what = b.Name + " and " + b.Peer
			}
			got = append(got, what+": "+string(b.Kind))
		}
		slices.Sort(got)
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// TestOwnRounds: a node whose own rounds use TCP, although others reach it by RDMA, is blamed; one pair is not enough.
func TestOwnRounds(t *testing.T) {
	node := func(i int) fleet.Node { return fleet.Node{Name: fmt.Sprintf("node-%d", i)} }
	for _, tc := range []struct {
		bad  int // own rounds of node 0 that use TCP
		want []string
	}{{0, nil}, {2, []string{"node-0 and node-1", "node-0 and node-2"}}, {4, []string{"node-0"}}} {
		s := fleet.NewState()
		for from := range 6 {
			for to := range 6 {
				if from != to {
					transport := "rdma"
					if from == 0 && to <= tc.bad {
						transport = "tcp"
					}
					s.Pairs[fleet.Pair{From: node(from), To: node(to)}] = transport
				}
			}
		}
		var got []string
		for _, b := range fleet.Judge(s).Blames {
			got = append(got, b.Subject())
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%d by TCP: %q, want %q", tc.bad, got, tc.want)
		}
	}
}
