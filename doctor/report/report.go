// Package report runs all checks and prints their findings, as text or JSON.
package report

import (
	"cmp"
	"encoding/json"
	"io"
	"slices"
	"time"

	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/doctor/facts"
)

// Report is what doctor found, on one node or on two.
type Report struct {
	Nodes    []Node          `json:"nodes"` // this one first
	Findings []check.Finding `json:"findings"`
	Faults   int             `json:"faults"`
	Warnings int             `json:"warnings"`
	Checks   int             `json:"checks"` // that were run
	Seconds  float64         `json:"seconds"`
}

// Node is what was examined on one node.
type Node struct {
	Node   string   `json:"node"`
	Rails  []string `json:"rails"`
	Bonds  []string `json:"bonds"`
	GPUs   int      `json:"gpus"`
	Unread []string `json:"unread"`
}

// Examine judges this node, and the peer if there is one; there may be nil. Findings are in the order of the checks:
// each node's, then those between the two.
func Examine(here, there *facts.Facts) Report {
	r := Report{Findings: []check.Finding{}}
	r.examine(here)
	if there == nil {
		return r
	}
	r.examine(there)
	for _, c := range check.PeerChecks() {
		r.Checks++
		r.add(c.Find(here, there)...)
	}
	return r
}

// examine adds one node and its findings.
func (r *Report) examine(f *facts.Facts) {
	r.addNode(f)
	for _, c := range check.Checks() {
		r.Checks++
		r.add(c.Find(f)...)
	}
}

func (r *Report) addNode(f *facts.Facts) {
	n := Node{Node: f.Node, Rails: []string{}, Bonds: []string{}, GPUs: len(f.GPUs),
		Unread: append([]string{}, f.Unread...)}
	for i := range f.Rails {
		n.Rails = append(n.Rails, f.Rails[i].String())
	}
	for _, b := range f.Bonds {
		n.Bonds = append(n.Bonds, b.Name)
	}
	r.Nodes = append(r.Nodes, n)
}

func (r *Report) add(list ...check.Finding) {
	for _, f := range list {
		if f.Severity == check.Fault {
			r.Faults++
		} else {
			r.Warnings++
		}
	}
	r.Findings = append(r.Findings, list...)
}

// AddPeerFailure adds the fault that nothing was compared, as the peer sent no facts. fix says what to do.
func (r *Report) AddPeerFailure(peer string, err error, fix ...string) {
	r.add(check.Finding{Node: r.Nodes[0].Node, Check: check.PeerUnanswered, Severity: check.Fault, Subject: peer,
		Evidence: err.Error(), Why: "The two nodes could not be compared.", Fix: append([]string{}, fix...)})
}

// Took sets the duration of the whole examination.
func (r *Report) Took(d time.Duration) { r.Seconds = d.Round(time.Millisecond).Seconds() }

// WriteJSON writes the report as one JSON object.
func (r Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// Sorted are the findings as people read them: faults first.
func (r Report) Sorted() []check.Finding {
	list := slices.Clone(r.Findings)
	slices.SortStableFunc(list, func(a, b check.Finding) int {
		return cmp.Compare(a.Severity, b.Severity) // fault before warning
	})
	return list
}
