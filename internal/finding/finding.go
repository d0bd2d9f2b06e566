// Package finding defines the form in which every command and page reports a fault.
package finding

import "slices"

// Severity is how bad a finding is.
type Severity string

// The severities.
const (
	Critical Severity = "critical" // jobs fail, or lose most of the network
	Warning  Severity = "warning"  // jobs are slower than they should be
	Info     Severity = "info"     // no action needed
)

// Finding is one named fault.
type Finding struct {
	Check    string   `json:"check"` // snake_case name of what was examined
	Severity Severity `json:"severity"`
	Subject  string   `json:"subject"`  // kind and name: "rail 3", "peer spark-02"
	Evidence string   `json:"evidence"` // one sentence, with figures
	Fix      string   `json:"fix"`      // a command that can be typed, or what to do
}

// Compare orders severities, the worst first.
func (s Severity) Compare(other Severity) int {
	return slices.Index(severities, s) - slices.Index(severities, other)
}

var severities = []Severity{Critical, Warning, Info}
