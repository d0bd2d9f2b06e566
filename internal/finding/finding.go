// Package finding defines findings, the form in which every command and page reports a fault.
package finding

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Severity is how bad a finding is.
type Severity string

// Severities of findings.
const (
	Critical Severity = "critical" // jobs fail, or lose most of the network
	Warning  Severity = "warning"  // jobs are slower than they should be, or may fail
	Info     Severity = "info"     // no action needed
)

// Severities returns all severities, the worst first.
func Severities() []Severity { return []Severity{Critical, Warning, Info} }

// Compare orders severities, the worst first.
func (s Severity) Compare(other Severity) int {
	return slices.Index(Severities(), s) - slices.Index(Severities(), other)
}

// Finding is one named fault.
type Finding struct {
	Node     string   `json:"node,omitempty"` // node of the fault, on which Fix has to run; empty: this node
	Check    string   `json:"check"`          // snake_case name of the check that found it
	Severity Severity `json:"severity"`
	Subject  string   `json:"subject"`         // kind and name: "rail 3", "peer spark-02", "node"; never a PID
	Where    string   `json:"where,omitempty"` // location, such as "mlx5_1 port 1, eth1"; may name processes and values
	Evidence string   `json:"evidence"`        // one sentence with figures; lower case, no full stop
	Why      string   `json:"why,omitempty"`   // why it matters, in sentences
	// commands for a root shell, or comments that begin with # and say what to do
	Fix []string `json:"fix"`

	// Set for a finding that a running railscope has raised, otherwise zero.
	Since time.Time `json:"since,omitzero"`     // start of the first examination that found it
	Seen  time.Time `json:"last_seen,omitzero"` // start of the last one that found it
	// Recovering is set if the last examination did not find it: the node is no longer in that state.
	Recovering bool `json:"recovering,omitempty"`
}

// Rail is the name of the rail that the finding is about; empty for any other subject.
func (f Finding) Rail() string {
	name, _ := strings.CutPrefix(f.Subject, "rail ")
	if name == f.Subject {
		return ""
	}
	return name
}

// Peer reports whether the finding is about a peer.
func (f Finding) Peer() bool { return strings.HasPrefix(f.Subject, "peer ") }

// Title returns the finding's name, without figures: "rail 3: port down".
func (f Finding) Title() string { return f.Subject + ": " + strings.ReplaceAll(f.Check, "_", " ") }

// Compare orders findings: the worst first, recovering ones last, then by check and subject.
func (f Finding) Compare(other Finding) int {
	return cmp.Or(f.CompareSeverity(other), cmp.Compare(f.Check, other.Check), cmp.Compare(f.Subject, other.Subject))
}

// CompareSeverity orders findings: the worst first, recovering ones last.
func (f Finding) CompareSeverity(other Finding) int {
	recovering := func(f Finding) int {
		if f.Recovering {
			return 1
		}
		return 0
	}
	return cmp.Or(recovering(f)-recovering(other), f.Severity.Compare(other.Severity))
}

// Level returns the severity, or that it recovers.
func (f Finding) Level() string {
	if f.Recovering {
		return "recovering"
	}
	return string(f.Severity)
}
