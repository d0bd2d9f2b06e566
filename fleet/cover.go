package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/railscope/railscope/internal/terminal"
)

// downPorts blames rails whose port reports that it is down.
func (j *judge) downPorts() {
	for _, r := range slices.SortedFunc(maps.Keys(j.state.PortUp), Rail.Compare) {
		if j.state.PortUp[r] || j.blamed(r.Node) {
			continue
		}
		bad, _ := count(j.on(r))
		j.out = append(j.out, Blame{Kind: RailDown, Node: r.Node, Rail: r.Rail, Paths: bad,
			Evidence: "its port is not ACTIVE" + of(", ", bad, "path", " carries nothing"),
			Causes:   "cable, transceiver or switch port: railscope rails on the node has the state"})
		explain(j.on(r))
	}
}

func of(before string, n int, what, after string) string {
	switch n {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("%s1 %s%s", before, what, after)
	}
	return fmt.Sprintf("%s%d %ss%s", before, n, what, strings.Replace(after, "carries", "carry", 1))
}

// blamed reports whether a node as a whole is blamed.
func (j *judge) blamed(n Node) bool {
	return slices.ContainsFunc(j.out, func(b Blame) bool {
		return b.Node == n && b.Rail == "" && b.Peer == "" && b.Leaf == ""
	})
}

// count returns the numbers of bad and of all unexplained paths in a list. Paths of unknown rate count where most of
// the bad ones are dead: they are not.
func count(list []*judged) (bad, all int) {
	unknown, died := 0, 0
	for _, p := range list {
		switch {
		case p.explained:
			continue
		case p.fault == carried:
			unknown++
			continue
		case p.fault == dead:
			died++
		}
		all++
		if p.fault.bad() {
			bad++
		}
	}
	if 2*died > bad {
		all += unknown
	}
	return bad, all
}

// leaf is a switch.
type leaf struct{ cluster, name string }

func (l leaf) compare(o leaf) int {
	return cmp.Or(strings.Compare(l.cluster, o.cluster), strings.Compare(l.name, o.name))
}

// suspect is a rail or leaf that may explain bad paths.
type suspect struct {
	rail  Rail
	leaf  string    // leaf in rail.Cluster; empty for a rail
	paths []*judged // paths over the suspect
	way   string    // direction at a rail: out, in, or empty for both
	bad   int
	score float64
}

// cover blames rails and leaves, the one that explains most bad paths first.
func (j *judge) cover() {
	for {
		best := suspect{}
		for _, s := range j.suspects() {
			if s.score > best.score {
				best = s
			}
		}
		if best.score == 0 {
			return
		}
		if best.leaf != "" {
			j.blameLeaf(best)
		} else {
			j.blameRail(best)
		}
		explain(best.paths)
	}
}

// suspects returns the rails and leaves whose paths are mostly bad.
func (j *judge) suspects() (list []suspect) {
	touched, leaves := map[Rail]bool{}, map[leaf]bool{}
	for _, p := range j.paths {
		if !p.fault.bad() {
			continue
		}
		for _, end := range p.ends() {
			touched[end] = true
			if name := j.state.Leaves[end]; name != "" {
				leaves[leaf{end.Cluster, name}] = true
			}
		}
	}
	for _, r := range slices.SortedFunc(maps.Keys(touched), Rail.Compare) {
		ways := map[string][]*judged{"": j.on(r)}
		for _, p := range j.on(r) {
			way := "in"
			if p.From == r.Node {
				way = "out"
			}
			ways[way] = append(ways[way], p)
		}
		for _, way := range []string{"", "out", "in"} {
			if s := j.suspectRail(r, way, ways[way]); s.score > 0 {
				list = append(list, s)
			}
		}
	}
	for _, l := range slices.SortedFunc(maps.Keys(leaves), leaf.compare) {
		if s := j.suspectLeaf(l, j.members[l]); s.score > 0 {
			list = append(list, s)
		}
	}
	return list
}

// suspectRail scores a rail: bad paths over it raise the score, good ones lower it.
func (j *judge) suspectRail(r Rail, way string, paths []*judged) suspect {
	s := suspect{rail: r, way: way, paths: paths}
	bad, all := count(paths)
	peers := map[Node]bool{}
	for _, p := range paths {
		if p.fault.bad() {
			peers[p.From], peers[p.To] = true, true
		}
	}
	slowAlone := j.loopbackSlow(r)
	if bad == 0 || float64(bad) < mostly*float64(all) || len(peers) < 3 && !slowAlone {
		return s // with only 2 nodes, the slow one is unknown
	}
	s.bad = bad
	s.score = float64(bad) - float64(all-bad)
	if slowAlone {
		s.score += 1.5
	}
	if way == "" {
		s.score += 0.5 // prefer the simpler explanation
	}
	return s
}

// suspectLeaf scores a leaf by all paths over it, or by those that also use another leaf.
func (j *judge) suspectLeaf(l leaf, members []Rail) (s suspect) {
	s = suspect{rail: Rail{Node: Node{Cluster: l.cluster}}, leaf: l.name}
	var all, across []*judged
	seen := map[*judged]bool{}
	for _, r := range members {
		for _, p := range j.on(r) {
			if seen[p] {
				continue
			}
			seen[p] = true
			ends := p.ends()
			all = append(all, p)
			if j.state.Leaves[ends[0]] != j.state.Leaves[ends[1]] {
				across = append(across, p)
			}
		}
	}
	for _, paths := range [][]*judged{all, across} {
		bad, n := count(paths)
		if bad == 0 || float64(bad) < mostly*float64(n) || suffering(members, paths) < leafMembers {
			continue
		}
		if score := float64(bad) - float64(n-bad) + 0.75; score > s.score {
			s.paths, s.bad, s.score = paths, bad, score
		}
	}
	return s
}

// suffering counts the rails whose paths are mostly bad.
func suffering(members []Rail, paths []*judged) (n int) {
	of := map[Rail][]*judged{}
	for _, p := range paths {
		for _, end := range p.ends() {
			of[end] = append(of[end], p)
		}
	}
	for _, r := range members {
		if bad, all := count(of[r]); bad > 0 && float64(bad) >= mostly*float64(all) {
			n++
		}
	}
	return n
}

// loopbackSlow reports whether a rail's loopback is slow.
func (j *judge) loopbackSlow(r Rail) bool {
	v, known := j.state.Loopback[r]
	return known && v < j.loopback[r.Cluster].least
}

func (j *judge) blameLeaf(s suspect) {
	b := Blame{Kind: Leaf, Node: s.rail.Node, Leaf: s.leaf, Paths: s.bad, Nodes: []string{}}
	nodes, rails := map[string]bool{}, map[string]bool{}
	for _, p := range s.paths {
		if !p.fault.bad() {
			continue
		}
		for _, end := range p.ends() {
			if j.state.Leaves[end] == s.leaf {
				nodes[end.Name], rails[end.Rail] = true, true
			}
		}
	}
	b.Nodes = slices.Sorted(maps.Keys(nodes))
	_, all := count(s.paths)
	b.Evidence = fmt.Sprintf("%s on %d of %d paths over it, of %d nodes", j.what(s.paths), s.bad, all, len(nodes))
	if len(rails) == 1 {
		b.Rail = slices.Collect(maps.Keys(rails))[0]
		b.Evidence += ", all of rail " + b.Rail
	}
	b.Causes = "the switch, its uplinks or its configuration (PFC, ECN, MTU)"
	j.out = append(j.out, b)
}

const hostCauses = "host or PCIe: link width and speed, ACS, IOMMU, NUMA node"

// blameRail blames a rail, and distinguishes host and wire if loopback was measured.
func (j *judge) blameRail(s suspect) {
	b := Blame{Node: s.rail.Node, Rail: s.rail.Rail, Paths: s.bad}
	_, all := count(s.paths)
	to := map[string]string{"": "to and from", "out": "to", "in": "from"}[s.way]
	b.Evidence = fmt.Sprintf("%s %s %d of %s", j.what(s.paths), to, s.bad, terminal.Count(all, "peer path"))
	loop, known := j.state.Loopback[s.rail]
	switch least := j.loopback[s.rail.Cluster]; {
	case worst(s.paths) == dead:
		b.Kind = RailDown
		b.Causes = "GID, address, cable or switch port of the rail: run railscope doctor on the node"
	case !known:
		b.Kind = SlowRail
		b.Causes = "host, PCIe, adapter, cable or switch port; probe.extras: [loopback] would show which"
	case loop < least.least:
		b.Kind = SlowHost
		b.Evidence += fmt.Sprintf(", loopback slow as well (%.2f of that of most rails)", loop/least.median)
		b.Causes = hostCauses
	default:
		b.Kind = SlowWire
		b.Evidence += ", loopback is not"
		b.Causes = "adapter port, cable, transceiver or switch port"
	}
	j.out = append(j.out, b)
}

// worst returns the fault of most bad paths in a list.
func worst(paths []*judged) (worst fault) {
	counts := map[fault]int{}
	for _, p := range paths {
		if p.fault.bad() {
			counts[p.fault]++
		}
	}
	for f := lossy; f <= dead; f++ {
		if counts[f] >= counts[worst] && counts[f] > 0 || worst == good && counts[f] > 0 {
			worst = f
		}
	}
	return worst
}

// what describes the bad paths of a list with the median of their figures.
func (j *judge) what(paths []*judged) string {
	var ratios, resent []float64
	var typical float64
	for _, p := range paths {
		if !p.fault.bad() {
			continue
		}
		typical = j.ratio[p.From.Cluster].median
		if v, ok := p.ratio(); ok {
			ratios = append(ratios, v)
		}
		if p.Retransmits >= 0 {
			resent = append(resent, p.Retransmits)
		}
	}
	switch worst := worst(paths); {
	case worst == dead || len(ratios) == 0:
		return "no RDMA"
	case worst == lossy:
		return fmt.Sprintf("%.0f retransmissions in half an hour and %.2f of what is expected", median(resent),
			median(ratios))
	}
	return fmt.Sprintf("%.2f of what is expected (%.2f on most paths)", median(ratios), typical)
}
