package check

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/rail"
)

// gidJudged reports whether the rail's GIDs were read and no other finding explains them.
func gidJudged(f *facts.Facts, r *facts.Rail) bool {
	return r.Active() && r.Ethernet() && r.GIDsRead && f.Separate(r) && f.WorkingHalf(r) == nil
}

// routableIPv4 reports whether an entry is RoCE v2 over routable IPv4, and whether such an entry is on the rail's own
// interface.
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
	out := finding.Finding{Fix: giveGID(f, r),
		Why: "RoCE v2 needs a GID, which the kernel makes of each address of the interface. " +
			`Without one no queue pair connects ("no RoCE v2 GID", rtr_einval), and jobs use TCP.`}
	switch best.Rank {
	case rail.NoGID:
		out.Evidence = fmt.Sprintf("the GID table of %s is empty", r.Device)
	case rail.OnlyRoCEv1:
		out.Evidence = fmt.Sprintf("%s has RoCE v1 GIDs only (index %d: %s)", r.Device, g.Index, g.Type)
	default:
		out.Severity = warning
		out.Evidence = fmt.Sprintf("%s has RoCE v2 GIDs over IPv6 only (index %d: %s)", r.Device, g.Index, g.Addr)
		out.Why = "NCCL and perftest look for IPv4 unless configured otherwise (NCCL_IB_ADDR_FAMILY=AF_INET6, " +
			"--ipv6), and choose a GID that reaches nobody."
	}
	report(out)
}

func checkGIDLinkLocal(f *facts.Facts, r *facts.Rail, report reporter) {
	best := r.BestGID()
	if !gidJudged(f, r) || !best.Rank.LinkLocal() {
		return
	}
	out := finding.Finding{Fix: giveGID(f, r),
		Why: "A link-local address does not identify the subnet: NCCL ignores it, connections time out " +
			"(rtr_unreachable)."}
	// Two nodes on one cable may use IPv4 link-local addresses (link-local: [ipv4] in netplan).
	if best.Rank == rail.OwnLinkLocalIPv4 {
		out.Severity = info
		out.Why = "NCCL accepts an address of 169.254.0.0/16, which is enough for two nodes on one cable. But all " +
			"rails are then in one subnet: TCP leaves by whichever the kernel chooses, the address may change after " +
			"a restart, and the probe cannot pair rails by it."
	}
	out.Evidence = fmt.Sprintf("the RoCE v2 GIDs of %s are link-local only (index %d: %s)", r.Device, best.GID.Index,
		best.GID.Addr.Unmap())
	report(out)
}

// giveGID makes the kernel create a GID: it adds an address, or restarts an interface that has one.
func giveGID(f *facts.Facts, r *facts.Rail) []string {
	n := f.Netdev(r.Netdev)
	switch {
	case n.Name == "":
		return []string{note("%s has no network interface: check that its network driver is loaded (dmesg)", r.Device)}
	case len(n.IPv4()) == 0:
		return addressFor(f, r)
	}
	disabled := note("if that does not help, RoCE v2 may be disabled: devlink dev param show")
	if nvidia(r) {
		disabled += sh("; mlxconfig -d %s query ROCE_CONTROL", cmp.Or(r.PCIAddress, r.Device))
	}
	return append(bounce(n.Name), disabled)
}

func checkGIDMisbound(f *facts.Facts, r *facts.Rail, report reporter) {
	any, own := routableIPv4(r)
	// An interface in another network namespace is not in a bond here.
	if !gidJudged(f, r) || !any || own || r.Netdev == "" {
		return
	}
	g := r.GIDs[slices.IndexFunc(r.GIDs, facts.GID.IPv4)]
	n := f.Netdev(r.Netdev)
	report(protectManagement(f, finding.Finding{Fix: release(f, r, n.Master),
		Evidence: fmt.Sprintf("GID %d (%s) belongs to %s, and none over IPv4 to %s itself",
			g.Index, g.Addr.Unmap(), cmp.Or(g.Netdev, "no interface"), n.Name),
		Why: fmt.Sprintf("Packets of this rail leave by whichever interface %s chooses, under an address that others "+
			"share. The port stays ACTIVE and does not show it.", cmp.Or(g.Netdev, "the kernel"))}, n.Master, r))
}

// release removes a rail from its bond or bridge and restores the rail's own address.
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

// checkGIDIndex compares rails of one driver. It cannot distinguish an index that moved from one that was always
// different; jobs with a fixed index fail either way.
func checkGIDIndex(f *facts.Facts, report reporter) {
	byDriver := map[string][]*facts.Rail{}
	for _, r := range f.Judged() {
		if !gidJudged(f, r) || r.BestGID().Rank != rail.OwnIPv4 {
			continue
		}
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
			count[i]++
			if count[i] > count[usual] || count[i] == count[usual] && i < usual {
				usual = i
			}
		}
		for _, r := range byDriver[driver] {
			if index(r) == usual {
				continue
			}
			report(finding.Finding{Subject: r.Subject(), Where: r.Where(),
				Evidence: fmt.Sprintf("the RoCE v2 GID over IPv4 of %s has index %d, that of most other rails %d",
					r.Device, index(r), usual),
				Why: "One index for all rails (NCCL_IB_GID_INDEX, UCX_IB_GID_INDEX, ib_write_bw -x) selects another " +
					"GID here, or none. Indices move when addresses, bonds or VLANs do; gid_changes_total counts that.",
				Fix: []string{"# let NCCL and UCX choose: unset NCCL_IB_GID_INDEX and UCX_IB_GID_INDEX in the jobs",
					note("or remove from %s the addresses that the others do not have: ip address show dev %s",
						r.Netdev, shellWord(r.Netdev))}})
		}
	}
}

func checkHalfUnused(f *facts.Facts, r *facts.Rail, report reporter) {
	t := f.WorkingHalf(r)
	if t == nil || f.BondOf(r) != nil {
		return
	}
	n := f.Netdev(r.Netdev)
	out := finding.Finding{
		Evidence: fmt.Sprintf("it is the same physical port as %s over another PCIe link (%s beside %s), and ", t,
			r.PCIAddress, t.PCIAddress),
		Why: fmt.Sprintf("Each half has its own PCIe link, which carries less than the port: %s alone reaches about "+
			"half of the rate. An interface with P2 in its name is not a duplicate: it needs an address in its own "+
			"subnet.", t)}
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

// addressFor returns the commands that give a rail an IPv4 address, which continues the others' pattern if possible.
func addressFor(f *facts.Facts, r *facts.Rail) []string {
	p, like, ok := propose(f, r)
	if !ok {
		return []string{note("give %s an IPv4 address in its own subnet, which the same rail of the other nodes "+
			"shares: ip address add ADDRESS/LENGTH dev %s", r.Netdev, shellWord(r.Netdev))}
	}
	return []string{note("%s continues the addresses from %s; use another if your plan has one", p, like),
		sh("ip address add %s dev %s", p, r.Netdev)}
}

// propose computes an address for a rail from the nearest rail that has one: as many subnets away as the two rails are
// apart, with this node's host part. If that address is taken, the next free one.
func propose(f *facts.Facts, r *facts.Rail) (p netip.Prefix, like *facts.Rail, ok bool) {
	at := slices.IndexFunc(f.Rails, func(o facts.Rail) bool { return o.Name == r.Name })
	distance, base := 0, netip.Prefix{}
	for i := range f.Rails {
		d := at - i
		list := f.Netdev(f.Rails[i].Netdev).IPv4()
		usable := i != at && len(list) > 0 && list[0].Bits() >= 8 && list[0].Bits() <= 30
		if usable && (like == nil || abs(distance) > abs(d)) {
			like, base, distance = &f.Rails[i], list[0], d
		}
	}
	if like == nil || at < 0 {
		return p, nil, false
	}
	for try := range 64 {
		p, ok = above(base, distance+try)
		if ok && !addressed(f, p.Overlaps) {
			return p, like, true
		}
	}
	return p, nil, false
}

func abs(n int) int { return max(n, -n) }

// above moves an address by n subnets and keeps its host part.
func above(p netip.Prefix, n int) (netip.Prefix, bool) {
	a := p.Addr().As4()
	v := int64(binary.BigEndian.Uint32(a[:])) + int64(n)<<(32-p.Bits())
	if v < 1<<24 || v >= 224<<24 {
		return netip.Prefix{}, false
	}
	binary.BigEndian.PutUint32(a[:], uint32(v))
	return netip.PrefixFrom(netip.AddrFrom4(a), p.Bits()), true
}

func addressed(f *facts.Facts, match func(netip.Prefix) bool) bool {
	return slices.ContainsFunc(f.Others, match) ||
		slices.ContainsFunc(f.Netdevs, func(n facts.Netdev) bool { return slices.ContainsFunc(n.Addresses, match) })
}

// checkSameSubnet checks the settings that rails in one subnet need: each rail uses only its own address in ARP
// (arp_ignore or arp_filter, arp_announce), and packets from that address leave by the rail.
func checkSameSubnet(f *facts.Facts, report reporter) {
	for _, s := range f.Subnets() {
		var lacks, fix, at []string
		var rails []*facts.Rail
		for i, e := range s.Ends {
			l, x := lacking(f, e, i)
			lacks, fix = append(lacks, l...), append(fix, x...)
			rails = append(rails, e.Rail)
			at = append(at, e.Rail.Netdev+" "+e.Prefix.String())
		}
		if len(lacks) == 0 {
			continue
		}
		subject, where := subjects(rails)
		report(finding.Finding{Subject: subject, Where: where, Fix: fix,
			Evidence: fmt.Sprintf("they share the subnet %s (%s), and %s", s.Prefix, listed(at), listed(lacks)),
			Why: "The kernel answers for each address on each rail and sends by the first one: traffic of one rail " +
				"arrives at the other, connections to the second time out, and the byte counters do not match. " +
				"Alternatively, give each rail its own subnet."})
	}
}

// lacking returns the settings that an end of a shared subnet lacks, and the commands that fix them.
func lacking(f *facts.Facts, e facts.End, i int) (lacks, fix []string) {
	n := f.Netdev(e.Rail.Netdev)
	lack := func(key string, is *int, want int) {
		if is != nil && *is < want {
			lacks = append(lacks, fmt.Sprintf("%s of %s is %d", key, n.Name, *is))
			fix = append(fix, sh("sysctl -w %s", fmt.Sprintf("net/ipv4/conf/%s/%s=%d", n.Name, key, want)))
		}
	}
	if n.ARPFilter == nil || *n.ARPFilter < 1 {
		lack("arp_ignore", n.ARPIgnore, 1)
	}
	lack("arp_announce", n.ARPAnnounce, 2)
	from := e.Prefix.Addr()
	at := slices.IndexFunc(f.Paths, func(p facts.Path) bool { return p.From == from })
	if at < 0 || f.Paths[at].Netdev == n.Name {
		return lacks, fix
	}
	table := 47910 + i // derived from RoCE's UDP port 4791: unlikely to be in use
	return append(lacks, fmt.Sprintf("packets from %s leave by %s", from, cmp.Or(f.Paths[at].Netdev, "no interface"))),
		append(fix, sh("ip route replace %s dev %s src %s table %v", e.Prefix.Masked(), n.Name, from, table),
			sh("ip rule add from %s lookup %v", from, table))
}
