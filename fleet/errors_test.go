package fleet_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"

	"github.com/railscope/railscope/fleet"
	"github.com/railscope/railscope/fleet/fleettest"
)

// TestErrors: what requesters count blames none of them. It is said who counts it, and what they have in common.
func TestErrors(t *testing.T) {
	node := func(i int) fleet.Node { return fleet.Node{Cluster: "a", Name: fleettest.Name(i)} }
	counted := func(kind fleet.ErrorKind, rails string, nodes ...int) (list []fleet.Counted) {
		for _, i := range nodes {
			for rail := range strings.SplitSeq(rails, "") {
				list = append(list, fleet.Counted{Rail: fleet.Rail{Node: node(i), Rail: rail}, Kind: kind, Count: 2})
			}
		}
		return list
	}
	down := fleettest.Fault{Kind: fleet.PeerDown, Node: node(5)}
	for _, tc := range []struct {
		why    string
		faults []fleettest.Fault
		leaves bool
		errors []fleet.Counted
		want   string
	}{
		{"nobody", nil, false, nil, ""},
		{"the peers of a node that " +
			"died", []fleettest.Fault{down}, false, counted(fleet.SilentPeer, "0123", 1, 2, 3, 4, 6, 7),
			"48 queue pairs that gave up on a silent peer in 30 min, counted by 6 nodes on 24 rails (a/node-0001, " +
				"a/node-0002, a/node-0003, a/node-0004 and 2 more): a/node-0005 (peer down) explains them"},
		{"one node", nil, false, counted(fleet.SilentPeer, "2", 3), "2 queue pairs that gave up on a silent peer " +
			"in 30 min, counted by 1 node on 1 rail (a/node-0003): no other node counts them: a peer that it alone " +
			"talks to, or its own link"},
		{"the node that is blamed counts " +
			"them", []fleettest.Fault{{Kind: fleet.RailDown, Node: node(3), Rail: "2"}}, false,
			counted(fleet.SilentPeer, "2", 3), "2 queue pairs that gave up on a silent peer in 30 min, counted by " +
				"1 node on 1 rail (a/node-0003): rail 2 of a/node-0003 (rail down) explains them"},
		{"one rail of several nodes", nil, false, counted(fleet.SilentPeer, "2", 1, 2, 3), "6 queue pairs that " +
			"gave up on a silent peer in 30 min, counted by 3 nodes on 3 rails (a/node-0001, a/node-0002, " +
			"a/node-0003): all on rail 2: that rail of a peer, or its leaf switch"},
		{"one leaf", nil, true, counted(fleet.SilentPeer, "2", 1, 2, 3), "6 queue pairs that gave up on a silent " +
			"peer in 30 min, counted by 3 nodes on 3 rails (a/node-0001, a/node-0002, a/node-0003): all are behind " +
			"leaf leaf-0-2: that leaf, or a peer that they share"},
		{"several nodes and rails", nil, false, counted(fleet.SilentPeer, "01", 1, 2), "8 queue pairs that gave up " +
			"on a silent peer in 30 min, counted by 2 nodes on 4 rails (a/node-0001, a/node-0002): not these " +
			"nodes, but a peer or a path that they share; the logs of their jobs name it"},
		{"wrong keys beside a node that died", []fleettest.Fault{down}, false, counted(fleet.Refused, "0", 1), "2 " +
			"requests to which the peer denied access in 30 min, counted by 1 node on 1 rail (a/node-0001): not " +
			"the network; software at these nodes or at the peers that the logs of their jobs name"},
	} {
		o := fleettest.Options{Clusters: []string{"a"}, Nodes: 12, Rails: 4, Fanout: 4, Loopback: true, Faults: tc.faults}
		if tc.leaves {
			o.LeafSize = 12
		}
		before := fleet.Judge(fleettest.New(o))
		state := fleettest.New(o)
		state.Errors = tc.errors
		s := fleet.NewShown(state, fleet.Answers{})
		if diff := cmp.Diff(before, s.Report); diff != "" {
			t.Errorf("%s: somebody is blamed (-without errors +with): %s", tc.why, diff)
		}
		var table, page bytes.Buffer
		if err := s.WriteTable(&table, false); err != nil {
			t.Fatal(err)
		}
		if err := s.WriteHTML(&page); err != nil {
			t.Fatal(err)
		}
		text := strings.Join(strings.Fields(table.String()), " ")
		if !strings.Contains(text, tc.want) || tc.want == "" && strings.Contains(text, "counted by") {
			t.Errorf("%s: %s\nwant %s", tc.why, table.String(), tc.want)
		}
		if strings.Contains(page.String(), "counted by") != (tc.want != "") {
			t.Errorf("%s: page %s", tc.why, page.String())
		}
	}
}

// TestErrorsOfClusters: a fault of one cluster explains nothing in another one.
func TestErrorsOfClusters(t *testing.T) {
	state := fleettest.New(fleettest.Options{Clusters: []string{"a", "b"}, Nodes: 12, Rails: 4, Fanout: 4,
		Loopback: true,
		Faults:   []fleettest.Fault{{Kind: fleet.PeerDown, Node: fleet.Node{Cluster: "a", Name: fleettest.Name(5)}}}})
	for _, cluster := range []string{"a", "b"} {
		state.Errors = append(state.Errors, fleet.Counted{Kind: fleet.SilentPeer, Count: 1,
			Rail: fleet.Rail{Node: fleet.Node{Cluster: cluster, Name: fleettest.Name(1)}, Rail: "0"}})
	}
	var table bytes.Buffer
	if err := fleet.NewShown(state, fleet.Answers{}).WriteTable(&table, false); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(table.String()), " ")
	for _, want := range []string{"(a/node-0001): a/node-0005 (peer down) explains them",
		"(b/node-0001): no other node counts them"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s\nwant %s", table.String(), want)
		}
	}
}

// TestErrorAnswers: an answer of Prometheus names the rails that count, in order, as whole numbers.
func TestErrorAnswers(t *testing.T) {
	sample := func(node, rail string, v model.SampleValue) *model.Sample {
		return &model.Sample{Metric: model.Metric{"node": model.LabelValue(node), "rail": model.LabelValue(rail)}, Value: v}
	}
	a := fleet.Answers{Answers: map[string]model.Vector{
		"errors_silent_peer": {sample("b", "10", 2.07), sample("b", "9", 0.2)},
		"errors_refused":     {sample("a", "0", 7)},
	}}
	rail := func(node, rail string) fleet.Rail { return fleet.Rail{Node: fleet.Node{Name: node}, Rail: rail} }
	want := []fleet.Counted{{Rail: rail("a", "0"), Kind: fleet.Refused, Count: 7},
		{Rail: rail("b", "9"), Kind: fleet.SilentPeer, Count: 1}, {Rail: rail("b", "10"), Kind: fleet.SilentPeer, Count: 2}}
	if diff := cmp.Diff(want, a.State(nil).Errors); diff != "" {
		t.Error(diff)
	}
}
