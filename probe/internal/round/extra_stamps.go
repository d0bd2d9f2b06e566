package round

import (
	"context"

	"github.com/railscope/railscope/probe/result"
)

// splitLatency measures, in an interactive round, which part of each rail's latency is the adapter's and which the
// host's. It uses its own queue pairs, so that the round's figure does not change. A rail whose adapter has no
// readable clock has no parts, and a failure here is not a finding.
func (r *Round) splitLatency(ctx context.Context) {
	paths, err := r.usable()
	if !r.ByHand || err != nil || r.Plan.LatencySamples == 0 {
		return
	}
	var flows []*Path
	for _, p := range paths {
		f := p.over(result.Write, 0)
		f.stamps = true
		flows = append(flows, f)
	}
	// A rail with timestamps makes no bursts, so no first writes precede the latencies.
	_, err = r.step(ctx, flows, 1, ExtraSamples, (*Round).connect, (*Round).latency)
	if err != nil {
		return
	}
	for i, f := range flows {
		if l := f.Result.Latency; l != nil && paths[i].Result.Latency != nil {
			paths[i].Result.Latency.Adapter, paths[i].Result.Latency.Host = l.Adapter, l.Host
		}
	}
}
