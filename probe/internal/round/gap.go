package round

import (
	"cmp"
	"context"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/control"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

const (
	// gapPoll is how often a wait looks whether it has to end, and whether a slot is free that was taken.
	gapPoll = 10 * time.Millisecond
	// gapAgain is the longest pause before a round asks again for the peer's place, or for a slot that is taken.
	gapAgain = time.Second
	// gapEnd is the time after the wait in which a burst that has begun is verified, and the session ends.
	gapEnd = 15 * time.Second
)

// gap is the part of a round that waits for gaps in the traffic of others. It needs no slot but while it bursts.
type gap struct {
	*Round
	session *Session
	lease   *control.HeldLease
	watch   *node.QuietWatch
	there   []string // rails of the peer that are quiet, as last reported
	from    int64    // bytes that the round had moved before
}

// waitsForGap reports whether a round waits for a gap to burst over the flows that it left out.
func waitsForGap(r *Round) bool {
	return r.Plan.WhenBusy == options.WhenBusyGap && r.Remote.Parts && r.Plan.Reservation == "" &&
		r.Res.Transport == result.RDMA && len(r.waiting()) > 0
}

// waitForGaps bursts in gaps over the flows that were left out because others use their rails. The first burst is
// striped, unless the round has a striped burst; then one flow after the other is measured alone. What was not measured
// stays left out, with its reason.
func waitForGaps(ctx context.Context, r *Round) {
	g := &gap{Round: r, from: r.Res.Bytes}
	g.leaveOutUnseen()
	if len(g.waiting()) == 0 {
		return
	}
	start := time.Now()
	wait := cmp.Or(r.Plan.GapWait, r.Plan.Interval/3)
	ctx, cancel := context.WithTimeout(ctx, wait+gapEnd)
	defer cancel()
	watching, stop := context.WithTimeout(ctx, wait)
	defer stop()
	r.Progress(result.Progress{Stage: failure.StageStriped})
	// Rounds begin at the same phase of each interval, and jobs may do so too.
	pause(watching, rand.N(wait/4+1))
	err := g.wait(ctx, watching)
	if f := failure.As(failure.StageStriped, err); f != nil && !f.Reason.Skips() {
		addFailure(&r.Res, f)
	}
	for _, p := range g.waiting() {
		f := failure.As(failure.StageStriped, err)
		if f == nil {
			f = failure.New(failure.StageStriped, failure.NoGap, "the rail and %s's %s were never quiet at the same "+
				"time for 20 ms, in %v", r.Remote.Node, p.Peer.Name, wait.Round(time.Second))
		}
		own := *f
		own.Rail, own.RetryAfter = p.name(), 0
		p.Result.Left = &own
	}
	r.Res.Waited = time.Since(start)
}

// leaveOutUnseen leaves out the flows over whose rails of this node no burst can be made in a gap.
func (g *gap) leaveOutUnseen() {
	here, _ := endsOf(g.waiting())
	unseen := g.Node.Gaps.Unseen(here, g.Node.Traffic(here))
	for _, p := range g.waiting() {
		if f := unseen[p.Local.Name]; f != nil {
			p.Result.Left = f
		}
	}
}

// pause waits for d, or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// wait acquires the places of both ends, opens a session, and bursts until nothing is left or watching is done.
func (g *gap) wait(ctx, watching context.Context) error {
	if len(g.waiting()) == 0 {
		return nil
	}
	free, err := g.places(watching)
	if err != nil {
		return err
	}
	defer free()
	ctx, stop := whileHeld(ctx, g.lease)
	defer stop()
	flows := g.waiting()
	g.session = newSession(g.Round, g.lease, g.Node.Gaps.Worker, flows)
	g.session.Plan = g.whole.gapPlan()
	defer g.end(ctx)
	for _, p := range flows {
		p.connected = false
	}
	if err := g.session.connect(ctx); err != nil {
		return err
	}
	here, _ := endsOf(flows)
	g.watch = node.NewQuietWatch(g.Node, here)
	var running sync.WaitGroup
	defer running.Wait()
	watching, cancel := context.WithCancel(watching)
	defer cancel()
	running.Go(func() { g.watch.Run(watching) })
	return g.bursts(ctx, watching)
}

// places acquires the place of this node and the peer's lease for a gap. A node that waits for the place of another
// while it holds its own could wait for a third, so it gives its own back.
func (g *gap) places(ctx context.Context) (free func(), err error) {
	place := g.Node.Gaps.Slot
	for {
		left := time.Until(deadline(ctx))
		holder, ok := place.Acquire(ctx, max(left, 0), netip.Addr{}, "waiting for a gap with "+g.Remote.Node)
		if !ok {
			return nil, failure.New(failure.StageLease, failure.NoGap, "this node is %s", holder)
		}
		place.Start(netip.Addr{})
		if f := g.chargeGap(); f != nil {
			place.Release()
			return nil, f
		}
		g.lease, err = g.Client.AcquireLease(ctx, g.LeaseRequest(protocol.Gap))
		f := failure.As(failure.StageLease, err)
		if f == nil {
			g.leaveOutCollided(g.lease.Grant.Left)
			return place.Release, nil
		}
		g.settleGap(0)
		place.Release()
		if f.RetryAfter == 0 || ctx.Err() != nil {
			return nil, f
		}
		pause(ctx, gapAgain/4+rand.N(gapAgain))
		if ctx.Err() != nil {
			return nil, failure.New(failure.StageLease, failure.NoGap, "%s", f.Detail)
		}
	}
}

// deadline returns the end of a context that has one.
func deadline(ctx context.Context) time.Time {
	end, _ := ctx.Deadline()
	return end
}

// chargeGap takes the time of the bursts in gaps from the node's budget.
func (g *gap) chargeGap() *failure.Failure {
	flows := g.waiting()
	return g.Reserved.charge(g.Round, 2*g.whole.gapPlan().BurstBytes(flows))
}

// settleGap returns what was not used of it. moved is what the bursts moved.
func (g *gap) settleGap(moved int64) {
	used := options.RailTime(moved, node.RailRate(g.Rails))
	cmp.Or(g.Reserved.budget, g.Node.AskBudget).Settle(g.Reserved.Charged, used)
	g.Reserved.Charged = 0
}

// leaveOutCollided leaves flows out whose gaps the peer does not see, or wants no burst in.
func (g *gap) leaveOutCollided(list []failure.Failure) {
	for i := range list {
		for _, p := range g.waiting() {
			if p.Peer.Name == list[i].Rail {
				own := list[i]
				own.Rail = p.name()
				p.Result.Left = &own
			}
		}
	}
}

// end releases the session and the lease.
func (g *gap) end(ctx context.Context) {
	if err := g.session.worker.End(); err != nil {
		addFailure(&g.Res, err)
	}
	moved := g.Res.Bytes - g.from
	_ = g.Client.Release(ctx, g.lease, moved) // the figures are verified
	g.settleGap(moved)
	g.Node.Gaps.Worker.Rest()
}

// bursts waits for gaps, and bursts in them.
func (g *gap) bursts(ctx, watching context.Context) error {
	poll := time.NewTicker(gapPoll)
	defer poll.Stop()
	for len(g.waiting()) > 0 {
		select {
		case <-watching.Done():
			return nil
		case <-ctx.Done():
			return cmp.Or[error](timeUpError(ctx), ctx.Err())
		case g.there = <-g.lease.Quiet:
		case <-g.watch.Changed:
		case <-poll.C:
			if other := yields(g.Node, g.Plan); other != "" {
				return failure.New(failure.StageStriped, failure.Busy, "this node is %s", other)
			}
			if g.Node.Maintenance() {
				return failure.New(failure.StageStriped, failure.Maintenance, "this node is in maintenance")
			}
		}
		if flows := claimed(g.waiting(), g.watch.Quiet(), g.there); len(flows) > 0 {
			if err := g.burst(ctx, flows); err != nil {
				return err
			}
		}
	}
	return nil
}

// burst bursts over flows whose rails are quiet, if both slots are free at this moment.
func (g *gap) burst(ctx context.Context, flows []*Flow) error {
	if g.Res.Striped != nil {
		flows = flows[:1]
	}
	if !g.Node.Slot.TryAcquire("bursting in a gap") {
		return nil // it is tried again while the gap lasts
	}
	defer g.Node.Slot.Release()
	_, names := endsOf(flows)
	quiet, err := g.Client.Claim(ctx, names)
	if f := failure.As(failure.StageLease, err); f != nil {
		if f.Reason.Skips() {
			return nil
		}
		return f
	}
	// The claim has taken a round trip.
	flows = claimed(flows, g.watch.Quiet(), quiet)
	if len(flows) == 0 {
		return g.session.unclaim(ctx)
	}
	return g.measure(ctx, flows)
}

// unclaim frees the peer's slot, without a burst.
func (s *Session) unclaim(ctx context.Context) error {
	_, err := s.client.Verify(ctx, worker.VerifyArgs{Seed: s.seed})
	return err
}

// measure makes the burst, and takes its figures unless it met traffic of others at either end.
func (g *gap) measure(ctx context.Context, flows []*Flow) error {
	s := g.session
	stage := failure.StageStriped
	if g.Res.Striped != nil {
		stage = failure.StageSolo
	}
	here, _ := endsOf(flows)
	before := g.Node.Traffic(here)
	loads := s.Plan.Loads(flows)
	args := s.Plan.BurstArgs(loads, timeLeft(ctx))
	s.met = nil
	done, after, err := s.burstOverPorts(ctx, stage, flows, args, here)
	if f := failure.As(stage, err); f != nil {
		if f.Reason == failure.Busy && f.Rail != "" { // others came, and the burst was ended
			g.Node.Gaps.Collide(f.Rail)
			g.collided(flows, []string{f.Rail})
		}
		return f
	}
	own := map[string]int64{}
	for i, p := range flows {
		own[p.Local.Name] += done.Rails[i].Bytes
	}
	met := node.Met(here, before, after, own)
	g.Node.Gaps.Collide(met...)
	if len(met)+len(s.met) > 0 {
		g.collided(flows, met)
		return nil
	}
	g.take(stage, flows, args, done, before, after)
	return nil
}

// collided leaves out the flows of a burst that met traffic of others.
func (g *gap) collided(flows []*Flow, here []string) {
	for _, p := range flows {
		if slices.Contains(here, p.Local.Name) || slices.Contains(g.session.met, p.Peer.Name) {
			f := failure.New(failure.StageStriped, failure.Collided, "%s", node.CollidedDetail())
			f.Rail = p.name()
			p.Result.Left = f
		}
	}
}

// take takes the figures of a burst in a gap.
func (g *gap) take(stage failure.Stage, flows []*Flow, args worker.BurstArgs, done worker.BurstDone,
	before, after map[string]rail.Traffic) {
	if stage == failure.StageSolo {
		p := flows[0]
		p.Result.Solo, p.Result.Left = Carried(p, args.Loads, done, 0), nil
		if p.Result.Solo == nil && p.Result.Failure == nil {
			p.Result.SoloFailure = Disturbed(args, done)
			p.Result.Left = p.Result.SoloFailure
		}
		return
	}
	for i, p := range flows {
		p.Result.Striped, p.Result.Left = Carried(p, args.Loads, done, i), nil
		p.compareCounters(before, after)
	}
	if done.Disturbed() || done.Ramping() >= 0 {
		g.Res.StripedFailure = Disturbed(args, done)
		for _, p := range flows {
			p.Result.Striped, p.Result.Left = nil, g.Res.StripedFailure
		}
		return
	}
	g.Res.InGap, g.Res.Verified, g.Res.Burst = true, true, g.session.Plan.Burst
	Judge(&g.Res, g.Flows)
	NoteScaling(&g.Res, g.Flows, g.Past, false)
}

// claimed returns the flows of those whose rails are quiet at both ends.
func claimed(flows []*Flow, here, there []string) []*Flow {
	return slices.DeleteFunc(slices.Clone(flows), func(p *Flow) bool {
		return !slices.Contains(here, p.Local.Name) || p.Peer == nil || !slices.Contains(there, p.Peer.Name)
	})
}

// endsOf returns the rails of this node and the names of those of the peer that flows use.
func endsOf(flows []*Flow) (here []node.LocalRail, there []string) {
	for _, p := range flows {
		there = append(there, p.Peer.Name)
	}
	return railsOf(flows), there
}
