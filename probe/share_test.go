package probe

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/round"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// ratedPath returns a path with this rate in Gb/s.
func ratedPath(rate float64) *round.Flow {
	p := &round.Flow{Peer: &protocol.HelloRail{Active: true}, Result: &result.RailResult{Capacity: new(rate * 1e9 / 8)}}
	p.Local.Status.Limits.Active = true
	return p
}

// TestRoundShare: with the default options and fan-out, the rounds that a node asks and answers in an interval take
// less than 0.5 % of a rail's time at any rate. A burst takes its measured time, and the time to fill and drain the
// queue.
func TestRoundShare(t *testing.T) {
	const asked, asking, most = 4, 4, 0.005
	opts := options.DefaultOptions()
	for _, rate := range []float64{1, 10, 25, 100, 400, 800} {
		for _, rails := range []int{1, 2, 8, 16} {
			planned := round.Plan{Options: opts, Rails: rails, Rate: float64(rails) * rate * 1e9 / 8}
			l := planned.Load(ratedPath(rate))
			queue := options.Seconds(float64(l.Depth) * float64(l.Chunk) / (rate * 1e9 / 8))
			window := max(opts.Burst, options.Seconds(round.BurstWrites*float64(l.Chunk)/(rate*1e9/8)))
			burst, tcp := window+3*queue, round.TCPWarmup+round.TCPWindow
			cost := burst + (burst+time.Duration(len(round.BaselineStreams))*tcp)/time.Duration(opts.SoloEvery)
			share := float64(asked+asking) * cost.Seconds() / opts.Interval.Seconds()
			t.Logf("%2d × %3g Gb/s: writes of %4d KiB, a burst takes %v, a round %v on average: %.3f %% of a rail's time",
				rails, rate, l.Chunk>>10, burst.Round(time.Microsecond), cost.Round(time.Microsecond), 100*share)
			if share >= most {
				t.Errorf("%d × %g Gb/s: %.3f %%", rails, rate, 100*share)
			}
			hour, budget := asked*cost*(time.Hour/opts.Interval), opts.Budget.PerHour(planned.Rate)
			if hour > budget {
				t.Errorf("%d × %g Gb/s: rounds with %d peers take %v an hour", rails, rate, asked, hour)
			}
			var paths []*round.Flow
			for range rails {
				paths = append(paths, ratedPath(rate))
			}
			planned.Full = true
			if need := options.RailTime(planned.Bytes(paths, paths), planned.Rate); need > node.LeastLease ||
				need < cost {
				t.Errorf("%d × %g Gb/s: a round asks for a lease of %v", rails, rate, need)
			}
		}
	}
}

// TestLeaseFits: whatever rails the peer has, a round asks for a lease that the target grants.
func TestLeaseFits(t *testing.T) {
	down := ratedPath(400)
	down.Peer.Active = false
	missing := ratedPath(400)
	missing.Peer = nil
	rails := func(n int, p *round.Flow) []*round.Flow { return slices.Repeat([]*round.Flow{p}, n) }
	for why, tc := range map[string]struct {
		paths []*round.Flow
		own   float64 // Gb/s of this node's rails
		peer  float64 // Gb/s of the peer's rails, as it reports them
	}{
		"alike":            {rails(8, ratedPath(400)), 3200, 3200},
		"no rail there":    {rails(8, missing), 3200, node.NominalRate * 8 / 1e9},
		"all down there":   {rails(8, down), 3200, node.NominalRate * 8 / 1e9},
		"seven down there": {append(rails(7, down), ratedPath(400)), 3200, 400},
		"1/8 there":        {rails(8, ratedPath(50)), 3200, 400},
		"1 × 25 there":     {append(rails(7, missing), ratedPath(25)), 3200, 25},
		"1/16 here":        {rails(1, ratedPath(25)), 25, 400},
	} {
		p := round.Plan{Options: options.DefaultOptions(), Full: true, Rails: len(tc.paths),
			Rate: min(tc.own, tc.peer) * 1e9 / 8}
		if need := options.RailTime(p.Bytes(tc.paths, tc.paths), p.Rate); need > node.LeastLease {
			t.Errorf("%s: a round asks for a lease of %v, want at most %v", why, need, node.LeastLease)
		}
	}
}

// TestRoundBytes: a round writes no more than its plan allows, and is charged to the budgets of both ends.
func TestRoundBytes(t *testing.T) {
	t.Parallel()
	p := newPair(t, 2, nil)
	p.opts.Budget = options.Budget{Share: 1. / 3600} // 1 s, refilled by 0.3 ms per second
	p.a.SetBudget(p.opts.Budget)
	p.b.SetBudget(p.opts.Budget)
	planned := round.Plan{Options: p.opts, Full: true, Rails: 2, Rate: p.rate("b")}
	both := []*round.Flow{ratedPath(10), ratedPath(10)}
	asked, answered := p.a.AskBudget.Remaining(), p.b.AnswerBudget.Remaining()
	res := p.round()
	least := 2 * 2 * round.BurstWrites * planned.Load(both[0]).Chunk
	if most := planned.Bytes(both, both); res.Outcome != result.OK || res.Bytes > most || res.Bytes < least {
		t.Fatalf("%s because of %q: %d bytes, planned %d to %d", res.Outcome, res.Detail, res.Bytes, least, most)
	}
	cost := float64(res.Bytes) / p.rate("a")
	for name, used := range map[string]float64{"asked": asked - p.a.AskBudget.Remaining(),
		"answered": answered - p.b.AnswerBudget.Remaining()} {
		if math.Abs(used/cost-1) > 0.1 {
			t.Errorf("%s: %.6f s were charged for %d bytes, want %.6f s", name, used, res.Bytes, cost)
		}
	}
}
