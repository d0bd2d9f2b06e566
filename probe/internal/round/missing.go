package round

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/result"
)

// FindMissing returns the rails that one end lacks: rails that it had before, and rails of which this node has only
// the interface. A rail without a partner that neither end misses only fails. A peer's own list of missing rails
// overrides earlier rounds: its rail may have been removed on purpose.
func (r *Round) FindMissing() (list []result.MissingRail) {
	for _, m := range r.Node.Missing() {
		list = append(list, result.MissingRail{Rail: m.Name, Device: m.Device, Known: true, Detail: "this node had it before",
			Role: cmp.Or(r.Node.Role(m.Name), r.peerRole(m.Name))})
	}
	for _, p := range r.Paths {
		if p.Peer != nil {
			continue
		}
		i := r.missedPartner(p)
		if before := r.lostPartner(p); i >= 0 || before != "" && r.Remote.Missing == nil {
			m := result.MissingRail{Rail: p.Local.Name, Peer: true, Known: true, Role: p.Local.Role,
				Detail: fmt.Sprintf("an earlier round used the peer's rail %s", before)}
			if i >= 0 {
				m.Device, m.Detail = r.Remote.Missing[i].Device, "the peer had it before"
			}
			list = append(list, m)
		}
	}
	for _, theirs := range r.Remote.Rails {
		paired := slices.ContainsFunc(r.Paths, func(p *Path) bool { return p.Peer != nil && p.Peer.Name == theirs.Name })
		known := slices.ContainsFunc(list, func(m result.MissingRail) bool { return !m.Peer && m.Rail == theirs.Name })
		if paired || known || theirs.Role != "" && theirs.Role != rail.Compute {
			continue
		}
		if netdev := r.withoutDevice(theirs.Prefixes); netdev != "" {
			list = append(list, result.MissingRail{Rail: theirs.Name, Role: theirs.Role,
				Detail: fmt.Sprintf("%s is in the subnet of the peer's rail %s and has no RDMA device", netdev, theirs.Name)})
		}
	}
	return list[:min(len(list), worker.MaxRails)]
}

// missedPartner returns the index of a rail's partner in the peer's list of missing rails, the one of earlier
// rounds or of the same name; -1: none.
func (r *Round) missedPartner(p *Path) int {
	name := cmp.Or(r.Past.Partner(p.Local.Name), p.Local.Name)
	return slices.IndexFunc(r.Remote.Missing, func(m protocol.HelloMissing) bool { return m.Name == name })
}

// lostPartner returns the partner that a rail had in earlier rounds if the peer has lost it; empty: none.
func (r *Round) lostPartner(p *Path) string {
	before := r.Past.Partner(p.Local.Name)
	if slices.ContainsFunc(r.Remote.Rails, func(h protocol.HelloRail) bool { return h.Name == before }) {
		return ""
	}
	return before
}

// FindUnpaired marks the rails that have no partner because the peer has fewer rails, not those whose partner is
// gone. If the peer lists a missing rail whose partner is unknown, it may be the partner of any rail: none is
// marked.
func (r *Round) FindUnpaired() {
	var pairs []int
	var roles, theirs []string
	partners := map[int]bool{} // indices of the peer's missing rails whose partners are known
	for _, p := range r.Paths {
		j := -1
		if p.Peer != nil {
			j = slices.IndexFunc(r.Remote.Rails, func(h protocol.HelloRail) bool { return h.Name == p.Peer.Name })
		} else if i := r.missedPartner(p); i >= 0 {
			partners[i] = true
		}
		pairs, roles = append(pairs, j), append(roles, p.Local.Role)
	}
	if len(partners) < len(r.Remote.Missing) {
		return
	}
	for _, h := range r.Remote.Rails {
		theirs = append(theirs, h.Role)
	}
	for _, i := range rail.Surplus(pairs, roles, theirs) {
		p := r.Paths[i]
		p.Result.Unpaired = r.missedPartner(p) < 0 && r.lostPartner(p) == ""
	}
}

// peerRole returns the role of the peer's rail with this name; empty: unknown.
func (r *Round) peerRole(name string) string {
	if i := slices.IndexFunc(r.Remote.Rails, func(h protocol.HelloRail) bool { return h.Name == name }); i >= 0 {
		return r.Remote.Rails[i].Role
	}
	return ""
}

// withoutDevice returns an interface of this node that shares a subnet with these addresses, or nothing if such an
// interface has a rail or an RDMA device. The network of the control channel is ignored.
func (r *Round) withoutDevice(theirs []netip.Prefix) (netdev string) {
	control := r.Client.Remote.Load()
	for _, a := range r.Node.Addresses() {
		if control != nil && a.Prefix.Masked().Contains(*control) {
			continue
		}
		if a.Prefix.Addr().IsLinkLocalUnicast() || !node.InSubnet(a.Prefix, theirs).IsValid() {
			continue
		}
		if hasDevice(r.Node.Opts.Sysfs, a.Netdev) || slices.ContainsFunc(r.Rails, func(l node.LocalRail) bool {
			return l.Netdev == a.Netdev || slices.Contains(l.Prefixes, a.Prefix)
		}) {
			return ""
		}
		netdev = a.Netdev
	}
	return netdev
}

// hasDevice reports whether an RDMA device belongs to the interface: the configuration may exclude it from the
// rails.
func hasDevice(sysfsRoot, netdev string) bool {
	dir := filepath.Join(sysfsRoot, "class/infiniband")
	list, _ := sysfs.List(dir) // empty without a device
	return slices.ContainsFunc(list, func(e sysfs.Entry) bool {
		_, err := os.Stat(filepath.Join(dir, e.Name, "device/net", netdev))
		return err == nil
	})
}

// missingLoad returns a missing rail as a load of 0 among the remaining rails of its role. known is false if its role
// is unknown, or differs from that of the remaining rails.
func missingLoad(m result.MissingRail, beside []*Path) (l rail.Load, known bool) {
	i := slices.IndexFunc(beside, func(p *Path) bool { return p.Local.Role == m.Role })
	if m.Role == "" || i < 0 {
		return l, false
	}
	return rail.Load{Group: rail.Group{Role: m.Role, LinkLayer: beside[i].Local.LinkLayer}}, true
}
