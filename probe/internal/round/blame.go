package round

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/result"
)

// misbound returns the GID through which connections use an interface other than the rail's: all routable RoCE v2
// IPv4 GIDs belong to a bond or bridge above it. It returns nil if they do not, or if the rail has no interface
// here, as in another network namespace.
func misbound(netdev string, gids []protocol.HelloGID) (trap *protocol.HelloGID) {
	for i, g := range gids {
		switch {
		case g.Type != rail.TypeRoCEv2 || !g.Addr.Is4In6() || g.Addr.Unmap().IsLinkLocalUnicast():
		case netdev == "" || g.Own:
			return nil
		case trap == nil:
			trap = &gids[i]
		}
	}
	return trap
}

// blame corrects the failures that a step added after the first earlier ones, by the present state of both ends.
// err is why the round cannot continue, or nil. Unanswered writes look alike whatever is missing at the other end,
// so the peer is asked over the control channel before the path is blamed.
func (r *Round) blame(ctx context.Context, earlier int, err error) {
	var flows []*Flow
	for _, f := range r.Res.Failures[min(earlier, len(r.Res.Failures)):] {
		p := flow(r.Flows, f.Rail)
		if p != nil && p.Result.Failure != nil && *p.Result.Failure == f && ofPath(f.Reason) {
			flows = append(flows, p)
		}
	}
	if len(flows) == 0 {
		return
	}
	if cause := failure.As("", err); cause != nil {
		switch cause.Reason {
		case failure.PeerWorker, failure.PeerLost, failure.LeaseLost:
			for _, p := range flows { // the list has consequences of the round's own failure
				f := *p.Result.Failure
				f.Reason, f.Detail = cause.Reason, cause.Detail
				replaceFailure(&r.Res, p, nil, &f)
			}
		}
		return
	}
	now := r.presentStates(ctx)
	for _, p := range flows {
		if f := p.Explain(*p.Result.Failure, now[p]); f != nil {
			replaceFailure(&r.Res, p, f, f)
		}
	}
}

// ofPath reports whether the reason blames the path although one end may be the cause.
func ofPath(reason failure.Reason) bool {
	switch reason {
	case failure.RTREinval, failure.RTRUnreachable, failure.RTRNoRoute, failure.RetryExceeded, failure.RemoteAccess,
		failure.Timeout:
		return true
	}
	return false
}

// replaceFailure replaces the failure of a flow, and its entry in the list of the result by listed. nil removes the
// entry.
func replaceFailure(res *result.Result, p *Flow, listed, by *failure.Failure) {
	i := slices.Index(res.Failures, *p.Result.Failure)
	switch {
	case i >= 0 && listed == nil:
		res.Failures = slices.Delete(res.Failures, i, i+1)
	case i >= 0:
		res.Failures[i] = *listed
	}
	p.Result.Failure = by
}

// State is what both ends of a flow report after it failed, in addition to the state of their ports.
type State struct {
	GIDs []protocol.HelloGID // GIDs of this node's rail
	Gone bool                // the peer has lost its rail
}

// presentStates reads the present state of the rails at both ends. Rails that cannot be read keep their last state.
func (r *Round) presentStates(ctx context.Context) map[*Flow]State {
	states := map[*Flow]State{}
	now, err := r.Client.Hello(ctx)
	rails, _ := r.Node.Rails()
	for _, p := range r.Flows {
		if i := slices.IndexFunc(rails, func(l node.LocalRail) bool { return l.Key() == p.Local.Key() }); i >= 0 {
			p.Local.Status, p.Local.Err = rails[i].Status, rails[i].Err
		}
		state := State{GIDs: r.Node.HelloGIDs(p.Local)}
		if err == nil && p.Peer != nil && now.Instance == r.Remote.Instance {
			name := p.Peer.Name
			i := slices.IndexFunc(now.Rails, func(h protocol.HelloRail) bool { return h.Name == name })
			state.Gone = i < 0
			if !state.Gone {
				*p.Peer = now.Rails[i]
			}
		}
		states[p] = state
	}
	return states
}

// Explain returns the failure with the cause that the GIDs and ports of both ends show, or nil if they show none.
func (p *Flow) Explain(f failure.Failure, now State) *failure.Failure {
	symptom := f.Detail
	because := func(reason failure.Reason, format string, args ...any) *failure.Failure {
		f.Reason, f.Detail = reason, fmt.Sprintf(format, args...)+" ("+symptom+")"
		return &f
	}
	ours, theirs := misbound(p.Local.Netdev, now.GIDs), misbound(p.Peer.Netdev, p.Peer.GIDs)
	const trap = "the GID %s of %s belongs to %s, not to its own interface %s: packets leave by whichever interface " +
		"%[3]s chooses; remove %[4]s from %[3]s, or use its RDMA device as the rail"
	const lost = "%s no longer has the GID %s: %s has lost the address; give it back"
	switch have, peerHas := p.GID.GID.Addr, p.Theirs; {
	case now.Gone:
		return because(failure.NoPeerRail, "the peer no longer has rail %s (%s)", p.Peer.Name, p.Peer.Device)
	case p.Local.Err == nil && !p.Local.Status.Limits.Active:
		return because(failure.PortDown, "%s port %d is %q", p.Local.Device, p.Local.Port, p.Local.Status.State)
	case !p.Peer.Active:
		return because(failure.PortDown, "%s port %d is %q", p.Peer.Device, p.Peer.Port, p.Peer.State).OnPeer()
	case p.Local.LinkLayer != "Ethernet":
		return nil
	case ours != nil:
		return because(failure.GIDMisbound, trap, ours.Addr.Unmap(), p.Local.Device, ours.NetdevName(), p.Local.Netdev)
	case theirs != nil:
		return because(failure.GIDMisbound, trap, theirs.Addr.Unmap(), p.Peer.Device, theirs.NetdevName(),
			p.Peer.Netdev).OnPeer()
	case p.Local.Err == nil && have.IsValid() && !hasGID(now.GIDs, have):
		return because(failure.GIDChanged, lost, p.Local.Device, have.Unmap(), p.Local.Netdev)
	case p.Peer.GIDs != nil && peerHas.IsValid() && !hasGID(p.Peer.GIDs, peerHas):
		return because(failure.PeerGID, "the peer's "+lost+" there", p.Peer.Device, peerHas.Unmap(), p.Peer.Netdev)
	case !have.IsValid() || !peerHas.IsValid() || kindOf(have) == kindOf(peerHas):
		return nil
	case kindOf(have) > kindOf(peerHas):
		return because(failure.PeerGID,
			"the peer's %s has no %s GID, only %s: give %s an address in this node's subnet there", p.Peer.Device,
			kindOf(have), peerHas.Unmap(), cmp.Or(p.Peer.Netdev, "its interface"))
	default:
		return because(failure.NoGID, "%s has no %s GID, only %s: give %s an address in the peer's subnet",
			p.Local.Device, kindOf(peerHas), have.Unmap(), cmp.Or(p.Local.Netdev, "its interface"))
	}
}

func hasGID(gids []protocol.HelloGID, addr netip.Addr) bool {
	return slices.ContainsFunc(gids, func(g protocol.HelloGID) bool { return g.Addr.Unmap() == addr.Unmap() })
}

// gidKind is the address type of a GID. Higher is better. Two different kinds do not connect.
type gidKind int

const (
	linkLocal gidKind = iota
	routableIPv6
	ipv4
)

func kindOf(addr netip.Addr) gidKind {
	switch addr = addr.Unmap(); {
	case addr.Is4():
		return ipv4
	case addr.IsLinkLocalUnicast():
		return linkLocal
	}
	return routableIPv6
}

func (k gidKind) String() string { return [...]string{"link-local", "routable IPv6", "IPv4"}[k] }
