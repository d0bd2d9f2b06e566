package check

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/railscope/railscope/doctor/facts"
)

// addressFor returns the lines that give a rail an IPv4 address, one that continues the others' pattern if possible.
func addressFor(f *facts.Facts, r *facts.Rail) []string {
	p, like, ok := propose(f, r)
	if !ok {
		return []string{note("give %s an IPv4 address in its own subnet, which the same rail of the other nodes shares: "+
			"ip address add ADDRESS/LENGTH dev %s", r.Netdev, shellWord(r.Netdev))}
	}
	return []string{note("%s continues the addresses from %s; use another if your plan has one", p, like),
		sh("ip address add %s dev %s", p, r.Netdev)}
}

// propose computes an address for a rail: as many subnets above that of the nearest rail with one as the rail is after
// it, at this node's place in the subnet; if that is taken, the next free one.
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
		if p, ok = above(base, distance+try); ok && !addressed(f, p.Overlaps) {
			return p, like, true
		}
	}
	return p, nil, false
}

func abs(n int) int { return max(n, -n) }

// above is the address with the same place in a subnet that is n subnets away.
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
	table := 47910 + i // by RoCE's UDP port 4791: unlikely to be in use
	return append(lacks, fmt.Sprintf("packets from %s leave by %s", from, cmp.Or(f.Paths[at].Netdev, "no interface"))),
		append(fix, sh("ip route replace %s dev %s src %s table %v", e.Prefix.Masked(), n.Name, from, table),
			sh("ip rule add from %s lookup %v", from, table))
}
