package rail

import "slices"

// Pairs returns for each of n rails of a node the index of its partner among m rails of another; -1: none. Rails
// are paired by name and subnet. If these disagree, as with crossed cables, the subnet decides. The remaining rails
// are paired by name, because a router may connect them.
func Pairs(n, m int, sameName, sameNet func(i, j int) bool) []int {
	pairs := slices.Repeat([]int{-1}, n)
	taken := make([]bool, m)
	pair := func(match func(i, j int) bool) {
		for i := range pairs {
			for j := range taken {
				if pairs[i] < 0 && !taken[j] && match(i, j) {
					pairs[i], taken[j] = j, true
				}
			}
		}
	}
	pair(func(i, j int) bool { return sameName(i, j) && sameNet(i, j) })
	pair(sameNet)
	pair(sameName)
	return pairs
}

// End is what [Surplus] needs to know of a rail.
type End struct {
	Name      string
	Role      string // empty: unknown, so it may be any
	Addressed bool   // its interface has an address, and not only one of the link alone
}

// Surplus returns the rails that have no partner although nothing is wrong, where some rails are paired:
//
//   - those of a node with more rails than the other, which has no unpaired rail with their role, which would mean
//     wrong names or subnets
//   - those that lead to a third node, as in a ring of nodes without a switch: the cables are crossed, so that another
//     rail has the partner of the same name, and each unpaired rail of the other node has an address elsewhere
func Surplus(pairs []int, own, theirs []End) (list []int) {
	if !slices.ContainsFunc(pairs, func(j int) bool { return j >= 0 }) {
		return nil
	}
	var left []End
	for j, e := range theirs {
		if !slices.Contains(pairs, j) {
			left = append(left, e)
		}
	}
	elsewhere := !slices.ContainsFunc(left, func(e End) bool { return !e.Addressed })
	for i, j := range pairs {
		if j >= 0 {
			continue
		}
		one := own[i]
		alike := func(e End) bool { return e.Role == one.Role || e.Role == "" || one.Role == "" }
		crossed := slices.ContainsFunc(pairs, func(j int) bool { return j >= 0 && theirs[j].Name == one.Name })
		if len(theirs) < len(pairs) && !slices.ContainsFunc(left, alike) || elsewhere && crossed && one.Addressed {
			list = append(list, i)
		}
	}
	return list
}
