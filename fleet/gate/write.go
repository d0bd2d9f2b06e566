package gate

import (
	_ "embed" // for page.tmpl
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/fleet"
	"github.com/railscope/railscope/internal/terminal"
)

// Headline is the answer in one sentence.
func (r Report) Headline() string {
	scope := fmt.Sprintf("%s, %s, %s in %.1f s", terminal.Count(r.Nodes, "node"), terminal.Count(r.Pairs, "pair"),
		terminal.Count(r.Paths, "path"), r.Seconds)
	switch r.Verdict {
	case Start:
		return "Start: nothing is wrong with " + scope + "."
	case LeaveOut:
		also := ""
		if len(r.Unknown) > 0 {
			also = fmt.Sprintf(", and %d could not be judged", len(r.Unknown))
		}
		return fmt.Sprintf("Leave out %s%s (%s).", terminal.Count(len(r.LeaveOut), "node"), also, scope)
	}
	return fmt.Sprintf("Unknown: %s could not be judged (%s).", terminal.Count(len(r.Unknown), "node"), scope)
}

// color is the color of a verdict in a terminal.
func (v Verdict) color() string {
	return map[Verdict]string{Start: terminal.Green, LeaveOut: terminal.Red, Unknown: terminal.Yellow}[v]
}

// WriteTable writes the report for people.
func (r Report) WriteTable(w io.Writer, color bool) error {
	p := grid.NewPrinter(w, color)
	p.Painted(r.Headline(), r.Verdict.color())
	for _, part := range []struct {
		what string
		list []Node
	}{{"leave out", r.LeaveOut}, {"unknown", r.Unknown}} {
		for _, n := range part.list {
			p.Line("")
			p.Painted(n.Node+": "+part.what, terminal.Yellow)
			for _, why := range n.Why {
				p.Item(why)
			}
		}
	}
	if causes := r.causes(); len(causes) > 0 {
		p.Line("")
		p.Line("Look at:")
		for _, text := range causes {
			p.Item(text)
		}
	}
	if len(r.Passing) > 0 {
		p.Line("")
		p.Line("Gone when they were tried again:")
		for _, text := range r.Passing {
			p.Item(text)
		}
	}
	return p.Flush()
}

// causes returns where to look for the causes of what is blamed.
func (r Report) causes() (list []string) {
	for _, b := range r.Blames {
		kind := strings.ReplaceAll(string(b.Kind), "_", " ")
		list = append(list, fmt.Sprintf("%s (%s): %s", b.Subject(), kind, b.Causes))
	}
	return list
}

// WriteJSON writes the report for scripts, and for a later gate that compares with it.
func (r Report) WriteJSON(w io.Writer) error { return terminal.WriteJSON(w, r) }

// WriteNames writes the nodes on which the job may start, one per line, quoted for a shell.
func (r Report) WriteNames(w io.Writer) error {
	list := map[string][]string{}
	for _, name := range r.Start {
		list[name] = nil
	}
	return fleet.WriteDrain(w, list)
}

// WriteDrain writes the nodes to leave out, as fleet blame does.
func (r Report) WriteDrain(w io.Writer) error {
	why := map[string][]string{}
	for _, n := range r.LeaveOut {
		why[n.Node] = n.Why
	}
	return fleet.WriteDrain(w, why)
}

// maxReport bounds a report that is read: 16,384 nodes with 8 rails take 20 MB.
const maxReport = 64 << 20

// ReadReport reads a report that WriteJSON has written.
func ReadReport(from io.Reader) (Report, error) {
	var r Report
	data, err := io.ReadAll(io.LimitReader(from, maxReport+1))
	switch {
	case err != nil:
		return r, err
	case len(data) > maxReport:
		return r, fmt.Errorf("more than %d MiB", maxReport>>20)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("want the JSON of railscope fleet gate: %w", err)
	}
	if r.Time.IsZero() || r.Verdict == "" {
		return r, errors.New("want the JSON of railscope fleet gate: it has no time and verdict")
	}
	return r, nil
}

//go:embed page.tmpl
var page string

// WriteHTML writes the report as one dated page without external resources.
func (r Report) WriteHTML(w io.Writer) error {
	t, err := template.New("page").Funcs(template.FuncMap{"plain": terminal.Plain}).Parse(page)
	if err != nil {
		return err
	}
	before := ""
	if r.Before != nil {
		before = r.Before.UTC().Format(pageTime)
	}
	names, rows := r.rows()
	return t.Execute(w, map[string]any{"Report": r, "Time": r.Time.UTC().Format(pageTime), "Before": before,
		"Causes": r.causes(), "Names": names, "Rows": rows})
}

const pageTime = time.DateTime + " UTC"

// row is a node of the page, with a cell for each name of a rail.
type row struct {
	Node  string
	Cells []cell
}

type cell struct{ Text, Class, Title string }

// rows returns the names of all rails, and what the rails of each node carried.
func (r Report) rows() (names []string, rows []row) {
	column, line := map[string]int{}, map[string]int{}
	for _, f := range r.Rails {
		if _, known := column[f.Rail]; !known {
			column[f.Rail] = len(names)
			names = append(names, f.Rail)
		}
	}
	for _, f := range r.Rails {
		if _, known := line[f.Node]; !known {
			line[f.Node] = len(rows)
			rows = append(rows, row{Node: f.Node, Cells: make([]cell, len(names))})
		}
		rows[line[f.Node]].Cells[column[f.Rail]] = f.cell()
	}
	return names, rows
}

// cell shows a figure beside what is expected, and what it was before.
func (f Figure) cell() cell {
	if f.Goodput == nil {
		return cell{"?", "fair", "not measured"}
	}
	c := cell{Text: grid.Gigabits(*f.Goodput)}
	if f.Expected != nil {
		c.Title = fmt.Sprintf("%.2f of what is expected", *f.Goodput / *f.Expected)
	}
	if f.Before != nil {
		c.Text += " (" + grid.Gigabits(*f.Before) + ")"
		if *f.Goodput < worse**f.Before {
			c.Class = "bad"
		}
	}
	return c
}
