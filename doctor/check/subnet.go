package check

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/railscope/railscope/doctor/facts"
)

// firstTable is the number of the first routing table of a fix, by RoCE's UDP port 4791: unlikely to be in use.
const firstTable = 47910

// checkSameSubnet checks what rails in one subnet need: each answers and asks ARP with its own address only (arp_ignore
// or arp_filter, arp_announce), and packets from that address leave by it.
func checkSameSubnet(f *facts.Facts, report reporter) {
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
		report(Finding{Subject: listed(rails), Fix: fix,
			Evidence: fmt.Sprintf("they share the subnet %s (%s), and %s", s.Prefix, listed(at), listed(lacks)),
			Why: "The kernel answers for each address on each rail and sends by the first one: traffic of one rail arrives " +
				"at the other, connections to the second time out, and the byte counters do not match. Alternatively, give " +
				"each rail its own subnet."})
	}
}

// lacking returns what an end of a shared subnet lacks, and the commands that fix it.
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
	table := firstTable + i
	return append(lacks, fmt.Sprintf("packets from %s leave by %s", from, cmp.Or(f.Paths[at].Netdev, "no interface"))),
		append(fix, sh("ip route replace %s dev %s src %s table %v", e.Prefix.Masked(), n.Name, from, table),
			sh("ip rule add from %s lookup %v", from, table))
}
