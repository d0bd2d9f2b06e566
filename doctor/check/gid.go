package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/rail"
)

// gidJudged reports whether the rail's GIDs were read, and no other finding explains them.
func gidJudged(f *facts.Facts, r *facts.Rail) bool {
	return r.Active() && r.Ethernet() && r.GIDsRead && f.Separate(r) && f.WorkingHalf(r) == nil
}

// routableIPv4 reports whether an entry is RoCE v2 over routable IPv4, and whether one is on the rail's interface.
func routableIPv4(r *facts.Rail) (any, own bool) {
	for _, g := range r.GIDs {
		if g.IPv4() && !g.Addr.Unmap().IsLinkLocalUnicast() {
			any, own = true, own || g.Own
		}
	}
	return any, own
}

func checkGIDMissing(f *facts.Facts, r *facts.Rail, report reporter) {
	best := r.BestGID()
	g := best.GID
	any, _ := routableIPv4(r)
	if !gidJudged(f, r) || any || best.Rank.LinkLocal() {
		return
	}
	out := Finding{Fix: giveGID(f, r),
		Why: "RoCE v2 needs a GID, which the kernel makes of each address of the interface. " +
			`Without one no queue pair connects ("no RoCE v2 GID", rtr_einval), and jobs use TCP.`}
	switch best.Rank {
	case rail.NoGID:
		out.Evidence = fmt.Sprintf("the GID table of %s is empty", r.Device)
	case rail.OnlyRoCEv1:
		out.Evidence = fmt.Sprintf("%s has RoCE v1 GIDs only (index %d: %s)", r.Device, g.Index, g.Type)
	default:
		out.Severity = Warning
		out.Evidence = fmt.Sprintf("%s has RoCE v2 GIDs over IPv6 only (index %d: %s)", r.Device, g.Index, g.Addr)
		out.Why = "NCCL and perftest look for IPv4 unless configured otherwise (NCCL_IB_ADDR_FAMILY=AF_INET6, --ipv6), " +
			"and choose a GID that reaches nobody."
	}
	report(out)
}

func checkGIDLinkLocal(f *facts.Facts, r *facts.Rail, report reporter) {
	best := r.BestGID()
	if !gidJudged(f, r) || !best.Rank.LinkLocal() {
		return
	}
	out := Finding{Fix: giveGID(f, r),
		Why: "A link-local address does not identify the subnet: NCCL ignores it, connections time out (rtr_unreachable)."}
	// Two nodes on one cable may assign IPv4 link-local addresses (link-local: [ipv4] in netplan).
	if i := slices.IndexFunc(r.GIDs, func(g facts.GID) bool { return g.IPv4() && g.Own }); i >= 0 {
		best.GID, out.Severity = r.GIDs[i].GID, Warning
		out.Why = "NCCL accepts an address of 169.254.0.0/16, which is enough for two nodes on one cable. But all rails " +
			"are then in one subnet: TCP leaves by whichever the kernel chooses, the address may change after a restart, " +
			"and the probe cannot pair rails by it."
	}
	out.Evidence = fmt.Sprintf("the RoCE v2 GIDs of %s are link-local only (index %d: %s)", r.Device, best.GID.Index,
		best.GID.Addr.Unmap())
	report(out)
}

// giveGID makes the kernel create a GID: it adds an address or, if there is one, takes the interface down and up.
func giveGID(f *facts.Facts, r *facts.Rail) []string {
	n := f.Netdev(r.Netdev)
	switch {
	case n.Name == "":
		return []string{note("%s has no network interface: check that its network driver is loaded (dmesg)", r.Device)}
	case len(n.IPv4()) == 0:
		return addressFor(f, r)
	}
	return append(bounce(n.Name), note("if that does not help, RoCE v2 may be disabled: devlink dev param show; "+
		"mlxconfig -d %s query ROCE_CONTROL", shellWord(cmp.Or(r.PCIAddress, r.Device))))
}

func checkGIDMisbound(f *facts.Facts, r *facts.Rail, report reporter) {
	any, own := routableIPv4(r)
	if !gidJudged(f, r) || !any || own || r.Netdev == "" { // an interface in another network namespace is not in a bond
		return
	}
	g := r.GIDs[slices.IndexFunc(r.GIDs, facts.GID.IPv4)]
	n := f.Netdev(r.Netdev)
	report(protectManagement(f, Finding{Fix: release(f, r, n.Master),
		Evidence: fmt.Sprintf("GID %d (%s) belongs to %s, and none over IPv4 to %s itself",
			g.Index, g.Addr.Unmap(), cmp.Or(g.Netdev, "no interface"), n.Name),
		Why: fmt.Sprintf("Packets of this rail leave by whichever interface %s chooses, under an address that others "+
			"share. The port stays ACTIVE and does not show it.", cmp.Or(g.Netdev, "the kernel"))}, n.Master, r))
}

// release removes a rail from the bond or bridge over it, and gives it back an address that was the rail's.
func release(f *facts.Facts, r *facts.Rail, master string) []string {
	lines := []string{
		note("removes %s from %s, which may lose its connection: use a console, not a session over %s",
			r.Netdev, cmp.Or(master, "its bond or bridge"), cmp.Or(master, r.Netdev)),
		sh("ip link set dev %s nomaster", r.Netdev), sh("ip link set dev %s up", r.Netdev)}
	after := *f
	after.Netdevs = slices.Clone(f.Netdevs)
	if n := after.Find(master); n != nil {
		addresses := n.Addresses
		n.Addresses = nil
		if p, like, ok := propose(&after, r); ok && slices.Contains(addresses, p) {
			return append(lines, note("by the address of %s, %s was this rail's before %s took it", like, p, master),
				sh("ip address del %s dev %s", p, master), sh("ip address add %s dev %s", p, r.Netdev))
		}
	}
	return append(lines, addressFor(f, r)...)
}

// checkGIDIndex compares rails of one driver. It sees one moment, so it cannot distinguish an index that moved from one
// that was always different; jobs with a fixed index fail either way.
func checkGIDIndex(f *facts.Facts, report reporter) {
	byDriver := map[string][]*facts.Rail{}
	for _, r := range f.Where(func(r *facts.Rail) bool { return gidJudged(f, r) && r.BestGID().Rank == rail.OwnIPv4 }) {
		driver := r.Driver
		if r.Software {
			driver = "software"
		}
		byDriver[driver] = append(byDriver[driver], r)
	}
	index := func(r *facts.Rail) int { return r.BestGID().GID.Index }
	for _, driver := range slices.Sorted(maps.Keys(byDriver)) {
		count, usual := map[int]int{}, -1
		for _, r := range byDriver[driver] {
			i := index(r)
			if count[i]++; count[i] > count[usual] || count[i] == count[usual] && i < usual {
				usual = i
			}
		}
		for _, r := range byDriver[driver] {
			if index(r) == usual {
				continue
			}
			report(Finding{Subject: r.String(),
				Evidence: fmt.Sprintf("the RoCE v2 GID over IPv4 of %s has index %d, that of most other rails %d",
					r.Device, index(r), usual),
				Why: "One index for all rails (NCCL_IB_GID_INDEX, UCX_IB_GID_INDEX, ib_write_bw -x) selects another GID " +
					"here, or none. Indices move when addresses, bonds or VLANs do; gid_changes_total counts that.",
				Fix: []string{"# let NCCL and UCX choose: unset NCCL_IB_GID_INDEX and UCX_IB_GID_INDEX in the jobs",
					note("or remove from %s the addresses that the others do not have: ip address show dev %s", r.Netdev,
						shellWord(r.Netdev))}})
		}
	}
}

func checkHalfUnused(f *facts.Facts, r *facts.Rail, report reporter) {
	t := f.WorkingHalf(r)
	if t == nil || f.BondOf(r) != nil {
		return
	}
	n := f.Netdev(r.Netdev)
	out := Finding{
		Evidence: fmt.Sprintf("it is the same physical port as %s over another PCIe link (%s beside %s), and ", t,
			r.PCIAddress, t.PCIAddress),
		Why: fmt.Sprintf("Each half has its own PCIe link, which carries less than the port: %s alone reaches about half "+
			"of the rate. An interface with P2 in its name is not a duplicate: it needs an address in its own subnet.", t)}
	if n.Up != nil && !*n.Up {
		out.Evidence += fmt.Sprintf("%s is administratively down", n.Name)
		out.Fix = append(out.Fix, sh("ip link set dev %s up", n.Name))
	} else {
		out.Evidence += "has no RoCE v2 GID of an address: nothing uses it"
	}
	if len(n.IPv4()) == 0 {
		out.Fix = append(out.Fix, addressFor(f, r)...)
	}
	if mtu := f.Netdev(t.Netdev).MTU; n.MTU > 0 && n.MTU < mtu {
		out.Fix = append(out.Fix, setMTU(f, r, mtu)...)
	}
	report(out)
}
