package round

import (
	"context"
	"net/netip"
	"path/filepath"
	"slices"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/stats"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/result"
)

// controlRoute is the name of the only route when no two addresses share a subnet: that of the control channel.
const controlRoute = "control"

// fallback transfers over TCP after RDMA failed.
func (r *Round) fallback(ctx context.Context) error {
	res, err := r.overTCP(ctx, failure.StageStriped, r.Plan, TCPFlows(r.Routes(), r.Flows), 1)
	if err != nil {
		addFailure(&r.Res, err)
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
	if best > 0 && r.Res.Striped != nil {
		r.Res.Speedup = new(*r.Res.Striped / best)
	}
	for n := 1; n < r.Plan.Runs && r.Res.Speedup != nil && *r.Res.Speedup < result.SlowerBelow; n++ {
		tcp := TCPFlows(r.Routes(), r.Flows)
		again := r.Plan.Bytes(nil, tcp)
		if r.Res.Bytes+again > r.Plan.Bytes(r.Flows, tcp) || r.baselinePass(ctx) == 0 {
			return
		}
	}
}

// baselinePass measures TCP with each number of streams, and returns the best rate in bytes per second; 0: none.
func (r *Round) baselinePass(ctx context.Context) (best float64) {
	first := len(r.Res.TCPRuns) == 0
	for i, streams := range BaselineStreams {
		res, err := r.overTCP(ctx, failure.StageBaseline, r.Plan, r.usedRoutes(), streams)
		r.Tally.Other++
		if err != nil {
			if ctx.Err() == nil {
				addFailure(&r.Res, err)
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

// overTCP runs one burst over flows with this number of connections each. plan has the sizes.
func (r *Round) overTCP(ctx context.Context, stage failure.Stage, plan Plan, flows []*Flow,
	streams int) (result.TCPResult, error) {
	res := result.TCPResult{Streams: streams}
	r.Progress(result.Progress{Stage: stage})
	if len(flows) == 0 {
		return res, failure.New(stage, failure.NoAddress,
			"no address of this node is in one subnet with one of the peer's, and the peer's own is not known")
	}
	var loads []worker.Load
	for _, p := range flows {
		loads = append(loads, plan.tcpLoad(p, streams, len(flows)))
	}
	s := r.session.another(plan, flows, &r.Res)
	broken, err := s.openTCP(ctx, loads, streams)
	if err != nil {
		return res, err
	}
	flows = slices.DeleteFunc(slices.Clone(flows), func(p *Flow) bool { return slices.Contains(broken, p.name()) })
	loads = slices.DeleteFunc(loads, func(l worker.Load) bool { return slices.Contains(broken, l.Rail) })
	done, err := s.burst(ctx, stage, flows, plan.tcpBurst(loads, timeLeft(ctx)))
	notePeerEvents(r.Flows, s.events)
	if err != nil {
		return res, err
	}
	if !done.Disturbed() { // in a disturbed burst, too few writes completed in time
		for i, b := range done.Rails {
			if b.Failure == nil {
				res.BytesPerSecond += b.Rate()
				res.Rails = append(res.Rails, result.TCPRail{Rail: flows[i].Local.Name, BytesPerSecond: b.Rate(),
					Counted: flows[i].counted})
			}
		}
	}
	if movedBytes(done) == 0 {
		if f := flows[0].Result.Failure; f != nil {
			return res, f
		}
		return res, failure.New(stage, failure.Timeout, "no byte got through")
	}
	info, err := s.worker.Current.TCPInfo(ctx)
	res.Retransmits, res.PathMTU, res.RTT = info.Retransmits, info.PathMTU, info.RTT
	return res, err
}

// openTCP opens both ends, the listening one first, connects them, and returns the names of flows that did not connect.
func (s *Session) openTCP(ctx context.Context, loads []worker.Load, streams int) (broken []string, err error) {
	s.seed, s.buffer = newSeed(), s.Plan.memory(loads, streams)
	req := protocol.OpenRequest{Transport: worker.TCP, Buffer: s.buffer, Depth: s.Plan.Depth, QueuePairs: streams}
	args := worker.OpenArgs{Transport: worker.TCP, Buffer: s.buffer, Seed: s.seed, Depth: req.Depth,
		QueuePairs: streams, Key: s.lease.Grant.Key}
	for _, p := range s.Flows {
		req.Rails = append(req.Rails, protocol.OpenRail{Rail: p.name()})
		args.Rails = append(args.Rails, worker.RailArg{Name: p.name(), Local: p.route.Local, Netdev: p.route.netdev,
			NUMANode: -1})
	}
	f := failure.As(failure.StageRelease, s.worker.End())
	if f != nil && f.Reason == failure.Other { // a crash is recorded when it happens
		addFailure(s.Res, f)
	}
	reply, err := s.client.Open(ctx, req)
	if err != nil {
		return nil, err
	}
	if _, err := s.worker.Begin(ctx, args); err != nil {
		return nil, err
	}
	connect := worker.ConnectArgs{}
	for _, p := range s.Flows {
		connect.Rails = append(connect.Rails,
			worker.ConnectRail{Name: p.name(), TCP: netip.AddrPortFrom(p.route.Remote, reply.TCPPort)})
	}
	failures, err := s.worker.Current.Connect(ctx, connect)
	if err == nil && ctx.Err() != nil { // flows failed only because the lease ended
		err = failure.New(failure.StageConnect, failure.Timeout, "the round did not finish within its timeout")
	}
	if err != nil {
		return nil, err
	}
	for _, f := range failures {
		addFailure(s.Res, &f)
		broken = append(broken, f.Rail)
	}
	if len(failures) == len(s.Flows) {
		return nil, &failures[0]
	}
	return broken, nil
}

// TCPRoute is a TCP path to the peer.
type TCPRoute struct {
	Name          string // name of its rail
	netdev        string
	Local, Remote netip.Addr
}

// TCPFlows returns flows over routes: a failure over TCP is not a failure of the rail. For a rail that is not among
// those of this node, only the name is known.
func TCPFlows(routes []TCPRoute, rails []*Flow) []*Flow {
	flows := make([]*Flow, len(routes))
	for i, route := range routes {
		flows[i] = &Flow{route: &route, Result: &result.RailResult{Rail: route.Name}}
		flows[i].Local.Name = route.Name
		if p := flow(rails, route.Name); p != nil {
			flows[i].Local, flows[i].Result.Capacity = p.Local, p.Result.Capacity
		}
	}
	return flows
}

// usedRoutes returns flows over the routes of the rails that RDMA used.
func (r *Pairing) usedRoutes() []*Flow {
	return TCPFlows(slices.DeleteFunc(r.Routes(), func(route TCPRoute) bool {
		p := flow(r.Flows, route.Name)
		return p != nil && !p.live()
	}), r.Flows)
}

// Routes returns the TCP paths to the peer, one per rail, from its address to the peer's in the same subnet, also
// without an RDMA device; else the path of the control channel. Peer addresses outside the rails' subnets, or equal
// to this node's, are ignored: a peer must not direct traffic elsewhere.
func (r *Pairing) Routes() []TCPRoute {
	var list []TCPRoute
	own := r.ownAddresses()
	add := func(name, netdev string, local netip.Prefix, theirs []netip.Prefix) {
		theirs = slices.DeleteFunc(slices.Clone(theirs), func(p netip.Prefix) bool { return own[p.Addr().Unmap()] })
		remote := node.InSubnet(local, theirs)
		taken := slices.ContainsFunc(list, func(l TCPRoute) bool {
			return l.Name == name || l.Local == local.Addr() || l.Remote == remote
		})
		if local.IsValid() && remote.IsValid() && !taken && len(list) < worker.MaxRails {
			list = append(list, TCPRoute{name, netdev, local.Addr(), remote})
		}
	}
	var theirs []netip.Prefix
	for _, a := range r.Remote.Addresses {
		theirs = append(theirs, a.Prefix)
	}
	for _, p := range r.Flows {
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
		list = append(list, TCPRoute{Name: controlRoute, Remote: *remote})
	}
	return list
}

// ownAddresses returns the addresses of all interfaces of this node.
func (r *Pairing) ownAddresses() map[netip.Addr]bool {
	own := map[netip.Addr]bool{}
	for _, a := range r.Node.Addresses() {
		own[a.Prefix.Addr()] = true
	}
	return own
}

// BondRoute is a TCP path over a bond of this node.
type BondRoute struct {
	TCPRoute
	members  []string // member interfaces
	Capacity float64  // sum over all members in bytes per second; 0: unknown
}

// flow returns a flow over the route.
func (b BondRoute) flow() *Flow {
	p := &Flow{route: &b.TCPRoute, Result: &result.RailResult{Rail: b.Name, Capacity: stats.Positive(b.Capacity)}}
	p.Local.Name, p.Local.Capacity = b.Name, b.Capacity
	return p
}

// maxBonds is the largest number of bonds measured.
const maxBonds = 4

// bonds returns the bonds of this node, each with its first address that shares a subnet with an address of the
// peer. The address is invalid if there is none.
func (r *Pairing) bonds() (list []BondRoute) {
	theirs := r.peerAddresses()
	for _, a := range r.Node.Addresses() {
		members := rail.BondMembers(filepath.Join(r.Node.Opts.Sysfs, "class/net", a.Netdev))
		if len(members) == 0 {
			continue
		}
		i := slices.IndexFunc(list, func(b BondRoute) bool { return b.netdev == a.Netdev })
		if i < 0 && len(list) == maxBonds {
			continue
		}
		if i < 0 {
			b := BondRoute{members: members, Capacity: r.Node.Speed(members)}
			b.Name, b.netdev = "bond "+a.Netdev, a.Netdev
			i, list = len(list), append(list, b)
		}
		if b := &list[i]; !b.Remote.IsValid() {
			b.Local, b.Remote = a.Prefix.Addr(), node.InSubnet(a.Prefix, theirs)
		}
	}
	return list
}

// peerAddresses returns the addresses that the peer reports, except those that this node has itself.
func (r *Pairing) peerAddresses() (list []netip.Prefix) {
	own := r.ownAddresses()
	for _, a := range r.Remote.Addresses {
		if !own[a.Prefix.Addr().Unmap()] {
			list = append(list, a.Prefix)
		}
	}
	return list
}
