package probe

import (
	"context"
	"slices"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/worker"
)

// A short burst on a healthy pair finds a scaling below lowScaling in 4 of 30 rounds, and is slower than TCP in 13 of
// 30: what one burst finds is said of the rails only when others agree.
const (
	agreeing     = 3    // striped bursts in a row, of this round or of earlier ones
	evenAlone    = 0.1  // imbalance of the solos, up to which a shared bottleneck explains that of the striped burst
	slowerBelow  = 0.95 // of each TCP baseline, that every striped burst is below if RDMA is slower
	rememberRuns = 5    // striped bursts
	rememberTCP  = 2    // baselines
	singleRuns   = 2    // of each in a single round by hand, which has no earlier ones
)

// again repeats the striped burst of a full round while it finds that the rails share a bottleneck and too few bursts
// have found so; the best one counts. When enough have, the solo bursts are repeated, and the slower one of each rail
// counts: on a busy machine everything slows down. A single round by hand repeats the striped burst in any case, for
// the spread of its figures. Repeats fit into what the round has reserved: disturbed bursts may be repeated as well,
// and seldom are.
func (r *round) again(ctx context.Context) error {
	before := r.past.low
	r.noteScaling()
	for n := 1; r.res.Stealing != nil && (r.past.low > 0 && r.past.low < agreeing && r.plan.full || n < r.plan.runs); n++ {
		if !r.affordsBurst(ctx) {
			break
		}
		if err := r.stripedAgain(ctx); err != nil {
			return err
		}
	}
	if !r.plan.full || r.past.low < agreeing || before >= agreeing {
		return nil
	}
	if !r.affordsBurst(ctx) {
		r.past.low = agreeing - 1 // a later round confirms it
		return nil
	}
	return r.solosAgain(ctx)
}

// stripedAgain makes the striped burst again, and keeps the better one.
func (r *round) stripedAgain(ctx context.Context) error {
	before, rails := r.res, slices.Clone(r.res.Rails)
	if err := r.striped(ctx); err != nil {
		return err
	}
	if r.disturbed != nil {
		r.disturbed = nil
		r.restore(&before, rails)
		return nil
	}
	r.noteScaling()
	if len(r.res.Failures) == len(before.Failures) && r.res.Stealing != nil && *r.res.Stealing < *before.Stealing {
		r.restore(&before, rails)
	}
	return nil
}

// solosAgain makes the solo bursts again, and judges the striped one by the slower of each rail.
func (r *round) solosAgain(ctx context.Context) error {
	first := map[*path]*Flow{}
	for _, p := range r.livePaths() {
		first[p] = p.result.Solo
	}
	if err := r.solos(ctx); err != nil {
		return err
	}
	for p, flow := range first {
		if again := p.result.Solo; flow != nil && again != nil {
			p.slowerSolo = min(flow.BytesPerSecond(), again.BytesPerSecond())
			if again.BytesPerSecond() < flow.BytesPerSecond() {
				p.result.Solo = flow
			}
		} else if again == nil {
			p.result.Solo = flow
		}
	}
	if r.judge(); r.res.Scaling == nil || *r.res.Scaling >= lowScaling {
		r.past.low = 0
	}
	return nil
}

// soloRate is the rate of the path alone, in bytes per second: the lower one where it was measured twice; 0: not known.
func (p *path) soloRate() float64 {
	if p.result.Solo == nil {
		return 0
	}
	if p.slowerSolo > 0 {
		return p.slowerSolo
	}
	return p.result.Solo.BytesPerSecond()
}

// affordsBurst reports whether one more striped burst, or the solo bursts, fit into what the round has reserved, and
// into its time.
func (r *round) affordsBurst(ctx context.Context) bool {
	paths := r.livePaths()
	var most int64
	for _, p := range paths {
		l := r.plan.load(p)
		most += (1 + worker.MaxRepeats) * (l.Cap + int64(l.Depth+1)*l.Chunk)
	}
	left := time.Duration(0)
	if end, ok := ctx.Deadline(); ok {
		left = time.Until(end) - releaseTime - time.Duration(len(baselineStreams))*maxTCP
	}
	return r.res.Bytes+most <= r.plan.bytes(r.paths, nil) && left > time.Duration(len(paths)+1)*maxBurst
}

// restore sets the figures of the striped burst to those of an earlier one. What was moved stays counted, and lost.
func (r *round) restore(res *Result, rails []RailResult) {
	r.res.Stealing, r.res.Static, r.res.Imbalance = res.Stealing, res.Static, res.Imbalance
	r.res.Scaling, r.res.FinishSkew, r.res.Shared = res.Scaling, res.FinishSkew, res.Shared
	for i := range rails {
		one := &r.res.Rails[i]
		one.Stealing, one.Share, one.Others = rails[i].Stealing, rails[i].Share, rails[i].Others
		one.CounterBytes, one.CounterMismatch = rails[i].CounterBytes, rails[i].CounterMismatch
		one.Retransmits = rails[i].Retransmits
	}
}

// noteScaling notes the last striped burst: its goodput, and whether it found that the rails share a bottleneck. Rounds
// without solos compare it with those of the last full round.
func (r *round) noteScaling() {
	if r.res.Stealing == nil {
		return
	}
	r.res.Runs = append(r.res.Runs, *r.res.Stealing)
	var solos float64
	var loads []rail.Load
	live := r.livePaths()
	for _, p := range live {
		solo := p.soloRate()
		if past := r.past.rail(p.local.Name); solo == 0 && past != nil && !r.plan.full {
			solo = past.solo
		}
		if solo <= 0 {
			return // not known
		}
		solos += solo
		loads = append(loads, p.load(solo))
	}
	if len(live) < 2 { // one shares with none; failed ones, and those without a partner, had no part in the burst
		r.past.low = 0
		return
	}
	if *r.res.Stealing >= lowScaling*solos {
		r.past.low = 0
		return
	}
	r.past.low = min(r.past.low+1, agreeing)
	imbalance, known := rail.Imbalance(loads)
	r.evenAlone = !known || imbalance <= evenAlone
}

// judgeRuns decides what the bursts of this round and of earlier ones agree on.
func (p *pastPeer) judgeRuns(res *Result, evenAlone bool) {
	lossy := slices.ContainsFunc(res.Rails, func(one RailResult) bool { return one.Lossy || one.Others != nil })
	res.Bottleneck = p.low >= agreeing && !lossy && !res.LacksRail()
	res.EvenAlone = res.Bottleneck && evenAlone
	if res.Speedup == nil || *res.Speedup >= slowerBelow || len(p.runs) < singleRuns || len(p.tcp) < rememberTCP {
		return
	}
	res.SlowerThanTCP = slices.Max(p.runs) < slowerBelow*slices.Min(p.tcp)
}

// noteRuns adds a round to the memory of a peer.
func (p *pastPeer) noteRuns(res *Result) {
	if res.Transport == TCP { // what follows is another state
		p.runs, p.tcp, p.low = nil, nil, 0
	}
	if res.Transport != RDMA {
		return
	}
	p.runs = append(p.runs, res.Runs...)
	p.runs = p.runs[max(len(p.runs)-rememberRuns, 0):]
	p.tcp = append(p.tcp, res.tcpRuns...)
	p.tcp = p.tcp[max(len(p.tcp)-rememberTCP, 0):]
}
