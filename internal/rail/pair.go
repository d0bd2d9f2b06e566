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

// Surplus returns the rails that have no partner only because the other node has fewer rails: some rails are paired,
// and the other node has no unpaired rail with their role, which would mean wrong names or subnets. roles and theirs
// are the roles of both nodes' rails; an empty role is unknown and may be any.
func Surplus(pairs []int, roles, theirs []string) (list []int) {
	if len(theirs) >= len(pairs) || !slices.ContainsFunc(pairs, func(j int) bool { return j >= 0 }) {
		return nil
	}
	var left []string
	for j, role := range theirs {
		if !slices.Contains(pairs, j) {
			left = append(left, role)
		}
	}
	for i, j := range pairs {
		alike := func(role string) bool { return role == roles[i] || role == "" || roles[i] == "" }
		if j < 0 && !slices.ContainsFunc(left, alike) {
			list = append(list, i)
		}
	}
	return list
}
