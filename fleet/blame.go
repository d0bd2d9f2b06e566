package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Thresholds of the judgement.
const (
	// mostly is the share of bad paths above which their common part is blamed. Other paths may be missing, or have
	// another fault at their far end.
	mostly = 0.75
	// minDrop is the minimum drop of a bad path below the typical ratio, as a share of it, even if other paths hardly
	// vary.
	minDrop = 0.12
	// spreads is the minimum drop in standard deviations, which the median of deviations estimates.
	spreads = 6
	// minLoss is the number of retransmissions in 30 minutes above which a path is lossy, if they also exceed
	// lossTimes the median of all paths and tailTimes their third quartile: some fabrics lose packets everywhere,
	// unevenly.
	minLoss   = 20
	lossTimes = 20
	tailTimes = 5
	// leafMembers is the minimum number of affected rails to blame a leaf; fewer are blamed one by one.
	leafMembers = 3
)

// fault is what is wrong with a path.
type fault int

const (
	good    fault = iota
	carried       // it carried RDMA, at an unknown rate: not dead, and neither good nor bad otherwise
	lossy
	slow
	dead
)

// bad reports whether something is wrong.
func (f fault) bad() bool { return f > carried }

// judge explains the bad paths: it first blames the part that explains most of them, and then sets those aside.
type judge struct {
	state   State
	paths   []*judged
	over    map[Rail]*[]*judged // all paths over a rail
	members map[leaf][]Rail
	out     []Blame
	typical
}

// judged is a path of a pair that uses RDMA.
type judged struct {
	Path
	*Round
	fault     fault // good, once it is explained
	explained bool
}

// on returns the paths over a rail.
func (j *judge) on(r Rail) []*judged {
	if list := j.over[r]; list != nil {
		return *list
	}
	return nil
}

// typical holds the usual performance of a cluster's paths and rails, as a share of the expected one.
type typical struct {
	ratio, loopback, gpu map[string]cut     // by cluster
	retransmits          map[string]float64 // paths with more are lossy
}

// cut is the median of figures, and the threshold below which one is too low.
type cut struct{ median, least float64 }

// Judge finds the parts to blame. It does not guess where the state leaves several explanations.
func Judge(s State) Report {
	j := &judge{state: s, over: map[Rail]*[]*judged{}, members: map[leaf][]Rail{}}
	j.findTypical()
	nodes := maps.Clone(s.Nodes)
	for p := range s.Pairs {
		nodes[p.From], nodes[p.To] = true, true
	}
	r := Report{Nodes: len(nodes), Pairs: len(s.Pairs), Paths: len(s.Rounds)}
	r.Bad = j.pairs()
	r.Bad += j.rate()
	j.downPorts()
	j.cover()
	j.rest()
	j.hosts()
	j.gpus()
	j.merge()
	slices.SortFunc(j.out, compareBlames)
	r.Blames = append([]Blame{}, j.out...)
	for i := range r.Blames {
		r.Blames[i].Beside, r.Blames[i].Jobs = []string{}, []string{}
	}
	return r
}

func compareBlames(a, b Blame) int {
	rank := func(k Kind) int { return slices.Index(Kinds(), k) }
	return cmp.Or(rank(a.Kind)-rank(b.Kind), b.Paths-a.Paths, Rail{a.Node, a.Rail}.Compare(Rail{b.Node, b.Rail}),
		strings.Compare(a.Peer, b.Peer), strings.Compare(a.Leaf, b.Leaf))
}

func newCut(figures []float64) cut {
	if len(figures) == 0 {
		return cut{}
	}
	m := median(figures)
	var off []float64
	for _, v := range figures {
		off = append(off, math.Abs(v-m))
	}
	const deviations = 1.4826 // standard deviation ÷ median of deviations, for a normal distribution
	return cut{m, m - max(minDrop*m, spreads*deviations*median(off))}
}

func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}

// findTypical computes the typical figures of each cluster.
func (j *judge) findTypical() {
	ratios, loops, gpus := map[string][]float64{}, map[string][]float64{}, map[string][]float64{}
	resent := map[string][]float64{}
	for p, r := range j.state.Rounds {
		if v, ok := r.ratio(); ok {
			ratios[p.From.Cluster] = append(ratios[p.From.Cluster], v)
		}
		if r.Retransmits >= 0 {
			resent[p.From.Cluster] = append(resent[p.From.Cluster], r.Retransmits)
		}
	}
	for r, v := range j.state.Loopback {
		loops[r.Cluster] = append(loops[r.Cluster], v)
	}
	for r, v := range j.state.GPU {
		gpus[r.Cluster] = append(gpus[r.Cluster], v)
	}
	cuts := func(of map[string][]float64) map[string]cut {
		all := map[string]cut{}
		for cluster, list := range of {
			all[cluster] = newCut(list)
		}
		return all
	}
	j.typical = typical{cuts(ratios), cuts(loops), cuts(gpus), map[string]float64{}}
	for cluster, list := range resent {
		slices.Sort(list)
		j.retransmits[cluster] = max(minLoss, lossTimes*list[len(list)/2], tailTimes*list[len(list)*3/4])
	}
}

// pairs blames nodes that no peer reaches, and those whose rounds use TCP. It returns the number of bad pairs.
func (j *judge) pairs() (bad int) {
	for _, one := range []struct {
		transport string
		kind      Kind
	}{{unreached, PeerDown}, {byTCP, TCPFallback}} {
		left := map[Pair]bool{} // unexplained pair → whether it is bad
		for p, transport := range j.state.Pairs {
			if transport == one.transport || transport == byRDMA {
				left[p] = transport == one.transport
			}
			if transport == one.transport {
				bad++
			}
		}
		for {
			worst := j.worstNode(left, one.kind)
			if worst.bad == 0 {
				break
			}
			node := worst.node
			j.blameNode(worst, one.kind)
			maps.DeleteFunc(left, func(p Pair, _ bool) bool { return p.From == node || p.To == node })
		}
		j.deadPairs(left, one.transport)
	}
	return bad
}

// pairsOf counts the bad pairs of a node, among all its pairs or, with own, among those whose rounds it starts.
type pairsOf struct {
	node     Node
	own      bool
	bad, all int
}

// worstNode returns the node that explains most bad pairs; without bad ones if none does. A node whose own rounds are
// bad, although those of others to it are not, is only looked for where they use TCP: it was reached.
func (j *judge) worstNode(left map[Pair]bool, kind Kind) (worst pairsOf) {
	counts := map[Node]*[2]pairsOf{}
	for p, is := range left {
		for i, n := range []Node{p.From, p.To} {
			if counts[n] == nil {
				counts[n] = &[2]pairsOf{{node: n}, {node: n, own: true}}
			}
			for k := range 2 - i {
				counts[n][k].all++
				if is {
					counts[n][k].bad++
				}
			}
		}
	}
	best := 0.0
	for _, n := range slices.SortedFunc(maps.Keys(counts), Node.Compare) {
		for _, c := range counts[n] {
			if s := j.scoreNode(c, kind); s > best {
				worst, best = c, s
			}
		}
	}
	return worst
}

// leastOwn is the least number of own rounds by which a node is blamed.
const leastOwn = 3

// scoreNode scores how well a node explains its bad pairs; 0: it does not.
func (j *judge) scoreNode(c pairsOf, kind Kind) float64 {
	up, known := j.state.Nodes[c.node]
	silent := kind == PeerDown && known && !up
	switch {
	case c.bad == 0, float64(c.bad) < mostly*float64(c.all), c.bad < 2 && !silent,
		c.own && (kind != TCPFallback || c.bad < leastOwn):
		return 0
	}
	s := float64(c.bad) + float64(c.bad)/float64(c.all)
	if silent {
		s *= 2
	}
	return s
}

func (j *judge) blameNode(c pairsOf, kind Kind) {
	n, bad, all := c.node, c.bad, c.all
	b := Blame{Kind: kind, Node: n, Paths: bad}
	switch up, known := j.state.Nodes[n]; {
	case kind == TCPFallback && c.own:
		b.Evidence = fmt.Sprintf("%d of the %d pairs in which it asks go by TCP, those in which it answers by RDMA",
			bad, all)
		b.Causes = "memory lock limit, device files or libibverbs of the node: run railscope doctor there"
	case kind == TCPFallback:
		b.Evidence = fmt.Sprintf("%d of its %d pairs go by TCP, those between other nodes by RDMA", bad, all)
		b.Causes = "GIDs, memory lock limit, device files or libibverbs of the node: run railscope doctor there"
	case known && !up:
		b.Evidence = fmt.Sprintf("%d of its %d pairs get no answer, and Prometheus gets none from its exporter", bad,
			all)
		b.Causes = "the node is down, or its network is"
	default:
		b.Evidence = fmt.Sprintf("%d of its %d pairs get no answer", bad, all)
		b.Causes = "railscope does not run there, its probe port is closed, or the network of the control channel is " +
			"down"
	}
	j.out = append(j.out, b)
}

// deadPairs blames bad pairs that no node explains.
func (j *judge) deadPairs(left map[Pair]bool, transport string) {
	seen := map[Pair]bool{}
	for _, p := range slices.SortedFunc(maps.Keys(left), comparePairs) {
		if !left[p] || seen[Pair{p.To, p.From}] {
			continue
		}
		seen[p] = true
		what := "gets no answer"
		if transport == byTCP {
			what = "goes by TCP"
		}
		j.out = append(j.out, Blame{Kind: DeadPath, Node: p.From, Peer: p.To.Name, Paths: 1,
			Evidence: "it " + what + ", other pairs of both nodes go by RDMA",
			Causes:   "the path between them: routes, filters of UDP 4791, one switch port"})
	}
}

func comparePairs(a, b Pair) int { return cmp.Or(a.From.Compare(b.From), a.To.Compare(b.To)) }

// rate finds the bad paths of pairs that use RDMA, and returns their number.
func (j *judge) rate() (bad int) {
	for p, r := range j.state.Rounds {
		if j.state.Pairs[p.Pair] != byRDMA {
			continue
		}
		f := good
		ratio, known := r.ratio()
		switch c := j.ratio[p.From.Cluster]; {
		case !r.Up:
			f = dead
		case r.Retransmits > j.retransmits[p.From.Cluster] && r.Retransmits >= 0:
			f = lossy
		case known && ratio < c.least:
			f = slow
		case !known:
			f = carried
		}
		one := &judged{Path: p, Round: r, fault: f}
		j.paths = append(j.paths, one)
		if f.bad() {
			bad++
		}
		for _, end := range p.ends() {
			j.add(end, one)
		}
	}
	return bad
}

// add notes that a path leads over a rail.
func (j *judge) add(r Rail, p *judged) {
	list := j.over[r]
	if list == nil {
		list = new([]*judged)
		j.over[r] = list
		if l := (leaf{r.Cluster, j.state.Leaves[r]}); l.name != "" {
			j.members[l] = append(j.members[l], r)
		}
	}
	*list = append(*list, p)
}

// explain notes that paths are explained.
func explain(list []*judged) {
	for _, p := range list {
		p.fault, p.explained = good, true
	}
}
