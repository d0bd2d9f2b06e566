package doctor

import (
	"fmt"
	"slices"

	"github.com/railscope/railscope/internal/rail"
)

// gidKnown tells whether the rail's GIDs are there to be judged, and nothing
// nearer to the cause explains them.
func (f *RailFacts) gidKnown(r *Rail) bool {
	return r.active() && r.ethernet() && r.GIDsRead && f.apart(r) && f.idleHalf(r) == nil
}

// hasV4 reports whether any entry is RoCE v2 over IPv4, whosever interface it
// belongs to.
func (r *Rail) hasV4() (any, own bool) {
	for _, g := range r.GIDs {
		if g.Type == rail.TypeRoCEv2 && g.Addr.Is4In6() && !g.Addr.Unmap().IsLinkLocalUnicast() {
			any, own = true, own || g.Own
		}
	}
	return any, own
}

func checkGIDMissing(f *RailFacts, r *Rail, found func(Finding)) {
	g, q := r.best()
	any, _ := r.hasV4()
	if !f.gidKnown(r) || any || q == linkLocal {
		return
	}
	out := Finding{Severity: Fault, Subject: r.String(), Mend: f.giveGID(r),
		Why: "RoCE v2 needs a GID, which the kernel makes of each address of the interface; without one no queue pair connects (\"no RoCE v2 GID\", rtr_einval), and jobs go by TCP."}
	switch q {
	case noGID:
		out.Read = fmt.Sprintf("the GID table of %s is empty", r.Device)
	case onlyV1:
		out.Read = fmt.Sprintf("%s has RoCE v1 GIDs only (index %d: %s)", r.Device, g.Index, g.Type)
	default:
		out.Severity = Warning
		out.Read = fmt.Sprintf("%s has RoCE v2 GIDs over IPv6 only (index %d: %s)", r.Device, g.Index, g.Addr)
		out.Why = "NCCL and perftest look for IPv4 unless told otherwise (NCCL_IB_ADDR_FAMILY=AF_INET6, --ipv6), and take a GID that reaches nobody."
	}
	found(out)
}

func checkGIDLinkLocal(f *RailFacts, r *Rail, found func(Finding)) {
	g, q := r.best()
	if !f.gidKnown(r) || q != linkLocal {
		return
	}
	out := Finding{Severity: Fault, Subject: r.String(), Mend: f.giveGID(r),
		Why: "A link-local address says nothing of the subnet: NCCL passes over it, and connections that use it end in a time-out (rtr_unreachable)."}
	if i := slices.IndexFunc(r.GIDs, func(g GID) bool { return g.Type == rail.TypeRoCEv2 && g.Addr.Is4In6() && g.Own }); i >= 0 {
		// What two nodes on one cable give themselves (link-local: [ipv4] in netplan).
		g, out.Severity = r.GIDs[i], Warning
		out.Why = "NCCL takes an address of 169.254.0.0/16, and so two nodes on one cable get along. But it is in one subnet with that of every other rail, so that TCP leaves by whichever the kernel chooses, it may be another after a restart, and the probe pairs no rails by it."
	}
	out.Read = fmt.Sprintf("the RoCE v2 GIDs of %s are link-local only (index %d: %s)", r.Device, g.Index, g.Addr.Unmap())
	found(out)
}

// giveGID is how the kernel comes to make a GID: an address, or, where there is
// one, the interface down and up.
func (f *RailFacts) giveGID(r *Rail) []string {
	n := f.netdev(r.Netdev)
	switch {
	case n.Name == "":
		return []string{note("%s has no network interface: see that its network driver is loaded (dmesg)", r.Device)}
	case len(n.ipv4()) == 0:
		return f.addressFor(r)
	}
	return append(bounce(n.Name),
		note("if that does not help, RoCE v2 may be switched off: devlink dev param show; mlxconfig -d %s query ROCE_CONTROL", orElse(r.PCIAddress, r.Device)))
}

func checkGIDMisbound(f *RailFacts, r *Rail, found func(Finding)) {
	any, own := r.hasV4()
	if !f.gidKnown(r) || !any || own || r.Netdev == "" { // an interface in another network namespace is no bond
		return
	}
	g, _ := r.best()
	for _, e := range r.GIDs {
		if e.Type == rail.TypeRoCEv2 && e.Addr.Is4In6() {
			g = e
			break
		}
	}
	n := f.netdev(r.Netdev)
	out := Finding{Severity: Fault, Subject: r.String(), Mend: f.takeOut(r, n.Master),
		Read: fmt.Sprintf("GID %d (%s) sits on %s, and none over IPv4 on %s itself", g.Index, g.Addr.Unmap(), orElse(g.Netdev, "no interface"), n.Name),
		Why:  fmt.Sprintf("Packets of this rail leave by whichever interface %s chooses, under an address that others share; the port stays ACTIVE and shows nothing of it.", orElse(g.Netdev, "the kernel"))}
	f.spare(&out, n.Master, []*Rail{r})
	found(out)
}

// takeOut takes a rail out of the bond or bridge over it. Where that has the
// address that would be the rail's after the pattern of the others, it gives it
// back.
func (f *RailFacts) takeOut(r *Rail, master string) []string {
	lines := []string{note("takes %s out of %s, which goes on without it, or not at all: do it from a console, not over %s itself", r.Netdev, orElse(master, "what it belongs to"), orElse(master, r.Netdev)),
		ip("link set dev %s nomaster", r.Netdev), ip("link set dev %s up", r.Netdev)}
	after := *f
	after.Netdevs = slices.Clone(f.Netdevs)
	at := slices.IndexFunc(after.Netdevs, func(n Netdev) bool { return n.Name == master })
	if at < 0 {
		return append(lines, f.addressFor(r)...)
	}
	after.Netdevs[at].Addresses = nil
	p, like, ok := after.propose(r)
	if !ok || !slices.Contains(f.Netdevs[at].Addresses, p) {
		return append(lines, f.addressFor(r)...)
	}
	return append(lines, note("after the address of %s, %s was this rail's before %s took it", like, p, master),
		ip("address del %s dev %s", p.String(), master), ip("address add %s dev %s", p.String(), r.Netdev))
}

// checkGIDIndex compares rails of one driver. A node is seen at one moment, so
// it cannot tell an index that moved from one that was always another; for jobs
// with a fixed index it is the same.
func checkGIDIndex(facts *Facts, found func(Finding)) {
	f := &facts.Rails
	count := map[string]map[int]int{} // driver → index → rails
	usual := map[string]int{}
	each := func(do func(r *Rail, driver string, index int)) {
		for i := range f.Rails {
			r := &f.Rails[i]
			if g, q := r.best(); q == ownIPv4 && f.gidKnown(r) {
				driver := r.Driver
				if r.Software {
					driver = "software"
				}
				do(r, driver, g.Index)
			}
		}
	}
	each(func(_ *Rail, driver string, index int) {
		if count[driver] == nil {
			count[driver] = map[int]int{}
		}
		count[driver][index]++
		best, known := usual[driver]
		if n, most := count[driver][index], count[driver][best]; !known || n > most || n == most && index < best {
			usual[driver] = index
		}
	})
	each(func(r *Rail, driver string, index int) {
		if index == usual[driver] {
			return
		}
		found(Finding{Severity: Warning, Subject: r.String(),
			Read: fmt.Sprintf("the RoCE v2 GID over IPv4 of %s has index %d, that of most other rails %d", r.Device, index, usual[driver]),
			Why:  "An index given for all rails (NCCL_IB_GID_INDEX, UCX_IB_GID_INDEX, ib_write_bw -x) is another GID here, or none. Indices move when addresses, bonds or VLANs do; gid_changes_total counts that.",
			Mend: []string{note("leave the choice to NCCL and UCX: unset NCCL_IB_GID_INDEX and UCX_IB_GID_INDEX in the jobs"),
				note("or take from %s the addresses that the others do not have: ip address show dev %s", r.Netdev, r.Netdev)}})
	})
}

func checkHalfUnused(f *RailFacts, r *Rail, found func(Finding)) {
	t := f.idleHalf(r)
	if t == nil || f.memberOf(r) != nil {
		return
	}
	n := f.netdev(r.Netdev)
	out := Finding{Severity: Warning, Subject: r.String(),
		Read: fmt.Sprintf("it is the same physical port as %s, over another PCIe link (%s beside %s), and ", t, r.PCIAddress, t.PCIAddress),
		Why:  fmt.Sprintf("Each half has a PCIe link of its own, and one link carries less than the port: with %s alone about half of its rate is lost. An interface whose name has a P2 is no duplicate of the other one: it must keep an address, in a subnet of its own.", t)}
	if n.Up != nil && !*n.Up {
		out.Read += fmt.Sprintf("%s is down by configuration", n.Name)
		out.Mend = append(out.Mend, ip("link set dev %s up", n.Name))
	} else {
		out.Read += "has no RoCE v2 GID of an address: nothing uses it"
	}
	if len(n.ipv4()) == 0 {
		out.Mend = append(out.Mend, f.addressFor(r)...)
	}
	if mtu := f.netdev(t.Netdev).MTU; n.MTU > 0 && n.MTU < mtu {
		out.Mend = append(out.Mend, f.setMTU(r, mtu)...)
	}
	found(out)
}
