package probe

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/worker"
)

// MissingRail is a rail that one end of a pair lacks.
type MissingRail struct {
	Rail   string // of this node: the missing one, or the one whose partner is missing
	Device string // the missing one's, where it was; empty: not known
	Peer   bool   // the peer lacks it
	Known  bool   // the end had it before; else only its interface is there
	Role   string // see [rail.Rail]; empty: not known
	Detail string // how that is known, for people
}

// helloMissing is a rail that a node had, and no longer has.
type helloMissing struct {
	Name   string `json:"name"`
	Device string `json:"device"`
}

// missing are the rails that this node had, and no longer has.
func (n *Node) missing() []rail.Missing {
	if n.opts.Missing == nil {
		return nil
	}
	list := n.opts.Missing()
	return list[:min(len(list), worker.MaxRails)]
}

func (n *Node) helloMissing() (list []helloMissing) {
	if n.opts.Missing != nil {
		list = []helloMissing{} // none is an answer, too
	}
	for _, m := range n.missing() {
		list = append(list, helloMissing{m.Name, m.Device})
	}
	return list
}

// findMissing finds the rails that one end lacks: those that it had before, and those of which this node has only the
// interface. A rail without a partner that nobody misses only fails. A peer that lists what it lacks knows better than
// earlier rounds: its rail may be gone on purpose.
func (r *round) findMissing() (list []MissingRail) {
	for _, m := range r.node.missing() {
		list = append(list, MissingRail{Rail: m.Name, Device: m.Device, Known: true, Detail: "this node had it before",
			Role: cmp.Or(r.node.role(m.Name), r.peerRole(m.Name))})
	}
	for _, p := range r.paths {
		if p.peer != nil {
			continue
		}
		i := slices.IndexFunc(r.remote.Missing, func(m helloMissing) bool { return m.Name == p.local.Name })
		if before := r.past.partner(p.local.Name); i >= 0 || before != "" && r.remote.Missing == nil {
			m := MissingRail{Rail: p.local.Name, Peer: true, Known: true, Role: p.local.Role,
				Detail: fmt.Sprintf("an earlier round used the peer's rail %s", before)}
			if i >= 0 {
				m.Device, m.Detail = r.remote.Missing[i].Device, "the peer had it before"
			}
			list = append(list, m)
		}
	}
	for _, theirs := range r.remote.Rails {
		paired := slices.ContainsFunc(r.paths, func(p *path) bool { return p.peer != nil && p.peer.Name == theirs.Name })
		known := slices.ContainsFunc(list, func(m MissingRail) bool { return !m.Peer && m.Rail == theirs.Name })
		if paired || known || theirs.Role != "" && theirs.Role != rail.Compute {
			continue
		}
		if netdev := r.withoutDevice(theirs.Prefixes); netdev != "" {
			list = append(list, MissingRail{Rail: theirs.Name, Role: theirs.Role,
				Detail: fmt.Sprintf("%s is in the subnet of the peer's rail %s and has no RDMA device", netdev, theirs.Name)})
		}
	}
	return list[:min(len(list), worker.MaxRails)]
}

// peerRole is the role of the peer's rail of a name; empty: not known.
func (r *round) peerRole(name string) string {
	if i := slices.IndexFunc(r.remote.Rails, func(h helloRail) bool { return h.Name == name }); i >= 0 {
		return r.remote.Rails[i].Role
	}
	return ""
}

// role is the role that a rail had when it was last there; empty: it was not since the start.
func (n *Node) role(name string) string {
	n.railsMu.Lock()
	defer n.railsMu.Unlock()
	return n.roles[name]
}

// withoutDevice returns an interface of this node in one subnet with these addresses if no rail is on any such; else
// nothing. The network of the control channel is an ordinary one.
func (r *round) withoutDevice(theirs []netip.Prefix) (netdev string) {
	control := r.client.remote.Load()
	for _, a := range r.node.addresses() {
		if control != nil && a.Prefix.Masked().Contains(*control) {
			continue
		}
		if a.Prefix.Addr().IsLinkLocalUnicast() || !inSubnet(a.Prefix, theirs).IsValid() {
			continue
		}
		if slices.ContainsFunc(r.rails, func(l localRail) bool {
			return l.Netdev == a.Netdev || slices.Contains(l.prefixes, a.Prefix)
		}) {
			return ""
		}
		netdev = a.Netdev
	}
	return netdev
}

// Certain reports whether a rail is missing: the end had it before, or the other end has one of a known role there.
// Else the interface may be an ordinary one.
func (m MissingRail) Certain() bool { return m.Known || m.Role != "" }

// LacksRail reports whether an end certainly lacks a rail.
func (r Result) LacksRail() bool { return slices.ContainsFunc(r.Missing, MissingRail.Certain) }

// load is what a missing rail carries beside the rails of its role that are left: nothing. It is not known of a rail of
// unknown role, or of another one than all that are left.
func (m MissingRail) load(beside []*path) (l rail.Load, known bool) {
	i := slices.IndexFunc(beside, func(p *path) bool { return p.local.Role == m.Role })
	if m.Role == "" || i < 0 {
		return l, false
	}
	return rail.Load{Group: rail.Group{Role: m.Role, LinkLayer: beside[i].local.LinkLayer}}, true
}

// String names the rail and the end that lacks it.
func (m MissingRail) String() string {
	s := "rail " + m.Rail
	if m.Peer {
		s = "the peer's rail for " + s
	}
	if m.Device != "" {
		s += " (" + m.Device + ")"
	}
	return s
}
