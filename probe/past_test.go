package probe

import (
	"testing"
	"time"

	"github.com/railscope/railscope/internal/baseline"
	"github.com/railscope/railscope/probe/internal/history"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/schedule"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// TestCompareWithPast: a rail that carries much less than on other days makes rounds degraded after two full ones
// that agree, until a full one is better. An interactive round reports it at once, and is not remembered.
func TestCompareWithPast(t *testing.T) {
	t.Parallel()
	const gigabyte = 1e9
	past := baseline.New(nil, nil)
	n := &node.Node{Opts: node.Options{Past: past}}
	at := time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)
	round := func(solo float64, byHand bool) result.Outcome {
		at = at.Add(5 * time.Minute)
		given := result.Result{Peer: "b:1", Start: at, Outcome: result.OK, Transport: result.RDMA,
			Rails: []result.RailResult{{Rail: "3", Expected: new(50.0 * gigabyte)}}}
		if solo > 0 {
			given.Rails[0].Solo = &result.Flow{Bytes: int64(solo * gigabyte), Active: time.Second}
		}
		r := n.CompareWithPast(given, byHand)
		if given.Rails[0].Past != nil {
			t.Error("the result was changed")
		}
		return r.Outcome
	}
	for i, c := range []struct {
		solo   float64
		byHand bool
		want   result.Outcome
	}{{44, false, result.OK}, {44, false, result.OK}, {44, false, result.OK}, {44, false, result.OK},
		{20, true, result.OK}, {44, false, result.OK},
		{20, true, result.Degraded}, {43, true, result.OK}, {24, false, result.OK}, {0, false, result.OK},
		{22, false, result.Degraded}, {0, false, result.Degraded},
		{44, false, result.OK}} {
		if got := round(c.solo, c.byHand); got != c.want {
			t.Errorf("round %d: %s, want %s", i+1, got, c.want)
		}
	}
	past.Forget("3")
	if round(22, true) != result.OK { // the operator drops the memory after a planned change
		t.Error("after a reset")
	}
}

// TestPastOverReload: the memory of found peers outlives a reload, and is dropped with the peer.
func TestPastOverReload(t *testing.T) {
	t.Parallel()
	found := newFound(t)
	static := found.Opts
	static.DNS = nil
	for _, tc := range []struct {
		why   string
		opts  options.Options
		peers []string // configured peers
		list  []string // peers found by the first lookup
		want  bool
	}{
		{"found peers, before the first lookup", found.Opts, nil, nil, true},
		{"found again", found.Opts, nil, []string{"10.0.0.2:7"}, true},
		{"no longer found", found.Opts, nil, []string{"10.0.0.3:7"}, false},
		{"still in a static list", static, []string{"10.0.0.2:7"}, nil, true},
		{"removed from a static list", static, []string{"10.0.0.3:7"}, nil, false},
	} {
		n := found.Node
		n.Past.Of("10.0.0.2:7", "a").Low = 2
		tc.opts.Peers = tc.peers
		f := &foundPeers{Prober: schedule.NewProber(n, tc.opts, func(result.Result) {}, quiet(options.Events{}))}
		if tc.list != nil {
			f.published(tc.list...)
		}
		if got := n.Past.Peers["10.0.0.2:7"] != nil; got != tc.want {
			t.Errorf("%s: remembered %v, want %v", tc.why, got, tc.want)
		}
	}
}

// TestPastTurn: one round at a time uses the memory of a peer.
func TestPastTurn(t *testing.T) {
	turn := new(history.Past).Of("b:1", "b").Turn
	turn <- struct{}{}
	select {
	case turn <- struct{}{}:
		t.Error("two rounds use the memory at once")
	default:
	}
}
