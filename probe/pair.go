package probe

import (
	"net/netip"
	"slices"
)

// pairRails returns for each of this node's rails the index of the peer's rail to measure it with; -1: none. Rails are
// paired by name and subnet. If these disagree, as with crossed cables, the subnet decides; rails that are left over
// are paired by name, because a router may connect them.
func pairRails(own []localRail, peers []helloRail) []int {
	pairs := slices.Repeat([]int{-1}, len(own))
	taken := make([]bool, len(peers))
	pair := func(match func(i, j int) bool) {
		for i := range own {
			for j := range peers {
				if pairs[i] < 0 && !taken[j] && match(i, j) {
					pairs[i], taken[j] = j, true
				}
			}
		}
	}
	sameName := func(i, j int) bool { return own[i].Name == peers[j].Name }
	sameNet := func(i, j int) bool { return sharedPrefix(own[i].prefixes, peers[j].Prefixes).IsValid() }
	pair(func(i, j int) bool { return sameName(i, j) && sameNet(i, j) })
	pair(sameNet)
	pair(sameName)
	return pairs
}

// sharedPrefix returns one of our addresses that is in one subnet with one of theirs, with that subnet; the zero value
// if there is none. IPv4 precedes IPv6. Link-local addresses do not count: every interface has one.
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

// inSubnet returns the first address of list that is in p's subnet and is not p's own.
func inSubnet(p netip.Prefix, list []netip.Prefix) netip.Addr {
	for _, q := range list {
		if p.Masked().Contains(q.Addr()) && q.Addr() != p.Addr() {
			return q.Addr()
		}
	}
	return netip.Addr{}
}
