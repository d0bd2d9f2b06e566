package doctor

import (
	"encoding/json"
	"io"
	"slices"
	"time"
)

// Report is what doctor found, on one node or on two.
type Report struct {
	Nodes    []NodeReport `json:"nodes"` // this one first
	Findings []Finding    `json:"findings"`
	Faults   int          `json:"faults"`
	Warnings int          `json:"warnings"`
	Checks   int          `json:"checks"` // that were made
	Seconds  float64      `json:"seconds"`
}

// NodeReport is what was looked at on one node.
type NodeReport struct {
	Node   string   `json:"node"`
	Rails  []string `json:"rails"`
	Bonds  []string `json:"bonds"`
	GPUs   int      `json:"gpus"`
	Unread []string `json:"unread"`
}

// IDs of findings that are no check's of facts.
const (
	peerUnanswered = "peer" // the peer could not be asked
)

// Examine judges this node, and the peer where there is one; there may be nil.
// Findings are in the order of the checks, each node's for itself and then what
// is between the two.
func Examine(here, there *Facts) Report {
	r := Report{Findings: []Finding{}}
	r.look(here)
	if there == nil {
		return r
	}
	r.look(there)
	for _, c := range PeerChecks() {
		r.Checks++
		c.Run(here, there, func(f Finding) { r.add(f, c.ID, here.Node) })
	}
	return r
}

func (r *Report) look(f *Facts) {
	n := NodeReport{Node: f.Node, Rails: []string{}, Bonds: []string{}, GPUs: len(f.Rails.GPUs), Unread: append([]string{}, f.Unread...)}
	for i := range f.Rails.Rails {
		n.Rails = append(n.Rails, f.Rails.Rails[i].String())
	}
	for _, b := range f.Rails.Bonds {
		n.Bonds = append(n.Bonds, b.Name)
	}
	r.Nodes = append(r.Nodes, n)
	for _, c := range Checks() {
		r.Checks++
		c.Run(f, func(found Finding) { r.add(found, c.ID, f.Node) })
	}
}

func (r *Report) add(f Finding, id, node string) {
	f.Check, f.Node = id, orElse(f.Node, node)
	if f.Mend == nil {
		f.Mend = []string{}
	}
	if f.Severity == Fault {
		r.Faults++
	} else {
		r.Warnings++
	}
	r.Findings = append(r.Findings, f)
}

// AddPeerFailure adds that the peer could not be asked: what was to be looked at
// was not, which is a fault. mend says what to do.
func (r *Report) AddPeerFailure(peer string, err error, mend ...string) {
	node := ""
	if len(r.Nodes) > 0 {
		node = r.Nodes[0].Node
	}
	r.add(Finding{Severity: Fault, Subject: peer, Read: err.Error(), Mend: mend,
		Why: "What is unlike between the two nodes could not be looked at."}, peerUnanswered, node)
}

// Took says how long all of it took.
func (r *Report) Took(d time.Duration) { r.Seconds = d.Round(time.Millisecond).Seconds() }

// WriteJSON writes the report as one JSON object.
func (r Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// Sorted are the findings as people read them: faults first, each node's
// together.
func (r Report) Sorted() []Finding {
	list := slices.Clone(r.Findings)
	rank := map[Severity]int{Fault: 0, Warning: 1}
	slices.SortStableFunc(list, func(a, b Finding) int { return rank[a.Severity] - rank[b.Severity] })
	return list
}
