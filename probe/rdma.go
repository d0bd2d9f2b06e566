package probe

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/worker"
)

// rdma makes the transfer by RDMA. It returns an error when no rail is left.
func (r *round) rdma(ctx context.Context) error {
	for _, step := range r.rdmaSteps() {
		earlier := len(r.res.Failures)
		err := step(ctx)
		if f := timeUp(ctx); f != nil && err == nil {
			return f
		}
		if err == nil {
			err = r.stopFailed(ctx)
		}
		if r.blame(ctx, earlier, err); err != nil {
			return err
		}
		if f := r.noPath(); f != nil {
			return f
		}
	}
	r.res.Verified = true
	return nil
}

func (r *round) livePaths() []*path {
	return slices.DeleteFunc(slices.Clone(r.paths), func(p *path) bool { return p.result.Failure != nil })
}

// noPath returns why no path is left, or nil while there is one: the first failure, which is that of the lowest rail in
// the earliest step.
func (r *round) noPath() *failure.Failure {
	switch {
	case len(r.rails) == 0 && len(r.res.Failures) > 0:
		return &r.res.Failures[0]
	case len(r.rails) == 0:
		return failure.New(failure.StageOpen, failure.NoDevice, "this node has no rail (see railscope rails)")
	case len(r.remote.Rails) == 0:
		return failure.New(failure.StageOpen, failure.NoDevice, "the peer has no rail (run railscope rails there)")
	case len(r.livePaths()) > 0:
		return nil
	}
	return &r.res.Failures[0]
}

// failPath records the failure of a path. Only the first counts: the others follow from it.
func (r *round) failPath(p *path, stage failure.Stage, f *failure.Failure) {
	if p.result.Failure != nil {
		return
	}
	own := *f
	own.Rail, own.Stage = p.name(), stage
	p.result.Failure = &own
	r.addFailure(&own)
}

// connect connects the queue pairs of each path: it opens our ends, then the peer's, and connects ours to them.
func (r *round) connect(ctx context.Context) error {
	r.progress(Progress{Stage: failure.StageConnect})
	for _, p := range r.paths {
		if p.peer == nil {
			r.failPath(p, failure.StageOpen, failure.New("", failure.NoPeerRail,
				"the peer has no rail with this name or in this subnet (run railscope rails on both nodes)"))
		} else if f := p.local.unusable(p.gid); f != nil {
			r.failPath(p, failure.StageOpen, f)
		} else if !p.peer.Active {
			r.failPath(p, failure.StageOpen, failure.New("", failure.PortDown, "the peer's %s port %d is %q",
				p.peer.Device, p.peer.Port, p.peer.State))
		}
	}
	if r.noPath() != nil {
		return nil
	}
	if err := r.openLocal(ctx); err != nil || r.noPath() != nil {
		return err
	}
	paths := r.livePaths()
	ends, err := r.openPeer(ctx, paths)
	if err != nil {
		return err
	}
	args := worker.ConnectArgs{RetryCount: retryCount, TrafficClass: r.res.Class.TrafficClass,
		ServiceLevel: r.res.Class.ServiceLevel}
	for i, p := range paths {
		p.theirs = ends[i].GID.WithZone("")
		if f := ends[i].Failure; f != nil {
			r.failPath(p, f.Stage, f.OnPeer())
			continue
		}
		p.connected, p.result.PathMTU = true, pathMTU(p.end, ends[i])
		args.Rails = append(args.Rails, worker.ConnectRail{Name: p.name(), Remote: ends[i], PathMTU: p.result.PathMTU,
			InFlight: r.plan.ackTime(p)})
	}
	if len(args.Rails) == 0 {
		return nil
	}
	failures, err := r.session.current.Connect(ctx, args)
	for _, f := range failures {
		if p := r.path(f.Rail); p != nil {
			r.failPath(p, failure.StageConnect, &f)
		}
	}
	return err
}

// loads are what bursts over these paths keep in flight.
func (r *round) loads(paths []*path) (list []worker.Load) {
	for _, p := range paths {
		list = append(list, r.plan.load(p))
	}
	return list
}

func (r *round) openLocal(ctx context.Context) error {
	paths := r.livePaths()
	r.seed, r.buffer = newSeed(), r.plan.memory(r.loads(paths), r.plan.QueuePairs)
	args := worker.OpenArgs{Transport: worker.RDMA, Buffer: r.buffer, Seed: r.seed,
		Depth: max(r.plan.Depth, r.plan.QueuePairs), QueuePairs: r.plan.QueuePairs, PKey: r.plan.PKey,
		Key: r.lease.grant.Key, Memory: r.memory}
	for _, p := range paths {
		arg := rdmaRail(p.local, p.gid)
		arg.Name, arg.Rail, arg.Op, arg.Flow, arg.Stamps = p.name(), p.local.Name, p.op, p.flow, p.stamps
		args.Rails = append(args.Rails, arg)
	}
	opened, err := r.session.begin(ctx, args)
	if err != nil {
		return err
	}
	for i, p := range paths[:min(len(paths), len(opened.Ends))] {
		if p.end = opened.Ends[i]; p.end.Failure != nil {
			r.failPath(p, failure.StageOpen, p.end.Failure)
		}
	}
	return nil
}

// openPeer asks the peer for its ends of the paths, and returns them in the same order.
func (r *round) openPeer(ctx context.Context, paths []*path) ([]worker.End, error) {
	req := openRequest{Transport: worker.RDMA, Buffer: r.buffer, Depth: max(r.plan.Depth, r.plan.QueuePairs),
		QueuePairs: r.plan.QueuePairs, TrafficClass: r.res.Class.TrafficClass, ServiceLevel: r.res.Class.ServiceLevel,
		PKey: r.plan.PKey, Seed: r.seed, Memory: r.memory}
	for _, p := range paths {
		req.Rails = append(req.Rails, openRail{Rail: p.peer.Name, Op: p.op, Flow: p.flow, Remote: p.end,
			Prefixes: p.local.prefixes})
	}
	reply, err := r.client.open(ctx, req)
	return reply.Ends, err
}

// reach writes 8 B over every queue pair at once: a path that fails here carries nothing.
func (r *round) reach(ctx context.Context) error {
	return r.writeSmall(ctx, failure.StageReach, r.livePaths(), smallWrite, 1)
}

// fullPacket writes packets of the path MTU: a path with a smaller MTU on the way drops them, although 8 B got through.
func (r *round) fullPacket(ctx context.Context) error {
	byMTU := map[int][]*path{}
	for _, p := range r.livePaths() {
		byMTU[p.result.PathMTU] = append(byMTU[p.result.PathMTU], p)
	}
	for mtu, paths := range byMTU {
		if err := r.writeSmall(ctx, failure.StageMTU, paths, mtu, fullPackets); err != nil {
			return err
		}
	}
	for _, p := range r.paths {
		if f := p.result.Failure; f != nil && f.Stage == failure.StageMTU && f.Reason == failure.RetryExceeded {
			old := *f
			f.Reason = failure.MTUBlackHole
			f.Detail = "8 B get through and a full-size packet does not: an MTU on the way is smaller than at both " +
				"ends. " + f.Detail
			if i := slices.Index(r.res.Failures, old); i >= 0 {
				r.res.Failures[i] = *f
			}
		}
	}
	return nil
}

// writeSmall writes count messages of one size over each queue pair, all at once.
func (r *round) writeSmall(ctx context.Context, stage failure.Stage, paths []*path, size, count int) error {
	r.progress(Progress{Stage: stage})
	done, err := r.session.current.Burst(ctx, stage, r.plan.small(paths, size, count, r.timeLeft(ctx)), nil)
	if err != nil {
		return err
	}
	r.addBurst(done, paths, stage)
	return nil
}

// latency measures each path in two passes over all of them: what held up one pass is not the rail's.
func (r *round) latency(ctx context.Context) error {
	left := r.plan.LatencySamples
	for pass := range latencyPasses {
		n := left / (latencyPasses - pass)
		if left -= n; n == 0 {
			continue
		}
		for _, p := range r.livePaths() {
			r.progress(Progress{Stage: failure.StageLatency, Rail: p.name()})
			l, err := r.session.current.Latency(ctx, worker.LatencyArgs{Rail: p.name(), Size: smallWrite, N: n,
				Limit: latencyTime / latencyPasses})
			switch f := failure.As(failure.StageLatency, err); {
			case f == nil:
				p.result.Latency = p.result.Latency.add(l.Samples, l.Adapter)
			case f.Rail == "":
				return f // the worker's, not the path's
			default:
				r.failPath(p, failure.StageLatency, f)
			}
		}
	}
	return nil
}

// solos measures each path alone, in full rounds.
func (r *round) solos(ctx context.Context) error {
	if !r.plan.solo() {
		return nil
	}
	for _, p := range r.livePaths() {
		loads := r.loads([]*path{p})
		done, err := r.burst(ctx, failure.StageSolo, []*path{p}, r.plan.burst(loads, r.timeLeft(ctx)))
		if err != nil {
			return err
		}
		p.result.Solo = flow(p, loads, done, 0)
	}
	return nil
}

// striped measures all paths at once. If one fails, the burst is made again without it: what they share has changed.
func (r *round) striped(ctx context.Context) error {
	for {
		paths := r.livePaths()
		if len(paths) == 0 {
			return nil
		}
		loads := r.loads(paths)
		before := r.node.settledTraffic(ctx, r.rails)
		r.countLoss(before)
		done, err := r.burst(ctx, failure.StageStriped, paths, r.plan.burst(loads, r.timeLeft(ctx)))
		after := r.after
		r.countLoss(after)
		if err != nil {
			return err
		}
		if done.Failed() || len(r.livePaths()) < len(paths) || r.failIdle(paths, done) {
			if r.plan.together() {
				return nil // the others have ended: it would be alone
			}
			continue
		}
		if done.Disturbed() {
			r.disturbed = disturbed(loads, done)
			return nil
		}
		for i, p := range paths {
			if p.result.Stealing = flow(p, loads, done, i); p.result.Stealing == nil {
				r.failPath(p, failure.StageStriped, failure.New("", failure.Timeout,
					"it completed %d bytes while all rails were busy: too few to measure", done.Rails[i].Bytes))
			}
			p.compareCounters(before, after)
		}
		r.noteOthers(before, after)
		r.judge()
		return nil
	}
}

// failIdle records a failure of each path that carried next to nothing while others were busy, although the thread that
// polls them ran, and reports whether there is one.
func (r *round) failIdle(paths []*path, done worker.BurstDone) (idle bool) {
	share := func(i int) float64 { return float64(done.Rails[i].Bytes) / paths[i].rate() }
	best := 0.0
	for i := range done.Rails {
		best = max(best, share(i))
	}
	for i, b := range done.Rails {
		if b.Disturbed && b.Measured == 0 && b.Gap < r.plan.Burst && share(i) < best/100 {
			idle = true
			r.failPath(paths[i], failure.StageStriped, failure.New("", failure.Timeout,
				"it completed %d bytes while the other rails were busy: less than 1/100 of its rate", b.Bytes))
		}
	}
	return idle
}

// disturbed says why a burst has no figure.
func disturbed(loads []worker.Load, done worker.BurstDone) *failure.Failure {
	var gap time.Duration
	for i, b := range done.Rails {
		gap = max(gap, b.Gap)
		l := loads[i]
		last := float64(l.Depth-1) * float64(l.Chunk) / b.Rate()
		if b.Disturbed && last < (l.RTT+minSlack).Seconds() {
			return failure.New(failure.StageStriped, failure.Disturbed, "the %d writes in flight on rail %s last %.0f µs, "+
				"and a round trip takes %v: the rail may wait for acknowledgements, so nothing can be said of it; raise "+
				"`depth`", l.Depth, l.Rail, last*1e6, l.RTT.Round(time.Microsecond))
		}
	}
	return failure.New(failure.StageStriped, failure.Disturbed, "the thread that polls the rails did not run for up to "+
		"%v, longer than the queues of the adapters last, in each of %d bursts: nothing can be said of the rails; give "+
		"railscope more CPU time", gap.Round(time.Microsecond), 1+worker.MaxRepeats)
}

// compareCounters compares what the port counted with what was written.
func (p *path) compareCounters(before, after map[string]rail.Traffic) {
	d, ok := trafficBetween(before, after, p.local.Name)
	if !ok || p.result.Stealing == nil {
		return
	}
	p.result.CounterBytes = new(int64(d.out))
	if b, a := before[p.local.Name], after[p.local.Name]; a.CountsRetransmits && a.Retransmits >= b.Retransmits {
		p.result.Retransmits = new(a.Retransmits - b.Retransmits)
	}
	if p.result.PathMTU > 0 && p.local.LinkLayer == "Ethernet" && p.result.Stealing.Moved > 0 {
		wire := wireBytes(p.result.Stealing.Moved, p.result.PathMTU, p.gid.GID.IPv4())
		p.result.CounterMismatch = new(max(d.out/wire-1, 1-d.out/wire))
	}
}

// othersAbove is the part of the probe's own bytes that a port must have counted beyond them for the rest to be that of
// others: less may be headers of another MTU.
const othersAbove = 0.05

// noteOthers notes what others sent over each port during the striped burst: what it counted beyond the burst. It is
// unknown where packets were lost or the counters are late.
func (r *round) noteOthers(before, after map[string]rail.Traffic) {
	for _, p := range r.paths {
		p.result.Others = nil // of an earlier burst
	}
	for port, d := range deltas(r.rails, before, after) {
		var on []*path
		own := 0.0
		for _, p := range r.livePaths() {
			if p.local.portKey() != port.portKey() {
				continue
			}
			on = append(on, p)
			switch mtu := p.result.PathMTU; {
			case mtu <= 0 || !after[p.local.Name].CountsRetransmits:
				own = math.Inf(1)
			case p.local.LinkLayer == "Ethernet":
				own += wireBytes(p.result.Stealing.Moved, mtu, p.gid.GID.IPv4())
			default:
				own += float64(p.result.Stealing.Moved) * (1 + ibHeader/float64(mtu))
			}
		}
		if rest := d.out - own; own > 0 && rest > othersAbove*own && !d.resent && d.period <= settleTime && d.seconds > 0 {
			for _, p := range on {
				p.result.Others = new(rest / d.seconds / float64(len(on)))
			}
		}
	}
}

// ibHeader is what port_xmit_data counts of an InfiniBand packet beside its payload: LRH 8, BTH 12, ICRC 4 (IBTA 1.5,
// 16.1.3.5). The GRH of a routed path, 40, stays below othersAbove.
const ibHeader = 24

// wireBytes is payload in RoCE v2 packets of this MTU as port counters count it: Ethernet 14, IPv4 20 or IPv6 40, UDP
// 8, BTH 12, ICRC 4 (IBTA 1.5, annex A17).
func wireBytes(payload int64, mtu int, ipv4 bool) float64 {
	header := 58.0
	if !ipv4 {
		header = 78
	}
	return float64(payload) * (1 + header/float64(mtu))
}
