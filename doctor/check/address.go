package check

import (
	"encoding/binary"
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

// addressed reports whether an interface of the node has an address that matches.
func addressed(f *facts.Facts, match func(netip.Prefix) bool) bool {
	return slices.ContainsFunc(f.Others, match) ||
		slices.ContainsFunc(f.Netdevs, func(n facts.Netdev) bool { return slices.ContainsFunc(n.Addresses, match) })
}
