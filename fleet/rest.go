package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// rest blames bad paths that nothing else explains, with one blame for both directions and all rails of a pair.
func (j *judge) rest() {
	byPair := map[Pair][]*judged{}
	for _, p := range j.paths {
		if !p.fault.bad() {
			continue
		}
		key := p.Pair
		if key.To.Compare(key.From) < 0 {
			key = Pair{key.To, key.From}
		}
		byPair[key] = append(byPair[key], p)
	}
	for _, pair := range slices.SortedFunc(maps.Keys(byPair), comparePairs) {
		paths := byPair[pair]
		slices.SortFunc(paths, func(a, b *judged) int {
			return cmp.Or(strings.Compare(a.Rail, b.Rail), comparePairs(a.Pair, b.Pair))
		})
		b := Blame{Node: pair.From, Peer: pair.To.Name, Paths: len(paths)}
		b.Kind = map[fault]Kind{lossy: LossyPath, slow: SlowPath, dead: DeadPath}[worst(paths)]
		b.Evidence = j.what(paths) + ", others of both nodes are good"
		b.Causes = "the path between them: one link of the fabric, or a hash that puts them on it"
		if rails := railsOf(paths); len(rails) == 1 {
			b.Rail = rails[0]
		}
		if j.alone(pair) {
			b.Evidence = j.what(paths) + ", and neither node has another peer"
			b.Causes = "either node, or the path between them"
		}
		j.out = append(j.out, b)
	}
}

func railsOf(paths []*judged) (rails []string) {
	for _, p := range paths {
		if !slices.Contains(rails, p.Rail) {
			rails = append(rails, p.Rail)
		}
	}
	return rails
}

// alone reports whether two nodes have no other pair.
func (j *judge) alone(pair Pair) bool {
	for p := range j.state.Pairs {
		has := p.From == pair.From || p.To == pair.From || p.From == pair.To || p.To == pair.To
		both := (p.From == pair.From || p.From == pair.To) && (p.To == pair.From || p.To == pair.To)
		if has && !both {
			return false
		}
	}
	return true
}

// hosts blames rails with slow loopback that are not blamed yet.
func (j *judge) hosts() {
	for _, r := range slices.SortedFunc(maps.Keys(j.state.Loopback), Rail.Compare) {
		if !j.loopbackSlow(r) || j.accused(r) {
			continue
		}
		j.out = append(j.out, Blame{Kind: SlowHost, Node: r.Node, Rail: r.Rail,
			Evidence: fmt.Sprintf("loopback is %.2f of that of most rails",
				j.state.Loopback[r]/j.loopback[r.Cluster].median),
			Causes: hostCauses})
	}
}

// accused reports whether a rail, or its whole node, is blamed.
func (j *judge) accused(r Rail) bool {
	return slices.ContainsFunc(j.out, func(b Blame) bool {
		return b.Node == r.Node && b.Peer == "" && b.Leaf == "" && (b.Rail == "" || b.Rail == r.Rail)
	})
}

// gpus blames rails that are slow only between GPU memory.
func (j *judge) gpus() {
	for _, r := range slices.SortedFunc(maps.Keys(j.state.GPU), Rail.Compare) {
		v, c := j.state.GPU[r], j.gpu[r.Cluster]
		if v >= c.least || j.accused(r) {
			continue
		}
		j.out = append(j.out, Blame{Kind: GPUPath, Node: r.Node, Rail: r.Rail, Paths: 1,
			Evidence: fmt.Sprintf("between memory of GPUs %.2f of the goodput between memory of the hosts, %.2f on "+
				"most rails", v, c.median),
			Causes: "peer-to-peer over PCIe: ACS, a missing nvidia_peermem, or a GPU far from the adapter"})
	}
}

// merge replaces blames of one kind on most rails of a node by one blame of the node.
func (j *judge) merge() {
	type group struct {
		kind Kind
		node Node
	}
	rails, blames := map[Node]int{}, map[group][]Blame{}
	for r := range j.over {
		rails[r.Node]++
	}
	var out []Blame
	for _, b := range j.out {
		if b.Drain() && b.Rail != "" {
			key := group{b.Kind, b.Node}
			blames[key] = append(blames[key], b)
			continue
		}
		out = append(out, b)
	}
	for key, list := range blames {
		if len(list) < 2 || float64(len(list)) < mostly*float64(rails[key.node]) {
			out = append(out, list...)
			continue
		}
		slices.SortFunc(list, compareBlames)
		all := list[0]
		all.Rail, all.Paths = "", 0
		for _, b := range list {
			all.Paths += b.Paths
		}
		all.Evidence = fmt.Sprintf("%d of its %d rails: %s", len(list), rails[key.node], list[0].Evidence)
		out = append(out, all)
	}
	j.out = out
}
