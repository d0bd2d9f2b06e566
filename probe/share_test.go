package probe

import (
	"math"
	"slices"
	"testing"
	"time"
)

// ratedPath is a path of this rate in Gb/s.
func ratedPath(rate float64) *path {
	p := &path{peer: &helloRail{Active: true}, result: &RailResult{Capacity: new(rate * 1e9 / 8)}}
	p.local.status.Limits.Active = true
	return p
}

// TestRoundShare: with the default options and fan-out, the rounds that a node asks and answers in an interval take
// less than 0.5 % of a rail's time, whatever its rate. A burst takes the time that it measures, and fills and drains
// the queue.
func TestRoundShare(t *testing.T) {
	const asked, asking, most = 4, 4, 0.005
	opts := DefaultOptions()
	for _, rate := range []float64{1, 10, 25, 100, 400, 800} {
		for _, rails := range []int{1, 2, 8, 16} {
			round := plan{Options: opts, rails: rails, rate: float64(rails) * rate * 1e9 / 8}
			l := round.load(ratedPath(rate))
			queue := seconds(float64(l.Depth) * float64(l.Chunk) / (rate * 1e9 / 8))
			window := max(opts.Burst, seconds(burstWrites*float64(l.Chunk)/(rate*1e9/8)))
			burst, tcp := window+3*queue, tcpWarmup+tcpWindow
			cost := burst + (burst+time.Duration(len(baselineStreams))*tcp)/time.Duration(opts.SoloEvery)
			share := float64(asked+asking) * cost.Seconds() / opts.Interval.Seconds()
			t.Logf("%2d × %3g Gb/s: writes of %4d KiB, a burst takes %v, a round %v on average: %.3f %% of a rail's time",
				rails, rate, l.Chunk>>10, burst.Round(time.Microsecond), cost.Round(time.Microsecond), 100*share)
			if share >= most {
				t.Errorf("%d × %g Gb/s: %.3f %%", rails, rate, 100*share)
			}
			hour, budget := asked*cost*(time.Hour/opts.Interval), opts.Budget.perHour(round.rate)
			if hour > budget {
				t.Errorf("%d × %g Gb/s: rounds with %d peers take %v an hour", rails, rate, asked, hour)
			}
			var paths []*path
			for range rails {
				paths = append(paths, ratedPath(rate))
			}
			round.full = true
			if need := railTime(round.bytes(paths, paths), round.rate); need > leastLease || need < cost {
				t.Errorf("%d × %g Gb/s: a round asks for a lease of %v", rails, rate, need)
			}
		}
	}
}

// TestLeaseFits: whatever the peer has, a round asks for a lease that the target grants.
func TestLeaseFits(t *testing.T) {
	down := ratedPath(400)
	down.peer.Active = false
	missing := ratedPath(400)
	missing.peer = nil
	rails := func(n int, p *path) []*path { return slices.Repeat([]*path{p}, n) }
	for why, tc := range map[string]struct {
		paths []*path
		own   float64 // Gb/s of this node's rails
		peer  float64 // of the peer's, as it reports them
	}{
		"alike":            {rails(8, ratedPath(400)), 3200, 3200},
		"no rail there":    {rails(8, missing), 3200, nominalRate * 8 / 1e9},
		"all down there":   {rails(8, down), 3200, nominalRate * 8 / 1e9},
		"seven down there": {append(rails(7, down), ratedPath(400)), 3200, 400},
		"1/8 there":        {rails(8, ratedPath(50)), 3200, 400},
		"1 × 25 there":     {append(rails(7, missing), ratedPath(25)), 3200, 25},
		"1/16 here":        {rails(1, ratedPath(25)), 25, 400},
	} {
		p := plan{Options: DefaultOptions(), full: true, rails: len(tc.paths), rate: min(tc.own, tc.peer) * 1e9 / 8}
		if need := railTime(p.bytes(tc.paths, tc.paths), p.rate); need > leastLease {
			t.Errorf("%s: a round asks for a lease of %v, want at most %v", why, need, leastLease)
		}
	}
}

// TestRoundBytes: a round writes no more than its plan says, and costs the budgets of both ends what it wrote.
func TestRoundBytes(t *testing.T) {
	t.Parallel()
	p := newPair(t, 2, nil)
	p.opts.Budget = Budget{Share: 1. / 3600} // 1 s, refilled by 0.3 ms a second
	p.a.setBudget(p.opts.Budget)
	p.b.setBudget(p.opts.Budget)
	round := plan{Options: p.opts, full: true, rails: 2, rate: p.rate("b")}
	both := []*path{ratedPath(10), ratedPath(10)}
	asked, answered := p.a.askBudget.remaining(), p.b.answerBudget.remaining()
	res := p.round()
	least := 2 * 2 * burstWrites * round.load(both[0]).Chunk
	if most := round.bytes(both, both); res.Outcome != OK || res.Bytes > most || res.Bytes < least {
		t.Fatalf("%s because of %q: %d bytes, planned %d to %d", res.Outcome, res.Detail, res.Bytes, least, most)
	}
	cost := float64(res.Bytes) / p.rate("a")
	for name, used := range map[string]float64{"asked": asked - p.a.askBudget.remaining(),
		"answered": answered - p.b.answerBudget.remaining()} {
		if math.Abs(used/cost-1) > 0.1 {
			t.Errorf("%s: %.6f s were charged for %d bytes, want %.6f s", name, used, res.Bytes, cost)
		}
	}
}
