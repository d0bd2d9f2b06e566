// Package fleet blames: of the rounds of all nodes, as Prometheus has them, it says which adapter, host, path, leaf or
// peer explains those that went badly.
package fleet

import (
	"cmp"
	"strings"
)

// Node is a node of a cluster.
type Node struct {
	Cluster string `json:"cluster"` // label of its series; empty: none
	Name    string `json:"node"`
}

// Compare orders nodes by cluster and name.
func (n Node) Compare(o Node) int {
	return cmp.Or(strings.Compare(n.Cluster, o.Cluster), strings.Compare(n.Name, o.Name))
}

func (n Node) String() string {
	if n.Cluster == "" {
		return n.Name
	}
	return n.Cluster + "/" + n.Name
}

// Rail is one rail of a node.
type Rail struct {
	Node
	Rail string `json:"rail"`
}

// Compare orders rails by node and name.
func (r Rail) Compare(o Rail) int {
	return cmp.Or(r.Node.Compare(o.Node), len(r.Rail)-len(o.Rail), strings.Compare(r.Rail, o.Rail))
}

// Pair is from the node that asks to its peer.
type Pair struct{ From, To Node }

// Path is a rail of a pair. Both ends have the same rail number, as the fabric of rails wants it.
type Path struct {
	Pair
	Rail string
}

// ends are the two rails of a path.
func (p Path) ends() [2]Rail { return [2]Rail{{p.From, p.Rail}, {p.To, p.Rail}} }

// Transports of the last round of a pair, as railscope_probe_transport has them.
const (
	byRDMA    = "rdma"
	byTCP     = "tcp"
	unreached = "none"
)

// Round is what the last rounds of a pair measured of one rail.
type Round struct {
	Up          bool    // the rail carried RDMA
	Goodput     float64 // alone, in bytes per second; 0: not known
	Expected    float64 // likewise
	Retransmits float64 // in the last half hour; negative: not known
}

// ratio is what the rail carried of what is expected; false: not known.
func (r Round) ratio() (float64, bool) {
	if !r.Up || r.Goodput <= 0 || r.Expected <= 0 {
		return 0, false
	}
	return r.Goodput / r.Expected, true
}

// State is what the nodes of a fleet say, and Prometheus of them.
type State struct {
	Nodes    map[Node]bool    // of which Prometheus has a target: whether it answered the last scrape
	Pairs    map[Pair]string  // transport of the last round that was not skipped
	Rounds   map[Path]Round   // of pairs by RDMA
	PortUp   map[Rail]bool    // the port is ACTIVE
	Loopback map[Rail]float64 // goodput of the rail to itself, bytes per second
	GPU      map[Rail]float64 // goodput between memory of GPUs ÷ that between memory of the hosts
	Leaves   map[Rail]string  // the switch that a rail is plugged into, where that is known
}

// NewState returns a state of no node.
func NewState() State {
	return State{Nodes: map[Node]bool{}, Pairs: map[Pair]string{}, Rounds: map[Path]Round{}, PortUp: map[Rail]bool{},
		Loopback: map[Rail]float64{}, GPU: map[Rail]float64{}, Leaves: map[Rail]string{}}
}

// Kind is what is wrong.
type Kind string

// The kinds.
const (
	PeerDown    Kind = "peer_down"    // a node that answers nobody
	TCPFallback Kind = "tcp_fallback" // a node whose rounds go by TCP
	RailDown    Kind = "rail_down"    // a rail that carries nothing
	SlowHost    Kind = "slow_host"    // a rail that is slow, and slow to itself as well: host or PCIe
	SlowWire    Kind = "slow_wire"    // a rail that is slow, and not to itself: adapter port, cable or switch port
	SlowRail    Kind = "slow_rail"    // one or the other: loopback was not measured
	GPUPath     Kind = "gpu_path"     // slow between memory of GPUs alone
	Leaf        Kind = "leaf"         // a switch: most paths over it are bad
	LossyPath   Kind = "lossy_path"   // one pair loses packets, others of both ends do not
	SlowPath    Kind = "slow_path"    // one pair is slow, likewise
	DeadPath    Kind = "dead_path"    // one pair carries nothing over the rail, or not by RDMA, likewise
)

// Kinds are all kinds, the worst first.
func Kinds() []Kind {
	return []Kind{PeerDown, Leaf, RailDown, TCPFallback, SlowHost, SlowWire, SlowRail, GPUPath, DeadPath, LossyPath,
		SlowPath}
}

// Blame is one fault.
type Blame struct {
	Kind Kind `json:"kind"`
	Node
	Rail     string   `json:"rail"`     // empty: all rails, or none in particular
	Peer     string   `json:"peer"`     // of a path, the other end; empty otherwise
	Leaf     string   `json:"leaf"`     // of a leaf, its name
	Evidence string   `json:"evidence"` // one sentence with figures; lower case, no full stop
	Causes   string   `json:"causes"`   // where to look
	Paths    int      `json:"paths"`    // bad ones that it explains
	Nodes    []string `json:"nodes"`    // of a leaf, those that suffer
}

// Subject names what is blamed.
func (b Blame) Subject() string {
	rail := ""
	if b.Rail != "" {
		rail = "rail " + b.Rail + " of "
	}
	switch {
	case b.Leaf != "":
		return "leaf " + Node{b.Cluster, b.Leaf}.String()
	case b.Peer != "":
		return rail + b.String() + " and " + b.Peer
	}
	return rail + b.String()
}

// Drain reports whether jobs are better kept off the node until it is repaired.
func (b Blame) Drain() bool { return b.Peer == "" && b.Leaf == "" }

// Report is the judgement of a fleet.
type Report struct {
	Nodes  int     `json:"nodes"`
	Pairs  int     `json:"pairs"` // with a last round
	Paths  int     `json:"paths"` // rails of them
	Bad    int     `json:"bad"`   // paths and pairs that went badly
	Blames []Blame `json:"blames"`
}
