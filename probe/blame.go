package probe

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
)

// maxHelloGIDs is how many GIDs of a rail a node reports, the usable ones first.
const maxHelloGIDs = 16

// helloGID is one usable entry of a rail's GID table.
type helloGID struct {
	Addr   netip.Addr `json:"addr"`
	Type   string     `json:"type"`
	Netdev string     `json:"netdev"`
	Own    bool       `json:"own"` // the interface is the rail's own
}

// helloGIDs are the usable GIDs of an Ethernet rail; see [rail.UsableGIDs].
func (n *Node) helloGIDs(r localRail) (list []helloGID) {
	if r.LinkLayer != "Ethernet" {
		return nil
	}
	own := rail.Own(n.opts.Sysfs, r.Netdev)
	for _, g := range rail.UsableGIDs(r.status.GIDs, r.LinkLayer, own, maxHelloGIDs) {
		list = append(list, helloGID{g.Addr, g.Type, g.Netdev, own(g.Netdev)})
	}
	return list
}

// misbound returns the GID by which connections use another interface than the rail's: all routable RoCE v2 IPv4 GIDs
// are those of a bond or bridge over it; nil: they are not. Without an interface of its own, as in another network
// namespace, that is not known.
func misbound(netdev string, gids []helloGID) (trap *helloGID) {
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

// ofPeer names what the peer reports of itself: its worker or its GID is not this node's.
func ofPeer(reason failure.Reason) failure.Reason {
	switch reason {
	case failure.WorkerCrashed, failure.WorkerTimeout, failure.WorkerBackoff:
		return failure.PeerWorker
	case failure.NoGID, failure.GIDChanged:
		return failure.PeerGID
	}
	return reason
}

// blame corrects the failures of rails in a step, those after earlier, by what both ends know now. err is why the round
// cannot go on, or nil. Unanswered writes look the same whatever is gone at the other end: the peer, which answers over
// the control channel, is asked before the path is blamed.
func (r *round) blame(ctx context.Context, earlier int, err error) {
	var paths []*path
	for _, f := range r.res.Failures[min(earlier, len(r.res.Failures)):] {
		if p := r.path(f.Rail); p != nil && p.result.Failure != nil && *p.result.Failure == f && ofPath(f.Reason) {
			paths = append(paths, p)
		}
	}
	if len(paths) == 0 {
		return
	}
	if cause := failure.As("", err); cause != nil {
		switch cause.Reason {
		case failure.PeerWorker, failure.PeerLost, failure.LeaseLost:
			for _, p := range paths { // consequences, which the round's own failure names
				f := *p.result.Failure
				f.Reason, f.Detail = cause.Reason, cause.Detail
				r.rename(p, nil, &f)
			}
		}
		return
	}
	r.askAgain(ctx)
	for _, p := range paths {
		if f := p.explain(*p.result.Failure); f != nil {
			r.rename(p, f, f)
		}
	}
}

// ofPath reports whether a failure blames the path, and may have its cause at an end.
func ofPath(reason failure.Reason) bool {
	switch reason {
	case failure.RTREinval, failure.RTRUnreachable, failure.RTRNoRoute, failure.RetryExceeded, failure.RemoteAccess,
		failure.Timeout:
		return true
	}
	return false
}

// rename replaces a path's failure, in the list by listed; nil removes it there.
func (r *round) rename(p *path, listed, of *failure.Failure) {
	i := slices.Index(r.res.Failures, *p.result.Failure)
	switch {
	case i >= 0 && listed == nil:
		r.res.Failures = slices.Delete(r.res.Failures, i, i+1)
	case i >= 0:
		r.res.Failures[i] = *listed
	}
	p.result.Failure = of
}

// askAgain reads what both ends report about their rails now. What cannot be read stays as it was.
func (r *round) askAgain(ctx context.Context) {
	now, err := r.client.hello(ctx)
	rails, _ := r.node.rails()
	for _, p := range r.paths {
		if i := slices.IndexFunc(rails, func(l localRail) bool { return l.Key() == p.local.Key() }); i >= 0 {
			p.local.status, p.local.err = rails[i].status, rails[i].err
		}
		p.own = r.node.helloGIDs(p.local)
		if err != nil || p.peer == nil || now.Instance != r.remote.Instance {
			continue
		}
		name := p.peer.Name
		i := slices.IndexFunc(now.Rails, func(h helloRail) bool { return h.Name == name })
		if p.gone = i < 0; !p.gone {
			*p.peer = now.Rails[i]
		}
	}
}

// explain returns the failure with the cause that the GIDs and ports of both ends show; nil: they show none.
func (p *path) explain(f failure.Failure) *failure.Failure {
	symptom := f.Detail
	because := func(reason failure.Reason, format string, args ...any) *failure.Failure {
		f.Reason, f.Detail = reason, fmt.Sprintf(format, args...)+" ("+symptom+")"
		return &f
	}
	ours, theirs := misbound(p.local.Netdev, p.own), misbound(p.peer.Netdev, p.peer.GIDs)
	const trap = "the GID %s of %s belongs to %s, not to its own interface %s: packets leave by whichever interface " +
		"%[3]s chooses; remove %[4]s from %[3]s, or use its RDMA device as the rail"
	const lost = "%s no longer has the GID %s: %s has lost the address; give it back"
	switch have, peerHas := p.gid.GID.Addr, p.theirs; {
	case p.gone:
		return because(failure.NoPeerRail, "the peer no longer has rail %s (%s)", p.peer.Name, p.peer.Device)
	case p.local.err == nil && !p.local.status.Limits.Active:
		return because(failure.PortDown, "%s port %d is %q", p.local.Device, p.local.Port, p.local.status.State)
	case !p.peer.Active:
		return because(failure.PortDown, "the peer's %s port %d is %q", p.peer.Device, p.peer.Port, p.peer.State)
	case p.local.LinkLayer != "Ethernet":
		return nil
	case ours != nil:
		return because(failure.GIDMisbound, trap, ours.Addr.Unmap(), p.local.Device, ours.netdev(), p.local.Netdev)
	case theirs != nil:
		return because(failure.GIDMisbound, trap, theirs.Addr.Unmap(), p.peer.Device, theirs.netdev(),
			p.peer.Netdev).OnPeer()
	case p.local.err == nil && have.IsValid() && !hasGID(p.own, have):
		return because(failure.GIDChanged, lost, p.local.Device, have.Unmap(), p.local.Netdev)
	case p.peer.GIDs != nil && peerHas.IsValid() && !hasGID(p.peer.GIDs, peerHas):
		return because(failure.PeerGID, "the peer's "+lost+" there", p.peer.Device, peerHas.Unmap(), p.peer.Netdev)
	case !have.IsValid() || !peerHas.IsValid() || kindOf(have) == kindOf(peerHas):
		return nil
	case kindOf(have) > kindOf(peerHas):
		return because(failure.PeerGID,
			"the peer's %s has no %s GID, only %s: give %s an address in this node's subnet there", p.peer.Device,
			kindOf(have), peerHas.Unmap(), cmp.Or(p.peer.Netdev, "its interface"))
	default:
		return because(failure.NoGID, "%s has no %s GID, only %s: give %s an address in the peer's subnet", p.local.Device,
			kindOf(peerHas), have.Unmap(), cmp.Or(p.local.Netdev, "its interface"))
	}
}

func (g *helloGID) netdev() string { return cmp.Or(g.Netdev, "no interface") }

func hasGID(gids []helloGID, addr netip.Addr) bool {
	return slices.ContainsFunc(gids, func(g helloGID) bool { return g.Addr.Unmap() == addr.Unmap() })
}

// gidKind is what address a GID has, the better the higher. Two kinds do not connect.
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
