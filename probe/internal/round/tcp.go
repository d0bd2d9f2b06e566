package round

import (
	"context"
	"net/netip"
	"slices"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/result"
)

// controlLane is the name of the only lane when no two addresses share a subnet: the path of the control channel.
const controlLane = "control"

// fallback transfers over TCP after RDMA failed.
func (r *Round) fallback(ctx context.Context) error {
	res, err := r.tcp(ctx, failure.StageStriped, 1)
	if err != nil {
		r.addFailure(err)
		return err
	}
	r.Res.Verified = true
	if res.BytesPerSecond > 0 {
		r.Res.TCP = []result.TCPResult{res}
	}
	return nil
}

// baseline transfers over TCP for comparison. A failure here is recorded and does not change the outcome.
func (r *Round) baseline(ctx context.Context) {
	best := r.baselinePass(ctx)
	if best > 0 && r.Res.Stealing != nil {
		r.Res.Speedup = new(*r.Res.Stealing / best)
	}
	for n := 1; n < r.Plan.Runs && r.Res.Speedup != nil && *r.Res.Speedup < result.SlowerBelow; n++ {
		tcp := r.TCPPaths(r.Lanes())
		if again := r.Plan.Bytes(nil, tcp); r.Res.Bytes+again > r.Plan.Bytes(r.Paths, tcp) || r.baselinePass(ctx) == 0 {
			return
		}
	}
}

// baselinePass measures TCP with each number of streams, and returns the best rate in bytes per second; 0: none.
func (r *Round) baselinePass(ctx context.Context) (best float64) {
	first := len(r.Res.TCPRuns) == 0
	for i, streams := range BaselineStreams {
		res, err := r.tcp(ctx, failure.StageBaseline, streams)
		r.Tally.Other++
		if err != nil {
			if ctx.Err() == nil {
				r.addFailure(err)
			}
			if !first {
				break
			}
			for _, n := range BaselineStreams[i:] {
				r.Res.TCPFailed = append(r.Res.TCPFailed, result.TCPResult{Streams: n,
					Failure: failure.As(failure.StageBaseline, err)})
			}
			break
		}
		switch {
		case !first:
		case res.BytesPerSecond > 0:
			r.Res.TCP = append(r.Res.TCP, res)
		default:
			res.Failure = tooFewWrites("the rails")
			r.Res.TCPFailed = append(r.Res.TCPFailed, res)
		}
		best = max(best, res.BytesPerSecond)
	}
	if best > 0 {
		r.Res.TCPRuns = append(r.Res.TCPRuns, best)
	}
	return best
}

// tooFewWrites returns the failure of a burst over TCP that was made and has no rate.
func tooFewWrites(over string) *failure.Failure {
	return failure.New(failure.StageBaseline, failure.Timeout, "fewer than %d writes over %s completed in %d ms",
		tcpWrites, over, maxTCP.Milliseconds())
}

// TCPLane is one TCP path to the peer.
type TCPLane struct {
	Name          string
	netdev        string
	Local, Remote netip.Addr
}

// tcp runs one striped burst with this number of connections per rail.
func (r *Round) tcp(ctx context.Context, stage failure.Stage, streams int) (result.TCPResult, error) {
	lanes := r.Lanes()
	if stage == failure.StageBaseline {
		lanes = r.usedLanes()
	}
	return r.tcpOver(ctx, stage, lanes, r.TCPPaths(lanes), streams)
}

// usedLanes returns the lanes of the rails that RDMA used.
func (r *Round) usedLanes() []TCPLane {
	return slices.DeleteFunc(r.Lanes(), func(l TCPLane) bool {
		p := r.path(l.Name)
		return p != nil && !p.live()
	})
}

// tcpOver runs one burst over lanes. paths represent the lanes.
func (r *Round) tcpOver(ctx context.Context, stage failure.Stage, lanes []TCPLane, paths []*Path,
	streams int) (result.TCPResult, error) {
	res := result.TCPResult{Streams: streams}
	r.Progress(result.Progress{Stage: stage})
	if len(lanes) == 0 {
		return res, failure.New(stage, failure.NoAddress,
			"no address of this node is in one subnet with one of the peer's, and the peer's own is not known")
	}
	var loads []worker.Load
	for _, p := range paths {
		loads = append(loads, r.Plan.tcpLoad(p, streams, len(paths)))
	}
	broken, err := r.openTCP(ctx, lanes, loads, streams)
	if err != nil {
		return res, err
	}
	paths = slices.DeleteFunc(paths, func(p *Path) bool { return slices.Contains(broken, p.name()) })
	loads = slices.DeleteFunc(loads, func(l worker.Load) bool { return slices.Contains(broken, l.Rail) })
	done, err := r.burst(ctx, stage, paths, r.Plan.tcpBurst(loads, r.timeLeft(ctx)))
	if err != nil {
		return res, err
	}
	if !done.Disturbed() { // in a disturbed burst, too few writes completed in time
		for i, b := range done.Rails {
			if b.Failure == nil {
				res.BytesPerSecond += b.Rate()
				res.Rails = append(res.Rails, result.TCPRail{Rail: paths[i].Local.Name, BytesPerSecond: b.Rate(),
					Counted: paths[i].counted})
			}
		}
	}
	if movedBytes(done) == 0 {
		if f := paths[0].Result.Failure; f != nil {
			return res, f
		}
		return res, failure.New(stage, failure.Timeout, "no byte got through")
	}
	info, err := r.Session.Current.TCPInfo(ctx)
	res.Retransmits, res.PathMTU, res.RTT = info.Retransmits, info.PathMTU, info.RTT
	return res, err
}

// TCPPaths returns paths that represent lanes: a failure over TCP is not a failure of the rail. For a rail that
// this node lacks, only the name is known.
func (r *Round) TCPPaths(lanes []TCPLane) []*Path {
	paths := make([]*Path, len(lanes))
	for i, l := range lanes {
		paths[i] = &Path{lane: true, Result: &result.RailResult{Rail: l.Name}}
		paths[i].Local.Name = l.Name
		if p := r.path(l.Name); p != nil {
			paths[i].Local, paths[i].Result.Capacity = p.Local, p.Result.Capacity
		}
	}
	return paths
}

// path returns the path of this node's rail with that name, or nil.
func (r *Round) path(name string) *Path {
	if i := slices.IndexFunc(r.Paths, func(p *Path) bool { return p.name() == name }); i >= 0 {
		return r.Paths[i]
	}
	return nil
}

// openTCP opens both ends, the listening one first, connects them, and returns the names of lanes that did not connect.
func (r *Round) openTCP(ctx context.Context, lanes []TCPLane, loads []worker.Load, streams int) (broken []string,
	err error) {
	r.seed, r.buffer = newSeed(), r.Plan.memory(loads, streams)
	req := protocol.OpenRequest{Transport: worker.TCP, Buffer: r.buffer, Depth: r.Plan.Depth, QueuePairs: streams}
	args := worker.OpenArgs{Transport: worker.TCP, Buffer: r.buffer, Seed: r.seed, Depth: req.Depth, QueuePairs: streams,
		Key: r.lease.Grant.Key}
	for _, l := range lanes {
		req.Rails = append(req.Rails, protocol.OpenRail{Rail: l.Name})
		args.Rails = append(args.Rails, worker.RailArg{Name: l.Name, Local: l.Local, Netdev: l.netdev, NUMANode: -1})
	}
	f := failure.As(failure.StageRelease, r.Session.End())
	if f != nil && f.Reason == failure.Other { // a crash is recorded when it happens
		r.addFailure(f)
	}
	reply, err := r.Client.Open(ctx, req)
	if err != nil {
		return nil, err
	}
	if _, err := r.Session.Begin(ctx, args); err != nil {
		return nil, err
	}
	connect := worker.ConnectArgs{}
	for _, l := range lanes {
		connect.Rails = append(connect.Rails,
			worker.ConnectRail{Name: l.Name, TCP: netip.AddrPortFrom(l.Remote, reply.TCPPort)})
	}
	failures, err := r.Session.Current.Connect(ctx, connect)
	if err == nil && ctx.Err() != nil { // lanes failed only because the lease ended
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

// Lanes returns the TCP paths to the peer, one per rail, from its address to the peer's in the same subnet, also
// without an RDMA device; else the path of the control channel. Peer addresses outside the rails' subnets, or equal
// to this node's, are ignored: a peer must not direct traffic elsewhere.
func (r *Round) Lanes() []TCPLane {
	var list []TCPLane
	own := r.ownAddresses()
	add := func(name, netdev string, local netip.Prefix, theirs []netip.Prefix) {
		theirs = slices.DeleteFunc(slices.Clone(theirs), func(p netip.Prefix) bool { return own[p.Addr().Unmap()] })
		remote := node.InSubnet(local, theirs)
		taken := slices.ContainsFunc(list, func(l TCPLane) bool {
			return l.Name == name || l.Local == local.Addr() || l.Remote == remote
		})
		if local.IsValid() && remote.IsValid() && !taken && len(list) < worker.MaxRails {
			list = append(list, TCPLane{name, netdev, local.Addr(), remote})
		}
	}
	var theirs []netip.Prefix
	for _, a := range r.Remote.Addresses {
		theirs = append(theirs, a.Prefix)
	}
	for _, p := range r.Paths {
		if p.Peer != nil {
			add(p.Local.Name, p.Local.Netdev, node.SharedPrefix(p.Local.Prefixes, p.Peer.Prefixes), p.Peer.Prefixes)
		}
		add(p.Local.Name, p.Local.Netdev, node.SharedPrefix(p.Local.Prefixes, theirs), theirs)
	}
	ours := r.Node.RailAddresses()
	for _, p := range r.Remote.Rails {
		for _, a := range ours {
			add(p.Name, a.Netdev, a.Prefix, p.Prefixes)
		}
	}
	if remote := r.Client.Remote.Load(); len(list) == 0 && remote != nil {
		list = append(list, TCPLane{Name: controlLane, Remote: *remote})
	}
	return list
}

// ownAddresses returns the addresses of all interfaces of this node.
func (r *Round) ownAddresses() map[netip.Addr]bool {
	own := map[netip.Addr]bool{}
	for _, a := range r.Node.Addresses() {
		own[a.Prefix.Addr()] = true
	}
	return own
}
