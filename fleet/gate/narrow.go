package gate

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/railscope/railscope/fleet"
)

const (
	// rounds bounds how often what differs is tried further.
	rounds = 3
	// further is how many other nodes each end of a bad path is tried against, in both directions.
	further = 4
	// enough dead paths of a rail to different nodes are no accident: they are not repeated.
	enough = 3
	// samples is how many nodes of a blamed leaf are tried against further nodes.
	samples = 8
)

// narrow tries again what differs, and both its ends against further nodes, until nothing is left that one part does
// not explain, or it was all tried.
func (g *gate) narrow(ctx context.Context) {
	g.visitAll(ctx, g.dead(), false)
	for range rounds {
		g.visitAll(ctx, g.unmeasured(), true)
	}
	seen := map[pair]bool{}
	confirmed := map[string]bool{}
	for range rounds {
		var todo []pair
		var nodes [][]int
		for _, b := range g.judge().Blames {
			switch p := (pair{g.index(b.Name), g.index(b.Peer)}); {
			case b.Leaf != "" && !confirmed[b.Leaf]:
				confirmed[b.Leaf] = true
				members := make([]int, len(b.Nodes))
				for i, name := range b.Nodes {
					members[i] = g.index(name)
				}
				nodes = append(nodes, members)
			case b.Peer != "" && !seen[p]:
				seen[p] = true
				todo = append(todo, p)
			}
		}
		if len(todo)+len(nodes) == 0 || ctx.Err() != nil {
			return
		}
		g.visitAll(ctx, g.around(todo, nodes), true)
	}
}

// dead returns the pairs with a path that carried no RDMA, to try them once more, without those of a rail that is dead
// to enough others.
func (g *gate) dead() (list []pair) {
	g.mu.Lock()
	defer g.mu.Unlock()
	dead, up := map[fleet.Rail]int{}, map[fleet.Rail]bool{}
	for at, t := range g.paths {
		for _, end := range ends(at) {
			if t.up > 0 {
				up[end] = true
			} else {
				dead[end]++
			}
		}
	}
	seen := map[pair]bool{}
	for _, at := range slices.SortedFunc(maps.Keys(g.paths), comparePaths) {
		explained := slices.ContainsFunc(ends(at), func(r fleet.Rail) bool { return !up[r] && dead[r] >= enough })
		p := pair{g.index(at.From.Name), g.index(at.To.Name)}
		if g.paths[at].up == 0 && !explained && !seen[p] {
			seen[p] = true
			list = append(list, p)
		}
	}
	return list
}

// unmeasured returns visits of nodes with a rail that carries RDMA and has no figure, with others whose rails all have
// one: the node that it was tried with may be the cause.
func (g *gate) unmeasured() (visits []pair) {
	lacking, without := map[int]bool{}, map[int]bool{}
	g.mu.Lock()
	measured, up := map[fleet.Rail]bool{}, map[fleet.Rail]bool{}
	for at, t := range g.paths {
		for _, end := range ends(at) {
			measured[end] = measured[end] || t.best.Goodput > 0
			up[end] = up[end] || t.up > 0
		}
	}
	g.mu.Unlock()
	for r := range up {
		i := g.index(r.Name)
		lacking[i] = lacking[i] || up[r] && !measured[r] && g.judged(i)
		without[i] = without[i] || !measured[r]
	}
	maps.DeleteFunc(lacking, func(_ int, lacks bool) bool { return !lacks })
	others := g.others(without)
	for i, node := range slices.Sorted(maps.Keys(lacking)) {
		if other := others[i%max(len(others), 1):]; len(other) > 0 && other[0] != node && !g.isLost(node) {
			visits = append(visits, pair{node, other[0]}, pair{other[0], node})
		}
	}
	return visits
}

// alone returns visits that try each judged node with some partners, in both directions.
func (g *gate) alone() (visits []pair) {
	partners, next := g.others(nil), 0
	for i := range g.Nodes {
		for range min(further, len(partners)) {
			if g.judged(i) && !g.isLost(i) {
				other := partners[next%len(partners)]
				visits = append(visits, pair{i, other}, pair{other, i})
				next++
			}
		}
	}
	return visits
}

// others returns the present nodes without some, in random order. Where too few are left, all have to do. Only partners
// are returned if there are any.
func (g *gate) others(without map[int]bool) []int {
	present := slices.DeleteFunc(g.present(), func(i int) bool { return g.Partners > 0 && g.judged(i) })
	list := slices.DeleteFunc(slices.Clone(present), func(i int) bool { return without[i] })
	if len(list) < further && len(list) < len(present) {
		list = present
	}
	g.random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

func comparePaths(a, b fleet.Path) int {
	return cmp.Or(a.From.Compare(b.From),
		fleet.Rail{Node: a.To, Rail: a.Rail}.Compare(fleet.Rail{Node: b.To, Rail: b.Rail}))
}

// index returns the node with a name. Blames name no others.
func (g *gate) index(name string) int { return g.byName[name] }

// around returns visits that repeat pairs in both directions, and those of their ends, and of some nodes of each leaf,
// with further nodes that are not suspected themselves.
func (g *gate) around(list []pair, leaves [][]int) (visits []pair) {
	suspects, tried := map[int]bool{}, map[int]bool{}
	for _, p := range list {
		visits = append(visits, p, pair{p.to, p.from})
		for _, i := range []int{p.from, p.to} {
			suspects[i], tried[i] = true, true
		}
	}
	for _, members := range leaves {
		for k, i := range members {
			suspects[i] = true
			if k*samples/len(members) != (k-1)*samples/len(members) || k == 0 {
				tried[i] = true
			}
		}
	}
	others, next := g.others(suspects), 0
	for _, i := range slices.Sorted(maps.Keys(tried)) {
		met := 0
		for range others {
			other := others[next%len(others)]
			next++
			if other == i {
				continue
			}
			visits = append(visits, pair{i, other}, pair{other, i})
			met++
			if met == further {
				break
			}
		}
	}
	return visits
}
