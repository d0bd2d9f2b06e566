package probe

import (
	"net/netip"
	"slices"
)

// pair is one of this node's rails and the peer's that it is to meet; peer is -1 where there is none.
type pair struct{ own, peer int }

// pairRails pairs rails by name, then by subnet. Where the addresses tell that two rails of one name cannot see each
// other, as when cables are crossed, the subnet has the last word; what is left over is paired by name, for there may
// be a router. own and peers are prefixes by rail, with the names.
func pairRails(ownNames []string, own [][]netip.Prefix, peerNames []string, peers [][]netip.Prefix) []pair {
	pairs := make([]pair, len(ownNames))
	taken := make([]bool, len(peerNames))
	for i := range pairs {
		pairs[i] = pair{i, -1}
	}
	match := func(fits func(i, j int) bool) {
		for i := range pairs {
			for j := range peerNames {
				if pairs[i].peer < 0 && !taken[j] && fits(i, j) {
					pairs[i].peer, taken[j] = j, true
				}
			}
		}
	}
	sameName := func(i, j int) bool { return ownNames[i] == peerNames[j] }
	sameNet := func(i, j int) bool { return sharedPrefix(own[i], peers[j]).IsValid() }
	match(func(i, j int) bool { return sameName(i, j) && sameNet(i, j) })
	match(sameNet)
	match(sameName)
	return pairs
}

// sharedPrefix returns an address of ours that lies in one subnet with one of theirs, with that subnet; the zero value
// when there is none. IPv4 goes before IPv6, link-local addresses do not count: every interface has one.
func sharedPrefix(ours, theirs []netip.Prefix) netip.Prefix {
	for _, v4 := range []bool{true, false} {
		for _, o := range ours {
			if o.Addr().Is4() == v4 && !o.Addr().IsLinkLocalUnicast() && inSubnet(o, theirs).IsValid() {
				return o
			}
		}
	}
	return netip.Prefix{}
}

// inSubnet returns the first of list that lies in p's subnet and is not p's own address.
func inSubnet(p netip.Prefix, list []netip.Prefix) netip.Addr {
	i := slices.IndexFunc(list, func(q netip.Prefix) bool {
		return p.Masked().Contains(q.Addr()) && q.Addr() != p.Addr()
	})
	if i < 0 {
		return netip.Addr{}
	}
	return list[i].Addr()
}
