package page

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/terminal"
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

// judge makes the verdict: the worst of what the series, the rounds and doctor report, or that all is well. It checks
// nothing itself. Doctor's findings about a rail are added to that rail.
func (s *Snapshot) judge() {
	var p problems
	p.rails(s.Rails)
	p.notes(s.Notes, Bad)
	p.peers(s.Peers)
	p.bonds(s.Bonds)
	p.balance(s.Balance)
	p.findings(s.Exam.Findings)
	p.notes(s.Notes, Warn)
	more := ""
	if n := len(p) - 1; n > 0 {
		more = fmt.Sprintf("; %d more below", n)
	}
	bad := slices.IndexFunc(p, func(n Note) bool { return n.Level == Bad })
	switch {
	case bad >= 0:
		s.Verdict = Note{Level: Bad, Text: p[bad].Text + more}
	case len(s.Rails) == 0:
		s.Verdict = Note{Level: Idle, Text: s.NoRails}
	case len(p) > 0:
		s.Verdict = Note{Level: Warn, Text: s.upRails() + ", but " + p[0].Text + more}
	default:
		s.Verdict = Note{Level: Good, Text: s.upRails() + s.load()}
	}
	s.attachFindings()
}

func (s *Snapshot) upRails() string {
	n := 0
	for _, r := range s.Rails {
		if r.Level() == Good {
			n++
		}
	}
	return terminal.Count(n, "rail") + " up"
}

// load is whether the rails of a node without problems are busy; empty without a sampler.
func (s *Snapshot) load() (load string) {
	for _, b := range s.Balance {
		switch {
		case b.Imbalance != nil:
			return ", even"
		case b.Active != nil && *b.Active > 0:
			load = ", busy"
		case b.Active != nil && load == "":
			load = ", idle"
		}
	}
	return load
}

// problems are what is wrong, the most important of each level first.
type problems []Note

func (p *problems) add(level Level, format string, args ...any) {
	*p = append(*p, Note{Level: level, Text: fmt.Sprintf(format, args...)})
}

func (p *problems) notes(notes []Note, level Level) {
	for _, n := range notes {
		if n.Level == level {
			*p = append(*p, n)
		}
	}
}

func (p *problems) rails(rails []Rail) {
	var down []string
	for _, r := range rails {
		if r.Level() == Bad {
			down = append(down, r.Name)
		}
	}
	switch last := len(down) - 1; {
	case last < 0:
	case len(down) == len(rails):
		p.add(Bad, "no rail is up")
	case last == 0:
		p.add(Bad, "rail %s is down", down[0])
	default:
		p.add(Bad, "rails %s and %s are down", strings.Join(down[:last], ", "), down[last])
	}
	for _, r := range rails {
		if r.Level() == Warn {
			p.add(Warn, "rail %s: state unknown", r.Name)
		}
		for _, n := range r.Notes {
			if r.Level() != Bad {
				p.add(n.Level, "rail %s: %s", r.Name, n.Text)
			}
		}
	}
}

func (p *problems) peers(peers []Peer) {
	for _, peer := range peers {
		i := slices.IndexFunc(peer.Rounds, func(r Round) bool { return r.Outcome != "skipped" }) // latest first
		if i < 0 {
			continue
		}
		switch r := peer.Rounds[i]; r.Outcome {
		case "fallback":
			p.add(Bad, "peer %s is reachable by TCP only: %s", peer.Name, r.Reason)
		case "failed":
			p.add(Bad, "probe of peer %s failed: %s", peer.Name, r.Reason)
		case "degraded":
			p.add(Warn, "RDMA to peer %s is degraded", peer.Name)
		}
	}
}

func (p *problems) bonds(bonds []Bond) {
	for _, b := range bonds {
		if is(b.Up, 0) {
			p.add(Warn, "bond %s is down", b.Name)
			continue
		}
		for _, m := range b.Members {
			if is(m.Up, 0) {
				p.add(Warn, "member %s of %s is down", m.Name, b.Name)
			}
		}
	}
}

// balance adds the first uneven direction, without the figure: screen readers announce each change.
func (p *problems) balance(balance [2]Balance) {
	for d, b := range balance {
		if b.Imbalance != nil && *b.Imbalance > rail.ImbalancedAbove {
			p.add(Warn, "%s is uneven", [2]string{"receiving", "transmitting"}[d])
			return
		}
	}
}

func (p *problems) findings(findings []Finding) {
	n := map[Level]int{}
	for _, f := range findings {
		n[f.Level()]++
	}
	if n[Bad] > 0 {
		p.add(Warn, "%s found by doctor", terminal.Count(n[Bad], "fault"))
	}
	if n[Warn] > 0 {
		p.add(Warn, "%s found by doctor", terminal.Count(n[Warn], "warning"))
	}
}

func (s *Snapshot) attachFindings() {
	for _, f := range s.Exam.Findings {
		subject, _ := strings.CutPrefix(f.Subject, "rail ")
		name, _, _ := strings.Cut(subject, " ")
		i := slices.IndexFunc(s.Rails, func(r Rail) bool { return r.Name == name })
		if i < 0 || f.Check == "" || subject == f.Subject {
			continue
		}
		s.Rails[i].Notes = append(s.Rails[i].Notes, Note{Level: f.Level(), Text: f.Read})
	}
}
