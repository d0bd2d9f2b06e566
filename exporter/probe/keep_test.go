package probe

import (
	"slices"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// TestKeep: values that a round did not measure are kept from the previous one only while transport and rails are
// the same.
func TestKeep(t *testing.T) {
	const scaling, speedup, solo = 1, 2, 4
	flow := &result.Flow{Bytes: 1 << 30, Active: time.Second}
	full := func() result.Result {
		return result.Result{Transport: result.RDMA, Scaling: new(0.5), Speedup: new(3.0),
			Rails: []result.RailResult{{Rail: "0", Solo: flow}, {Rail: "1", Solo: flow}}}
	}
	failed := func(r *result.Result) { r.Rails[0].Failure = &result.Failure{} }
	for _, tc := range []struct {
		name   string
		change func(*result.Result) // changes a round that measured none of them
		want   int
	}{
		{"by RDMA", func(*result.Result) {}, scaling | speedup | solo},
		{"a fallback to TCP", func(r *result.Result) { r.Transport = result.TCP }, 0},
		{"a fallback that has a solo", func(r *result.Result) { r.Transport, r.Rails[0].Solo = result.TCP, flow }, 0},
		{"no transport", func(r *result.Result) { r.Transport = result.NoTransport }, 0},
		{"the rail failed", failed, speedup},
		{"another rail, measured", func(r *result.Result) { r.Scaling, r.Rails[0].Rail = new(1.0), "7" }, scaling},
		{"another rail", func(r *result.Result) { r.Rails[0].Rail = "7" }, 0},
		{"a rail less", func(r *result.Result) { r.Rails = r.Rails[:1] }, solo},
		{"a rail more", func(r *result.Result) { r.Rails = append(r.Rails, result.RailResult{Rail: "2"}) }, solo},
		{"an unpaired rail more", func(r *result.Result) {
			r.Rails = append(r.Rails, result.RailResult{Rail: "2", Unpaired: true})
		}, scaling | speedup | solo},
		{"another order", func(r *result.Result) { slices.Reverse(r.Rails) }, scaling | speedup | solo},
		{"another rail of the peer", func(r *result.Result) { r.Rails[0].PeerRail = "9" }, solo},
	} {
		p := newPeer("a", NewSource(func() options.Stats { return options.Stats{} }).rows)
		p.keep(full())
		r := result.Result{Transport: result.RDMA, Rails: []result.RailResult{{Rail: "0"}, {Rail: "1"}}}
		tc.change(&r)
		p.keep(r)
		got := 0
		if p.last.Scaling != nil {
			got |= scaling
		}
		if p.last.Speedup != nil {
			got |= speedup
		}
		if p.last.Rails[0].Solo != nil {
			got |= solo
		}
		if got != tc.want {
			t.Errorf("%s: kept %03b, want %03b", tc.name, got, tc.want)
		}
		p.keep(result.Result{Transport: result.RDMA, Rails: []result.RailResult{{Rail: "0"}}})
		if after := p.last.Rails[0].Solo != nil; after != (tc.want&solo > 0) {
			t.Errorf("%s: in the next round by RDMA a solo figure is kept: %v", tc.name, after)
		}
	}
}
