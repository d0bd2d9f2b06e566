package fleet

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/railscope/railscope/internal/nodefact"
)

// Bounds of [FindDrift].
const (
	minRole = 3 // nodes with the same hardware that are a role of their own
	// A value of this part of a role is no deviation: a roll-out reaches more and more nodes.
	establishedPart = 0.1
	minEstablished  = 3 // nodes
)

// NodeFacts are what nodes should have in common: values by subject.
type NodeFacts map[Node]map[string]string

// Drift is what differs between nodes that should be equal.
type Drift struct {
	Time       time.Time   `json:"time"`
	Nodes      int         `json:"nodes"` // nodes with facts
	Roles      []Role      `json:"roles"`
	Deviations []Deviation `json:"deviations"`
	Splits     []Split     `json:"splits"`
	Changes    []Change    `json:"changes"` // changes since a time, the first one first
	Failed     []string    `json:"failed"`  // questions that Prometheus did not answer
}

// Role is a group of nodes with the same models of adapters and GPUs, and those that resemble them.
type Role struct {
	Cluster string `json:"cluster"`
	Name    string `json:"name"` // models
	Nodes   []Node `json:"nodes"`
	Judged  bool   `json:"judged"` // false: there is no other node like it
}

// Deviation is a value that few nodes of a role have.
type Deviation struct {
	Cluster string `json:"cluster"`
	Role    string `json:"role"`
	Subject string `json:"subject"`
	Value   string `json:"value"`
	Usual   string `json:"usual"`
	Agree   int    `json:"agree"` // nodes with the usual value
	Of      int    `json:"of"`    // nodes of which the value is known
	Nodes   []Node `json:"nodes"` // those that deviate
}

// Split is a subject on which a role has several values that many nodes have, as during a roll-out, or none that many
// have.
type Split struct {
	Cluster string            `json:"cluster"`
	Role    string            `json:"role"`
	Subject string            `json:"subject"`
	Values  map[string][]Node `json:"values"` // nodes by value; empty: no value that many have
	Of      int               `json:"of"`
}

// FindDrift compares nodes. What is not known of a node is not judged.
func FindDrift(all NodeFacts) Drift {
	d := Drift{Nodes: len(all), Roles: []Role{}, Deviations: []Deviation{}, Splits: []Split{}, Changes: []Change{},
		Failed: []string{}}
	clusters := map[string][]Node{}
	for n := range all {
		clusters[n.Cluster] = append(clusters[n.Cluster], n)
	}
	for _, cluster := range slices.Sorted(maps.Keys(clusters)) {
		slices.SortFunc(clusters[cluster], Node.Compare)
		roles := all.roles(clusters[cluster])
		d.Roles = append(d.Roles, roles...)
		rolledOut := map[string][][]string{} // by subject: values that many have, of roles with several
		for _, role := range roles {
			for subject, values := range all.values(role.Nodes) {
				if common := established(values); role.Judged && len(common) > 1 {
					rolledOut[subject] = append(rolledOut[subject], common)
				}
			}
		}
		for _, role := range roles {
			if role.Judged {
				all.judge(role, rolledOut, &d)
			}
		}
	}
	return d
}

// models returns a value without numbers of pieces: "8 × x, 1 × y" is "x, y".
func models(value string) string {
	parts := strings.Split(value, ", ")
	for i, part := range parts {
		if _, model, found := strings.Cut(part, " × "); found {
			parts[i] = model
		}
	}
	slices.Sort(parts)
	return strings.Join(slices.Compact(parts), ", ")
}

// roles divides the nodes of a cluster. Nodes whose hardware few others have belong to the role that they resemble in
// more than half of what is known of both; the others are no role that can be judged.
func (f NodeFacts) roles(nodes []Node) (list []Role) {
	byHardware := map[string][]Node{}
	for _, n := range nodes {
		name := f.hardware(n)
		byHardware[name] = append(byHardware[name], n)
	}
	var few []Node
	for _, name := range slices.Sorted(maps.Keys(byHardware)) {
		if of := byHardware[name]; len(of) >= minRole {
			list = append(list, Role{Cluster: of[0].Cluster, Name: name, Nodes: of, Judged: true})
		} else {
			few = append(few, of...)
		}
	}
	usual := make([]map[string]string, len(list))
	for i, role := range list {
		usual[i] = f.usual(role.Nodes)
	}
	var rest []Node
	for _, n := range few {
		best, likeness := -1, 0.5
		for i := range list {
			if l := f.likeness(n, usual[i]); l > likeness {
				best, likeness = i, l
			}
		}
		if best < 0 {
			rest = append(rest, n)
			continue
		}
		list[best].Nodes = append(list[best].Nodes, n)
	}
	return append(list, f.pairs(rest)...)
}

// pairs returns the roles of two nodes among those that resemble no other role, and one of all others.
func (f NodeFacts) pairs(nodes []Node) (list []Role) {
	byHardware := map[string][]Node{}
	for _, n := range nodes {
		name := f.hardware(n)
		byHardware[name] = append(byHardware[name], n)
	}
	others := Role{Name: "others"}
	for _, name := range slices.Sorted(maps.Keys(byHardware)) {
		of := byHardware[name]
		if len(of) > 1 {
			list = append(list, Role{Cluster: of[0].Cluster, Name: name, Nodes: of, Judged: true})
			continue
		}
		others.Cluster, others.Nodes = of[0].Cluster, append(others.Nodes, of...)
	}
	if len(others.Nodes) > 0 {
		list = append(list, others)
	}
	return list
}

// hardware names the models of a node.
func (f NodeFacts) hardware(n Node) string {
	name := cmp.Or(models(f[n][nodefact.Adapters]), "no adapter")
	if gpus := models(f[n][nodefact.GPUs]); gpus != "" {
		name += ", " + gpus
	}
	return name
}

// usual returns the most frequent value of each subject.
func (f NodeFacts) usual(nodes []Node) map[string]string {
	usual := map[string]string{}
	for subject, values := range f.values(nodes) {
		usual[subject] = ranked(values)[0]
	}
	return usual
}

// likeness returns the part of the known subjects in which a node has the usual value.
func (f NodeFacts) likeness(n Node, usual map[string]string) float64 {
	same, of := 0, 0
	for subject, value := range f[n] {
		if want, ok := usual[subject]; ok {
			of++
			if value == want {
				same++
			}
		}
	}
	if of == 0 {
		return 0
	}
	return float64(same) / float64(of)
}

// values returns the nodes by value and subject.
func (f NodeFacts) values(nodes []Node) map[string]map[string][]Node {
	bySubject := map[string]map[string][]Node{}
	for _, n := range nodes {
		for subject, value := range f[n] {
			if bySubject[subject] == nil {
				bySubject[subject] = map[string][]Node{}
			}
			bySubject[subject][value] = append(bySubject[subject][value], n)
		}
	}
	return bySubject
}

// ranked returns values, that of most nodes first.
func ranked(values map[string][]Node) []string {
	return slices.SortedFunc(maps.Keys(values), func(a, b string) int {
		return cmp.Or(len(values[b])-len(values[a]), strings.Compare(a, b))
	})
}

// judge adds the deviations and splits of a role. A value that is being rolled out in another role, from the one that
// is usual here, is no deviation.
func (f NodeFacts) judge(role Role, rolledOut map[string][][]string, d *Drift) {
	bySubject := f.values(role.Nodes)
	for _, subject := range slices.Sorted(maps.Keys(bySubject)) {
		values := bySubject[subject]
		if len(values) == 1 {
			continue
		}
		common, of := established(values), known(values)
		if len(common) == 1 {
			for _, other := range rolledOut[subject] {
				if slices.Contains(other, common[0]) {
					common = append(common, slices.DeleteFunc(slices.Clone(other), func(v string) bool {
						return len(values[v]) == 0 || slices.Contains(common, v)
					})...)
				}
			}
		}
		if len(common) != 1 {
			s := Split{Cluster: role.Cluster, Role: role.Name, Subject: subject, Values: map[string][]Node{}, Of: of}
			for _, value := range common {
				s.Values[value] = values[value]
			}
			if of <= minRole { // too few to say which is usual
				s.Values = values
			}
			d.Splits = append(d.Splits, s)
		}
		for _, value := range ranked(values) {
			if len(common) > 0 && !slices.Contains(common, value) {
				d.Deviations = append(d.Deviations, Deviation{Cluster: role.Cluster, Role: role.Name, Subject: subject,
					Value: value, Usual: common[0], Agree: len(values[common[0]]), Of: of, Nodes: values[value]})
			}
		}
	}
}

func known(values map[string][]Node) (n int) {
	for _, nodes := range values {
		n += len(nodes)
	}
	return n
}

// established returns the values that so many nodes have that they are no deviations, that of most nodes first.
func established(values map[string][]Node) (list []string) {
	of := known(values)
	for _, value := range ranked(values) {
		n := len(values[value])
		if 2*n > of || n >= minEstablished && float64(n) >= establishedPart*float64(of) {
			list = append(list, value)
		}
	}
	return list
}

// Change is a change of a subject on nodes, between two times at which Prometheus was asked.
type Change struct {
	After   time.Time `json:"after"`  // last time with the value before
	Before  time.Time `json:"before"` // first time with the new value
	Cluster string    `json:"cluster"`
	Subject string    `json:"subject"`
	From    string    `json:"from"`
	To      string    `json:"to"`
	Nodes   []Node    `json:"nodes"`
}

// Snapshot is what was known at a time.
type Snapshot struct {
	Time  time.Time
	Facts NodeFacts
}

// FindChanges returns what changed between snapshots in order of time, the first change first. A node that is unknown
// at a time has not changed then. Equal changes of several nodes between the same times are one.
func FindChanges(snapshots []Snapshot) []Change {
	type key struct {
		after, before              int
		cluster, subject, from, to string
	}
	nodes := map[key][]Node{}
	type seen struct {
		value string
		at    int
	}
	last := map[Node]map[string]seen{}
	for i, s := range snapshots {
		for n, known := range s.Facts {
			if last[n] == nil {
				last[n] = map[string]seen{}
			}
			for subject, value := range known {
				if was, ok := last[n][subject]; ok && was.value != value {
					k := key{was.at, i, n.Cluster, subject, was.value, value}
					nodes[k] = append(nodes[k], n)
				}
				last[n][subject] = seen{value, i}
			}
		}
	}
	list := make([]Change, 0, len(nodes))
	for k, of := range nodes {
		slices.SortFunc(of, Node.Compare)
		list = append(list, Change{After: snapshots[k.after].Time, Before: snapshots[k.before].Time, Cluster: k.cluster,
			Subject: k.subject, From: k.from, To: k.to, Nodes: of})
	}
	slices.SortFunc(list, func(a, b Change) int {
		return cmp.Or(a.Before.Compare(b.Before), a.After.Compare(b.After), len(b.Nodes)-len(a.Nodes),
			strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Subject, b.Subject), strings.Compare(a.To, b.To),
			strings.Compare(a.From, b.From))
	})
	return list
}
