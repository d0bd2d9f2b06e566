package round

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/history"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/result"
)

// rdma transfers by RDMA. It returns an error when no rail is left.
func (r *Round) rdma(ctx context.Context) error {
	s := r.session
	beginLoss := func(context.Context) error {
		r.counted = r.Node.Traffic(r.Rails)
		return nil
	}
	noteReached := func(context.Context) error {
		r.reached = true
		return nil
	}
	// The last three run bursts, which the target verifies.
	steps := []func(context.Context) error{s.connect, s.reach, s.fullPacket, beginLoss, s.latency, s.arrivals,
		noteReached, r.waitForRing, r.solos, r.striped, r.confirmBottleneck}
	for _, step := range steps {
		earlier := len(r.Res.Failures)
		err := step(ctx)
		if f := timeUp(ctx); f != nil && err == nil {
			return f
		}
		if err == nil {
			err = s.stopFailed(ctx)
		}
		r.blame(ctx, earlier, err)
		if err != nil {
			return err
		}
		if f := r.noFlow(r.Res.Failures); f != nil {
			return f
		}
	}
	r.Res.Verified = len(r.bursting()) > 0
	return nil
}

// waitForRing waits for the start of the round's ring.
func (r *Round) waitForRing(ctx context.Context) error {
	if r.Plan.Ring == nil {
		return nil
	}
	if r.Plan.together() {
		r.session.Plan.BusyAbove = math.MaxFloat64 // incoming traffic belongs to the ring
	}
	ctx, cancel := context.WithTimeout(ctx, max(timeLeft(ctx)-drainTime, time.Second))
	defer cancel()
	return r.Plan.Ring.wait(ctx)
}

// solos measures each rail alone, in full rounds.
func (r *Round) solos(ctx context.Context) error {
	if !r.Plan.solo() {
		return nil
	}
	for _, p := range r.bursting() {
		alone := []*Flow{p}
		loads := r.Plan.Loads(alone)
		args := r.Plan.BurstArgs(loads, timeLeft(ctx))
		done, err := r.session.burst(ctx, failure.StageSolo, alone, args)
		r.Tally.Other++
		if err != nil {
			return err
		}
		p.Result.Solo, p.Result.SoloFailure = Carried(p, loads, done, 0), nil
		if p.Result.Solo == nil && p.Result.Failure == nil {
			p.Result.SoloFailure = Disturbed(args, done)
			p.Result.SoloFailure.Stage = failure.StageSolo
		}
	}
	return nil
}

// striped measures all rails at once. If one fails, the burst is repeated without it, because the load on shared
// parts has changed.
func (r *Round) striped(ctx context.Context) error {
	for {
		flows := r.bursting()
		if len(flows) == 0 {
			return nil
		}
		loads := r.Plan.Loads(flows)
		before := r.Node.SettledTraffic(ctx, r.Rails)
		CountLoss(r.Flows, r.counted, before)
		args := r.Plan.BurstArgs(loads, timeLeft(ctx))
		done, after, err := r.session.burstOverPorts(ctx, failure.StageStriped, flows, args, r.Rails)
		r.Tally.Other++
		notePeerEvents(r.Flows, r.session.events)
		CountLoss(r.Flows, before, after)
		r.counted = after
		if err != nil {
			return err
		}
		if done.Failed() || len(r.bursting()) < len(flows) || r.session.FailIdle(flows, done) {
			if r.Plan.together() {
				return nil // the other flows have ended: the rest would run alone
			}
			continue
		}
		if done.Disturbed() || done.Ramping() >= 0 {
			r.Res.StripedFailure = Disturbed(args, done)
			return nil
		}
		for i, p := range flows {
			p.Result.Striped = Carried(p, loads, done, i)
			if p.Result.Striped == nil {
				r.session.fail(p, failure.StageStriped, failure.New("", failure.Timeout,
					"it completed %d bytes while all rails were busy: too few to measure", done.Rails[i].Bytes))
			}
			p.compareCounters(before, after)
		}
		NoteOthers(r.Flows, r.Rails, before, after)
		Judge(&r.Res, r.Flows)
		return nil
	}
}

// FailIdle records a failure of each flow that carried almost nothing while others were busy, although the polling
// thread ran. It reports whether there is one.
func (s *Session) FailIdle(flows []*Flow, done worker.BurstDone) (idle bool) {
	share := func(i int) float64 { return float64(done.Rails[i].Bytes) / flows[i].rate() }
	best := 0.0
	for i := range done.Rails {
		best = max(best, share(i))
	}
	for i, b := range done.Rails {
		if b.Disturbed && b.Measured == 0 && b.Gap < s.Plan.Burst && share(i) < best/100 {
			idle = true
			s.fail(flows[i], failure.StageStriped, failure.New("", failure.Timeout,
				"it completed %d bytes while the other rails were busy: less than 1/100 of its rate", b.Bytes))
		}
	}
	return idle
}

// confirmBottleneck repeats the striped burst of a full round until enough bursts agree that the rails share a
// bottleneck; the best one counts. Then it repeats the solo bursts, and the slower one of each rail counts: a busy
// machine slows everything. Interactive rounds always repeat, for the spread. Repeats use time reserved for disturbed
// bursts.
func (r *Round) confirmBottleneck(ctx context.Context) error {
	before := r.Past.Low
	NoteScaling(&r.Res, r.Flows, r.Past, r.Plan.Full)
	for n := 1; r.Res.Striped != nil && (r.Past.Low > 0 && r.Past.Low < history.Agreeing && r.Plan.Full ||
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
	if r.Res.StripedFailure != nil {
		r.Res.StripedFailure = nil
		restoreStriped(&r.Res, &before, rails)
		return nil
	}
	NoteScaling(&r.Res, r.Flows, r.Past, r.Plan.Full)
	if len(r.Res.Failures) == len(before.Failures) && r.Res.Striped != nil && *r.Res.Striped < *before.Striped {
		restoreStriped(&r.Res, &before, rails)
	}
	return nil
}

// restoreStriped restores the figures of an earlier striped burst. Bytes moved and lost since then stay counted.
func restoreStriped(res, before *result.Result, rails []result.RailResult) {
	res.Striped, res.Static, res.Imbalance = before.Striped, before.Static, before.Imbalance
	res.Scaling, res.FinishSkew, res.Shared = before.Scaling, before.FinishSkew, before.Shared
	for i := range rails {
		rail := &res.Rails[i]
		rail.Striped, rail.Share, rail.Others = rails[i].Striped, rails[i].Share, rails[i].Others
		rail.CounterBytes, rail.CounterMismatch = rails[i].CounterBytes, rails[i].CounterMismatch
		rail.Retransmits = rails[i].Retransmits
	}
}

// solosAgain repeats the solo bursts, to confirm a bottleneck.
func (r *Round) solosAgain(ctx context.Context) error {
	first := map[*Flow]*result.Flow{}
	for _, p := range r.bursting() {
		first[p] = p.Result.Solo
	}
	if err := r.solos(ctx); err != nil {
		return err
	}
	confirm(r, first)
	return nil
}

// confirm judges the striped burst by the slower of two solo bursts of each rail, and keeps the faster one as its
// figure. A bottleneck that they do not show is not confirmed.
func confirm(r *Round, first map[*Flow]*result.Flow) {
	for p, carried := range first {
		if again := p.Result.Solo; carried != nil && again != nil {
			p.slowerSolo = min(carried.BytesPerSecond(), again.BytesPerSecond())
			if again.BytesPerSecond() < carried.BytesPerSecond() {
				p.Result.Solo = carried
			}
		} else if again == nil {
			p.Result.Solo = carried
		}
	}
	Judge(&r.Res, r.Flows)
	if r.Res.Scaling == nil || *r.Res.Scaling >= result.SharedBelow {
		r.Past.Low = 0
	}
}

// affordsBurst reports whether one more striped burst, or the solo bursts, fit into the round's reservation and its
// time.
func (r *Round) affordsBurst(ctx context.Context) bool {
	flows := r.bursting()
	bytes := (1 + worker.MaxRepeats) * r.Plan.BurstBytes(flows)
	left := time.Duration(0)
	if end, ok := ctx.Deadline(); ok {
		left = time.Until(end) - releaseTime - time.Duration(len(BaselineStreams))*maxTCP
	}
	return r.Res.Bytes+bytes <= r.Plan.Bytes(r.Flows, nil) && left > time.Duration(len(flows)+1)*maxBurst
}

// latency measures each flow in two passes over all flows, so that a delay during one pass is not attributed to a
// rail.
func (s *Session) latency(ctx context.Context) error {
	left := s.Plan.LatencySamples
	for pass := range latencyPasses {
		n := left / (latencyPasses - pass)
		left -= n
		args := worker.LatencyArgs{N: n, Limit: latencyTime / latencyPasses}
		if err := s.latencies(ctx, args, func(to *result.Latency, l worker.Latencies) *result.Latency {
			return to.Add(l.Samples, l.Adapter)
		}); err != nil {
			return err
		}
	}
	return nil
}

// arrivals measures each flow by writes at random times.
func (s *Session) arrivals(ctx context.Context) error {
	over := min(railRandom, randomTime/time.Duration(max(len(s.Flows), 1)))
	return s.latencies(ctx, worker.LatencyArgs{N: s.Plan.randomSamples(), Over: over, Limit: latencyTime},
		func(to *result.Latency, l worker.Latencies) *result.Latency { return to.AddRandom(l.Samples) })
}

// latencies measures each flow once, and adds its samples.
func (s *Session) latencies(ctx context.Context, args worker.LatencyArgs,
	add func(to *result.Latency, l worker.Latencies) *result.Latency) error {
	if args.N == 0 {
		return nil
	}
	for _, p := range live(s.Flows) {
		s.progress(result.Progress{Stage: failure.StageLatency, Rail: p.name()})
		args.Rail, args.Size, args.Software = p.name(), smallWrite, p.software()
		l, err := s.worker.Current.Latency(ctx, args)
		switch f := failure.As(failure.StageLatency, err); {
		case f == nil:
			p.Result.Latency = add(p.Result.Latency, l)
		case f.Rail == "":
			return f // a failure of the worker, not of the flow
		default:
			s.fail(p, failure.StageLatency, f)
		}
	}
	return nil
}

// splitLatency measures, in an interactive round, which part of each rail's latency is the adapter's and which the
// host's. It uses its own queue pairs, so that the round's figure does not change. A rail whose adapter has no
// readable clock has no parts, and a failure here is not a finding.
func splitLatency(ctx context.Context, r *Round) {
	rails, err := r.chosen(result.Extra{})
	if !r.Plan.Interactive || err != nil || r.Plan.LatencySamples == 0 || r.Plan.onlyReach || r.Plan.Reservation != "" {
		return
	}
	flows := newFlows(rails, result.Write)
	for _, f := range flows {
		f.stamps = true
	}
	plan := r.Plan
	plan.QueuePairs = 1
	s := r.newSession(plan, flows, ExtraSamples)
	// A rail with timestamps makes no bursts, so no first writes precede the latencies.
	if err := s.take(ctx, s.connect, s.latency); err != nil {
		return
	}
	for i, f := range flows {
		if l := f.Result.Latency; l != nil && rails[i].Result.Latency != nil {
			rails[i].Result.Latency.Adapter, rails[i].Result.Latency.Host = l.Adapter, l.Host
		}
	}
}
