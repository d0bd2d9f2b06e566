package probe

import (
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// TestPlans: what rounds would need is what they reserve, and what the peer grants decides which of them make bursts.
// To know that moves no data.
func TestPlans(t *testing.T) {
	t.Parallel()
	p := newPair(t, 2, nil)
	p.opts.Depth = 16
	p.b.SetBudget(options.Budget{Share: 0.004}) // leases of 1.8 s
	lists := [][]result.Extra{nil, {{Kind: result.Reads}}, {{Kind: result.Reads}, {Kind: result.Sweep,
		Values: []int{1 << 30}}}}
	plans, err := BenchPlans(t.Context(), p.a, p.opts, p.peer, lists)
	if err != nil || plans.Grants == nil || plans.Grants.Lease != 1800*time.Millisecond ||
		plans.Grants.Left != 14400*time.Millisecond {
		t.Fatalf("%+v, %v", plans, err)
	}
	for i, want := range []struct {
		bursts int
		fits   bool
	}{{6, true}, {9, true}, {10, false}} {
		need := plans.Needs[i]
		if fits := need.RailTime <= plans.Grants.Lease; need.RailTime <= 0 || fits != want.fits ||
			need.Bursts != want.bursts {
			t.Errorf("%v: %+v", lists[i], need)
		}
		p.opts.Extras = lists[i]
		res := Bench(t.Context(), p.a, p.opts, p.peer, func(result.Progress) {})
		refused := res.BurstSkipped != nil && res.BurstSkipped.Reason == failure.Budget
		if refused == want.fits {
			t.Errorf("%v needs %v: %s %s, %v", lists[i], need.RailTime, res.Outcome, res.Detail, res.BurstSkipped)
		}
	}
	_, err = BenchPlans(t.Context(), p.a, p.opts, "127.0.0.1:1", lists)
	if f := failure.As("", err); f == nil || f.Reason != failure.PeerUnreachable {
		t.Errorf("without a peer: %v", err)
	}
	p.clean()
}
