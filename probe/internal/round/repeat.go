package round

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/history"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/result"
)

// Disturbed returns why a burst has no figure.
func Disturbed(args worker.BurstArgs, done worker.BurstDone) *failure.Failure {
	if done.Ramping() < 0 && !done.Disturbed() {
		return failure.New(failure.StageStriped, failure.Timeout, "too few writes completed to measure")
	}
	loads, tries := args.Loads, fmt.Sprintf("each of %d bursts", 1+worker.MaxRepeats)
	if args.Once {
		tries = "the burst"
	}
	if i := done.Ramping(); i >= 0 && !done.Disturbed() {
		return failure.New(failure.StageStriped, failure.Ramping, "rail %s became faster until the burst ended, from %.1f "+
			"to "+
			"%.1f Gb/s in its last window of %v: neither is what it can carry; raise `burst`", loads[i].Rail,
			done.Rails[i].Early*8/1e9, done.Rails[i].Late*8/1e9, done.Rails[i].Last-done.Rails[i].First)
	}
	var gap time.Duration
	stalled, unclear := false, ""
	for i, b := range done.Rails {
		gap = max(gap, b.Gap)
		l := loads[i]
		last := float64(l.Depth-1) * float64(l.Chunk) / b.Rate()
		switch {
		case !b.Disturbed:
		case b.Rate() == 0 || b.Gap.Seconds() > last-l.RTT.Seconds():
			stalled = true
		case unclear == "":
			unclear = l.Rail
		}
		if b.Disturbed && last < (l.RTT+minSlack).Seconds() {
			return failure.New(failure.StageStriped, failure.Disturbed, "the %d writes in flight on rail %s last %.0f µs, "+
				"and a round trip takes %v: the rail may wait for acknowledgements, so nothing can be said of it; raise "+
				"`depth`", l.Depth, l.Rail, last*1e6, l.RTT.Round(time.Microsecond))
		}
	}
	if !stalled && unclear != "" {
		return failure.New(failure.StageStriped, failure.Disturbed, "the writes of rail %s completed too unevenly to say "+
			"what it carried in %s: its rate varies, or its writes wait for retransmission; raise `burst`", unclear, tries)
	}
	return failure.New(failure.StageStriped, failure.Disturbed, "the thread that polls the rails did not run for up to "+
		"%v, longer than the queues of the adapters last, in %s: nothing can be said of the rails; raise `depth` and "+
		"`burst`, or give railscope more CPU time", gap.Round(time.Microsecond), tries)
}

// again repeats the striped burst of a full round until enough bursts agree that the rails share a bottleneck; the
// best one counts. Then it repeats the solo bursts, and the slower one of each rail counts: a busy machine slows
// everything. Interactive rounds always repeat, for the spread. Repeats use time reserved for disturbed bursts.
func (r *Round) again(ctx context.Context) error {
	before := r.Past.Low
	r.NoteScaling()
	for n := 1; r.Res.Stealing != nil && (r.Past.Low > 0 && r.Past.Low < history.Agreeing && r.Plan.Full ||
		n < r.Plan.Runs); n++ {
		if !r.affordsBurst(ctx) {
			break
		}
		if err := r.stripedAgain(ctx); err != nil {
			return err
		}
	}
	if !r.Plan.Full || r.Past.Low < history.Agreeing || before >= history.Agreeing {
		return nil
	}
	if !r.affordsBurst(ctx) {
		r.Past.Low = history.Agreeing - 1 // a later round confirms it
		return nil
	}
	return r.solosAgain(ctx)
}

// stripedAgain repeats the striped burst, and keeps the better one.
func (r *Round) stripedAgain(ctx context.Context) error {
	before, rails := r.Res, slices.Clone(r.Res.Rails)
	if err := r.striped(ctx); err != nil {
		return err
	}
	if r.disturbed != nil {
		r.disturbed = nil
		r.restore(&before, rails)
		return nil
	}
	r.NoteScaling()
	if len(r.Res.Failures) == len(before.Failures) && r.Res.Stealing != nil && *r.Res.Stealing < *before.Stealing {
		r.restore(&before, rails)
	}
	return nil
}

// solosAgain repeats the solo bursts, and judges the striped one by the slower solo of each rail.
func (r *Round) solosAgain(ctx context.Context) error {
	first := map[*Path]*result.Flow{}
	for _, p := range r.LivePaths() {
		first[p] = p.Result.Solo
	}
	if err := r.solos(ctx); err != nil {
		return err
	}
	for p, flow := range first {
		if again := p.Result.Solo; flow != nil && again != nil {
			p.slowerSolo = min(flow.BytesPerSecond(), again.BytesPerSecond())
			if again.BytesPerSecond() < flow.BytesPerSecond() {
				p.Result.Solo = flow
			}
		} else if again == nil {
			p.Result.Solo = flow
		}
	}
	r.Judge()
	if r.Res.Scaling == nil || *r.Res.Scaling >= result.SharedBelow {
		r.Past.Low = 0
	}
	return nil
}

// soloRate returns the solo rate of the path in bytes per second, the lower one if it was measured twice; 0:
// unknown.
func (p *Path) soloRate() float64 {
	if p.Result.Solo == nil {
		return 0
	}
	if p.slowerSolo > 0 {
		return p.slowerSolo
	}
	return p.Result.Solo.BytesPerSecond()
}

// affordsBurst reports whether one more striped burst, or the solo bursts, fit into the round's reservation and its
// time.
func (r *Round) affordsBurst(ctx context.Context) bool {
	paths := r.LivePaths()
	var most int64
	for _, p := range paths {
		l := r.Plan.Load(p)
		most += (1 + worker.MaxRepeats) * (l.Cap + int64(l.Depth+1)*l.Chunk)
	}
	left := time.Duration(0)
	if end, ok := ctx.Deadline(); ok {
		left = time.Until(end) - releaseTime - time.Duration(len(BaselineStreams))*maxTCP
	}
	return r.Res.Bytes+most <= r.Plan.Bytes(r.Paths, nil) && left > time.Duration(len(paths)+1)*maxBurst
}

// restore restores the figures of an earlier striped burst. Bytes moved and lost since then stay counted.
func (r *Round) restore(res *result.Result, rails []result.RailResult) {
	r.Res.Stealing, r.Res.Static, r.Res.Imbalance = res.Stealing, res.Static, res.Imbalance
	r.Res.Scaling, r.Res.FinishSkew, r.Res.Shared = res.Scaling, res.FinishSkew, res.Shared
	for i := range rails {
		one := &r.Res.Rails[i]
		one.Stealing, one.Share, one.Others = rails[i].Stealing, rails[i].Share, rails[i].Others
		one.CounterBytes, one.CounterMismatch = rails[i].CounterBytes, rails[i].CounterMismatch
		one.Retransmits = rails[i].Retransmits
	}
}

// NoteScaling records the goodput of the last striped burst, and whether it found a shared bottleneck. Rounds
// without solo bursts use those of the last full round.
func (r *Round) NoteScaling() {
	if r.Res.Stealing == nil {
		return
	}
	r.Res.Runs = append(r.Res.Runs, *r.Res.Stealing)
	var solos float64
	var loads []rail.Load
	live := r.LivePaths()
	for _, p := range live {
		solo := p.soloRate()
		if past := r.Past.Rail(p.Local.Name); solo == 0 && past != nil && !r.Plan.Full {
			solo = past.Solo
		}
		if solo <= 0 {
			return // unknown
		}
		solos += solo
		loads = append(loads, p.load(solo))
	}
	if len(live) < 2 { // sharing needs two rails that took part in the burst
		r.Past.Low = 0
		return
	}
	if slices.ContainsFunc(live, func(p *Path) bool { return p.Result.Others != nil }) {
		return // traffic of others hides what the rails can do
	}
	if together := *r.Res.Stealing / solos; r.Res.TogetherSeen == nil || *r.Res.TogetherSeen < together {
		r.Res.TogetherSeen = &together
	}
	if *r.Res.Stealing >= result.SharedBelow*solos {
		r.Past.Low = 0
		return
	}
	r.Past.Low = min(r.Past.Low+1, history.Agreeing)
	imbalance, known := rail.Imbalance(loads)
	r.EvenAlone = !known || imbalance <= result.UnevenAbove
}
