// Package fleet finds the adapter, host, path, leaf or peer that explains bad rounds, from the rounds of all nodes in
// Prometheus.
package fleet

import (
	"cmp"
	"strings"
)

// Node is a node of a cluster.
type Node struct {
	Cluster string `json:"cluster"` // label of its series; empty if there is none
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

// Pair is a direction of rounds: from the node that starts them to its peer.
type Pair struct{ From, To Node }

// Path is one rail of a pair. Both ends have the same rail number, as rail-optimized fabrics require.
type Path struct {
	Pair
	Rail string
}

// ends returns the two rails of a path.
func (p Path) ends() [2]Rail { return [2]Rail{{p.From, p.Rail}, {p.To, p.Rail}} }

// Transports of the last round of a pair, with the values of railscope_probe_transport.
const (
	byRDMA    = "rdma"
	byTCP     = "tcp"
	unreached = "none"
)

// Round is the last measurement of one rail of a pair.
type Round struct {
	Up          bool    // the rail carried RDMA
	Goodput     float64 // measured alone, in bytes per second; 0 if unknown
	Expected    float64 // bytes per second; 0 if unknown
	Retransmits float64 // retransmissions in the last 30 minutes; negative if unknown
}

// ratio returns the share of the expected goodput that the rail carried; false if unknown.
func (r *Round) ratio() (float64, bool) {
	if !r.Up || r.Goodput <= 0 || r.Expected <= 0 {
		return 0, false
	}
	return r.Goodput / r.Expected, true
}

// State is what the nodes of a fleet report to Prometheus, and which of them Prometheus scrapes.
type State struct {
	Nodes    map[Node]bool    // nodes with a target in Prometheus: whether the last scrape succeeded
	Pairs    map[Pair]string  // transport of the last round that was not skipped
	Rounds   map[Path]*Round  // rounds of pairs that use RDMA
	PortUp   map[Rail]bool    // the port is ACTIVE
	Loopback map[Rail]float64 // loopback goodput of the rail, bytes per second
	GPU      map[Rail]float64 // goodput between GPU memory ÷ goodput between host memory
	Leaves   map[Rail]string  // switch that a rail is connected to, if known
	Proofs   []RailProof      // proofs of rails whose ports are up, in order
	Errors   []Counted        // errors that requesters counted

	Racks     map[Node]string // label rack of the targets, if they have one
	Instances map[Node]string // label instance of the series of a node
}

// NewState returns an empty state.
func NewState() State {
	return State{Nodes: map[Node]bool{}, Pairs: map[Pair]string{}, Rounds: map[Path]*Round{}, PortUp: map[Rail]bool{},
		Loopback: map[Rail]float64{}, GPU: map[Rail]float64{}, Leaves: map[Rail]string{}, Racks: map[Node]string{},
		Instances: map[Node]string{}}
}

// Kind is a kind of fault.
type Kind string

// Kinds of faults.
const (
	PeerDown    Kind = "peer_down"    // a node that no peer reaches
	TCPFallback Kind = "tcp_fallback" // a node whose rounds use TCP
	RailDown    Kind = "rail_down"    // a rail that carries nothing
	SlowHost    Kind = "slow_host"    // a slow rail with slow loopback: host or PCIe
	SlowWire    Kind = "slow_wire"    // a slow rail with fast loopback: adapter port, cable or switch port
	SlowRail    Kind = "slow_rail"    // a slow rail without loopback: host or wire
	GPUPath     Kind = "gpu_path"     // slow only between GPU memory
	Leaf        Kind = "leaf"         // a switch whose paths are mostly bad
	LossyPath   Kind = "lossy_path"   // one pair loses packets; other pairs of both ends do not
	SlowPath    Kind = "slow_path"    // one pair is slow; other pairs of both ends are not
	// One pair carries nothing over the rail, or not by RDMA; other pairs of both ends do.
	DeadPath Kind = "dead_path"
)

// Kinds returns all kinds, the worst first.
func Kinds() []Kind {
	return []Kind{PeerDown, Leaf, RailDown, TCPFallback, SlowHost, SlowWire, SlowRail, GPUPath, DeadPath, LossyPath,
		SlowPath}
}

// Blame is one fault of a fleet.
type Blame struct {
	Kind Kind `json:"kind"`
	Node
	Rail     string   `json:"rail"`     // empty for all rails, or no specific one
	Peer     string   `json:"peer"`     // other end of a path; empty otherwise
	Leaf     string   `json:"leaf"`     // name of a leaf; empty otherwise
	Evidence string   `json:"evidence"` // one sentence with figures; lower case, no full stop
	Causes   string   `json:"causes"`   // where to look for the cause
	Paths    int      `json:"paths"`    // number of bad paths that it explains
	Nodes    []string `json:"nodes"`    // affected nodes of a leaf
	Began    *Began   `json:"began"`    // nil: not asked for
	Beside   []string `json:"beside"`   // what else began at the same time; sentences
	Jobs     []string `json:"jobs"`     // jobs that run on the node now: pods, and Slurm jobs as slurm-ID
}

// Subject names the part that is blamed.
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

// Drain reports whether jobs should avoid the node until it is repaired.
func (b Blame) Drain() bool { return b.Peer == "" && b.Leaf == "" }

// Report is the judgement of a fleet.
type Report struct {
	Nodes  int     `json:"nodes"`
	Pairs  int     `json:"pairs"` // pairs with a last round
	Paths  int     `json:"paths"` // rails of these pairs
	Bad    int     `json:"bad"`   // bad paths and pairs
	Blames []Blame `json:"blames"`
}
