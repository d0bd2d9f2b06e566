package round

import (
	"context"
	"slices"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/result"
)

// rdma transfers by RDMA. It returns an error when no rail is left.
func (r *Round) rdma(ctx context.Context) error {
	for _, step := range r.rdmaSteps() {
		earlier := len(r.Res.Failures)
		err := step(ctx)
		if f := timeUp(ctx); f != nil && err == nil {
			return f
		}
		if err == nil {
			err = r.stopFailed(ctx)
		}
		r.blame(ctx, earlier, err)
		if err != nil {
			return err
		}
		if f := r.noPath(); f != nil {
			return f
		}
	}
	r.Res.Verified = true
	return nil
}

// LivePaths returns the paths that have not failed and have a partner.
func (r *Round) LivePaths() []*Path {
	return slices.DeleteFunc(slices.Clone(r.Paths), func(p *Path) bool { return !p.live() })
}

// noPath returns nil while a path is left, else the first failure: that of the lowest rail in the earliest step.
func (r *Round) noPath() *failure.Failure {
	switch {
	case len(r.Rails) == 0 && len(r.Res.Failures) > 0:
		return &r.Res.Failures[0]
	case len(r.Rails) == 0:
		return failure.New(failure.StageOpen, failure.NoDevice, "this node has no rail (see railscope rails)")
	case len(r.Remote.Rails) == 0:
		return failure.New(failure.StageOpen, failure.NoDevice, "no rail (railscope rails --all lists the ports)").OnPeer()
	case len(r.LivePaths()) > 0:
		return nil
	}
	return &r.Res.Failures[0]
}

// failPath records the failure of a path. Only the first counts: later ones are its consequences.
func (r *Round) failPath(p *Path, stage failure.Stage, f *failure.Failure) {
	if p.Result.Failure != nil {
		return
	}
	own := *f
	own.Rail, own.Stage = p.name(), stage
	p.Result.Failure = &own
	r.addFailure(&own)
}

// connect connects the queue pairs of each path. It opens this node's ends, then the peer's, and connects them.
func (r *Round) connect(ctx context.Context) error {
	r.Progress(result.Progress{Stage: failure.StageConnect})
	for _, p := range r.LivePaths() {
		if p.Peer == nil {
			r.failPath(p, failure.StageOpen, failure.New("", failure.NoPeerRail,
				"the peer has no rail with this name or in this subnet (run railscope rails on both nodes)"))
		} else if f := p.Local.Unusable(p.GID); f != nil {
			r.failPath(p, failure.StageOpen, f)
		} else if !p.Peer.Active {
			r.failPath(p, failure.StageOpen, failure.New("", failure.PortDown, "%s port %d is %q",
				p.Peer.Device, p.Peer.Port, p.Peer.State).OnPeer())
		}
	}
	if r.noPath() != nil {
		return nil
	}
	if err := r.openLocal(ctx); err != nil || r.noPath() != nil {
		return err
	}
	paths := r.LivePaths()
	ends, err := r.openPeer(ctx, paths)
	if err != nil {
		return err
	}
	args := worker.ConnectArgs{RetryCount: RetryCount, TrafficClass: r.Res.Class.TrafficClass,
		ServiceLevel: r.Res.Class.ServiceLevel}
	for i, p := range paths {
		p.Theirs = ends[i].GID.WithZone("")
		if f := ends[i].Failure; f != nil {
			r.failPath(p, f.Stage, f.OnPeer())
			continue
		}
		p.connected, p.Result.PathMTU = true, node.PathMTU(p.end, ends[i])
		args.Rails = append(args.Rails, worker.ConnectRail{Name: p.name(), Remote: ends[i], PathMTU: p.Result.PathMTU,
			InFlight: r.Plan.ackTime(p)})
	}
	if len(args.Rails) == 0 {
		return nil
	}
	failures, err := r.Session.Current.Connect(ctx, args)
	for _, f := range failures {
		if p := r.path(f.Rail); p != nil {
			r.failPath(p, failure.StageConnect, &f)
		}
	}
	return err
}

// Loads returns what bursts over these paths keep in flight.
func (r *Round) Loads(paths []*Path) (list []worker.Load) {
	for _, p := range paths {
		list = append(list, r.Plan.Load(p))
	}
	return list
}

func (r *Round) openLocal(ctx context.Context) error {
	paths := r.LivePaths()
	r.seed, r.buffer = newSeed(), r.Plan.memory(r.Loads(paths), r.Plan.QueuePairs)
	args := worker.OpenArgs{Transport: worker.RDMA, Buffer: r.buffer, Seed: r.seed,
		Depth: max(r.Plan.depth(), r.Plan.QueuePairs), QueuePairs: r.Plan.QueuePairs, PKey: r.Plan.PKey,
		Key: r.lease.Grant.Key, Memory: r.memory}
	for _, p := range paths {
		arg := node.RDMARail(p.Local, p.GID)
		arg.Name, arg.Rail, arg.Op, arg.Flow, arg.Stamps = p.name(), p.Local.Name, p.Op, p.flow, p.stamps
		args.Rails = append(args.Rails, arg)
	}
	opened, err := r.Session.Begin(ctx, args)
	if err != nil {
		return err
	}
	for i, p := range paths[:min(len(paths), len(opened.Ends))] {
		p.end = opened.Ends[i]
		if p.end.Failure != nil {
			r.failPath(p, failure.StageOpen, p.end.Failure)
		}
	}
	return nil
}

// openPeer asks the peer to open its ends of the paths, and returns them in the same order.
func (r *Round) openPeer(ctx context.Context, paths []*Path) ([]worker.End, error) {
	req := protocol.OpenRequest{Transport: worker.RDMA, Buffer: r.buffer, Depth: max(r.Plan.depth(), r.Plan.QueuePairs),
		QueuePairs: r.Plan.QueuePairs, TrafficClass: r.Res.Class.TrafficClass, ServiceLevel: r.Res.Class.ServiceLevel,
		PKey: r.Plan.PKey, Seed: r.seed, Memory: r.memory}
	for _, p := range paths {
		req.Rails = append(req.Rails, protocol.OpenRail{Rail: p.Peer.Name, Op: p.Op, Flow: p.flow, Remote: p.end,
			Prefixes: p.Local.Prefixes})
	}
	reply, err := r.Client.Open(ctx, req)
	return reply.Ends, err
}

// reach writes 8 B over every queue pair at once: a path that fails here carries nothing.
func (r *Round) reach(ctx context.Context) error {
	return r.writeSmall(ctx, failure.StageReach, r.LivePaths(), smallWrite, 1)
}

// fullPacket writes packets of the path MTU: a path with a smaller MTU between the ends drops them, although 8 B
// passed.
func (r *Round) fullPacket(ctx context.Context) error {
	byMTU := map[int][]*Path{}
	for _, p := range r.LivePaths() {
		byMTU[p.Result.PathMTU] = append(byMTU[p.Result.PathMTU], p)
	}
	for mtu, paths := range byMTU {
		if err := r.writeSmall(ctx, failure.StageMTU, paths, mtu, fullPackets); err != nil {
			return err
		}
	}
	for _, p := range r.Paths {
		if f := p.Result.Failure; f != nil && f.Stage == failure.StageMTU && f.Reason == failure.RetryExceeded {
			old := *f
			f.Reason = failure.MTUBlackHole
			f.Detail = "8 B get through and a full-size packet does not: an MTU on the way is smaller than at both " +
				"ends. " + f.Detail
			if i := slices.Index(r.Res.Failures, old); i >= 0 {
				r.Res.Failures[i] = *f
			}
		}
	}
	return nil
}

// writeSmall writes count messages of one size over each queue pair, all at once.
func (r *Round) writeSmall(ctx context.Context, stage failure.Stage, paths []*Path, size, count int) error {
	r.Progress(result.Progress{Stage: stage})
	done, err := r.Session.Current.Burst(ctx, stage, r.Plan.small(paths, size, count, r.timeLeft(ctx)), nil)
	if err != nil {
		return err
	}
	r.addBurst(done, paths, stage)
	return nil
}

// latency measures each path in two passes over all paths, so that a delay during one pass is not attributed to a
// rail.
func (r *Round) latency(ctx context.Context) error {
	left := r.Plan.LatencySamples
	for pass := range latencyPasses {
		n := left / (latencyPasses - pass)
		left -= n
		if n == 0 {
			continue
		}
		for _, p := range r.LivePaths() {
			r.Progress(result.Progress{Stage: failure.StageLatency, Rail: p.name()})
			l, err := r.Session.Current.Latency(ctx, worker.LatencyArgs{Rail: p.name(), Size: smallWrite, N: n,
				Limit: latencyTime / latencyPasses})
			switch f := failure.As(failure.StageLatency, err); {
			case f == nil:
				p.Result.Latency = p.Result.Latency.Add(l.Samples, l.Adapter)
			case f.Rail == "":
				return f // a failure of the worker, not of the path
			default:
				r.failPath(p, failure.StageLatency, f)
			}
		}
	}
	return nil
}

// solos measures each path alone, in full rounds.
func (r *Round) solos(ctx context.Context) error {
	if !r.Plan.solo() {
		return nil
	}
	for _, p := range r.LivePaths() {
		loads := r.Loads([]*Path{p})
		args := r.Plan.BurstArgs(loads, r.timeLeft(ctx))
		done, err := r.burst(ctx, failure.StageSolo, []*Path{p}, args)
		r.Tally.Other++
		if err != nil {
			return err
		}
		p.Result.Solo, p.Result.SoloFailure = Flow(p, loads, done, 0), nil
		if p.Result.Solo == nil && p.Result.Failure == nil {
			p.Result.SoloFailure = Disturbed(args, done)
			p.Result.SoloFailure.Stage = failure.StageSolo
		}
	}
	return nil
}

// striped measures all paths at once. If one fails, the burst is repeated without it, because the load on shared
// parts has changed.
func (r *Round) striped(ctx context.Context) error {
	for {
		paths := r.LivePaths()
		if len(paths) == 0 {
			return nil
		}
		loads := r.Loads(paths)
		before := r.Node.SettledTraffic(ctx, r.Rails)
		r.CountLoss(before)
		args := r.Plan.BurstArgs(loads, r.timeLeft(ctx))
		done, err := r.burst(ctx, failure.StageStriped, paths, args)
		r.Tally.Other++
		after := r.after
		r.CountLoss(after)
		if err != nil {
			return err
		}
		if done.Failed() || len(r.LivePaths()) < len(paths) || r.FailIdle(paths, done) {
			if r.Plan.together() {
				return nil // the other paths have ended: the rest would run alone
			}
			continue
		}
		if done.Disturbed() || done.Ramping() >= 0 {
			r.disturbed = Disturbed(args, done)
			return nil
		}
		for i, p := range paths {
			p.Result.Stealing = Flow(p, loads, done, i)
			if p.Result.Stealing == nil {
				r.failPath(p, failure.StageStriped, failure.New("", failure.Timeout,
					"it completed %d bytes while all rails were busy: too few to measure", done.Rails[i].Bytes))
			}
			p.compareCounters(before, after)
		}
		r.NoteOthers(before, after)
		r.Judge()
		return nil
	}
}

// FailIdle records a failure of each path that carried almost nothing while others were busy, although the polling
// thread ran. It reports whether there is one.
func (r *Round) FailIdle(paths []*Path, done worker.BurstDone) (idle bool) {
	share := func(i int) float64 { return float64(done.Rails[i].Bytes) / paths[i].rate() }
	best := 0.0
	for i := range done.Rails {
		best = max(best, share(i))
	}
	for i, b := range done.Rails {
		if b.Disturbed && b.Measured == 0 && b.Gap < r.Plan.Burst && share(i) < best/100 {
			idle = true
			r.failPath(paths[i], failure.StageStriped, failure.New("", failure.Timeout,
				"it completed %d bytes while the other rails were busy: less than 1/100 of its rate", b.Bytes))
		}
	}
	return idle
}

// IbHeader is what port_xmit_data counts of an InfiniBand packet in addition to its payload: LRH 8, BTH 12, ICRC 4
// (IBTA 1.5, 16.1.3.5). The GRH of a routed path, 40, stays below othersAbove.
const IbHeader = 24
