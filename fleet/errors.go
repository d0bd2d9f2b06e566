package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/prometheus/common/model"

	"github.com/railscope/railscope/internal/terminal"
)

// ErrorKind is a kind of error that a requester counts. The end that counts is not the end that is broken
// (docs/counters.md), so none of these blames its node.
type ErrorKind string

// Kinds of errors.
const (
	SilentPeer ErrorKind = "silent_peer" // queue pairs that gave up on a peer that did not answer
	NoReceive  ErrorKind = "no_receive"  // queue pairs that gave up on a peer that posted no receive buffers
	Refused    ErrorKind = "refused"     // requests to which the peer denied access
	Rejected   ErrorKind = "rejected"    // requests that the peer rejected as invalid
)

// errorCounter is the counter of a kind of error.
type errorCounter struct {
	kind ErrorKind
	row  string
	what string // what was counted, for people
}

func errorCounters() []errorCounter {
	return []errorCounter{
		{SilentPeer, "transport_retries_exceeded", "queue pairs that gave up on a silent peer"},
		{NoReceive, "rnr_retries_exceeded", "queue pairs that gave up on a peer that posted no receive buffers"},
		{Refused, "requester_remote_access_errors", "requests to which the peer denied access"},
		{Rejected, "requester_remote_invalid_request_errors", "requests that the peer rejected as invalid"},
	}
}

// Counted is what one rail counted as a requester in the last 30 minutes.
type Counted struct {
	Rail
	Kind  ErrorKind `json:"kind"`
	Count float64   `json:"count"`
}

// query returns the question for the counter. Prometheus extrapolates increases.
func (c errorCounter) query(by string) query {
	return query{"errors_" + string(c.kind),
		"sum " + by + `, rail) (increase(railscope_port_` + c.row + `_total{%s}[30m])) > 0`,
		func(r *reader, s *model.Sample) {
			r.state.Errors = append(r.state.Errors, Counted{r.rail(s), c.kind, max(math.Round(float64(s.Value)), 1)})
		}}
}

// errors says who counts errors, and who is to blame by that: one sentence for each kind in each cluster.
func (s Shown) errors() (list []string) {
	clusters := map[string]bool{}
	for _, one := range s.Errors {
		clusters[one.Cluster] = true
	}
	for _, cluster := range slices.Sorted(maps.Keys(clusters)) {
		for _, c := range errorCounters() {
			if text := s.errorsOf(cluster, c); text != "" {
				list = append(list, text)
			}
		}
	}
	return list
}

// errorsOf says who in a cluster counts a kind of error; empty: nobody.
func (s Shown) errorsOf(cluster string, c errorCounter) string {
	var rails []Rail
	nodes, total := map[Node]bool{}, 0.0
	for _, one := range s.Errors {
		if one.Kind == c.kind && one.Cluster == cluster {
			rails, total = append(rails, one.Rail), total+one.Count
			nodes[one.Node] = true
		}
	}
	if len(rails) == 0 {
		return ""
	}
	names := slices.SortedFunc(maps.Keys(nodes), Node.Compare)
	return fmt.Sprintf("%.0f %s in 30 min, counted by %s on %s (%s): %s", total, c.what,
		terminal.Count(len(names), "node"), terminal.Count(len(rails), "rail"), firstOf(names),
		s.who(c.kind, rails, len(nodes)))
}

// maxNamed is the number of nodes that a sentence names.
const maxNamed = 4

// firstOf names the first nodes, and says how many more there are.
func firstOf(nodes []Node) string {
	var names []string
	for _, n := range nodes[:min(len(nodes), maxNamed)] {
		names = append(names, n.String())
	}
	text := strings.Join(names, ", ")
	if more := len(nodes) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// who says what the rails that count a kind of error have in common. That never is a fault of their nodes.
func (s Shown) who(kind ErrorKind, rails []Rail, nodes int) string {
	if kind != SilentPeer {
		return "not the network; software at these nodes or at the peers that the logs of their jobs name"
	}
	for _, b := range s.Blames {
		if slices.Contains([]Kind{PeerDown, Leaf, RailDown, DeadPath}, b.Kind) && b.Cluster == rails[0].Cluster {
			return fmt.Sprintf("%s (%s) explains them", b.Subject(), strings.ReplaceAll(string(b.Kind), "_", " "))
		}
	}
	if nodes == 1 {
		return "no other node counts them: a peer that it alone talks to, or its own link"
	}
	leaves, names := map[string]bool{}, map[string]bool{}
	for _, r := range rails {
		leaves[s.state.Leaves[r]], names[r.Rail] = true, true
	}
	shared := ""
	if len(leaves) == 1 {
		shared = slices.Collect(maps.Keys(leaves))[0]
	}
	switch {
	case shared != "":
		return fmt.Sprintf("all are behind leaf %s: that leaf, or a peer that they share", shared)
	case len(names) == 1:
		return fmt.Sprintf("all on rail %s: that rail of a peer, or its leaf switch", rails[0].Rail)
	}
	return "not these nodes, but a peer or a path that they share; the logs of their jobs name it"
}

// compareCounted orders what was counted by rail and kind.
func compareCounted(a, b Counted) int {
	return cmp.Or(a.Compare(b.Rail), strings.Compare(string(a.Kind), string(b.Kind)))
}
