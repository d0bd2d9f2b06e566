package probe

import (
	"testing"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// seen reads the samples of a source, by metric and last label.
func seen(t *testing.T, p *Source) map[*collector.Metric]map[string]float64 {
	t.Helper()
	got := map[*collector.Metric]map[string]float64{}
	if err := p.Read(func(s collector.Sample) {
		if got[s.Metric] == nil {
			got[s.Metric] = map[string]float64{}
		}
		last := ""
		for _, l := range s.Labels {
			last += l + " "
		}
		got[s.Metric][last] = s.Value
	}); err != nil {
		t.Fatal(err)
	}
	return got
}

// TestAge: while jobs use the rails, figures of bursts stay for a while, each rail's for its own, and are absent then.
// What every round knows stays, and so do the times of the last burst and of the last round.
func TestAge(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	start := now
	full := 5 * time.Minute
	p := NewSource(func() options.Stats { return options.Stats{Running: true, Full: full} })
	p.Now = func() time.Time { return now }
	p.SetPeers([]string{"a"})
	flow := &result.Flow{Bytes: 1 << 30, Active: time.Second}
	busy := &result.Failure{Reason: "busy", Rail: "1"}
	rails := func(left ...bool) (list []result.RailResult) {
		for i, l := range left {
			r := result.RailResult{Rail: string(rune('0' + i)), PeerRail: "0", Expected: new(2e9), PathMTU: 4096,
				Latency: &result.Latency{Samples: []time.Duration{time.Microsecond}}}
			r.Striped, r.Solo = flow, flow
			if l {
				r.Striped, r.Solo, r.Busy, r.Left = nil, nil, true, busy
			}
			list = append(list, r)
		}
		return list
	}
	good := result.Result{Peer: "a", Start: now, Outcome: result.OK, Transport: result.RDMA, Rails: rails(false, false),
		Striped: new(2e9), Static: new(2e9), Imbalance: new(0.0), Scaling: new(1.0), Speedup: new(2.0),
		TCP: []result.TCPResult{{Streams: 1, BytesPerSecond: 1e9}},
		Extras: []result.Measured{{Kind: result.Loopback, Flows: []result.MeasuredFlow{{Rail: "0", Other: "0",
			Goodput: new(1e9)}}}}}
	p.Observe(good, nil)
	rows := len(seen(t, p))

	reached := good
	reached.Outcome, reached.Rails, reached.BurstSkipped = result.Reached, rails(true, true), busy
	reached.Striped, reached.Static, reached.Imbalance, reached.Scaling, reached.Speedup = nil, nil, nil, nil, nil
	reached.TCP = nil
	partial := good
	partial.Rails, partial.BurstSkipped, partial.Scaling, partial.Speedup, partial.TCP = rails(false, true), busy, nil,
		nil, nil

	now = now.Add(10 * time.Minute)
	reached.Start = now
	p.Observe(reached, nil)
	got := seen(t, p)
	if len(got) != rows+1 || got[p.burstsSkipped]["a busy "] != 1 || got[p.rounds]["a reached "] != 1 {
		t.Errorf("%d rows of %d; skipped %v, rounds %v", len(got), rows, got[p.burstsSkipped], got[p.rounds])
	}
	if got[p.lastBurst]["a "] != float64(start.Unix()) || got[p.lastRound]["a "] != float64(now.Unix()) ||
		got[p.lastResult]["a "] != float64(now.Unix()) {
		t.Errorf("last burst %v, round %v, result %v", got[p.lastBurst], got[p.lastRound], got[p.lastResult])
	}
	for rail, rate := range map[string]float64{"0": 0, "1": 0} {
		if burst, part := p.Proof(rail); burst == nil || !burst.At.Equal(start) || burst.Rate <= rate || part != 0.7 {
			t.Errorf("rail %s: %+v of %v", rail, burst, part)
		}
	}
	if burst, _ := p.Proof("9"); burst != nil {
		t.Errorf("a rail that was never measured: %+v", burst)
	}

	beside, corrupt := good, good
	beside.Start, corrupt.Start, beside.Rails = now, now, rails(false, false)
	for i := range beside.Rails {
		beside.Rails[i].Busy = true // A burst beside the traffic of others says nothing of the rail.
	}
	corrupt.Outcome, corrupt.Failures = result.Failed, []result.Failure{{Stage: "verify", Reason: "data_mismatch"}}
	for _, r := range []result.Result{beside, corrupt} {
		other := newPeer("other", p.rows)
		other.observe(r, nil)
		if len(other.proofs) > 0 {
			t.Errorf("%s proves: %+v", r.Outcome, other.proofs)
		}
	}

	partial.Start = now
	p.Observe(partial, nil)
	now = now.Add(6 * time.Minute) // 16 minutes after the full round
	got = seen(t, p)
	if rate := got[p.railGoodput]; len(rate) != 2 || rate["a 0 stealing "] == 0 || rate["a 0 solo "] == 0 {
		t.Errorf("goodput of rails: %v", rate)
	}
	if got[p.goodput] == nil || got[p.scaling] != nil || got[p.tcp] != nil || got[p.speedup] != nil {
		t.Errorf("goodput %v, scaling %v, TCP %v", got[p.goodput], got[p.scaling], got[p.tcp])
	}
	if got[p.loopback] == nil { // one of four extras in each full round
		t.Error("no loopback")
	}

	now = now.Add(time.Hour)
	got = seen(t, p)
	for _, m := range []*collector.Metric{p.goodput, p.railGoodput, p.imbalance, p.loopback} {
		if got[m] != nil {
			t.Errorf("an hour later: %s %v", m.Name, got[m])
		}
	}
	for _, m := range []*collector.Metric{p.railUp, p.pathMTU, p.railExpected, p.transport, p.lastBurst, p.lastRound,
		p.rounds} {
		if got[m] == nil {
			t.Errorf("an hour later: no %s", m.Name)
		}
	}
	full = 50 * time.Minute // two of them are more than the hour
	if got := seen(t, p); got[p.goodput] == nil {
		t.Error("full rounds every 50 minutes: no goodput")
	}
}

// TestLoads: latencies beside the traffic of others have their own histograms.
func TestLoads(t *testing.T) {
	p := NewSource(func() options.Stats { return options.Stats{Running: true} })
	p.SetPeers([]string{"a"})
	sample := func(busy bool) result.Result {
		return result.Result{Peer: "a", Outcome: result.OK, Transport: result.RDMA, Rails: []result.RailResult{{Rail: "0",
			Load: result.Load{Busy: busy}, Latency: &result.Latency{Samples: []time.Duration{5 * time.Microsecond}}}}}
	}
	p.Observe(sample(false), nil)
	p.Observe(sample(false), nil)
	p.Observe(sample(true), nil)
	peer := p.peers["a"]
	for of, want := range map[railLoad]uint64{{"", idle}: 2, {"", busy}: 1} {
		if got := peer.latency[of].written.GetHistogram().GetSampleCount(); got != want {
			t.Errorf("%v: %d samples, want %d", of, got, want)
		}
	}
	if len(peer.latency) != 2 || len(peer.railLatency) != 2 || peer.railLatency[railLoad{"0", busy}] == nil {
		t.Errorf("%v, %v", peer.latency, peer.railLatency)
	}
	bounds := peer.latency[railLoad{"", idle}].written.GetHistogram().GetBucket()
	for i := range bounds[1:] {
		lower, upper := bounds[i].GetUpperBound(), bounds[i+1].GetUpperBound()
		if lower < 64e-6 && upper > 1.26*lower {
			t.Errorf("a bucket from %g to %g", lower, upper)
		}
	}
}
