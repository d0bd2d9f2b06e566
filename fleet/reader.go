package fleet

import (
	"net"
	"net/netip"
	"reflect"
	"strings"

	"github.com/prometheus/common/model"
)

// reader builds a state from samples.
type reader struct {
	state State
	// names maps clusters and possible names to nodes. A zero Node marks an ambiguous name.
	names map[string]map[string]Node
	peers map[Node]Node // nodes by cluster and label peer, as far as they were looked up
	// rounds are those of the state, by the identity of the labels that they were found by: the other questions about
	// rounds have the same labels, and those of one client are one map.
	rounds map[uintptr]*Round

	// Evidence of what rails can carry: ages of the last bursts in seconds, peaks, and rates that are expected.
	bursts   map[Pair]float64
	peaks    map[flow]*peak
	expected map[Rail]float64
}

// host returns the host of host:port, or the whole address.
func host(address string) string {
	if h, _, err := net.SplitHostPort(address); err == nil {
		return h
	}
	return address
}

// NodeOf returns the node of a sample: its label node, else the host of its instance.
func NodeOf(s *model.Sample) Node {
	n := Node{Cluster: string(s.Metric["cluster"]), Name: string(s.Metric["node"])}
	if n.Name == "" {
		n.Name = host(string(s.Metric["instance"]))
	}
	return n
}

// calls returns the possible names of a node or peer: the name itself, its host, and the host without domain.
func calls(name string) []string {
	h := strings.ToLower(host(name))
	list := []string{h}
	if _, err := netip.ParseAddr(h); err != nil {
		if short, _, found := strings.Cut(h, "."); found {
			list = append(list, short)
		}
	}
	return list
}

// nameNode records the possible names of a sample's node.
func (r *reader) nameNode(s *model.Sample) {
	if s == nil {
		return
	}
	n := NodeOf(s)
	instance := string(s.Metric["instance"])
	// Most samples are of a node that an earlier one has named.
	if r.state.Instances[n] == instance {
		return
	}
	r.state.Instances[n] = instance
	names := r.names[n.Cluster]
	if names == nil {
		names = map[string]Node{}
		r.names[n.Cluster] = names
	}
	for _, label := range []string{n.Name, instance} {
		for _, name := range calls(label) {
			if known, ok := names[name]; ok && known != n {
				names[name] = Node{}
				continue
			}
			names[name] = n
		}
	}
}

// peer returns the node of a sample's label peer, in the sample's cluster. A peer that Prometheus does not know is
// named by its host.
func (r *reader) peer(s *model.Sample) Node {
	label := Node{string(s.Metric["cluster"]), string(s.Metric["peer"])}
	n, known := r.peers[label]
	if !known {
		n = r.lookUp(label)
		r.peers[label] = n
	}
	return n
}

func (r *reader) lookUp(label Node) Node {
	for _, name := range calls(label.Name) {
		if n := r.names[label.Cluster][name]; n != (Node{}) {
			return n
		}
	}
	return Node{label.Cluster, host(label.Name)}
}

func (r *reader) rail(s *model.Sample) Rail { return Rail{NodeOf(s), string(s.Metric["rail"])} }

func (r *reader) addUp(s *model.Sample) {
	n := NodeOf(s)
	r.state.Nodes[n] = s.Value == 1
	if rack := string(s.Metric["rack"]); rack != "" {
		r.state.Racks[n] = rack
	}
}

func (r *reader) addTransport(s *model.Sample) {
	n := NodeOf(s)
	if _, known := r.state.Nodes[n]; !known {
		r.state.Nodes[n] = true // a node with series was scraped
	}
	r.state.Pairs[Pair{n, r.peer(s)}] = string(s.Metric["transport"])
}

func (r *reader) path(s *model.Sample) Path {
	return Path{Pair{NodeOf(s), r.peer(s)}, string(s.Metric["rail"])}
}

func (r *reader) addRailUp(s *model.Sample) {
	one := &Round{Up: s.Value == 1, Retransmits: -1}
	r.state.Rounds[r.path(s)], r.rounds[identity(s.Metric)] = one, one
}

// identity differs between maps that exist at the same time.
func identity(m model.Metric) uintptr { return reflect.ValueOf(m).Pointer() }

// round sets a known figure of a round.
func (r *reader) round(s *model.Sample, set func(*Round, float64)) {
	one := r.rounds[identity(s.Metric)]
	if one == nil {
		one = r.state.Rounds[r.path(s)]
	}
	if one != nil {
		set(one, float64(s.Value))
	}
}
