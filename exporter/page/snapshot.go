package page

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/priority"
	"github.com/railscope/railscope/internal/proof"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/status"
)

// Snapshot is the content of the page at one moment. Unknown values are nil, never 0; all are in base units.
type Snapshot struct {
	Node, Version, Notice string
	Started, At           time.Time
	Verdict               Note // state of the node in one sentence
	Rails                 []Rail
	NoRails               string // reason why there are none; empty if there are rails
	Balance               [2]Balance
	Bonds                 []Bond
	NoBonds               string
	GPUs                  []GPU
	NoGPUs                string
	GPUDirect             string // how RDMA reaches GPU memory; empty if unknown
	Peers                 []Peer
	NoPeers               string
	Exam                  Exam
}

// Level says how good or bad something is.
type Level string

// Levels of a note.
const (
	Good Level = "good"
	Warn Level = "warn"
	Bad  Level = "bad"
	Idle Level = "idle" // neither good nor bad
)

// Note is one problem.
type Note struct {
	Level Level
	Text  string
}

// Rail is a rail.
type Rail struct {
	Name, Device, Port, Netdev, PCIAddress, NUMA string

	State                             string // in words
	Up, Rate, Capacity, Expected, MTU *float64
	Unsaved                           bool // the best value seen is lost at a restart
	Link
	Role          string
	GPU, Distance string // nearest GPU, and its distance; empty: none

	Traffic  [2]Traffic
	Counters []Moving // counters of congestion or loss that moved
	Links    *float64 // carrier changes since the interface was created

	Evidence
	Unused      bool // no cable
	NotMeasured bool // no counter for its bytes
	Notes       []Note
}

// Evidence is the last proof of what a rail can carry.
type Evidence struct {
	Proof  *proof.Proof // nil: none
	Proved string       // Proof in words; empty: none
}

// Link is a PCIe link: transfers per second and lanes.
type Link struct{ Transfers, MaxTransfers, Width, MaxWidth *float64 }

// Level returns Good if the rail is up.
func (r Rail) Level() Level {
	switch {
	case r.Unused:
		return Idle
	case r.Up == nil:
		return Warn
	case *r.Up == 1:
		return Good
	}
	return Bad
}

// Traffic is the traffic of a rail in one direction.
type Traffic struct {
	Direction      string // label value, as in /metrics
	Rate, Capacity *float64
	Total          *float64  // bytes, as the port counts them
	Recent         []float64 // bytes per second, one value per second, oldest first; NaN where unknown
}

// Moving is a counter that has moved recently.
type Moving struct {
	Metric, Name string
	PerSecond    float64
}

// Balance says how evenly the rails are used in one direction.
type Balance struct {
	Direction         string
	Imbalance, Active *float64 // Imbalance: of the worst role, nil if the rails are idle; Active: nil without a sampler
	Role              string   // role with that imbalance
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
	Used, Total, Peak, Start *float64 // Peak: of the last minute; Start: since the start
	Busy                     *float64
}

// Peer is a peer of the probe, with its last rounds, latest first.
type Peer struct {
	Name   string
	Rounds []Round
}

// Round is the part of a round's result that the page shows.
type Round struct {
	Start          time.Time
	Duration       time.Duration
	Outcome        string // ok, degraded, reached, fallback, failed, skipped
	Transport      string // rdma (in the demo: simulated), tcp, none
	Goodput        *float64
	Expected       *float64 // for all rails together
	Imbalance      *float64
	P50, P99       *float64 // seconds, for the slowest rail
	Reason, Detail string
	Failures       []string          // including failures of single rails, and the reason if a round is degraded
	Findings       []finding.Finding // findings of the last round of a peer; empty for earlier rounds
}

// Exam holds the active findings, and the result of the last examination of the node.
type Exam struct {
	On       bool      // the node is examined at all
	At       time.Time // end of the examination; zero: none yet
	Took     time.Duration
	Err      string    // reason why it has no result
	Done     int       // examinations with a result: after two, the active findings are known
	Hard     time.Time // time at which hard facts were last read; zero: never
	Unread   []string  // checks that were skipped because their data could not be read
	Findings []finding.Raised
	More     int // number of findings beyond the list
	Classes  []priority.Use
}

// level returns the level at which a finding is shown. Findings that are silenced, recovering or need no action do
// not change the verdict.
func level(f finding.Raised) Level {
	switch {
	case f.Silenced != "" || f.Recovering:
		return Idle
	case f.Severity == finding.Critical:
		return Bad
	case f.Severity == finding.Warning:
		return Warn
	}
	return Idle
}

// Take makes a snapshot of a reading. It does not say which counters move: only a page that is open for some time
// knows that.
func Take(o Options, series Reading, failed map[string]string, now time.Time) Snapshot {
	return TakeNow(o, series, failed, now, nil)
}

// TakeNow is like Take, with ports that were read later than the series. A rail without such a port is gone.
func TakeNow(o Options, series Reading, failed map[string]string, now time.Time, ports []Port) Snapshot {
	s := newBuilder(o).build(series, failed, now)
	if ports != nil {
		s.update(ports)
	}
	s.complete(o)
	return s
}

// update sets the state of the rails' ports. For a rail that is down, values that depend on the state and were not
// read are unknown.
func (s *Snapshot) update(ports []Port) {
	s.Rails = slices.DeleteFunc(s.Rails, func(r Rail) bool {
		return !slices.ContainsFunc(ports, func(p Port) bool { return p.Rail == r.Name })
	})
	for _, p := range ports {
		i := slices.IndexFunc(s.Rails, func(r Rail) bool { return r.Name == p.Rail })
		if i < 0 { // it appeared just now, or does not answer scrapes
			i, s.Rails = len(s.Rails), append(s.Rails,
				Rail{Name: p.Rail, Device: p.Device, Port: strconv.Itoa(p.Number),
					Netdev: p.Netdev})
		}
		r := &s.Rails[i]
		r.State, r.Up, r.Unused = "", nil, p.Unused
		if p.State != 0 {
			r.State, r.Up = stateName(float64(p.State)), new(0.)
		}
		if p.State == rail.StateActive {
			*r.Up = 1
		}
	}
	slices.SortFunc(s.Rails, func(a, b Rail) int { return rail.NaturalCompare(a.Name, b.Name) })
}

// complete adds the findings and the verdict.
func (s *Snapshot) complete(o Options) {
	if o.Exam != nil {
		s.Exam = o.Exam()
	}
	s.judge()
}

// judge determines the verdict: rails that are down now, then the worst finding, otherwise good. Findings about a
// rail are added to that rail.
func (s *Snapshot) judge() {
	var p problems
	down := p.rails(slices.DeleteFunc(slices.Clone(s.Rails), s.excused))
	p.findings(s.Exam.Findings, down)
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
		s.Verdict = Note{Level: Idle, Text: "no rail is up: each is unused (no cable) or silenced"}
	default:
		s.Verdict = Note{Level: Good, Text: s.upRails() + s.load()}
	}
	s.attachFindings()
}

// excused reports whether a rail that is down does not change the verdict, because an operator silenced its
// finding.
func (s *Snapshot) excused(r Rail) bool {
	return r.Level() == Bad && slices.ContainsFunc(s.Exam.Findings, func(f finding.Raised) bool {
		return f.Rail() == r.Name && f.Silenced != "" && slices.Contains(downChecks(), f.Check)
	})
}

// downChecks returns the checks that find a rail that is down.
func downChecks() []string { return []string{"port_down", "netdev_down"} }

func (s *Snapshot) up() (n int) {
	for _, r := range s.Rails {
		if r.Level() == Good {
			n++
		}
	}
	return n
}

func (s *Snapshot) upRails() string {
	n := status.Rails{Up: s.up(), All: s.up()}
	for _, r := range s.Rails {
		if r.Unused {
			n.Unused++
		}
		if r.NotMeasured && r.Level() == Good {
			n.NotMeasured++
		}
	}
	return n.String()
}

// load says whether the rails of a node without problems are busy; empty without a sampler.
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

// problems are listed by level, the most important first.
type problems []Note

func (p *problems) add(level Level, format string, args ...any) {
	*p = append(*p, Note{Level: level, Text: fmt.Sprintf(format, args...)})
}

// rails adds the rails that are down, and returns their names.
func (p *problems) rails(rails []Rail) (down []string) {
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
	return down
}

// findings adds the findings by their names, without figures, because screen readers announce each change. Rails
// that are down were added before.
func (p *problems) findings(list []finding.Raised, down []string) {
	for _, f := range list {
		known := slices.Contains(down, f.Rail()) && slices.Contains(downChecks(), f.Check)
		if l := level(f); l != Idle && !known {
			p.add(l, "%s", f.Title())
		}
	}
}

func (s *Snapshot) attachFindings() {
	for _, f := range s.Exam.Findings {
		if i := slices.IndexFunc(s.Rails, func(r Rail) bool { return r.Name == f.Rail() }); i >= 0 {
			text := f.Evidence
			if f.Recovering {
				text = "recovering: " + text
			}
			s.Rails[i].Notes = append(s.Rails[i].Notes, Note{Level: level(f), Text: text})
		}
	}
}
