package probe

import (
	"context"
	"slices"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/pattern"
	"github.com/railscope/railscope/probe/internal/worker"
)

// What a queue pair is told, and how long single steps may take. Six more tries, and the write has failed; the seven
// that the field could hold are no end at all to Soft-RoCE (rxe_comp.c).
const (
	retryCount  = 6
	reachTime   = 12 * time.Second // for a first write: all retries, with the longest timeout
	latencyTime = 2 * time.Second  // for all samples of one rail
	fullPackets = 4                // full packets per rail that must get through
)

// rdma makes the transfer by RDMA. It returns an error when no rail is left.
func (r *round) rdma(ctx context.Context) error {
	r.bursts = 2
	if r.full {
		r.bursts += len(r.paths) + len(baselineStreams)
	}
	for _, step := range []func(context.Context) error{r.connect, r.reach, r.fullPacket, r.latency, r.solos, r.static,
		r.stealing} {
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

// alive are the paths that nothing has befallen.
func (r *round) livePaths() []*path {
	return slices.DeleteFunc(slices.Clone(r.paths), func(p *path) bool { return p.result.Failure != nil })
}

// lost returns why no path is left, or nil while there is one: the first
// failure, which is that of the lowest rail in the earliest step.
func (r *round) noPath() *failure.Failure {
	switch {
	case len(r.rails) == 0 && len(r.res.Failures) > 0:
		return &r.res.Failures[0]
	case len(r.rails) == 0:
		return failure.New(failure.StageOpen, failure.NoDevice,
			"this node has no RDMA device that is a rail (see railscope rails)")
	case len(r.remote.Rails) == 0:
		return failure.New(failure.StageOpen, failure.NoDevice,
			"the peer has no RDMA device that is a rail (see railscope rails there)")
	case len(r.livePaths()) > 0:
		return nil
	}
	return &r.res.Failures[0]
}

// fail notes what befell a path. Only the first counts: the rest follows from it.
func (r *round) failPath(p *path, stage failure.Stage, f *failure.Failure) {
	if p.result.Failure != nil {
		return
	}
	own := *f
	own.Rail, own.Stage = p.local.Name, stage
	p.result.Failure = &own
	r.addFailure(&own)
}

// connect brings up a pair of queue pairs per path: our ends, the peer's ends, and both connected.
func (r *round) connect(ctx context.Context) error {
	r.progress(Progress{Stage: failure.StageConnect})
	for _, p := range r.paths {
		if p.peer == nil {
			r.failPath(p, failure.StageOpen,
				failure.New("", failure.NoPeerRail,
					"the peer has no rail of this name or in this subnet (see railscope rails on both)"))
		} else if f := p.local.unusable(p.gid); f != nil {
			r.failPath(p, failure.StageOpen, f)
		} else if !p.peer.Active {
			r.failPath(p, failure.StageOpen, failure.New("", failure.PortDown, "the peer's %s port %d is %q", p.peer.Device,
				p.peer.Port, p.peer.State))
		}
	}
	if r.noPath() != nil {
		return nil
	}
	if err := r.openOwn(ctx); err != nil || r.noPath() != nil {
		return err
	}
	ends, err := r.openPeer(ctx)
	if err != nil {
		return err
	}
	args := worker.ConnectArgs{RetryCount: retryCount, TrafficClass: r.opts.TrafficClass}
	paths := r.livePaths()
	for i, p := range paths {
		if f := ends[i].Failure; f != nil {
			f.Detail = "on the peer: " + f.Detail
			r.failPath(p, f.Stage, f)
			continue
		}
		p.mtu = pathMTU(p.end, ends[i])
		p.result.PathMTU = p.mtu
		args.Rails = append(args.Rails, worker.ConnectRail{Name: p.local.Name, Remote: ends[i], PathMTU: p.mtu,
			InFlight: r.timeInFlight(p)})
	}
	if len(args.Rails) == 0 {
		return nil
	}
	connected, err := r.session.current.Connect(ctx, args)
	r.failPaths(connected.Failures, failure.StageConnect)
	return err
}

// failAll notes failures that the worker tells by rail.
func (r *round) failPaths(list []failure.Failure, stage failure.Stage) {
	for _, f := range list {
		for _, p := range r.paths {
			if p.local.Name == f.Rail {
				r.failPath(p, stage, &f)
			}
		}
	}
}

// openOwn opens this node's ends.
func (r *round) openOwn(ctx context.Context) error {
	args := worker.OpenArgs{Transport: worker.RDMA, Buffer: r.buffer(), Depth: r.opts.Depth,
		QueuePairs: r.opts.QueuePairs, Key: r.lease.grant.Key}
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

// openPeer asks the peer for its ends of the paths that are alive, in their order.
func (r *round) openPeer(ctx context.Context) ([]worker.End, error) {
	req := openRequest{Transport: worker.RDMA, Buffer: r.buffer(), Depth: r.opts.Depth, QueuePairs: r.opts.QueuePairs,
		TrafficClass: r.opts.TrafficClass}
	for _, p := range r.livePaths() {
		req.Rails = append(req.Rails, openRail{Rail: p.peer.Name, Remote: p.end, Prefixes: p.local.prefixes})
	}
	reply, err := r.client.open(ctx, req)
	return reply.Ends, err
}

// scratch is the most memory that a transfer is spread over, at each end.
const scratch = 64 << 20

// buffer is the size of the memory, a multiple of the chunk.
func (r *round) buffer() int64 {
	chunks := max(min(r.part(2), scratch)/r.opts.Chunk, 1)
	return chunks * r.opts.Chunk
}

// leastInFlight is what a burst has in flight on a slow path, however slow
// (claim.c): two chunks may take longer, but are acknowledged in parts.
const minInFlight = 250 * time.Millisecond

// timeInFlight is how long an acknowledgement may rightly be under way: until all chunks in flight have left, on a path
// that delivers no more than a sixty-fourth of what the rail could carry. A deep queue on a slow link must not look
// like loss; RC would send again what is only waiting.
func (r *round) timeInFlight(p *path) time.Duration {
	if p.result.Capacity == nil {
		return time.Second
	}
	bytes := float64(int64(r.opts.Depth) * r.opts.Chunk)
	return max(time.Duration(bytes/(*p.result.Capacity/64)*float64(time.Second)), minInFlight)
}

// reach writes 8 B over every path at once: who does not get through with that does not get through.
func (r *round) reach(ctx context.Context) error {
	return r.writeSmall(ctx, failure.StageReach, r.livePaths(), 8)
}

// fullPacket writes full packets: a path that lost its MTU swallows them, although 8 B got through.
func (r *round) fullPacket(ctx context.Context) error {
	byMTU := map[int][]*path{}
	for _, p := range r.livePaths() {
		byMTU[p.mtu] = append(byMTU[p.mtu], p)
	}
	for mtu, paths := range byMTU {
		if err := r.writeSmall(ctx, failure.StageMTU, paths, int64(mtu)); err != nil {
			return err
		}
	}
	for _, p := range r.paths {
		if f := p.result.Failure; f != nil && f.Stage == failure.StageMTU && f.Reason == failure.RetryExceeded {
			old := *f
			f.Reason = failure.MTUBlackHole
			f.Detail = "8 B get through and a full packet does not: an MTU on the way is smaller than at both ends. " +
				f.Detail
			if i := slices.Index(r.res.Failures, old); i >= 0 {
				r.res.Failures[i] = *f
			}
		}
	}
	return nil
}

// small writes a few messages of one size over each path, all paths at once.
func (r *round) writeSmall(ctx context.Context, stage failure.Stage, paths []*path, size int64) error {
	r.progress(Progress{Stage: stage})
	count := int64(1)
	if stage == failure.StageMTU {
		count = fullPackets
	}
	args := worker.BurstArgs{Total: size * count * int64(len(paths)), Chunk: size, Depth: 1, Limit: reachTime,
		Deadline: min(reachTime, r.timeLeft(ctx))}
	for _, p := range paths {
		args.Rails = append(args.Rails, p.local.Name)
	}
	done, err := r.session.current.Burst(ctx, stage, args, nil)
	if err != nil {
		return err
	}
	r.addBurst(done, paths, stage)
	return nil
}

// account notes what a burst did to each path.
func (r *round) addBurst(done worker.BurstDone, paths []*path, stage failure.Stage) {
	r.res.Bytes += done.Bytes
	for i, b := range done.Rails[:min(len(done.Rails), len(paths))] {
		if b.Failure != nil {
			r.failPath(paths[i], stage, b.Failure)
		}
	}
}

// latency measures one path after the other.
func (r *round) latency(ctx context.Context) error {
	for _, p := range r.livePaths() {
		r.progress(Progress{Stage: failure.StageLatency, Rail: p.local.Name})
		l, err := r.session.current.Latency(ctx, worker.LatencyArgs{Rail: p.local.Name, N: r.opts.LatencySamples,
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

// part is so much of the bytes of a round's transfer: half for each striped
// burst, and for the solos together as much as for one of them.
func (r *round) part(of int64) int64 { return max(r.opts.Transfer/of/pattern.Word, 1) * pattern.Word }

// solos measures each path alone.
func (r *round) solos(ctx context.Context) error {
	if !r.full {
		return nil
	}
	paths := r.livePaths()
	for _, p := range paths {
		done, err := r.burst(ctx, failure.StageSolo, []*path{p}, false, r.part(2*int64(len(paths))))
		if err != nil {
			return err
		}
		p.result.Solo = flow(done, 0)
	}
	return nil
}

// static stripes with equal parts, fixed before: the slow rail shows.
func (r *round) static(ctx context.Context) error {
	paths := r.livePaths()
	total := r.part(2)
	done, err := r.burst(ctx, failure.StageStatic, paths, false, total)
	if err != nil || len(r.livePaths()) < len(paths) {
		return err // a part that is missing makes the figure meaningless
	}
	r.res.Static, r.res.FinishSkew = equalParts(done, total)
	for i, p := range paths {
		p.result.Static = flow(done, i)
	}
	return nil
}

// stealing stripes over whichever rail has room: what the rails can do together.
func (r *round) stealing(ctx context.Context) error {
	paths := r.livePaths()
	before := r.node.traffic(r.rails)
	done, err := r.burst(ctx, failure.StageStealing, paths, true, r.part(2))
	after := r.node.traffic(r.rails)
	if err != nil || len(r.livePaths()) == 0 {
		return err
	}
	r.res.Stealing = goodput(done)
	for i, p := range paths {
		p.result.Stealing = flow(done, i)
		r.compareCounters(p, before, after)
	}
	r.judge()
	return nil
}

// counters compares what the port counted with what was written.
func (r *round) compareCounters(p *path, before, after map[string]rail.Traffic) {
	b, a, ok := trafficBetween(before, after, p.local.Name)
	if !ok || p.result.Stealing == nil {
		return
	}
	moved := int64(a.Transmit - b.Transmit)
	p.result.CounterBytes = &moved
	if p.mtu > 0 && p.local.LinkLayer == "Ethernet" && p.result.Stealing.Bytes > 0 {
		wire := wireBytes(p.result.Stealing.Bytes, p.mtu, p.gid.GID.IPv4())
		mismatch := float64(moved)/wire - 1
		mismatch = max(mismatch, -mismatch)
		p.result.CounterMismatch = &mismatch
	}
}

// wireBytes is what payload comes to in RoCE v2 packets of this MTU, as port counters count: Ethernet 14, IPv4 20 or
// IPv6 40, UDP 8, BTH 12, ICRC 4 (IBTA 1.5, annex A17).
func wireBytes(payload int64, mtu int, ipv4 bool) float64 {
	header := 58.0
	if !ipv4 {
		header = 78
	}
	return float64(payload) * (1 + header/float64(mtu))
}
