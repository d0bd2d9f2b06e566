package report

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/internal/terminal"
)

// How wide a line of prose is; commands are never broken.
const (
	maxColumns = 100
	minColumns = 40
)

// Page is what a report is written on.
type Page struct {
	Color   bool
	Columns int // of the terminal; 0 for none
}

// WriteText writes the report for people: what was examined, each finding with
// its evidence, why it matters and its fix, and a summary.
func (r Report) WriteText(w io.Writer, page Page) error {
	p := printer{w: bufio.NewWriter(w), color: page.Color, columns: maxColumns}
	if page.Columns > 0 {
		p.columns = max(minColumns, min(page.Columns, maxColumns))
	}
	for _, n := range r.Nodes {
		name := terminal.Plain(n.Node)
		for i, line := range terminal.Wrap(name+": "+examined(n), p.columns-2) {
			if rest, ok := strings.CutPrefix(line, name); ok && i == 0 {
				line = p.paint(terminal.Bold, name) + rest
			}
			p.line("%s", strings.Repeat("  ", min(i, 1))+line)
		}
	}
	for _, f := range r.Sorted() {
		p.finding(f, len(r.Nodes) > 1)
	}
	unread := 0
	for _, n := range r.Nodes {
		for _, u := range n.Unread {
			if unread++; unread == 1 {
				p.line("")
				p.line("Not read, and therefore not judged:")
			}
			if len(r.Nodes) > 1 {
				u = n.Node + ": " + u
			}
			p.prose("  - ", "    ", u)
		}
	}
	p.line("")
	p.summary(r, unread)
	return p.w.Flush() // it has kept the first error
}

func examined(n Node) string {
	text := count(len(n.Rails), "rail")
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
		text += "; " + count(n.GPUs, "GPU")
	}
	return terminal.Plain(text)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

type printer struct {
	w       *bufio.Writer
	color   bool
	columns int
}

func (p printer) line(format string, args ...any) { fmt.Fprintf(p.w, format+"\n", args...) }

func (p printer) paint(colour, s string) string {
	if !p.color {
		return s
	}
	return colour + s + terminal.Reset
}

func (p printer) finding(f check.Finding, several bool) {
	colour, word := terminal.Yellow, "WARNING"
	if f.Severity == check.Fault {
		colour, word = terminal.Red, "FAULT"
	}
	subject := terminal.Plain(f.Subject)
	if several {
		subject = terminal.Plain(f.Node) + ": " + subject
	}
	p.line("")
	p.line("%s  %s  %s", p.paint(colour, word), p.paint(terminal.Bold, subject),
		p.paint(terminal.Dim, terminal.Plain(f.Check)))
	p.prose("  read  ", "        ", f.Evidence)
	p.prose("  why   ", "        ", f.Why)
	on := ""
	if several {
		on = " # on " + terminal.Plain(f.Node)
	}
	for i, m := range f.Fix {
		title := "        "
		if i == 0 {
			title = "  fix   "
		}
		m = terminal.Plain(m)
		if strings.HasPrefix(m, "#") {
			p.prose(title+"# ", "        # ", strings.TrimSpace(m[1:]))
			continue
		}
		p.line("%s%s%s", title, p.paint(terminal.Green, m), p.paint(terminal.Dim, on))
	}
}

func (p printer) prose(first, rest, text string) {
	lead := first
	for _, line := range terminal.Wrap(terminal.Plain(text), p.columns-utf8.RuneCountInString(first)) {
		p.line("%s%s", lead, line)
		lead = rest
	}
}

// summary is the last line, and what applies to the commands above it.
func (p printer) summary(r Report, unread int) {
	rails := 0
	for _, n := range r.Nodes {
		rails += len(n.Rails)
	}
	effort := fmt.Sprintf("%s, %s in %.2f s.", count(rails, "rail"), count(r.Checks, "check"), r.Seconds)
	switch {
	case len(r.Findings) > 0:
		isCommand := func(line string) bool { return !strings.HasPrefix(line, "#") }
		if slices.ContainsFunc(r.Findings, func(f check.Finding) bool {
			return slices.ContainsFunc(f.Fix, isCommand)
		}) {
			p.prose("", "", "Commands are for root and last until the next boot: add what they set to the system's "+
				"configuration, too.")
		}
		p.line("%s, %s; %s", count(r.Faults, "fault"), count(r.Warnings, "warning"), effort)
	case unread > 0:
		p.line("Nothing wrong in what could be read: %s", effort)
	default:
		p.line("%s", p.paint(terminal.Green, "Nothing wrong: "+effort))
	}
}
