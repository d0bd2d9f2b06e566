package probe

import "context"

// splitLatency measures, in a round by hand, which part of each rail's latency is the adapter's and which the host's:
// over queue pairs of their own, so that the round's figure does not change. A rail whose adapter has no clock that can
// be read has no parts, and a failure here is no finding.
func (r *round) splitLatency(ctx context.Context) {
	paths, err := r.usable()
	if !r.byHand || err != nil || r.plan.LatencySamples == 0 {
		return
	}
	var flows []*path
	for _, p := range paths {
		f := p.over(Write, 0)
		f.stamps = true
		flows = append(flows, f)
	}
	// A rail with stamps makes no bursts, so nothing is written before the latencies.
	if _, err = r.step(ctx, flows, 1, extraSamples, (*round).connect, (*round).latency); err != nil {
		return
	}
	for i, f := range flows {
		if l := f.result.Latency; l != nil && paths[i].result.Latency != nil {
			paths[i].result.Latency.Adapter, paths[i].result.Latency.Host = l.Adapter, l.Host
		}
	}
}
