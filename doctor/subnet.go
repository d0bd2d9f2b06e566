package doctor

import (
	"fmt"
	"net/netip"
	"slices"
)

// subnet is an IPv4 subnet in which several rails of this node have an address.
type subnet struct {
	prefix netip.Prefix
	ends   []end
}

type end struct {
	rail   Rail
	prefix netip.Prefix // its address in the subnet
}

// subnets returns those of active rails, by interface: two rails on one are one
// end.
func (f *RailFacts) subnets() []subnet {
	var all []subnet
	seen := map[string]bool{}
	for i := range f.Rails {
		r := &f.Rails[i]
		if !r.active() || !r.ethernet() || seen[r.Netdev] {
			continue
		}
		seen[r.Netdev] = true
		for _, p := range f.netdev(r.Netdev).ipv4() {
			at := slices.IndexFunc(all, func(s subnet) bool { return s.prefix.Overlaps(p) })
			if at < 0 {
				all, at = append(all, subnet{prefix: p.Masked()}), len(all)
			}
			all[at].ends = append(all[at].ends, end{*r, p})
		}
	}
	return slices.DeleteFunc(all, func(s subnet) bool {
		return !slices.ContainsFunc(s.ends, func(e end) bool { return e.rail.Netdev != s.ends[0].rail.Netdev })
	})
}

// other is an address of the subnet that is none of the rails', to ask for the
// way to; invalid where there is none.
func (s subnet) other() netip.Addr {
	for a := s.prefix.Addr().Next(); s.prefix.Contains(a); a = a.Next() {
		if !slices.ContainsFunc(s.ends, func(e end) bool { return e.prefix.Addr() == a }) {
			return a
		}
	}
	return netip.Addr{}
}

// firstTable is the number of the first routing table that a mend makes: 4791 is
// RoCE's UDP port, and nobody else's table.
const firstTable = 47910

// checkSameSubnet looks for what rails in one subnet need: that each answers ARP
// for its own address only and asks with it (arp_ignore or arp_filter,
// arp_announce), and that what has its address leaves by it. Where the last
// holds, a strict rp_filter does no harm.
func checkSameSubnet(facts *Facts, found func(Finding)) {
	f := &facts.Rails
	for _, s := range f.subnets() {
		var lacks, mend []string
		for i, e := range s.ends {
			l, m := f.lacks(e, i)
			lacks, mend = append(lacks, l...), append(mend, m...)
		}
		if len(lacks) == 0 {
			continue
		}
		var rails, at []string
		for _, e := range s.ends {
			rails = append(rails, e.rail.String())
			at = append(at, e.rail.Netdev+" "+e.prefix.String())
		}
		found(Finding{Severity: Fault, Subject: enumerate(rails), Mend: mend,
			Read: fmt.Sprintf("they are in %s (%s), and %s", s.prefix, enumerate(at), enumerate(lacks)),
			Why:  "The kernel answers for each address on each rail and sends by the first: traffic of one rail arrives at the other, connections to the second time out, and the byte counters do not match. The other way to mend it is a subnet for each rail."})
	}
}

// lacks returns what an end of a shared subnet lacks, and the commands for it.
func (f *RailFacts) lacks(e end, i int) (lacks, mend []string) {
	n := f.netdev(e.rail.Netdev)
	set := func(key string, v int) {
		mend = append(mend, command("sysctl", "-w", fmt.Sprintf("net/ipv4/conf/%s/%s=%d", n.Name, key, v)))
	}
	if n.ARPIgnore != nil && *n.ARPIgnore < 1 && (n.ARPFilter == nil || *n.ARPFilter < 1) {
		lacks = append(lacks, fmt.Sprintf("arp_ignore of %s is %d", n.Name, *n.ARPIgnore))
		set("arp_ignore", 1)
	}
	if n.ARPAnnounce != nil && *n.ARPAnnounce < 2 {
		lacks = append(lacks, fmt.Sprintf("arp_announce of %s is %d", n.Name, *n.ARPAnnounce))
		set("arp_announce", 2)
	}
	from := e.prefix.Addr()
	at := slices.IndexFunc(f.Paths, func(p Path) bool { return p.From == from })
	if at < 0 || f.Paths[at].Netdev == n.Name {
		return lacks, mend
	}
	lacks = append(lacks, fmt.Sprintf("packets from %s leave by %s", from, orElse(f.Paths[at].Netdev, "no interface")))
	table := fmt.Sprint(firstTable + i)
	return lacks, append(mend, ip("route replace %s dev %s src %s table %s", e.prefix.Masked().String(), n.Name, from.String(), table),
		ip("rule add from %s lookup %s", from.String(), table))
}
