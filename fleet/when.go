package fleet

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/railscope/railscope/internal/terminal"
)

// Began is when a fault began: between two times at which the fleet was judged.
type Began struct {
	After  *time.Time `json:"after"`  // last time without the fault; nil: it was there each time
	Before time.Time  `json:"before"` // first time with it
}

// lookbacks are the times before now at which the fleet is judged again, to find since when a fault is there.
func lookbacks() []time.Duration {
	const day = 24 * time.Hour
	return []time.Duration{5 * time.Minute, 15 * time.Minute, time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
		day, 3 * day, 7 * day}
}

// mostInTime bounds the faults whose context is asked for: of more, the worst.
const mostInTime = 32

// AddContext adds to the faults since when each is there, what else began then, and which jobs run there now. A fleet
// without faults costs nothing. What is not answered is listed in Failed, and left out.
func (s *Shown) AddContext(ctx context.Context, selector string, leaves Topology, ask Asker) {
	blames := s.Blames[:min(len(s.Blames), mostInTime)]
	s.addBegan(ctx, selector, leaves, ask, blames)
	addBeside(blames, s.traits(ctx, selector, ask, blames))
	s.addChanges(ctx, selector, ask, blames)
	s.addJobs(ctx, selector, ask, blames)
}

// addBegan judges the fleet at earlier times until each fault was not there.
func (s *Shown) addBegan(ctx context.Context, selector string, leaves Topology, ask Asker, blames []Blame) {
	selector = s.around(selector, blames)
	open := map[int]time.Time{} // faults that were there at all times until now, and the earliest of these
	for i := range blames {
		open[i] = s.Time
	}
	for _, back := range lookbacks() {
		if len(open) == 0 {
			break
		}
		at := s.Time.Add(-back)
		answers, err := Ask(ctx, selector, at, ask)
		if err != nil {
			s.Failed = append(s.Failed, fmt.Sprintf("at %s: %v", at.Format(time.RFC3339), err))
			break
		}
		then := NewRecent(answers, leaves, at, s.MaxAge)
		if then.Pairs == 0 {
			break // nothing is known of that time
		}
		for i, first := range open {
			if slices.ContainsFunc(then.Blames, blames[i].same) {
				open[i] = at
				continue
			}
			blames[i].Began = &Began{&at, first}
			delete(open, i)
		}
	}
	for i, first := range open {
		blames[i].Began = &Began{nil, first}
	}
}

// same reports whether another fault concerns the same part: a rail, or its whole node.
func (b Blame) same(o Blame) bool {
	ends := func(b Blame) (string, string) { return min(b.Name, b.Peer), max(b.Name, b.Peer) }
	low, high := ends(b)
	otherLow, otherHigh := ends(o)
	return b.Cluster == o.Cluster && b.Leaf == o.Leaf && low == otherLow && high == otherHigh &&
		(b.Rail == o.Rail || b.Rail == "" || o.Rail == "")
}

// addBeside notes which other faults began between the same times, and what they have in common with each.
func addBeside(blames []Blame, traits [][]string) {
	for i := range blames {
		b := &blames[i]
		shared := map[string][]string{}
		for j, o := range blames {
			if i == j || !b.beganWith(o) {
				continue
			}
			common := slices.DeleteFunc(slices.Clone(traits[i]), func(trait string) bool {
				return !slices.Contains(traits[j], trait)
			})
			key := strings.Join(common, ", ")
			shared[key] = append(shared[key], o.Subject())
		}
		for _, what := range slices.Sorted(maps.Keys(shared)) {
			text := "began at the same time: " + terminal.Few(shared[what])
			if what != "" {
				text = "began at the same time, on " + what + ": " + terminal.Few(shared[what])
			}
			b.Beside = append(b.Beside, text)
		}
	}
}

// beganWith reports whether two faults of a cluster began between the same times.
func (b Blame) beganWith(o Blame) bool {
	return b.Cluster == o.Cluster && b.Began != nil && o.Began != nil && b.Began.After != nil && o.Began.After != nil &&
		b.Began.After.Equal(*o.Began.After)
}

// traits returns for each fault what it may have in common with others: leaf switch, rail number, firmware of the
// adapters unless most nodes have it, and rack.
func (s *Shown) traits(ctx context.Context, selector string, ask Asker, blames []Blame) [][]string {
	firmware := s.firmware(ctx, selector, ask, blames)
	traits := make([][]string, len(blames))
	for i, b := range blames {
		add := func(what, name string) {
			if name != "" {
				traits[i] = append(traits[i], what+" "+name)
			}
		}
		add("leaf", cmp.Or(b.Leaf, s.state.Leaves[Rail{b.Node, b.Rail}]))
		add("rail", b.Rail)
		if b.Leaf == "" {
			add("firmware", firmware[b.Node])
			add("rack", s.state.Racks[b.Node])
		}
	}
	return traits
}

// firmware returns the firmware of the adapters of those nodes whose fault did not begin alone, unless at least half of
// the cluster's nodes have it.
func (s *Shown) firmware(ctx context.Context, selector string, ask Asker, blames []Blame) map[Node]string {
	var nodes []Node
	for i, b := range blames {
		if slices.ContainsFunc(blames[i+1:], b.beganWith) || slices.ContainsFunc(blames[:i], b.beganWith) {
			nodes = append(nodes, b.Node)
		}
	}
	matchers, ok := s.instances(selector, nodes)
	if !ok {
		return nil
	}
	const series = `(railscope_node_fact_info{subject="firmware"`
	theirs, err := ask(ctx, "max by (cluster, node, instance, value) "+series+", "+matchers+"})", s.Time)
	if err != nil {
		s.Failed = append(s.Failed, "firmware: "+err.Error())
		return nil
	}
	if selector != "" {
		selector = ", " + selector
	}
	counts, err := ask(ctx, "count by (cluster, value) "+series+selector+"})", s.Time)
	if err != nil {
		s.Failed = append(s.Failed, "firmware of all nodes: "+err.Error())
		return nil
	}
	have, all := map[Node]float64{}, map[string]float64{} // nodes by cluster and value, and by cluster
	for _, one := range counts {
		cluster := string(one.Metric["cluster"])
		have[Node{cluster, string(one.Metric["value"])}] += float64(one.Value)
		all[cluster] += float64(one.Value)
	}
	firmware := map[Node]string{}
	for _, one := range theirs {
		n, value := NodeOf(one), string(one.Metric["value"])
		if 2*have[Node{n.Cluster, value}] < all[n.Cluster] {
			firmware[n] = value
		}
	}
	return firmware
}

// instances returns the matchers of the series of some nodes, with those of the selector. ok is false if they are not
// known.
func (s *Shown) instances(selector string, nodes []Node) (matchers string, ok bool) {
	names := map[string]bool{}
	for _, n := range nodes {
		if instance := s.state.Instances[n]; instance != "" {
			names[regexp.QuoteMeta(instance)] = true
		}
	}
	matchers = fmt.Sprintf("instance=~%q", strings.Join(slices.Sorted(maps.Keys(names)), "|"))
	if selector != "" {
		matchers += ", " + selector
	}
	return matchers, len(names) > 0
}

// around returns matchers of the nodes of faults and of all nodes with which they have rounds, by which these can be
// judged alone; the selector if that is most of the fleet.
func (s *Shown) around(selector string, blames []Blame) string {
	const most = 0.5
	concerned := map[Node]bool{}
	for _, b := range blames {
		for _, name := range append([]string{b.Name, b.Peer}, b.Nodes...) {
			concerned[Node{b.Cluster, name}] = true
		}
	}
	all := maps.Clone(concerned)
	for p := range s.state.Pairs {
		if concerned[p.From] || concerned[p.To] {
			all[p.From], all[p.To] = true, true
		}
	}
	matchers, ok := s.instances(selector, slices.Collect(maps.Keys(all)))
	if !ok || float64(len(all)) > most*float64(len(s.state.Nodes)) {
		return selector
	}
	return matchers
}

// addChanges notes which facts of a node changed in the time in which its fault began.
func (s *Shown) addChanges(ctx context.Context, selector string, ask Asker, blames []Blame) {
	byTime := map[Began][]int{}
	for i, b := range blames {
		if b.Began != nil && b.Began.After != nil && b.Leaf == "" {
			at := Began{b.Began.After, b.Began.Before}
			for known := range byTime { // pointers differ
				if known.After.Equal(*at.After) {
					at = known
				}
			}
			byTime[at] = append(byTime[at], i)
		}
	}
	for at, faults := range byTime {
		var nodes []Node
		for _, i := range faults {
			nodes = append(nodes, blames[i].Node)
		}
		matchers, ok := s.instances(selector, nodes)
		if !ok {
			continue
		}
		var snapshots []Snapshot
		for _, when := range []time.Time{*at.After, at.Before} {
			answer, err := ask(ctx, "max by (cluster, node, instance, subject, value) (railscope_node_fact_info{"+
				matchers+"})", when)
			if err != nil {
				s.Failed = append(s.Failed, fmt.Sprintf("facts at %s: %v", when.Format(time.RFC3339), err))
				return
			}
			snapshots = append(snapshots, Snapshot{when, factsOf(answer)})
		}
		for _, c := range FindChanges(snapshots) {
			for _, i := range faults {
				if slices.Contains(c.Nodes, blames[i].Node) {
					blames[i].Beside = append(blames[i].Beside,
						fmt.Sprintf("changed at the same time: %s from %s to %s", c.Subject, c.From, c.To))
				}
			}
		}
	}
}

// addJobs notes which jobs hold queue pairs on the nodes now.
func (s *Shown) addJobs(ctx context.Context, selector string, ask Asker, blames []Blame) {
	var nodes []Node
	for _, b := range blames {
		if b.Leaf == "" {
			nodes = append(nodes, b.Node)
		}
	}
	matchers, ok := s.instances(selector, nodes)
	if !ok {
		return
	}
	answer, err := ask(ctx, "count by (cluster, node, instance, pod, container) (railscope_process_queue_pairs{"+
		matchers+"} > 0)", s.Time)
	if err != nil {
		s.Failed = append(s.Failed, "jobs: "+err.Error())
		return
	}
	jobs := map[Node]map[string]bool{}
	for _, one := range answer {
		n, name := NodeOf(one), string(one.Metric["pod"])
		if container := string(one.Metric["container"]); name == "" {
			name = container
		}
		if name == "" || name == "other" {
			continue
		}
		if jobs[n] == nil {
			jobs[n] = map[string]bool{}
		}
		jobs[n][name] = true
	}
	for i := range blames {
		blames[i].Jobs = slices.AppendSeq(blames[i].Jobs, maps.Keys(jobs[blames[i].Node]))
		slices.Sort(blames[i].Jobs)
	}
}

// context returns sentences about the time of a fault.
func (b Blame) context(now time.Time) (list []string) {
	if b.Began != nil {
		list = append(list, b.Began.text(now))
	}
	list = append(list, b.Beside...)
	if len(b.Jobs) > 0 {
		list = append(list, "runs there now: "+terminal.Few(b.Jobs))
	}
	return list
}

func (b Began) text(now time.Time) string {
	ago := func(t time.Time) string {
		d := now.Sub(t).Round(time.Minute)
		if d >= 48*time.Hour {
			return fmt.Sprintf("%d days", int(d.Hours()/24))
		}
		return strings.TrimSuffix(d.String(), "0s")
	}
	switch {
	case b.After == nil && now.Sub(b.Before) < time.Minute:
		return "since when is not known: Prometheus has no earlier rounds"
	case b.After == nil:
		return "there for at least " + ago(b.Before)
	case now.Sub(b.Before) < time.Minute:
		return "began less than " + ago(*b.After) + " ago"
	}
	return fmt.Sprintf("began between %s and %s ago", ago(*b.After), ago(b.Before))
}
