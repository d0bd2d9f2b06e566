package main

import (
	"reflect"
	"testing"

	"github.com/railscope/railscope/fleet/gate"
	"github.com/railscope/railscope/internal/nodelist"
	"github.com/railscope/railscope/probe/result"
)

// TestVisitOf: a pair is bad only if a rail carries no RDMA, or TCP alone reaches the peer and nothing of railscope is
// the reason. Everything else is unknown.
func TestVisitOf(t *testing.T) {
	f := &result.Failure{Stage: "reach", Reason: "retry_exceeded", Detail: "no answer"}
	busy := &result.Failure{Stage: "striped", Reason: "busy", Detail: "others use it"}
	for _, tc := range []struct {
		why  string
		in   result.Visit
		want gate.Visit
	}{
		{"RDMA", result.Visit{Transport: result.RDMA, Rails: []result.VisitRail{
			{Rail: "0", Leaf: "leaf-a", Goodput: new(5e9), Expected: new(6e9), Retransmits: new(uint64(3))},
			{Rail: "1", Failure: f}, {Rail: "2", Left: busy}}},
			gate.Visit{Rails: []gate.Rail{{Name: "0", Leaf: "leaf-a", Goodput: 5e9, Expected: 6e9, Retransmits: 3},
				{Name: "1", Dead: "reach: retry_exceeded: no answer", Retransmits: -1},
				{Name: "2", Unmeasured: "striped: busy: others use it", Retransmits: -1}}}},
		{"TCP", result.Visit{Transport: result.TCP, Failure: f}, gate.Visit{TCP: "reach: retry_exceeded: no answer"}},
		{"TCP because of railscope", result.Visit{Transport: result.TCP, Failure: f, OfRailscope: true},
			gate.Visit{Unknown: "reach: retry_exceeded: no answer"}},
		{"skipped", result.Visit{Transport: result.NoTransport, Failure: busy},
			gate.Visit{Unknown: "striped: busy: others use it"}},
		{"nothing", result.Visit{}, gate.Visit{Unknown: "no round was made"}},
	} {
		if got := visitOf(tc.in); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %+v, want %+v", tc.why, got, tc.want)
		}
	}
}

// TestNamesOf: nodes have the names under which they were given; only those behind a DNS name have none.
func TestNamesOf(t *testing.T) {
	names, found := namesOf([]nodelist.Node{{Addresses: []string{"a:1"}}, {Addresses: []string{"b:1"}},
		{Addresses: []string{"b:2"}}, {Addresses: []string{"10.0.0.1:1"}, TLSName: "peers"}})
	if want := []string{"a", "b:1", "b:2", "10.0.0.1"}; !reflect.DeepEqual(names, want) ||
		!reflect.DeepEqual(found, []bool{false, false, false, true}) {
		t.Errorf("%q, %v", names, found)
	}
}
