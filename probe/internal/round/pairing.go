package round

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/stats"
	"github.com/railscope/railscope/internal/sysfs"
	"github.com/railscope/railscope/probe/internal/control"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/history"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// Pairing is what a round knows of both ends after the hello: the rails of this node, each with its partner.
type Pairing struct {
	Node   *node.Node
	Client *control.Client
	Remote protocol.Hello
	Past   *history.PastPeer // earlier rounds with the peer
	Rails  []node.LocalRail
	Flows  []*Flow // one per rail

	WhenBusy string // see [options.WhenOthers]
}

// Live returns the flows that have not failed and have a partner.
func (r *Pairing) Live() []*Flow { return live(r.Flows) }

// leaveOut leaves flows out of the bursts whose rail of this node is named, and notes that others use these rails.
func (r *Pairing) leaveOut(busy map[string]*failure.Failure) {
	for _, p := range r.Flows {
		if f := busy[p.Local.Name]; f != nil {
			p.leaveOut(f, r.WhenBusy)
		}
	}
}

// leaveOutPeers leaves flows out of the bursts whose rail of the peer is named by one of the failures.
func (r *Pairing) leaveOutPeers(list []failure.Failure) {
	for i := range list {
		for _, p := range r.Flows {
			if p.Peer != nil && p.Peer.Name == list[i].Rail {
				p.leaveOut(&list[i], r.WhenBusy)
			}
		}
	}
}

// leaveOutAll leaves all flows out of the bursts.
func (r *Pairing) leaveOutAll(f *failure.Failure) {
	for _, p := range r.Flows {
		p.leaveOut(f, "")
	}
}

// leaveOut leaves the flow out of the bursts, unless bursts are made beside the traffic of others.
func (p *Flow) leaveOut(f *failure.Failure, whenBusy string) {
	if f.Reason == failure.Busy {
		p.Result.Busy = true
	}
	if p.Result.Left != nil || p.Result.Unpaired || whenBusy == options.WhenBusyBurst && f.Reason == failure.Busy {
		return
	}
	own := *f
	own.Rail, own.Stage = p.name(), failure.StageStriped
	p.Result.Left = &own
}

// bursting returns the flows over which bursts are made: those that have not failed and are not left out.
func bursting(flows []*Flow) []*Flow {
	return slices.DeleteFunc(live(flows), func(p *Flow) bool { return p.Result.Left != nil })
}

// bursting returns the round's flows over which bursts are made.
func (r *Pairing) bursting() []*Flow { return bursting(r.Flows) }

// leftOut returns why a flow that works is left out of the bursts; nil: none is.
func (r *Pairing) leftOut() *failure.Failure {
	for _, p := range r.Live() {
		if p.Result.Left != nil {
			return p.Result.Left
		}
	}
	return nil
}

// anyBusy reports whether others use the rail of a flow, at either end.
func (r *Pairing) anyBusy() bool {
	return slices.ContainsFunc(r.Flows, func(p *Flow) bool { return p.Result.Busy })
}

// waiting returns the flows that work and are left out because others use their rails.
func (r *Pairing) waiting() []*Flow {
	return slices.DeleteFunc(r.Live(), func(p *Flow) bool {
		return p.Result.Left == nil || p.Result.Left.Reason != failure.Busy
	})
}

// noFlow returns nil while a flow is left, else the first of the failures: that of the lowest rail in the earliest
// step.
func (r *Pairing) noFlow(failures []failure.Failure) *failure.Failure {
	switch {
	case len(r.Rails) == 0 && len(failures) > 0:
		return &failures[0]
	case len(r.Rails) == 0:
		return failure.New(failure.StageOpen, failure.NoDevice, "this node has no rail (see railscope rails)")
	case len(r.Remote.Rails) == 0:
		return failure.New(failure.StageOpen, failure.NoDevice,
			"no rail (railscope rails --all lists the ports)").OnPeer()
	case len(r.Live()) > 0:
		return nil
	}
	return &failures[0]
}

// Pair pairs the rails of this node with those of the peer, and returns the results that the flows fill.
func (r *Pairing) Pair() []result.RailResult {
	results := make([]result.RailResult, len(r.Rails))
	for i, j := range PairRails(r.Rails, r.Remote.Rails) {
		p := &Flow{Local: r.Rails[i], Result: &results[i]}
		*p.Result = result.RailResult{Rail: p.Local.Name, Device: p.Local.Device, Port: p.Local.Port,
			Netdev: p.Local.Netdev, PCIAddress: p.Local.PCIAddress, Soldered: p.Local.Soldered(), GIDIndex: -1,
			Capacity: stats.Positive(p.Local.Capacity)}
		var prefixes []netip.Prefix
		if j >= 0 {
			p.Peer = &r.Remote.Rails[j]
			p.Result.PeerRail, p.Result.PeerDevice = p.Peer.Name, p.Peer.Device
			prefixes = p.Peer.Prefixes
			if p.Local.Capacity > 0 && p.Peer.Capacity > 0 {
				p.Result.Capacity = stats.Positive(min(p.Local.Capacity, p.Peer.Capacity))
			}
			p.Result.Expected = p.Expectation()
		}
		p.Result.Kind = result.RailKind{Group: p.group(), Software: p.software()}
		p.GID = r.Node.GID(p.Local, prefixes)
		if p.GID.OK() {
			p.Result.GIDIndex, p.Result.GID = p.GID.GID.Index, p.GID.GID.Addr.Unmap().String()
		}
		p.Result.GIDReason = p.GID.Reason
		r.Flows = append(r.Flows, p)
	}
	return results
}

// PairRails returns, for each of this node's rails, the index of the peer's rail that it is measured with; see
// [rail.Pairs].
func PairRails(own []node.LocalRail, peers []protocol.HelloRail) []int {
	return rail.Pairs(len(own), len(peers),
		func(i, j int) bool { return own[i].Name == peers[j].Name },
		func(i, j int) bool { return node.SharedPrefix(own[i].Prefixes, peers[j].Prefixes).IsValid() })
}

// QueuePairs returns the number of queue pairs per pair of rails: the configured one, else two per member of a
// bond, because all packets of one queue pair take the same member.
func QueuePairs(configured int, flows []*Flow) int {
	if configured != options.Auto {
		return configured
	}
	pairs := 1
	for _, p := range flows {
		pairs = max(pairs, 2*p.Local.Members)
		if p.Peer != nil {
			pairs = max(pairs, 2*p.Peer.Members)
		}
	}
	return min(pairs, rail.MaxQueuePairs)
}

// FindMissing returns the rails that one end lacks: rails that it had before, and rails of which this node has only
// the interface. A rail without a partner that neither end misses only fails. A peer's own list of missing rails
// overrides earlier rounds: its rail may have been removed on purpose.
func (r *Pairing) FindMissing() (list []result.MissingRail) {
	for _, m := range r.Node.Missing() {
		list = append(list, result.MissingRail{Rail: m.Name, Device: m.Device, Known: true,
			Detail: "this node had it before", Role: cmp.Or(r.Node.Role(m.Name), r.peerRole(m.Name))})
	}
	for _, p := range r.Flows {
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
		paired := slices.ContainsFunc(r.Flows,
			func(p *Flow) bool { return p.Peer != nil && p.Peer.Name == theirs.Name })
		known := slices.ContainsFunc(list, func(m result.MissingRail) bool { return !m.Peer && m.Rail == theirs.Name })
		if paired || known || theirs.Role != "" && theirs.Role != rail.Compute {
			continue
		}
		if netdev := r.withoutDevice(theirs.Prefixes); netdev != "" {
			list = append(list, result.MissingRail{Rail: theirs.Name, Role: theirs.Role,
				Detail: fmt.Sprintf("%s is in the subnet of the peer's rail %s and has no RDMA device", netdev,
					theirs.Name)})
		}
	}
	return list[:min(len(list), worker.MaxRails)]
}

// missedPartner returns the index of a rail's partner in the peer's list of missing rails, the one of earlier
// rounds or of the same name; -1: none.
func (r *Pairing) missedPartner(p *Flow) int {
	name := cmp.Or(r.Past.Partner(p.Local.Name), p.Local.Name)
	return slices.IndexFunc(r.Remote.Missing, func(m protocol.HelloMissing) bool { return m.Name == name })
}

// lostPartner returns the partner that a rail had in earlier rounds if the peer has lost it; empty: none.
func (r *Pairing) lostPartner(p *Flow) string {
	before := r.Past.Partner(p.Local.Name)
	if slices.ContainsFunc(r.Remote.Rails, func(h protocol.HelloRail) bool { return h.Name == before }) {
		return ""
	}
	return before
}

// FindUnpaired marks the rails that have no partner because the peer has fewer rails, or because they lead to a third
// node, not those whose partner is gone. If the peer lists a missing rail whose partner is unknown, it may be the
// partner of any rail: none is marked.
func (r *Pairing) FindUnpaired() {
	var pairs []int
	var own, theirs []rail.End
	partners := map[int]bool{} // indices of the peer's missing rails whose partners are known
	for _, p := range r.Flows {
		j := -1
		if p.Peer != nil {
			j = slices.IndexFunc(r.Remote.Rails, func(h protocol.HelloRail) bool { return h.Name == p.Peer.Name })
		} else if i := r.missedPartner(p); i >= 0 {
			partners[i] = true
		}
		pairs, own = append(pairs, j), append(own, rail.End{Name: p.Local.Name, Role: p.Local.Role,
			Addressed: addressed(p.Local.Prefixes)})
	}
	if len(partners) < len(r.Remote.Missing) {
		return
	}
	for _, h := range r.Remote.Rails {
		theirs = append(theirs, rail.End{Name: h.Name, Role: h.Role, Addressed: addressed(h.Prefixes)})
	}
	for _, i := range rail.Surplus(pairs, own, theirs) {
		p := r.Flows[i]
		p.Result.Unpaired = r.missedPartner(p) < 0 && r.lostPartner(p) == ""
	}
}

// addressed reports whether an interface has an address that says which subnet it is in.
func addressed(prefixes []netip.Prefix) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return !p.Addr().IsLinkLocalUnicast() })
}

// peerRole returns the role of the peer's rail with this name; empty: unknown.
func (r *Pairing) peerRole(name string) string {
	if i := slices.IndexFunc(r.Remote.Rails, func(h protocol.HelloRail) bool { return h.Name == name }); i >= 0 {
		return r.Remote.Rails[i].Role
	}
	return ""
}

// withoutDevice returns an interface of this node that shares a subnet with these addresses, or nothing if such an
// interface has a rail or an RDMA device. The network of the control channel is ignored.
func (r *Pairing) withoutDevice(theirs []netip.Prefix) (netdev string) {
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

// Mismatches returns the components with incompatible versions at both ends. For firmware, one mismatch is enough.
func Mismatches(here, there protocol.Versions, paths []*Flow) []result.Mismatch {
	var list []result.Mismatch
	compare := func(component, a, b string, significant func(string) string) {
		if a != "" && b != "" && significant(a) != significant(b) {
			list = append(list, result.Mismatch{Component: component, Here: a, There: b})
		}
	}
	compare("railscope", here.Railscope, there.Railscope, func(v string) string { return firstParts(v, 2) })
	compare("kernel", here.Kernel, there.Kernel, func(v string) string { return firstParts(v, 2) })
	compare("rdma-core", here.RDMACore, there.RDMACore, func(v string) string { return firstParts(v, 1) })
	versions := len(list)
	for _, p := range paths {
		if p.Peer != nil && p.Local.Driver == p.Peer.Driver && len(list) == versions {
			compare("firmware", p.Local.Firmware, p.Peer.Firmware, func(v string) string { return v })
			if len(list) > versions {
				list[versions].Here = fmt.Sprintf("%s (rail %s)", p.Local.Firmware, p.Local.Name)
			}
		}
	}
	return list
}

// allVersions returns the versions of both ends, with one entry per pair of firmware versions that differs between
// rails.
func allVersions(here, there protocol.Versions, paths []*Flow) []result.Mismatch {
	list := []result.Mismatch{{Component: "railscope", Here: here.Railscope, There: there.Railscope},
		{Component: "kernel", Here: here.Kernel, There: there.Kernel},
		{Component: "rdma-core", Here: here.RDMACore, There: there.RDMACore}}
	for _, p := range paths {
		firmware := result.Mismatch{Component: "firmware", Here: p.Local.Firmware}
		if p.Peer != nil {
			firmware.There = p.Peer.Firmware
		}
		if (firmware.Here != "" || firmware.There != "") && !slices.Contains(list, firmware) {
			list = append(list, firmware)
		}
	}
	return list
}

// firstParts returns the first n numbers of a version: 6.1 for 6.1.0-56-amd64.
func firstParts(version string, n int) string {
	parts := strings.FieldsFunc(strings.TrimPrefix(version, "v"), func(r rune) bool {
		return r == '.' || r == '-' || r == '+'
	})
	return strings.Join(parts[:min(n, len(parts))], ".")
}
