// Package fleettest makes fleets with planted faults for tests, as their nodes would appear in Prometheus: rounds over
// the ring of peers, with noise and gaps.
package fleettest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/railscope/railscope/fleet"
)

// Options describe a fleet.
type Options struct {
	Seed     uint64
	Clusters []string // names; nil for one without a name
	Nodes    int      // nodes per cluster
	Rails    int      // rails per node
	Fanout   int      // peers per node
	Noise    float64  // standard deviation of goodput, as a share of it
	Missing  float64  // share of the rounds that are missing
	Loopback bool     // whether loopback is measured
	LeafSize int      // nodes per leaf, for each rail
	Faults   []Fault
}

// Fault is a planted fault. A fault of a leaf needs LeafSize.
type Fault struct {
	Kind fleet.Kind
	fleet.Node
	Rail string
	Peer string
	Leaf string
	Part float64 // remaining share of the goodput; 0 means 1/2
	Way  string  // direction of a slow wire: out or in; empty for both
}

// Goodput of a rail in bytes per second: line is its maximum, usual the typical value.
const (
	line  = 50e9
	usual = 0.94
)

// maker builds one fleet.
type maker struct {
	o      Options
	random *rand.Rand
	state  fleet.State
	pairs  map[string][]fleet.Pair // by cluster
}

// Name returns the name of node i.
func Name(i int) string { return fmt.Sprintf("node-%04d", i) }

// New returns the state of a fleet.
func New(o Options) fleet.State {
	m := newMaker(o)
	for _, cluster := range m.o.Clusters {
		for i := range o.Nodes {
			m.addNode(fleet.Node{Cluster: cluster, Name: Name(i)}, i)
		}
		for _, p := range m.pairs[cluster] {
			m.addPair(p)
		}
	}
	return m.state
}

func newMaker(o Options) *maker {
	if o.Clusters == nil {
		o.Clusters = []string{""}
	}
	m := &maker{o: o, random: rand.New(rand.NewPCG(o.Seed, 1)), state: fleet.NewState(),
		pairs: map[string][]fleet.Pair{}}
	for _, cluster := range o.Clusters { // on a day's ring, a node probes those that follow it
		order := m.random.Perm(o.Nodes)
		for at, i := range order {
			for k := 1; k <= min(o.Fanout, o.Nodes-1); k++ {
				to := order[(at+k)%o.Nodes]
				m.pairs[cluster] = append(m.pairs[cluster],
					fleet.Pair{From: fleet.Node{Cluster: cluster, Name: Name(i)},
						To: fleet.Node{Cluster: cluster, Name: Name(to)}})
			}
		}
	}
	return m
}

// Pairs returns the pairs of a fleet with these options.
func Pairs(o Options) (list []fleet.Pair) {
	m := newMaker(o)
	for _, cluster := range m.o.Clusters {
		list = append(list, m.pairs[cluster]...)
	}
	return list
}

// LeafOf returns the leaf of a rail of node i.
func (o Options) LeafOf(i, rail int) string { return fmt.Sprintf("leaf-%d-%d", i/o.LeafSize, rail) }

func (m *maker) has(kind fleet.Kind, n fleet.Node, rail string) bool {
	return slices.ContainsFunc(m.o.Faults, func(f Fault) bool {
		return f.Kind == kind && f.Node == n && (f.Rail == "" || f.Rail == rail)
	})
}

func (m *maker) addNode(n fleet.Node, i int) {
	down := m.has(fleet.PeerDown, n, "")
	m.state.Nodes[n] = !down
	for r := range m.o.Rails {
		rail := fleet.Rail{Node: n, Rail: strconv.Itoa(r)}
		if m.o.LeafSize > 0 {
			m.state.Leaves[rail] = m.o.LeafOf(i, r)
		}
		if down {
			continue
		}
		m.state.PortUp[rail] = !m.has(fleet.RailDown, n, rail.Rail)
		if m.o.Loopback {
			part := 1.1
			if m.has(fleet.SlowHost, n, rail.Rail) {
				part = 0.45
			}
			m.state.Loopback[rail] = m.noisy(part * line)
		}
		part := 0.97
		if m.has(fleet.GPUPath, n, rail.Rail) {
			part = 0.35
		}
		m.state.GPU[rail] = m.noisy(part)
	}
}

func (m *maker) noisy(v float64) float64 { return v * (1 + m.o.Noise*m.random.NormFloat64()) }

func (m *maker) addPair(p fleet.Pair) {
	if m.random.Float64() < m.o.Missing || m.has(fleet.PeerDown, p.From, "") {
		return
	}
	m.state.Pairs[p] = "rdma"
	switch {
	case m.has(fleet.PeerDown, p.To, ""):
		m.state.Pairs[p] = "none"
		return
	case m.has(fleet.TCPFallback, p.From, "") || m.has(fleet.TCPFallback, p.To, ""):
		m.state.Pairs[p] = "tcp"
		return
	}
	for r := range m.o.Rails {
		if m.random.Float64() < m.o.Missing {
			continue
		}
		path := fleet.Path{Pair: p, Rail: strconv.Itoa(r)}
		round := m.round(path)
		m.state.Rounds[path] = &round
	}
}

// round returns the round of a path with the faults of both ends, their leaves and the pair.
func (m *maker) round(p fleet.Path) fleet.Round {
	r := fleet.Round{Up: true, Expected: line, Retransmits: float64(m.random.IntN(3))}
	part := usual
	ends := []fleet.Rail{{Node: p.From, Rail: p.Rail}, {Node: p.To, Rail: p.Rail}}
	for _, f := range m.o.Faults {
		for i, end := range ends {
			if f.Node != end.Node || f.Rail != "" && f.Rail != end.Rail || f.Way == []string{"in", "out"}[i] {
				continue
			}
			switch f.Kind {
			case fleet.RailDown:
				r.Up = false
			case fleet.SlowWire, fleet.SlowHost:
				part = min(part, usual*cmp.Or(f.Part, 0.5))
			}
		}
		leaf := func(i int) bool { return m.state.Leaves[ends[i]] == f.Leaf && p.From.Cluster == f.Cluster }
		switch {
		case f.Kind == fleet.Leaf && (leaf(0) || leaf(1)):
			part = min(part, 0.6)
		case f.Kind == fleet.LossyPath && (f.Rail == "" || f.Rail == p.Rail) && p.From.Cluster == f.Cluster &&
			(p.From.Name == f.Name && p.To.Name == f.Peer || p.To.Name == f.Name && p.From.Name == f.Peer):
			r.Retransmits, part = 500+float64(m.random.IntN(500)), min(part, 0.4)
		}
	}
	if r.Up {
		r.Goodput = m.noisy(part * line)
	}
	return r
}
