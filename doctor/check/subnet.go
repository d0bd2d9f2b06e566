package check

import (
	"fmt"
	"slices"

	"github.com/railscope/railscope/doctor/facts"
)

// firstTable is the number of the first routing table that a fix makes: 4791 is
// RoCE's UDP port, and nobody else's table.
const firstTable = 47910

// checkSameSubnet checks what rails in one subnet need: that each answers ARP
// for its own address only and asks with it (arp_ignore or arp_filter,
// arp_announce), and that what has its address leaves by it. If the last holds, a
// strict rp_filter does no harm.
func checkSameSubnet(f *facts.Facts, report func(Finding)) {
	for _, s := range f.Subnets() {
		var lacks, fix, rails, at []string
		for i, e := range s.Ends {
			l, x := lacking(f, e, i)
			lacks, fix = append(lacks, l...), append(fix, x...)
			rails = append(rails, e.Rail.String())
			at = append(at, e.Rail.Netdev+" "+e.Prefix.String())
		}
		if len(lacks) == 0 {
			continue
		}
		report(Finding{Severity: Fault, Subject: enumerate(rails), Fix: fix,
			Evidence: fmt.Sprintf("they share the subnet %s (%s), and %s", s.Prefix, enumerate(at), enumerate(lacks)),
			Why: "The kernel answers for each address on each rail and sends by the first one: traffic of one rail " +
				"arrives " +
				"at the other, " +
				"connections to the second time out, and the byte counters do not match. Alternatively, give each " +
				"rail its own " +
				"subnet."})
	}
}

// lacking returns what an end of a shared subnet lacks, and the commands for it.
func lacking(f *facts.Facts, e facts.End, i int) (lacks, fix []string) {
	n := f.Netdev(e.Rail.Netdev)
	set := func(key string, v int) {
		fix = append(fix, command("sysctl", "-w", fmt.Sprintf("net/ipv4/conf/%s/%s=%d", n.Name, key, v)))
	}
	if n.ARPIgnore != nil && *n.ARPIgnore < 1 && (n.ARPFilter == nil || *n.ARPFilter < 1) {
		lacks = append(lacks, fmt.Sprintf("arp_ignore of %s is %d", n.Name, *n.ARPIgnore))
		set("arp_ignore", 1)
	}
	if n.ARPAnnounce != nil && *n.ARPAnnounce < 2 {
		lacks = append(lacks, fmt.Sprintf("arp_announce of %s is %d", n.Name, *n.ARPAnnounce))
		set("arp_announce", 2)
	}
	from := e.Prefix.Addr()
	at := slices.IndexFunc(f.Paths, func(p facts.Path) bool { return p.From == from })
	if at < 0 || f.Paths[at].Netdev == n.Name {
		return lacks, fix
	}
	lacks = append(lacks, fmt.Sprintf("packets from %s leave by %s", from, orElse(f.Paths[at].Netdev, "no interface")))
	table := fmt.Sprint(firstTable + i)
	return lacks, append(fix,
		ip("route replace %s dev %s src %s table %s", e.Prefix.Masked().String(), n.Name, from.String(), table),
		ip("rule add from %s lookup %s", from.String(), table))
}
