package fleetgen

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/railscope/railscope/fleet"
)

// line is the capacity of a rail if the state has none.
const line = 50e9

// state is a world with constant results of rounds.
type state struct {
	World
	s      fleet.State
	nodes  []fleet.Node
	number map[fleet.Node]int
	count  int // number of rails
}

// OfState returns the fleet of a state (for example from fleettest) over the half hour before a time.
func OfState(s fleet.State, until time.Time) *Fleet {
	w := state{World: Healthy(len(s.Nodes)), s: s, nodes: slices.SortedFunc(maps.Keys(s.Nodes),
		func(a, b fleet.Node) int {
			return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Name, b.Name))
		}), number: map[fleet.Node]int{}}
	for i, n := range w.nodes {
		w.number[n] = i + 1
	}
	for r := range s.PortUp {
		if i, err := strconv.Atoi(r.Rail); err == nil {
			w.count = max(w.count, i+1)
		}
	}
	return &Fleet{World: w, Nodes: len(w.nodes), Begin: until.Add(-30 * time.Minute), To: 30 * time.Minute,
		Every: time.Minute, Name: func(n int) string { return w.node(n).Name },
		Cluster: func(n int) string { return w.node(n).Cluster }}
}

func (w state) node(n int) fleet.Node { return w.nodes[n-1] }

func (w state) rail(n, r int) fleet.Rail { return fleet.Rail{Node: w.node(n), Rail: strconv.Itoa(r)} }

func (w state) pair(n, to int) fleet.Pair { return fleet.Pair{From: w.node(n), To: w.node(to)} }

func (w state) round(n, to, r int) (fleet.Round, bool) {
	round := w.s.Rounds[fleet.Path{Pair: w.pair(n, to), Rail: strconv.Itoa(r)}]
	if round == nil {
		return fleet.Round{}, false
	}
	return *round, true
}

// The methods of World.

func (w state) Rails() int                            { return w.count }
func (w state) Gone(n int, _ float64) bool            { return !w.s.Nodes[w.node(n)] }
func (w state) Leaf(n, r int) string                  { return w.s.Leaves[w.rail(n, r)] }
func (w state) PortUp(n, r int, _ float64) bool       { return w.s.PortUp[w.rail(n, r)] }
func (w state) Transport(n, to int, _ float64) string { return w.s.Pairs[w.pair(n, to)] }
func (w state) Capacity(int) float64                  { return line }

// Peers are those with a transport.
func (w state) Peers(n int) (list []int) {
	for p := range w.s.Pairs {
		if p.From == w.node(n) {
			list = append(list, w.number[p.To])
		}
	}
	slices.Sort(list)
	return list
}

// Path is a rail of the last round.
func (w state) Path(n, to, r int, _ float64) (float64, bool) {
	round, ok := w.round(n, to, r)
	return round.Goodput / line, ok
}

// Retransmits are those of the half hour.
func (w state) Retransmits(n, to, r int, _ float64) float64 {
	round, _ := w.round(n, to, r)
	return max(0, round.Retransmits) / 1800
}

// Loopback returns the state's value.
func (w state) Loopback(n, r int) (float64, bool) {
	v, ok := w.s.Loopback[w.rail(n, r)]
	return v, ok
}

// GPUPath returns the state's value.
func (w state) GPUPath(n, r int) (float64, bool) {
	v, ok := w.s.GPU[w.rail(n, r)]
	return v, ok
}
