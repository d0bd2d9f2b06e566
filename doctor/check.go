package doctor

// Severity says how much a finding matters.
type Severity string

// The severities. Only a fault makes `railscope doctor` exit with 1.
const (
	Fault   Severity = "fault"   // RDMA does not work, or is sure to work badly
	Warning Severity = "warning" // it works now, and will not, or less well than it could
)

// Finding is one thing that is wrong.
type Finding struct {
	Node     string   `json:"node"`     // on which node it is, and Mend is to be run; empty: on the one whose facts the check looked at
	Check    string   `json:"check"`    // which check found it
	Severity Severity `json:"severity"` //
	Subject  string   `json:"subject"`  // what it is about: "rail 1 (mlx5_1 port 1, eth1)", "bond0", "this node"
	Read     string   `json:"read"`     // what was read, with the figures and where
	Why      string   `json:"why"`      // why it matters
	Mend     []string `json:"mend"`     // commands that mend it, each a whole line for a shell as root; where no command can, one comment line that begins with # and says what to do
}

// Check is one row of the table of this node's checks. It only looks at facts,
// so that a fixture with one fault tests it.
type Check struct {
	ID    string // lower_case, the name in Finding.Check and in docs/doctor.md
	About string // one line for docs/doctor.md: what it finds
	Run   func(f *Facts, found func(Finding))
}

// PeerCheck is one row of the table of checks that compare two nodes.
type PeerCheck struct {
	ID    string
	About string
	Run   func(here, there *Facts, found func(Finding))
}

// Checks are all checks of one node, in the order of their findings.
func Checks() []Check {
	return append(railChecks(), systemChecks()...)
}

// PeerChecks are all checks of a pair.
func PeerChecks() []PeerCheck {
	return append(railPeerChecks(), systemPeerChecks()...)
}
