package gate

import "slices"

// MostPartners is the largest number of nodes that a node is tried against. Among more, a bad rail has bad paths to all
// its partners, and each of them has good ones to all others.
const MostPartners = 31

// pair is a visit of one node to another.
type pair struct{ from, to int }

// partners returns visits by which each of n nodes meets MostPartners others, or all. By the circle method, all nodes
// meet another one in each step; the steps are spread, so that partners are near and far. Each node asks in about half
// of its visits, so that one that lies is contradicted.
//
// Source: round-robin tournament, circle method (Lucas, Récréations mathématiques II, 1883).
func partners(n int) (list []pair) {
	if n < 2 {
		return nil
	}
	places := n + n%2 // with an odd number, the last place is empty
	circle := places - 1
	steps := min(circle, MostPartners)
	asked := make([]int, n) // how often each node has asked
	for k := range steps {
		for _, p := range step(n, k*circle/steps) {
			if asked[p.to] < asked[p.from] {
				p.from, p.to = p.to, p.from
			}
			asked[p.from]++
			list = append(list, p)
		}
	}
	return list
}

// step returns the visits of one step of the circle.
func step(n, turn int) (list []pair) {
	circle := n + n%2 - 1
	for i := range (circle + 1) / 2 {
		p := pair{(turn + i) % circle, (turn + circle - i) % circle}
		if i == 0 {
			p.to = circle
		}
		if p.from < n && p.to < n {
			list = append(list, p)
		}
	}
	return list
}

// exchanges returns visits by which each of n nodes asks another one and is asked by it.
func exchanges(n int) (list []pair) {
	if n < 2 {
		return nil
	}
	met := map[int]bool{}
	for _, p := range step(n, 0) {
		list = append(list, p, pair{p.to, p.from})
		met[p.from], met[p.to] = true, true
	}
	for i := range n {
		if !met[i] { // an odd number
			other := (i + 1) % n
			list = append(list, pair{i, other}, pair{other, i})
		}
	}
	return list
}

// over replaces the numbers of a list by the nodes with these numbers.
func over(nodes []int, list []pair) []pair {
	list = slices.Clone(list)
	for i, p := range list {
		list[i] = pair{nodes[p.from], nodes[p.to]}
	}
	return list
}
