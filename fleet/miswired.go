package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Miswired is a rail that is plugged into another switch than that rail of its node's equals.
type Miswired struct {
	Rail
	Leaf   string `json:"leaf"`
	Usual  string `json:"usual_leaf"` // switch of the equals
	Equals int    `json:"equals"`     // nodes that are wired as this one, but for a few rails
	Agree  int    `json:"agree"`      // equals whose rail is plugged into Usual
}

// Bounds of [miswired].
const (
	minEquals  = 3    // fewer equals make no pattern
	maxWirings = 2000 // more different ones are no pattern
)

// wiring is what the rails of some nodes are plugged into.
type wiring struct {
	leaves map[string]string // leaf by rail
	set    map[string]bool   // leaves
	nodes  []Node
}

// miswired returns the rails that break the pattern of their equals: of the nodes whose leaves are those of most rails
// of the node, three in four have the rail on one other leaf. Without a pattern there are none.
func miswired(leaves map[Rail]string) (list []Miswired) {
	clusters := map[string][]wiring{}
	for _, w := range wirings(leaves) {
		cluster := w.nodes[0].Cluster
		clusters[cluster] = append(clusters[cluster], w)
	}
	for _, all := range clusters {
		if len(all) > maxWirings {
			continue
		}
		for _, w := range all {
			for _, one := range w.broken(all) {
				for _, n := range w.nodes {
					one.Node = n
					list = append(list, one)
				}
			}
		}
	}
	slices.SortFunc(list, func(a, b Miswired) int { return a.Compare(b.Rail) })
	return list
}

// wirings returns the different wirings.
func wirings(leaves map[Rail]string) (list []wiring) {
	byNode := map[Node]map[string]string{}
	for r, leaf := range leaves {
		if byNode[r.Node] == nil {
			byNode[r.Node] = map[string]string{}
		}
		byNode[r.Node][r.Rail] = leaf
	}
	index := map[string]int{}
	for n, of := range byNode {
		parts := []string{n.Cluster}
		for _, rail := range slices.Sorted(maps.Keys(of)) {
			parts = append(parts, rail, of[rail])
		}
		key := strings.Join(parts, "\n")
		i, known := index[key]
		if !known {
			i, index[key] = len(list), len(list)
			w := wiring{leaves: of, set: map[string]bool{}}
			for _, leaf := range of {
				w.set[leaf] = true
			}
			list = append(list, w)
		}
		list[i].nodes = append(list[i].nodes, n)
	}
	return list
}

// broken returns the rails of a node of this wiring that break the pattern of its equals among all, without the node.
func (w wiring) broken(all []wiring) (list []Miswired) {
	votes, equals := map[string]map[string]int{}, 0
	for _, other := range all {
		shared := 0
		for _, leaf := range w.leaves {
			if other.set[leaf] {
				shared++
			}
		}
		n := len(other.nodes)
		if maps.Equal(other.leaves, w.leaves) {
			n-- // the node itself
		}
		if 2*shared <= len(w.leaves) || n == 0 {
			continue
		}
		equals += n
		for rail, leaf := range other.leaves {
			if votes[rail] == nil {
				votes[rail] = map[string]int{}
			}
			votes[rail][leaf] += n
		}
	}
	for rail, leaf := range w.leaves {
		for usual, n := range votes[rail] {
			if usual != leaf && n >= minEquals && 4*n >= 3*equals {
				list = append(list, Miswired{Rail: Rail{Rail: rail}, Leaf: leaf, Usual: usual, Equals: equals,
					Agree: n})
			}
		}
	}
	return list
}

// maxMiswired is the number of rails that get a sentence.
const maxMiswired = 16

// miswired returns a sentence about each rail that is plugged into an unusual switch.
func (s Shown) miswired() (list []string) {
	for _, m := range s.Miswired[:min(len(s.Miswired), maxMiswired)] {
		list = append(list, fmt.Sprintf("miswired: rail %s of %s is plugged into %s, and that of %d of %d nodes wired "+
			"alike into %s", m.Rail.Rail, m.String(), m.Leaf, m.Agree, m.Equals, m.Usual))
	}
	if more := len(s.Miswired) - len(list); more > 0 {
		list = append(list, fmt.Sprintf("miswired: %d more", more))
	}
	return list
}
