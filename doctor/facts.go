// Package doctor looks for what the field's troubleshooting guides name: what
// is wrong with the rails of a node, or between two nodes, why it matters, and
// the command that mends it. Gathering and judging are apart: a [Gatherer] reads,
// once, everything that any check looks at into [Facts]; a check is a function of
// facts alone. A peer's facts come over the probe's control channel as JSON.
package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/railscope/railscope/internal/rail"
)

// FactsVersion is the form of [Facts] that this railscope speaks.
const FactsVersion = 1

// Facts is what was read of one node. What could not be read is its zero value,
// and Unread says why.
type Facts struct {
	Version int         `json:"version"` // of this form; peers of another one are not compared
	Node    string      `json:"node"`
	At      time.Time   `json:"at"`     // by the node's own wall clock
	Rails   RailFacts   `json:"rails"`  // rails, interfaces, bonds, PCIe, GPUs, routing
	System  SystemFacts `json:"system"` // limits, permissions, modules, libraries, jobs
	Unread  []string    `json:"unread"` // what could not be read, and what to do about it
}

// Options say where to look.
type Options struct {
	Sysfs, Procfs string // where they are mounted
	Rootfs        string // where the host's root file system is mounted; normally /

	Rails  func() rail.Snapshot // which rails there are, under their configured names; nil finds them anew
	Budget time.Duration        // how long one thing may take to answer; 0 is 3 s

	// NoJobs leaves out the environments of processes and the files that set the
	// same, for who shows findings to strangers.
	NoJobs bool
}

// ErrVersion says that a peer's facts are of another form.
var ErrVersion = errors.New("facts of another form")

// ParseFacts reads what a peer says of itself. Facts of a railscope that speaks
// another form fail with [ErrVersion], wrapped. Texts in them are made fit for a
// terminal, and lists are of a length that the checks can bear; nothing else in
// them is to be trusted.
func ParseFacts(data []byte) (*Facts, error) {
	var form struct{ Version int }
	if err := json.Unmarshal(data, &form); err != nil {
		return nil, fmt.Errorf("the peer's facts are not railscope's: %w", err)
	}
	if form.Version != FactsVersion {
		return nil, fmt.Errorf("%w: the peer's railscope tells form %d, this one form %d", ErrVersion, form.Version, FactsVersion)
	}
	f := &Facts{}
	if err := json.Unmarshal(data, f); err != nil {
		return nil, fmt.Errorf("the peer's facts are not railscope's: %w", err)
	}
	f.System.sanitize()
	f.System.checkConclusions()
	if err := f.Rails.check(); err != nil {
		return nil, fmt.Errorf("the peer's facts make no sense: %w", err)
	}
	f.Rails.sanitize()
	f.Node = orElse(short(f.Node), "peer")
	f.Unread = f.Unread[:min(len(f.Unread), maxUnread)]
	for i, text := range f.Unread {
		f.Unread[i] = short(text)
	}
	return f, nil
}
