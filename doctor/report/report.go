// Package report runs all checks and prints their findings, as text or JSON.
package report

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/terminal"
)

// Report is what doctor found, on one node or on two.
type Report struct {
	Nodes    []Node            `json:"nodes"` // this one first
	Findings []finding.Finding `json:"findings"`
	Critical int               `json:"critical"`
	Warnings int               `json:"warnings"`
	Checks   int               `json:"checks"`         // that were run
	NotRun   int               `json:"checks_not_run"` // as no railscope runs on this node, which sees counters move
	Seconds  float64           `json:"seconds"`

	wanted func(check string) bool // nil: all
}

func (r *Report) wants(check string) bool { return r.wanted == nil || r.wanted(check) }

// Node is what was examined on one node.
type Node struct {
	Node   string   `json:"node"`
	Rails  []string `json:"rails"`
	Bonds  []string `json:"bonds"`
	GPUs   int      `json:"gpus"`
	Unread []string `json:"unread"`
}

// Examine judges this node and, unless nil, the peer, in the order of the checks: each node's, then the pair's. wanted
// selects checks by name; nil: all.
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

// AddRound adds what a round between the nodes found.
func (r *Report) AddRound(found []finding.Finding) {
	for _, c := range check.RoundChecks() {
		if r.wants(c.ID) {
			r.Checks++
		}
	}
	r.Add(found)
}

// AddRunning adds what a railscope that runs on this node found, and this process cannot see.
func (r *Report) AddRunning(found []finding.Finding) {
	r.Checks, r.NotRun = r.Checks+r.NotRun, 0
	r.Add(found)
}

// Add adds findings about this node from elsewhere, each check and subject once. They replace those that report the
// same fault without knowing what was better before.
func (r *Report) Add(found []finding.Finding) {
	for _, f := range found {
		f.Node = r.Nodes[0].Node
		i := slices.IndexFunc(r.Findings, func(o finding.Finding) bool {
			return o.Check == check.Replaced(f.Check) && o.Subject == f.Subject && o.Node == f.Node
		})
		if i >= 0 {
			r.count(r.Findings[i].Severity, -1)
			r.Findings = slices.Delete(r.Findings, i, i+1)
		}
		same := func(o finding.Finding) bool {
			return o.Check == f.Check && o.Subject == f.Subject && o.Node == f.Node
		}
		if r.wants(f.Check) && !slices.ContainsFunc(r.Findings, same) {
			r.add(f)
		}
	}
}

// AddUnread adds something that could not be read, and is therefore not judged.
func (r *Report) AddUnread(what string) { r.Nodes[0].Unread = append(r.Nodes[0].Unread, what) }

func (r *Report) addNode(f *facts.Facts) {
	n := Node{Node: f.Node, Rails: []string{}, Bonds: []string{}, GPUs: len(f.GPUs),
		Unread: append([]string{}, f.Unread...)}
	for i := range f.Rails {
		n.Rails = append(n.Rails, f.Rails[i].String())
	}
	for _, b := range f.Bonds {
		n.Bonds = append(n.Bonds, b.Name)
	}
	r.Nodes = append(r.Nodes, n)
}

func (r *Report) add(list ...finding.Finding) {
	for _, f := range list {
		r.count(f.Severity, 1)
	}
	r.Findings = append(r.Findings, list...)
}

func (r *Report) count(s finding.Severity, n int) {
	switch s {
	case finding.Critical:
		r.Critical += n
	case finding.Warning:
		r.Warnings += n
	}
}

// AddPeerFailure adds the fault that nothing was compared, as the peer sent no facts. fix says what to do.
func (r *Report) AddPeerFailure(peer string, err error, fix ...string) {
	r.Add([]finding.Finding{{Check: check.PeerUnanswered, Severity: finding.Critical, Subject: "peer " + peer,
		Evidence: err.Error(), Why: "The two nodes could not be compared.", Fix: append([]string{}, fix...)}})
}

// Took sets the duration of the whole examination.
func (r *Report) Took(d time.Duration) { r.Seconds = d.Round(time.Millisecond).Seconds() }

// WriteJSON writes the report as one JSON object.
func (r Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// Sorted are the findings as people read them: the worst first.
func (r Report) Sorted() []finding.Finding {
	list := slices.Clone(r.Findings)
	slices.SortStableFunc(list, func(a, b finding.Finding) int { return a.Severity.Compare(b.Severity) })
	return list
}

// Width of a line of prose; commands are never wrapped.
const (
	maxColumns = 100
	minColumns = 40
)

// Page is the terminal or file that a report is written to.
type Page struct {
	Color   bool
	Columns int // of the terminal; 0 for none
}

// WriteText writes the report for people: what was examined, the findings with their fixes, and a summary.
func (r Report) WriteText(w io.Writer, page Page) error {
	p := printer{w: bufio.NewWriter(w), color: page.Color, columns: maxColumns, several: len(r.Nodes) > 1}
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
	for _, f := range r.Sorted() {
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
	return p.w.Flush() // it has kept the first error
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

type printer struct {
	w       *bufio.Writer
	color   bool
	columns int
	several bool // nodes
}

func (p printer) line(format string, args ...any) { fmt.Fprintf(p.w, format+"\n", args...) }

func (p printer) paint(color, s string) string {
	if !p.color || color == "" {
		return s
	}
	return color + s + terminal.Reset
}

func (p printer) finding(f finding.Finding) {
	color := map[finding.Severity]string{finding.Critical: terminal.Red, finding.Warning: terminal.Yellow}[f.Severity]
	subject, on := f.Subject, ""
	if p.several {
		subject, on = f.Node+": "+subject, " # on "+f.Node
	}
	p.line("\n%s  %s  %s", p.paint(color, strings.ToUpper(string(f.Severity))),
		p.paint(terminal.Bold, terminal.Plain(subject)), p.paint(terminal.Dim, terminal.Plain(f.Check)))
	for _, part := range [][2]string{{"where", f.Where}, {"found", f.Evidence}, {"why", f.Why}} {
		if part[1] != "" {
			p.prose(fmt.Sprintf("  %-7s", part[0]), "         ", part[1])
		}
	}
	title := "  fix    "
	for _, line := range f.Fix {
		if line = terminal.Plain(line); strings.HasPrefix(line, "#") {
			p.prose(title+"# ", "         # ", strings.TrimSpace(line[1:]))
		} else {
			p.line("%s%s%s", title, p.paint(terminal.Green, line), p.paint(terminal.Dim, terminal.Plain(on)))
		}
		title = "         "
	}
}

func (p printer) prose(first, rest, text string) {
	for _, line := range terminal.Wrap(terminal.Plain(text), p.columns-utf8.RuneCountInString(first)) {
		p.line("%s%s", first, line)
		first = rest
	}
}

func (p printer) summary(r Report, rails int, unread bool) {
	effort := fmt.Sprintf("%s, %s in %.2f s.", terminal.Count(rails, "rail"), terminal.Count(r.Checks, "check"), r.Seconds)
	isCommand := func(line string) bool { return !strings.HasPrefix(line, "#") }
	fixable := func(f finding.Finding) bool { return slices.ContainsFunc(f.Fix, isCommand) }
	if slices.ContainsFunc(r.Findings, fixable) {
		p.prose("", "", "Commands are for root and last until the next boot: add what they set to the system's "+
			"configuration, too.")
	}
	switch {
	case len(r.Findings) > 0:
		p.line("%d critical, %s; %s", r.Critical, terminal.Count(r.Warnings, "warning"), effort)
	case unread:
		p.line("Nothing wrong in what could be read: %s", effort)
	default:
		p.line("%s", p.paint(terminal.Green, "Nothing wrong: "+effort))
	}
	if r.NotRun > 0 {
		p.prose("", "", fmt.Sprintf("%d more checks need a running railscope.", r.NotRun))
	}
}
