package probe

import (
	"math"
	"testing"
	"time"
)

// ratedPath is a path of this rate in Gb/s.
func ratedPath(rate float64) *path {
	return &path{result: &RailResult{Capacity: new(rate * 1e9 / 8)}}
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
			if need := round.railTime(paths, paths); need > leastLease || need < cost {
				t.Errorf("%d × %g Gb/s: a round asks for a lease of %v", rails, rate, need)
			}
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
