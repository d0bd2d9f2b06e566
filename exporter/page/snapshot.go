package page

import (
	"slices"
	"time"
)

// Snapshot is what the page shows at one moment. Unknown figures are nil, never 0; all are in base units.
type Snapshot struct {
	Node, Version, Notice string
	Started, At           time.Time
	Verdict               Note   // the node in one sentence
	Notes                 []Note // problems of the node besides those of rails
	Rails                 []Rail
	NoRails               string // why there are none; empty when there are
	Balance               [2]Balance
	Bonds                 []Bond
	NoBonds               string
	GPUs                  []GPU
	NoGPUs                string
	GPUDirect             string // how RDMA reaches GPU memory; empty unknown
	Peers                 []Peer
	NoPeers               string
	Exam                  Exam
}

// Level is how good or bad something is.
type Level string

// The levels.
const (
	Good Level = "good"
	Warn Level = "warn"
	Bad  Level = "bad"
	Idle Level = "idle" // neither
)

// Note is one problem; Detail is not in the verdict.
type Note struct {
	Level        Level
	Text, Detail string
}

// Rail is a rail.
type Rail struct {
	Name, Device, Port, Netdev, PCIAddress, NUMA string

	State                                    string // in words
	Up, Rate, Capacity, MTU                  *float64
	Transfers, MaxTransfers, Width, MaxWidth *float64 // of the PCIe link
	GPUs                                     string   // of the same NUMA node: their numbers, or how many; empty: none

	Traffic  [2]Traffic
	Counters []Moving // of congestion or loss, that moved
	Links    *float64 // carrier changes since the interface was created
	Notes    []Note
}

// Level is good while the rail is up.
func (r Rail) Level() Level {
	switch {
	case r.Up == nil:
		return Warn
	case *r.Up == 1:
		return Good
	}
	return Bad
}

// Traffic is what a rail carries in one direction.
type Traffic struct {
	Direction      string // as in /metrics
	Rate, Capacity *float64
	Total          *float64  // bytes, as the port counts them
	Recent         []float64 // bytes per second, one value per second, oldest first; NaN where unknown
}

// Moving is a counter that moves.
type Moving struct {
	Metric, Name string
	PerSecond    float64
}

// Balance is how even the rails are in one direction.
type Balance struct {
	Direction         string
	Imbalance, Active *float64 // Imbalance: nil when the rails are idle; Active: nil without a sampler
}

// Bond is a bond.
type Bond struct {
	Name, Mode string
	Up         *float64
	Members    []Member
	Rails      []string
}

// Member is a member of a bond.
type Member struct {
	Name                 string
	Up, Active, Failures *float64
}

// GPU is a GPU's memory.
type GPU struct {
	Index, Name, Source      string
	Used, Total, Peak, Start *float64 // Peak: in the last minute; Start: since start
	Busy                     *float64
}

// Peer is a peer of the probe, with its last rounds, latest first.
type Peer struct {
	Name   string
	Rounds []Round
}

// Round is the part of a round that people are shown.
type Round struct {
	Start          time.Time
	Duration       time.Duration
	Outcome        string // ok, degraded, fallback, failed, skipped
	Transport      string // rdma, tcp, none
	Goodput        *float64
	Expected       *float64 // of all rails together
	Imbalance      *float64
	P50, P99       *float64 // seconds, of the slowest rail
	Reason, Detail string
	Failures       []string // of single rails too, and why a round is degraded
}

// Finding is one finding of doctor.
type Finding struct {
	Fault              bool
	Check              string // empty: not a finding, but something that could not be read
	Subject, Read, Why string
	Fix                []string
}

// Level is bad for a fault, warn for a warning, and idle for something that could not be read.
func (f Finding) Level() Level {
	switch {
	case f.Fault:
		return Bad
	case f.Check != "":
		return Warn
	}
	return Idle
}

// Exam is the last run of doctor.
type Exam struct {
	On       bool // there is a doctor
	Running  bool
	At       time.Time // zero: not yet
	Took     time.Duration
	Findings []Finding
	Err      string
}

// Complaints reports whether there are findings.
func (e Exam) Complaints() bool {
	return slices.ContainsFunc(e.Findings, func(f Finding) bool { return f.Level() != Idle })
}
