package page

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/terminal"
)

// Snapshot is what the page shows at one moment. Unknown figures are nil, never 0; all are in base units.
type Snapshot struct {
	Node, Version, Notice string
	Started, At           time.Time
	Verdict               Note // the node in one sentence
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

// Note is one problem.
type Note struct {
	Level Level
	Text  string
}

// Rail is a rail.
type Rail struct {
	Name, Device, Port, Netdev, PCIAddress, NUMA string

	State                                    string // in words
	Up, Rate, Capacity, Expected, MTU        *float64
	Unsaved                                  bool     // the best that was seen is forgotten at a restart
	Transfers, MaxTransfers, Width, MaxWidth *float64 // of the PCIe link
	Role                                     string
	GPU, Distance                            string // the nearest GPU, and how far it is; empty: none

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
	Imbalance, Active *float64 // Imbalance: of the worst role, nil when the rails are idle; Active: nil without a sampler
	Role              string   // of the imbalance
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
	Transport      string // rdma (in the demo: simulated), tcp, none
	Goodput        *float64
	Expected       *float64 // of all rails together
	Imbalance      *float64
	P50, P99       *float64 // seconds, of the slowest rail
	Reason, Detail string
	Failures       []string          // of single rails too, and why a round is degraded
	Findings       []finding.Finding // of the last round of a peer; none of earlier ones
}

// Exam is what stands, and how the last examination of the node went.
type Exam struct {
	On       bool      // the node is examined
	At       time.Time // of its end; zero: not yet
	Took     time.Duration
	Err      string   // why it has no result
	Done     int      // examinations with a result: after two, what stands is known
	Unread   []string // what could not be read, and is therefore not judged
	Unused   []string // rails that are down because nothing was ever plugged in
	Findings []finding.Raised
	More     int // findings that are not in the list
}

// level is how a finding is drawn: what an operator silenced, or needs no action, changes no verdict.
func level(f finding.Raised) Level {
	switch {
	case f.Silenced != "":
		return Idle
	case f.Severity == finding.Critical:
		return Bad
	case f.Severity == finding.Warning:
		return Warn
	}
	return Idle
}

// Take makes a snapshot of series that were read. What only a page that is open for some time shows is missing: which
// counters move.
func Take(o Options, series Reading, failed map[string]string, now time.Time) Snapshot {
	s := newBuilder(o).build(series, failed, now)
	s.complete(o)
	return s
}

// complete adds the findings, and judges.
func (s *Snapshot) complete(o Options) {
	if o.Exam != nil {
		s.Exam = o.Exam()
	}
	s.judge()
}

// judge makes the verdict: rails that are down now, then the worst finding, else that all is well. Findings about a
// rail are added to that rail.
func (s *Snapshot) judge() {
	var p problems
	p.rails(slices.DeleteFunc(slices.Clone(s.Rails), s.excused))
	p.findings(s.Exam.Findings)
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
	case s.up() == 0:
		s.Verdict = Note{Level: Idle, Text: "no rail is up: each is unused or silenced"}
	default:
		s.Verdict = Note{Level: Good, Text: s.upRails() + s.load()}
	}
	s.attachFindings()
}

// excused reports whether a rail that is down changes no verdict: the examination says that it is unused, or an
// operator silenced what was found.
func (s *Snapshot) excused(r Rail) bool {
	return r.Level() == Bad && (slices.Contains(s.Exam.Unused, r.Name) ||
		slices.ContainsFunc(s.Exam.Findings, func(f finding.Raised) bool {
			return f.Rail() == r.Name && f.Silenced != "" && slices.Contains(downChecks(), f.Check)
		}))
}

// downChecks are the checks that find a rail which is down.
func downChecks() []string { return []string{"port_down", "netdev_down"} }

func (s *Snapshot) up() (n int) {
	for _, r := range s.Rails {
		if r.Level() == Good {
			n++
		}
	}
	return n
}

func (s *Snapshot) upRails() string { return terminal.Count(s.up(), "rail") + " up" }

// load is whether the rails of a node without problems are busy; empty without a sampler.
func (s *Snapshot) load() (load string) {
	for _, b := range s.Balance {
		switch {
		case b.Imbalance != nil && *b.Imbalance <= rail.ImbalancedAbove:
			return ", even"
		case b.Imbalance != nil || b.Active != nil && *b.Active > 0:
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
	}
}

// findings adds the findings by their names, without figures: screen readers announce each change. Rails that are down
// have been added.
func (p *problems) findings(list []finding.Raised) {
	for _, f := range list {
		down := f.Rail() != "" && slices.Contains(downChecks(), f.Check)
		if l := level(f); l != Idle && !down {
			p.add(l, "%s", f.Title())
		}
	}
}

func (s *Snapshot) attachFindings() {
	for _, f := range s.Exam.Findings {
		if i := slices.IndexFunc(s.Rails, func(r Rail) bool { return r.Name == f.Rail() }); i >= 0 {
			s.Rails[i].Notes = append(s.Rails[i].Notes, Note{Level: level(f), Text: f.Evidence})
		}
	}
}
