package probe

import (
	"context"
	"net/netip"
	"slices"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/worker"
)

// controlLane is the name of the only lane when no two addresses are in one subnet: the path of the control channel.
const controlLane = "control"

// fallback makes the transfer over TCP, because RDMA failed.
func (r *round) fallback(ctx context.Context) error {
	res, err := r.tcp(ctx, failure.StageStriped, 1)
	if err != nil {
		r.addFailure(err)
		return err
	}
	if r.res.Verified = true; res.BytesPerSecond > 0 {
		r.res.TCP = []TCPResult{res}
	}
	return nil
}

// baseline makes the transfer over TCP for comparison. A failure here is recorded, and changes nothing else.
func (r *round) baseline(ctx context.Context) {
	best := r.baselinePass(ctx)
	if best > 0 && r.res.Stealing != nil {
		r.res.Speedup = new(*r.res.Stealing / best)
	}
	for n := 1; n < r.plan.runs && r.res.Speedup != nil && *r.res.Speedup < slowerBelow; n++ {
		tcp := r.tcpPaths(r.lanes())
		if again := r.plan.bytes(nil, tcp); r.res.Bytes+again > r.plan.bytes(r.paths, tcp) || r.baselinePass(ctx) == 0 {
			return
		}
	}
}

// baselinePass measures TCP with each number of streams, and returns the best rate in bytes per second; 0: none.
func (r *round) baselinePass(ctx context.Context) (best float64) {
	first := len(r.res.tcpRuns) == 0
	for _, streams := range baselineStreams {
		res, err := r.tcp(ctx, failure.StageBaseline, streams)
		if err != nil {
			if ctx.Err() == nil {
				r.addFailure(err)
			}
			break
		}
		if res.BytesPerSecond > 0 && first {
			r.res.TCP = append(r.res.TCP, res)
		}
		best = max(best, res.BytesPerSecond)
	}
	if best > 0 {
		r.res.tcpRuns = append(r.res.tcpRuns, best)
	}
	return best
}

// tcpLane is one TCP path to the peer.
type tcpLane struct {
	name          string
	netdev        string
	local, remote netip.Addr
}

// tcp makes one striped burst with so many connections per rail.
func (r *round) tcp(ctx context.Context, stage failure.Stage, streams int) (TCPResult, error) {
	lanes := r.lanes()
	if stage == failure.StageBaseline { // of the rails that RDMA used
		lanes = slices.DeleteFunc(lanes, func(l tcpLane) bool {
			p := r.path(l.name)
			return p != nil && p.result.Failure != nil
		})
	}
	return r.tcpOver(ctx, stage, lanes, r.tcpPaths(lanes), streams)
}

// tcpOver makes one burst over lanes, for which paths stand in.
func (r *round) tcpOver(ctx context.Context, stage failure.Stage, lanes []tcpLane, paths []*path,
	streams int) (TCPResult, error) {
	res := TCPResult{Streams: streams}
	r.progress(Progress{Stage: stage})
	if len(lanes) == 0 {
		return res, failure.New(stage, failure.NoAddress,
			"no address of this node is in one subnet with one of the peer's, and the peer's own is not known")
	}
	var loads []worker.Load
	for _, p := range paths {
		loads = append(loads, r.plan.tcpLoad(p, streams, len(paths)))
	}
	broken, err := r.openTCP(ctx, lanes, loads, streams)
	if err != nil {
		return res, err
	}
	paths = slices.DeleteFunc(paths, func(p *path) bool { return slices.Contains(broken, p.name()) })
	loads = slices.DeleteFunc(loads, func(l worker.Load) bool { return slices.Contains(broken, l.Rail) })
	done, err := r.burst(ctx, stage, paths, r.plan.tcpBurst(loads, r.timeLeft(ctx)))
	if err != nil {
		return res, err
	}
	if !done.Disturbed() { // else a lane is so slow that too few writes arrived in time
		for i, b := range done.Rails {
			if b.Failure == nil {
				res.BytesPerSecond += b.Rate()
				res.Rails = append(res.Rails, TCPRail{paths[i].local.Name, b.Rate(), paths[i].counted})
			}
		}
	}
	if movedBytes(done) == 0 {
		if f := paths[0].result.Failure; f != nil {
			return res, f
		}
		return res, failure.New(stage, failure.Timeout, "no byte got through")
	}
	info, err := r.session.current.TCPInfo(ctx)
	res.Retransmits, res.PathMTU, res.RTT = info.Retransmits, info.PathMTU, info.RTT
	return res, err
}

// tcpPaths stand in for the paths of lanes: their failures are not failures of rails by RDMA. Of a rail that this node
// does not have, only the name is known.
func (r *round) tcpPaths(lanes []tcpLane) []*path {
	paths := make([]*path, len(lanes))
	for i, l := range lanes {
		paths[i] = &path{lane: true, result: &RailResult{Rail: l.name}}
		paths[i].local.Name = l.name
		if p := r.path(l.name); p != nil {
			paths[i].local, paths[i].result.Capacity = p.local, p.result.Capacity
		}
	}
	return paths
}

// path returns the path of this node's rail of that name; nil if there is none.
func (r *round) path(name string) *path {
	if i := slices.IndexFunc(r.paths, func(p *path) bool { return p.name() == name }); i >= 0 {
		return r.paths[i]
	}
	return nil
}

// openTCP opens both ends, the listening one first, connects them, and returns the names of lanes that did not connect.
func (r *round) openTCP(ctx context.Context, lanes []tcpLane, loads []worker.Load, streams int) (broken []string,
	err error) {
	r.seed, r.buffer = newSeed(), r.plan.memory(loads, streams)
	req := openRequest{Transport: worker.TCP, Buffer: r.buffer, Depth: r.plan.Depth, QueuePairs: streams}
	args := worker.OpenArgs{Transport: worker.TCP, Buffer: r.buffer, Seed: r.seed, Depth: req.Depth, QueuePairs: streams,
		Key: r.lease.grant.Key}
	for _, l := range lanes {
		req.Rails = append(req.Rails, openRail{Rail: l.name})
		args.Rails = append(args.Rails, worker.RailArg{Name: l.name, Local: l.local, Netdev: l.netdev, NUMANode: -1})
	}
	f := failure.As(failure.StageRelease, r.session.end())
	if f != nil && f.Reason == failure.Other { // a crash was recorded when it happened
		r.addFailure(f)
	}
	reply, err := r.client.open(ctx, req)
	if err != nil {
		return nil, err
	}
	if _, err := r.session.begin(ctx, args); err != nil {
		return nil, err
	}
	connect := worker.ConnectArgs{}
	for _, l := range lanes {
		connect.Rails = append(connect.Rails,
			worker.ConnectRail{Name: l.name, TCP: netip.AddrPortFrom(l.remote, reply.TCPPort)})
	}
	failures, err := r.session.current.Connect(ctx, connect)
	if err == nil && ctx.Err() != nil { // failures of lanes then only mean that the lease ended
		err = failure.New(failure.StageConnect, failure.Timeout, "the round did not finish within its timeout")
	}
	if err != nil {
		return nil, err
	}
	for _, f := range failures {
		r.addFailure(&f)
		broken = append(broken, f.Rail)
	}
	if len(failures) == len(lanes) {
		return nil, &failures[0]
	}
	return broken, nil
}

// lanes are the TCP paths to the peer: one per rail, from its address to the peer's in the same subnet, also when one
// end has lost its RDMA device; if no addresses match, the path of the control channel. The addresses that a peer
// reports are used only within the subnets of this node's rails, and not if they are this node's own: a peer must not
// direct traffic elsewhere.
func (r *round) lanes() []tcpLane {
	var list []tcpLane
	own := r.ownAddresses()
	add := func(name, netdev string, local netip.Prefix, theirs []netip.Prefix) {
		theirs = slices.DeleteFunc(slices.Clone(theirs), func(p netip.Prefix) bool { return own[p.Addr().Unmap()] })
		remote := inSubnet(local, theirs)
		taken := slices.ContainsFunc(list, func(l tcpLane) bool {
			return l.name == name || l.local == local.Addr() || l.remote == remote
		})
		if local.IsValid() && remote.IsValid() && !taken && len(list) < worker.MaxRails {
			list = append(list, tcpLane{name, netdev, local.Addr(), remote})
		}
	}
	var theirs []netip.Prefix
	for _, a := range r.remote.Addresses {
		theirs = append(theirs, a.Prefix)
	}
	for _, p := range r.paths {
		if p.peer != nil {
			add(p.local.Name, p.local.Netdev, sharedPrefix(p.local.prefixes, p.peer.Prefixes), p.peer.Prefixes)
		}
		add(p.local.Name, p.local.Netdev, sharedPrefix(p.local.prefixes, theirs), theirs)
	}
	ours := r.node.railAddresses()
	for _, p := range r.remote.Rails {
		for _, a := range ours {
			add(p.Name, a.Netdev, a.Prefix, p.Prefixes)
		}
	}
	if remote := r.client.remote.Load(); len(list) == 0 && remote != nil {
		list = append(list, tcpLane{name: controlLane, remote: *remote})
	}
	return list
}

// ownAddresses are those of all interfaces of this node.
func (r *round) ownAddresses() map[netip.Addr]bool {
	own := map[netip.Addr]bool{}
	for _, a := range r.node.addresses() {
		own[a.Prefix.Addr()] = true
	}
	return own
}
