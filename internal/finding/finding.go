// Package finding defines the form in which every command and page reports a fault.
package finding

import (
	"cmp"
	"slices"
	"strings"
)

// Severity is how bad a finding is.
type Severity string

// The severities.
const (
	Critical Severity = "critical" // jobs fail, or lose most of the network
	Warning  Severity = "warning"  // jobs are slower than they should be, or may fail
	Info     Severity = "info"     // no action needed
)

// Severities are all severities, the worst first.
func Severities() []Severity { return []Severity{Critical, Warning, Info} }

// Compare orders severities, the worst first.
func (s Severity) Compare(other Severity) int {
	return slices.Index(Severities(), s) - slices.Index(Severities(), other)
}

// Finding is one named fault.
type Finding struct {
	Node     string   `json:"node,omitempty"` // where it is, and where Fix is to be run; empty: this node
	Check    string   `json:"check"`          // snake_case name of the check that found it
	Severity Severity `json:"severity"`
	Subject  string   `json:"subject"`         // kind and name: "rail 3", "peer spark-02", "node"; never a PID
	Where    string   `json:"where,omitempty"` // for example "mlx5_1 port 1, eth1"; it may name processes and values
	Evidence string   `json:"evidence"`        // one sentence with figures; lower case, no full stop
	Why      string   `json:"why,omitempty"`   // why it matters, in sentences
	Fix      []string `json:"fix"`             // lines for a root shell, or comments that begin with # and say what to do
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

// Title is the finding by its name, without figures: "rail 3: port down".
func (f Finding) Title() string { return f.Subject + ": " + strings.ReplaceAll(f.Check, "_", " ") }

// Compare orders findings: the worst first, those of equal severity by check and subject.
func (f Finding) Compare(other Finding) int {
	return cmp.Or(f.Severity.Compare(other.Severity), cmp.Compare(f.Check, other.Check),
		cmp.Compare(f.Subject, other.Subject))
}
