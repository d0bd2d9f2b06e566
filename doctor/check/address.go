package check

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/railscope/railscope/doctor/facts"
)

// addressFor returns the lines that give a rail's interface an IPv4 address: one
// by the pattern of the other rails, if there is one.
func addressFor(f *facts.Facts, r *facts.Rail) []string {
	p, like, ok := propose(f, r)
	if !ok {
		return []string{note("give %s an IPv4 address in a subnet of its own, which the same rail of the other nodes "+
			"shares: ip address add ADDRESS/LENGTH dev %s",
			r.Netdev, shellWord(r.Netdev))}
	}
	return []string{note("%s continues the addresses from %s; use another if your plan has one", p, like),
		ip("address add %s dev %s", p.String(), r.Netdev)}
}

// propose works out an address for a rail: as many subnets above that of the
// nearest rail that has one as the rail is after it, with this node's place in
// the subnet; if that is taken, the next free one.
func propose(f *facts.Facts, r *facts.Rail) (p netip.Prefix, like *facts.Rail, ok bool) {
	at := slices.IndexFunc(f.Rails, func(o facts.Rail) bool { return o.Name == r.Name })
	distance, base := 0, netip.Prefix{}
	for i := range f.Rails {
		d := at - i
		list := f.Netdev(f.Rails[i].Netdev).IPv4()
		if i == at || len(list) == 0 || list[0].Bits() < 8 || list[0].Bits() > 30 || like != nil &&
			abs(distance) <= abs(d) {
			continue
		}
		like, base, distance = &f.Rails[i], list[0], d
	}
	if like == nil || at < 0 {
		return p, nil, false
	}
	for try := range 64 {
		if p, ok = above(base, distance+try); ok && !taken(f, p) {
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

// addressed reports whether an interface of the node has an address that fits.
func addressed(f *facts.Facts, fits func(netip.Prefix) bool) bool {
	return slices.ContainsFunc(f.Others, fits) ||
		slices.ContainsFunc(f.Netdevs, func(n facts.Netdev) bool { return slices.ContainsFunc(n.Addresses, fits) })
}

// taken reports whether an interface of this node has an address in the subnet.
func taken(f *facts.Facts, p netip.Prefix) bool { return addressed(f, p.Overlaps) }

// has reports whether an interface of the node has the address.
func has(f *facts.Facts, a netip.Addr) bool {
	return addressed(f, func(p netip.Prefix) bool { return p.Addr() == a })
}
