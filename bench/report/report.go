// Package report draws the results of benchmarks: an HTML page without external resources, or a picture.
package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/internal/terminal"
)

//go:embed page.tmpl
var layout string

// Report is the report of one benchmark or one recorded command.
type Report struct {
	title, subtitle, verdict string
	good                     bool
	sections                 []section
}

// section is a part of the page.
type section struct {
	Title   string
	Text    []string
	Code    []string // lines to paste
	Tables  []table
	figures []figure
}

type table struct {
	Head []cell
	Rows [][]cell
	Long bool // the section has sentences, which wrap
}

type cell struct {
	Text, Class string
}

// WritePicture writes all plots below each other, as [PNG] or [SVG]. It fails with [ErrNoPlot] if there are none.
func (r Report) WritePicture(w io.Writer, format string) error {
	var all []figure
	for _, s := range r.sections {
		all = append(all, s.figures...)
	}
	return picture(w, format, all)
}

// drawn is a figure as the page shows it.
type drawn struct {
	Light, Dark    template.HTML
	Title, Caption string
}

// WriteHTML writes the page.
func (r Report) WriteHTML(w io.Writer) error {
	type shown struct {
		section
		Figures []drawn
	}
	var sections []shown
	for _, s := range r.sections {
		part := shown{section: s}
		for _, f := range s.figures {
			one := drawn{Title: f.title, Caption: f.caption}
			var err error
			one.Light, err = f.inline(light())
			if err != nil {
				return err
			}
			one.Dark, err = f.inline(dark())
			if err != nil {
				return err
			}
			part.Figures = append(part.Figures, one)
		}
		sections = append(sections, part)
	}
	page, err := template.New("page").Parse(layout)
	if err != nil {
		return err
	}
	return page.Execute(w, map[string]any{"Title": r.title, "Subtitle": r.subtitle, "Verdict": r.verdict,
		"Good": r.good, "Sections": sections})
}

// add adds a section, unless it is empty.
func (r *Report) add(s section) {
	s.Tables = slices.DeleteFunc(s.Tables, func(t table) bool { return len(t.Rows) == 0 })
	if len(s.Tables)+len(s.figures)+len(s.Text) > 0 {
		r.sections = append(r.sections, s)
	}
}

// fromGrid converts a table of the terminal; its first row has the titles.
func fromGrid(rows [][]grid.Cell) (t table) {
	for i, row := range rows {
		var line []cell
		for _, c := range row {
			class := ""
			switch c.Colour {
			case terminal.Red:
				class = "bad"
			case terminal.Yellow:
				class = "warn"
			case terminal.Green:
				class = "good"
			}
			if c.Right {
				class += " figure"
			}
			line = append(line, cell{terminal.Plain(c.Text), class})
		}
		if i == 0 {
			t.Head = line
			continue
		}
		t.Rows = append(t.Rows, line)
	}
	return t
}

// words returns a table of texts.
func words(head []string, rows [][]string) table {
	cells := func(list []string) (row []cell) {
		for _, s := range list {
			row = append(row, cell{Text: terminal.Plain(s)})
		}
		return row
	}
	t := table{Head: cells(head), Long: true}
	for _, r := range rows {
		t.Rows = append(t.Rows, cells(r))
	}
	return t
}

func cleaned(list []string) (out []string) {
	for _, s := range list {
		out = append(out, terminal.Plain(s))
	}
	return out
}

func railName(name string) string { return fmt.Sprintf("rail %s", name) }
