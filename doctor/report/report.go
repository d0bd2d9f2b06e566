// Package report runs all checks and prints their findings, as text or JSON.
package report

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/doctor/classes"
	"github.com/railscope/railscope/doctor/deadpath"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/priority"
	"github.com/railscope/railscope/internal/terminal"
)

// Report holds the findings of doctor, for one node or two.
type Report struct {
	Nodes    []Node            `json:"nodes"` // this node is first
	Findings []finding.Finding `json:"findings"`
	Critical int               `json:"critical"`
	Warnings int               `json:"warnings"`
	// Recovering counts findings that were not seen again. They count neither as critical nor as warnings.
	Recovering int `json:"recovering,omitempty"`

	Checks int `json:"checks"` // number of checks that were run
	// NotRun counts checks that need a running railscope, which sees counters move, where none runs on this node.
	NotRun  int     `json:"checks_not_run"`
	Seconds float64 `json:"seconds"`

	wanted func(check string) bool // nil accepts all checks
	at     time.Time               // time when the report was complete
}

func (r *Report) wants(check string) bool { return r.wanted == nil || r.wanted(check) }

// Node describes the examination of one node.
type Node struct {
	Node   string   `json:"node"`
	Rails  []string `json:"rails"`
	Bonds  []string `json:"bonds"`
	GPUs   int      `json:"gpus"`
	Unread []string `json:"unread"`
	// DeadPath is how long its jobs wait before they see a dead path; empty for a peer.
	DeadPath []deadpath.Wait `json:"dead_path"`
	// Classes are the priorities of its rails; empty for a peer.
	Classes []priority.Use `json:"classes"`
}

// Examine judges this node and, unless nil, the peer, in the order of the checks: each node's, then the pair's. wanted
// selects checks by name; nil accepts all.
func Examine(here, there *facts.Facts, wanted func(check string) bool) Report {
	r := Report{Findings: []finding.Finding{}, wanted: wanted}
	for _, f := range []*facts.Facts{here, there} {
		if f == nil {
			return r
		}
		r.addNode(f)
		for _, c := range check.Checks() {
			switch {
			case !r.wants(c.ID):
			case !c.Live():
				r.Checks++
				r.add(c.Find(f)...)
			case f == here:
				r.NotRun++
			}
		}
	}
	for _, c := range check.PeerChecks() {
		if r.wants(c.ID) {
			r.Checks++
			r.add(c.Find(here, there)...)
		}
	}
	return r
}

// add adds findings, drops consequences of others, and counts the rest.
func (r *Report) add(list ...finding.Finding) {
	r.Findings = finding.Causes(append(r.Findings, list...))
	r.Critical, r.Warnings, r.Recovering = 0, 0, 0
	for _, f := range r.Findings {
		switch {
		case f.Recovering:
			r.Recovering++
		case f.Severity == finding.Critical:
			r.Critical++
		case f.Severity == finding.Warning:
			r.Warnings++
		}
	}
}

// AddRound adds the findings of a round between the nodes.
func (r *Report) AddRound(found []finding.Finding) {
	for _, c := range check.RoundChecks() {
		if r.wants(c.ID) {
			r.Checks++
		}
	}
	r.Add(found)
}

// AddRunning adds findings of the railscope that runs on this node, which this process cannot make.
func (r *Report) AddRunning(found []finding.Finding) {
	r.Checks, r.NotRun = r.Checks+r.NotRun, 0
	r.Add(found)
}

// AddClasses adds what the railscope that runs on this node knows of the priorities of its rails.
func (r *Report) AddClasses(running []priority.Use) {
	r.Nodes[0].Classes = priority.Complete(r.Nodes[0].Classes, running)
}

// Add adds findings about this node from elsewhere, each check and subject once. A duplicate only dates the existing
// finding. Findings that know an earlier better state replace those of the same fault without it.
func (r *Report) Add(found []finding.Finding) {
	for _, f := range found {
		f.Node = r.Nodes[0].Node
		about := func(id string) int {
			return slices.IndexFunc(r.Findings, func(o finding.Finding) bool {
				return o.Check == id && o.Subject == f.Subject && o.Node == f.Node
			})
		}
		if i := about(check.Replaced(f.Check)); i >= 0 && !f.Recovering {
			r.Findings = slices.Delete(r.Findings, i, i+1)
		}
		if i := about(f.Check); i >= 0 {
			r.Findings[i].Since, r.Findings[i].Seen = f.Since, f.Seen
		} else if r.wants(f.Check) {
			r.add(f)
		}
	}
}

// Date copies the start times of findings that a running railscope has raised to those about this node.
func (r *Report) Date(raised []finding.Finding) {
	for i, f := range r.Findings {
		at := slices.IndexFunc(raised, func(o finding.Finding) bool {
			return o.Check == f.Check && o.Subject == f.Subject && f.Node == r.Nodes[0].Node
		})
		if at >= 0 {
			r.Findings[i].Since, r.Findings[i].Seen = raised[at].Since, raised[at].Seen
		}
	}
}

// AddUnread adds a fact that could not be read and was not judged.
func (r *Report) AddUnread(what string) { r.Nodes[0].Unread = append(r.Nodes[0].Unread, what) }

func (r *Report) addNode(f *facts.Facts) {
	n := Node{Node: f.Node, Rails: []string{}, Bonds: []string{}, GPUs: len(f.GPUs),
		Unread: append([]string{}, f.Unread...), DeadPath: []deadpath.Wait{},
		Classes: []priority.Use{}}
	if len(r.Nodes) == 0 {
		n.DeadPath = append(n.DeadPath, deadpath.Waits(f)...)
		n.Classes = append(n.Classes, classes.Of(f, nil)...)
	}
	for i := range f.Rails {
		n.Rails = append(n.Rails, f.Rails[i].String())
	}
	for _, b := range f.Bonds {
		n.Bonds = append(n.Bonds, b.Name)
	}
	r.Nodes = append(r.Nodes, n)
}

// AddPeerFailure adds a finding that nothing was compared, because the peer sent no facts. fix is the fix.
func (r *Report) AddPeerFailure(peer string, err error, fix ...string) {
	r.Add([]finding.Finding{{Check: check.PeerUnanswered, Severity: finding.Critical, Subject: "peer " + peer,
		Evidence: err.Error(), Why: "The two nodes could not be compared.", Fix: append([]string{}, fix...)}})
}

// Took sets the duration of the examination, which ends now.
func (r *Report) Took(d time.Duration) {
	r.Seconds, r.at = d.Round(time.Millisecond).Seconds(), time.Now()
}

// WriteJSON writes the report as one JSON object.
func (r Report) WriteJSON(w io.Writer) error {
	return terminal.WriteJSON(w, r)
}

// Sorted returns the findings in reading order: the worst first, recovering ones last.
func (r Report) Sorted() []finding.Finding {
	list := slices.Clone(r.Findings)
	slices.SortStableFunc(list, finding.Finding.CompareSeverity)
	return list
}

// Line widths of prose; commands are never wrapped.
const (
	maxColumns = 100
	minColumns = 40
)

// Page is the terminal or file that a report is written to.
type Page struct {
	Color   bool
	Columns int // width of the terminal; 0 if there is none
}

// WriteText writes the report for people: the examined nodes, the findings with their fixes, and a summary.
func (r Report) WriteText(w io.Writer, page Page) error {
	p := printer{w: bufio.NewWriter(w), color: page.Color, columns: maxColumns, several: len(r.Nodes) > 1, at: r.at}
	if page.Columns > 0 {
		p.columns = max(minColumns, min(page.Columns, maxColumns))
	}
	rails, unread := 0, []string{}
	for _, n := range r.Nodes {
		p.node(n)
		rails += len(n.Rails)
		for _, u := range n.Unread {
			if p.several {
				u = n.Node + ": " + u
			}
			unread = append(unread, u)
		}
	}
	for _, n := range r.Nodes {
		for _, w := range n.DeadPath {
			p.prose("  ", "  ", w.String())
		}
		p.classes(n.Classes)
	}
	for _, f := range finding.Joined(r.Sorted()) {
		p.finding(f)
	}
	if len(unread) > 0 {
		p.line("\nNot read, and therefore not judged:")
	}
	for _, u := range unread {
		p.prose("  - ", "    ", u)
	}
	p.line("")
	p.summary(r, rails, len(unread) > 0)
	return p.w.Flush() // p.w keeps the first error
}

func (p printer) node(n Node) {
	name, text := terminal.Plain(n.Node), terminal.Count(len(n.Rails), "rail")
	var rails []string
	for _, r := range n.Rails {
		rails = append(rails, strings.TrimPrefix(r, "rail "))
	}
	if len(rails) > 0 {
		text += ": " + strings.Join(rails, ", ")
	}
	if len(n.Bonds) > 0 {
		text += "; over " + strings.Join(n.Bonds, ", ")
	}
	if n.GPUs > 0 {
		text += "; " + terminal.Count(n.GPUs, "GPU")
	}
	for i, line := range terminal.Wrap(name+": "+terminal.Plain(text), p.columns-2) {
		if rest, ok := strings.CutPrefix(line, name); ok && i == 0 {
			line = p.paint(terminal.Bold, name) + rest
		}
		p.line("%s", strings.Repeat("  ", min(i, 1))+line)
	}
}

// classes prints the priorities as a table.
func (p printer) classes(uses []priority.Use) {
	if len(uses) == 0 {
		return
	}
	p.line("")
	t := tabwriter.NewWriter(p.w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "  "+terminal.Row("PRIORITY", "DSCP", "LOSSLESS", "RAILS", "SENT", "USED BY"))
	for _, j := range priority.Join(uses) {
		fmt.Fprintln(t, "  "+terminal.Row(j.Cells()...))
	}
	_ = t.Flush() // p.w keeps the first error
}

type printer struct {
	w       *bufio.Writer
	color   bool
	columns int
	several bool // the report has several nodes
	at      time.Time
}

func (p printer) line(format string, args ...any) { fmt.Fprintf(p.w, format+"\n", args...) }

func (p printer) paint(color, s string) string {
	if !p.color || color == "" {
		return s
	}
	return color + s + terminal.Reset
}

func (p printer) finding(f finding.Finding) {
	color := map[string]string{"critical": terminal.Red, "warning": terminal.Yellow}[f.Level()]
	subject, on := f.Subject, ""
	if p.several {
		subject, on = f.Node+": "+subject, " # on "+f.Node
	}
	p.line("\n%s  %s  %s", p.paint(color, strings.ToUpper(f.Level())),
		p.paint(terminal.Bold, terminal.Plain(subject)), p.paint(terminal.Dim, terminal.Plain(f.Check)))
	for _, part := range [][2]string{{"where", f.Where}, {"found", f.Evidence}, {"since", p.age(f)}, {"why", f.Why}} {
		if part[1] != "" {
			p.prose(fmt.Sprintf("  %-7s", part[0]), "         ", part[1])
		}
	}
	title := "  fix    "
	for _, line := range f.Fix {
		line = terminal.Plain(line)
		if strings.HasPrefix(line, "#") {
			p.prose(title+"# ", "         # ", strings.TrimSpace(line[1:]))
		} else {
			p.line("%s%s%s", title, p.paint(terminal.Green, line), p.paint(terminal.Dim, terminal.Plain(on)))
		}
		title = "         "
	}
}

// age returns how long a finding stands, and when it was last seen.
func (p printer) age(f finding.Finding) string {
	if f.Since.IsZero() {
		return ""
	}
	ago := func(t time.Time) string {
		return fmt.Sprintf("%s, %v ago", t.Local().Format(time.DateTime), max(p.at.Sub(t), 0).Round(time.Second))
	}
	text := ago(f.Since) + "; last seen " + ago(f.Seen)
	if f.Recovering {
		text += ", and not by the last examination or round: it was " + string(f.Severity)
	}
	return text
}

func (p printer) prose(first, rest, text string) {
	for _, line := range terminal.Wrap(terminal.Plain(text), p.columns-utf8.RuneCountInString(first)) {
		p.line("%s%s", first, line)
		first = rest
	}
}

func (p printer) summary(r Report, rails int, unread bool) {
	effort := fmt.Sprintf("%s, %s in %.2f s.", terminal.Count(rails, "rail"), terminal.Count(r.Checks, "check"),
		r.Seconds)
	isCommand := func(line string) bool { return !strings.HasPrefix(line, "#") }
	fixable := func(f finding.Finding) bool { return slices.ContainsFunc(f.Fix, isCommand) }
	if slices.ContainsFunc(r.Findings, fixable) {
		p.prose("", "", "Commands are for root and last until the next boot: add what they set to the system's "+
			"configuration, too.")
	}
	switch {
	case len(r.Findings) > 0:
		recovering := ""
		if r.Recovering > 0 {
			recovering = fmt.Sprintf(", %d recovering", r.Recovering)
		}
		p.line("%d critical, %s%s; %s", r.Critical, terminal.Count(r.Warnings, "warning"), recovering, effort)
	case unread:
		p.line("Nothing wrong in what could be read: %s", effort)
	default:
		p.line("%s", p.paint(terminal.Green, "Nothing wrong: "+effort))
	}
	if r.NotRun > 0 {
		p.prose("", "", fmt.Sprintf("%d more checks need a running railscope.", r.NotRun))
	}
}
