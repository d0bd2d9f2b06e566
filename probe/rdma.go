package probe

import (
	"context"
	"slices"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/worker"
)

// rdma makes the transfer by RDMA. It returns an error when no rail is left.
func (r *round) rdma(ctx context.Context) error {
	r.bursts = r.plan.bursts()
	for _, step := range r.rdmaSteps() {
		if err := step(ctx); err != nil {
			return err
		}
		if f := timeUp(ctx); f != nil {
			return f
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
	own.Rail, own.Stage = p.local.Name, stage
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
	args := worker.ConnectArgs{RetryCount: retryCount, TrafficClass: r.plan.TrafficClass}
	for i, p := range paths {
		if f := ends[i].Failure; f != nil {
			f.Detail = "on the peer: " + f.Detail
			r.failPath(p, f.Stage, f)
			continue
		}
		p.result.PathMTU = pathMTU(p.end, ends[i])
		args.Rails = append(args.Rails, worker.ConnectRail{Name: p.local.Name, Remote: ends[i], PathMTU: p.result.PathMTU,
			InFlight: r.plan.ackTime(p.result.Capacity)})
	}
	if len(args.Rails) == 0 {
		return nil
	}
	connected, err := r.session.current.Connect(ctx, args)
	for _, f := range connected.Failures {
		if i := slices.IndexFunc(r.paths, func(p *path) bool { return p.local.Name == f.Rail }); i >= 0 {
			r.failPath(r.paths[i], failure.StageConnect, &f)
		}
	}
	return err
}

func (r *round) openLocal(ctx context.Context) error {
	args := worker.OpenArgs{Transport: worker.RDMA, Buffer: r.plan.buffer(), Depth: r.plan.Depth,
		QueuePairs: r.plan.QueuePairs, Key: r.lease.grant.Key}
	paths := r.livePaths()
	for _, p := range paths {
		args.Rails = append(args.Rails, rdmaRail(p.local, p.gid))
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
	req := openRequest{Transport: worker.RDMA, Buffer: r.plan.buffer(), Depth: r.plan.Depth,
		QueuePairs: r.plan.QueuePairs, TrafficClass: r.plan.TrafficClass}
	for _, p := range paths {
		req.Rails = append(req.Rails, openRail{Rail: p.peer.Name, Remote: p.end, Prefixes: p.local.prefixes})
	}
	reply, err := r.client.open(ctx, req)
	return reply.Ends, err
}

// reach writes 8 B over every path at once: a path that fails here carries nothing.
func (r *round) reach(ctx context.Context) error {
	return r.writeSmall(ctx, failure.StageReach, r.livePaths(), 8, 1)
}

// fullPacket writes packets of the path MTU: a path with a smaller MTU on the way drops them, although 8 B got through.
func (r *round) fullPacket(ctx context.Context) error {
	byMTU := map[int][]*path{}
	for _, p := range r.livePaths() {
		byMTU[p.result.PathMTU] = append(byMTU[p.result.PathMTU], p)
	}
	for mtu, paths := range byMTU {
		if err := r.writeSmall(ctx, failure.StageMTU, paths, int64(mtu), fullPackets); err != nil {
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

// writeSmall writes count messages of one size over each path, all paths at once.
func (r *round) writeSmall(ctx context.Context, stage failure.Stage, paths []*path, size, count int64) error {
	r.progress(Progress{Stage: stage})
	args := worker.BurstArgs{Total: size * count * int64(len(paths)), Chunk: size, Depth: 1, Limit: reachTime,
		Deadline: min(reachTime, r.timeLeft(ctx)), Rails: pathNames(paths)}
	done, err := r.session.current.Burst(ctx, stage, args, nil)
	if err != nil {
		return err
	}
	r.addBurst(done, paths, stage)
	return nil
}

func (r *round) latency(ctx context.Context) error {
	for _, p := range r.livePaths() {
		r.progress(Progress{Stage: failure.StageLatency, Rail: p.local.Name})
		l, err := r.session.current.Latency(ctx, worker.LatencyArgs{Rail: p.local.Name, N: r.plan.LatencySamples,
			Limit: latencyTime})
		switch f := failure.As(failure.StageLatency, err); {
		case f == nil:
			slices.Sort(l.Samples)
			p.result.Latency = &Latency{Samples: l.Samples}
		case f.Rail == "":
			return f // the worker's, not the path's
		default:
			r.failPath(p, failure.StageLatency, f)
		}
	}
	return nil
}

// solos measures each path alone, in full rounds.
func (r *round) solos(ctx context.Context) error {
	if !r.plan.full {
		return nil
	}
	paths := r.livePaths()
	total := r.plan.burstBytes(failure.StageSolo, len(paths))
	for _, p := range paths {
		done, err := r.burst(ctx, failure.StageSolo, []*path{p}, total)
		if err != nil {
			return err
		}
		p.result.Solo = flow(done, 0)
	}
	return nil
}

// static stripes with equal parts, assigned in advance: a slow rail finishes late.
func (r *round) static(ctx context.Context) error {
	paths := r.livePaths()
	total := r.plan.burstBytes(failure.StageStatic, len(paths))
	done, err := r.burst(ctx, failure.StageStatic, paths, total)
	if err != nil || len(r.livePaths()) < len(paths) {
		return err // without one of its parts the figure means nothing
	}
	r.res.Static, r.res.FinishSkew = equalParts(done, total)
	for i, p := range paths {
		p.result.Static = flow(done, i)
	}
	return nil
}

// stealing stripes over whichever rail has room: the combined rate.
func (r *round) stealing(ctx context.Context) error {
	paths := r.livePaths()
	before := r.node.traffic(r.rails)
	done, err := r.burst(ctx, failure.StageStealing, paths, r.plan.burstBytes(failure.StageStealing, len(paths)))
	after := r.node.traffic(r.rails)
	if err != nil || len(r.livePaths()) == 0 {
		return err
	}
	r.res.Stealing = goodput(done)
	for i, p := range paths {
		p.result.Stealing = flow(done, i)
		p.compareCounters(before, after)
	}
	r.judge()
	return nil
}

// compareCounters compares what the port counted with what was written.
func (p *path) compareCounters(before, after map[string]rail.Traffic) {
	d, ok := trafficBetween(before, after, p.local.Name)
	if !ok || p.result.Stealing == nil {
		return
	}
	p.result.CounterBytes = new(int64(d.out))
	if p.result.PathMTU > 0 && p.local.LinkLayer == "Ethernet" && p.result.Stealing.Bytes > 0 {
		wire := wireBytes(p.result.Stealing.Bytes, p.result.PathMTU, p.gid.GID.IPv4())
		p.result.CounterMismatch = new(max(d.out/wire-1, 1-d.out/wire))
	}
}

// wireBytes is payload in RoCE v2 packets of this MTU as port counters count it: Ethernet 14, IPv4 20 or IPv6 40, UDP
// 8, BTH 12, ICRC 4 (IBTA 1.5, annex A17).
func wireBytes(payload int64, mtu int, ipv4 bool) float64 {
	header := 58.0
	if !ipv4 {
		header = 78
	}
	return float64(payload) * (1 + header/float64(mtu))
}
