package gate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/railscope/railscope/fleet"
)

// Verdict is the answer of a gate.
type Verdict string

// Verdicts of a gate, the best first.
const (
	Start    Verdict = "start"     // the job may start on all nodes
	LeaveOut Verdict = "leave_out" // it may start without those that are left out
	Unknown  Verdict = "unknown"   // nothing is known to be bad, and not all nodes could be judged
)

// Report is the result of a gate.
type Report struct {
	Time    time.Time     `json:"time"`    // start of the gate
	Before  *time.Time    `json:"before"`  // start of the gate that it was compared with; nil: none
	Seconds float64       `json:"seconds"` // time that it took
	Verdict Verdict       `json:"verdict"`
	Nodes   int           `json:"nodes"`  // asked for
	Pairs   int           `json:"pairs"`  // pairs of which something is known, in one direction or both
	Paths   int           `json:"paths"`  // rails of these pairs
	Visits  int           `json:"visits"` // made
	Blames  []fleet.Blame `json:"blames"`
	// Start is the largest set of nodes that was found on which the job may start; bad and unknown ones are not in it.
	Start    []string `json:"start"`
	LeaveOut []Node   `json:"leave_out"` // bad nodes, and one end of each bad pair
	Unknown  []Node   `json:"unknown"`   // nodes of which too little is known
	Passing  []string `json:"passing"`   // faults that were gone when they were tried again
	Rails    []Figure `json:"rails"`     // what each rail carried, in order
}

// Node is a node that is not among those on which the job may start.
type Node struct {
	Node string   `json:"node"`
	Why  []string `json:"why"` // sentences in lower case
}

// Figure is what one rail carried alone, at best.
type Figure struct {
	Node     string   `json:"node"`
	Rail     string   `json:"rail"`
	Goodput  *float64 `json:"goodput_bytes_per_second"`  // nil: not measured
	Expected *float64 `json:"expected_bytes_per_second"` // nil: unknown
	Before   *float64 `json:"before_bytes_per_second"`   // in the gate to compare with; nil: there is none
	dead     bool     // it carried no RDMA to any node, which is blamed
}

// interrupted is why nothing is said of a node that nothing was found on by then: what differs was not all tried again.
const interrupted = "the gate was interrupted, or its time was up"

// worse is the part of an earlier figure below which a rail has become worse: the least drop that fleet blames, too.
const worse = 0.88

// judge blames parts for what the visits came to.
func (g *gate) judge() fleet.Report { return fleet.Judge(g.state()) }

// state returns what is known as the state of a fleet. A rail of which nobody knows what to expect is compared with the
// middle of those in the same position.
func (g *gate) state() fleet.State {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := fleet.NewState()
	lost := map[string]bool{}
	for i, name := range g.names {
		lost[name] = g.lost[i] != ""
		s.Nodes[fleet.Node{Name: name}] = !lost[name]
	}
	for p, transport := range g.pairs {
		if !lost[p.From.Name] && !lost[p.To.Name] {
			s.Pairs[p] = transport
		}
	}
	middle := g.middleLocked()
	for at, t := range g.paths {
		if s.Pairs[at.Pair] != byRDMA {
			continue
		}
		r := t.best
		if r.Expected == 0 {
			r.Expected = middle
		}
		s.Rounds[at] = &r
		for _, end := range ends(at) {
			leaf := cmp.Or(g.leaves[end], g.Topology.Of(end))
			if leaf != "" {
				s.Leaves[end] = leaf
			}
		}
	}
	return s
}

// middleLocked returns the median goodput of the paths of which nobody knows what to expect; 0: there are none.
func (g *gate) middleLocked() float64 {
	var list []float64
	for _, t := range g.paths {
		if t.best.Expected == 0 && t.best.Goodput > 0 {
			list = append(list, t.best.Goodput)
		}
	}
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[len(list)/2]
}

// report judges what the visits came to.
func (g *gate) report(ctx context.Context) Report {
	judged := g.judge()
	r := Report{Time: g.start.UTC(), Seconds: time.Since(g.start).Seconds(), Nodes: len(g.Nodes) - g.Partners,
		Visits: g.visits, Blames: judged.Blames, Start: []string{}, LeaveOut: []Node{}, Unknown: []Node{},
		Passing: g.passing(), Rails: g.figures()}
	r.Pairs, r.Paths = g.met()
	if g.Before != nil {
		r.Before = &g.Before.Time
	}
	bad := g.bad(judged.Blames, r.Rails)
	good := map[string]bool{}
	figures, unmeasured := map[string][]Figure{}, g.whyUnmeasured()
	for _, f := range r.Rails {
		figures[f.Node] = append(figures[f.Node], f)
	}
	for i, name := range g.names[:r.Nodes] {
		unknown := g.unknown(ctx, i, figures[name], unmeasured)
		if ctx.Err() != nil && len(unknown) == 0 {
			unknown = []string{interrupted}
		}
		switch {
		case bad[name] != nil:
		case len(unknown) > 0:
			r.Unknown = append(r.Unknown, Node{name, unknown})
		default:
			good[name] = true
		}
	}
	separate(judged.Blames, good, bad)
	r.Start = append(r.Start, slices.Sorted(maps.Keys(good))...)
	for _, name := range slices.Sorted(maps.Keys(bad)) {
		r.LeaveOut = append(r.LeaveOut, Node{name, bad[name]})
	}
	r.Verdict = Start
	if len(r.LeaveOut) > 0 || len(r.Blames) > 0 && g.Partners == 0 && ctx.Err() == nil {
		r.Verdict = LeaveOut
	} else if len(r.Unknown) > 0 {
		r.Verdict = Unknown
	}
	return r
}

// bad returns why judged nodes are bad.
func (g *gate) bad(blames []fleet.Blame, rails []Figure) map[string][]string {
	bad := map[string][]string{}
	for _, b := range blames {
		names := []string{b.Name}
		switch {
		case b.Leaf != "":
			names = b.Nodes
		case b.Peer != "" && g.Partners > 0: // a path of a node that is tried alone
			names = []string{b.Name, b.Peer}
		case b.Peer != "":
			continue // see separate
		}
		for _, name := range names {
			bad[name] = append(bad[name], b.Subject()+": "+b.Evidence)
		}
	}
	for _, f := range rails {
		// A rail that carries nothing is blamed.
		if f.Before != nil && f.Goodput != nil && *f.Goodput < worse**f.Before {
			bad[f.Node] = append(bad[f.Node], fmt.Sprintf("rail %s carries %.2f of what it carried at the gate of %s",
				f.Rail, *f.Goodput / *f.Before, g.Before.Time.Format(time.DateOnly)))
		}
	}
	maps.DeleteFunc(bad, func(name string, _ []string) bool { return !g.judged(g.index(name)) })
	return bad
}

// separate moves nodes from good to bad until no two of the good ones have a bad path between them: those with the most
// such paths first.
func separate(blames []fleet.Blame, good map[string]bool, bad map[string][]string) {
	apart := slices.DeleteFunc(slices.Clone(blames), func(b fleet.Blame) bool { return b.Peer == "" })
	for {
		apart = slices.DeleteFunc(apart, func(b fleet.Blame) bool { return !good[b.Name] || !good[b.Peer] })
		if len(apart) == 0 {
			return
		}
		count := map[string]int{}
		for _, b := range apart {
			count[b.Name]++
			count[b.Peer]++
		}
		names := slices.Sorted(maps.Keys(count))
		worst := slices.MaxFunc(names, func(a, b string) int { return cmp.Compare(count[a], count[b]) })
		for _, b := range apart {
			if b.Name == worst || b.Peer == worst {
				bad[worst] = append(bad[worst], b.Subject()+": "+b.Evidence)
			}
		}
		delete(good, worst)
	}
}

// met returns the numbers of pairs and of paths of which something is known, in one direction or both.
func (g *gate) met() (pairs, paths int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	both := func(p fleet.Pair) fleet.Pair {
		if p.To.Compare(p.From) < 0 {
			p.From, p.To = p.To, p.From
		}
		return p
	}
	metPairs, metPaths := map[fleet.Pair]bool{}, map[fleet.Path]bool{}
	for p := range g.pairs {
		metPairs[both(p)] = true
	}
	for at := range g.paths {
		metPaths[fleet.Path{Pair: both(at.Pair), Rail: at.Rail}] = true
	}
	return len(metPairs), len(metPaths)
}

// unknown returns why too little is known of a node to call it good; empty: enough is.
func (g *gate) unknown(ctx context.Context, node int, figures []Figure,
	unmeasured map[fleet.Rail]string) (why []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if lost := g.lost[node]; lost != "" {
		return []string{lost}
	}
	name := g.names[node]
	known := 0
	for p := range g.pairs {
		if p.From.Name == name || p.To.Name == name {
			known++
		}
	}
	silent := map[string]int{}
	for key, reason := range g.silent {
		if g.lost[key[0]] == "" && g.lost[key[1]] == "" && (key[0] == node || key[1] == node) {
			silent[reason]++
		}
	}
	without := 0
	for _, reason := range slices.Sorted(maps.Keys(silent)) {
		without += silent[reason]
		why = append(why, fmt.Sprintf("%d of its pairs: %s", silent[reason], reason))
	}
	if without > 0 && without < known {
		why = nil // enough pairs are known
	}
	switch {
	case known == 0 && ctx.Err() != nil:
		return []string{interrupted}
	case known == 0 && len(why) == 0:
		return []string{"no other node could be tried with it"}
	}
	return append(why, byReason(name, figures, unmeasured)...)
}

// byReason returns sentences about the rails of a node that carry RDMA at an unknown rate, one for each reason.
func byReason(name string, figures []Figure, unmeasured map[fleet.Rail]string) (list []string) {
	rails := map[string][]string{}
	for _, f := range figures {
		if f.Goodput == nil && !f.dead {
			rail := fleet.Rail{Node: fleet.Node{Name: name}, Rail: f.Rail}
			reason := cmp.Or(unmeasured[rail], "its rate was not measured")
			rails[reason] = append(rails[reason], f.Rail)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(rails)) {
		what := "rail "
		if len(rails[reason]) > 1 {
			what = "rails "
		}
		list = append(list, what+strings.Join(rails[reason], ", ")+": "+reason)
	}
	return list
}

// whyUnmeasured returns why rates of rails are not known.
func (g *gate) whyUnmeasured() map[fleet.Rail]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	why := map[fleet.Rail]string{}
	for _, at := range slices.SortedFunc(maps.Keys(g.paths), comparePaths) {
		for _, end := range ends(at) {
			why[end] = cmp.Or(why[end], g.paths[at].unmeasured)
		}
	}
	return why
}

// ends returns the two rails of a path.
func ends(at fleet.Path) []fleet.Rail {
	return []fleet.Rail{{Node: at.From, Rail: at.Rail}, {Node: at.To, Rail: at.Rail}}
}

// figures returns what each rail carried at best, in either direction.
func (g *gate) figures() []Figure {
	g.mu.Lock()
	defer g.mu.Unlock()
	best, up := map[fleet.Rail]fleet.Round{}, map[fleet.Rail]bool{}
	for at, t := range g.paths {
		for _, end := range ends(at) {
			if known, ok := best[end]; !ok || t.best.Goodput > known.Goodput {
				best[end] = t.best
			}
			up[end] = up[end] || t.up > 0
		}
	}
	before := map[fleet.Rail]*float64{}
	if g.Before != nil {
		for _, f := range g.Before.Rails {
			before[fleet.Rail{Node: fleet.Node{Name: f.Node}, Rail: f.Rail}] = f.Goodput
		}
	}
	list := []Figure{}
	for _, r := range slices.SortedFunc(maps.Keys(best), fleet.Rail.Compare) {
		list = append(list, Figure{Node: r.Name, Rail: r.Rail, Goodput: positive(best[r].Goodput),
			Expected: positive(best[r].Expected), Before: before[r], dead: !up[r]})
	}
	return list
}

func positive(v float64) *float64 {
	if v <= 0 {
		return nil
	}
	return &v
}

// passing returns the faults that were gone when they were tried again.
func (g *gate) passing() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := []string{}
	for _, at := range slices.SortedFunc(maps.Keys(g.paths), comparePaths) {
		if t := g.paths[at]; t.up > 0 && t.down > 0 {
			list = append(list, fmt.Sprintf("rail %s of %s to %s carried no RDMA %s, and then did: %s", at.Rail,
				at.From.Name, at.To.Name, times(t.down), strings.TrimSpace(t.why)))
		}
	}
	return list
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
