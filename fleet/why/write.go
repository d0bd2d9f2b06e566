package why

import (
	"io"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/internal/terminal"
)

// mostRows bounds the rows of the table: of more rails, those that carried the least.
const mostRows = 64

// WriteTable writes the report for people.
func (r Report) WriteTable(w io.Writer, color bool) error {
	p := grid.NewPrinter(w, color)
	p.Painted(r.Headline(), map[bool]string{true: terminal.Green, false: terminal.Red}[r.Cause == ""])
	for _, part := range []struct {
		title string
		list  []string
	}{{"Also", r.Also}, {"Not known", r.NotKnown}, {"Not answered", r.Failed}} {
		if len(part.list) > 0 {
			p.Line("")
			p.Line(part.title)
		}
		for _, text := range part.list {
			p.Item(text)
		}
	}
	rows := [][]grid.Cell{grid.Titles("rail", "sent, GB", "of most", "peak, Gb/s", "TCP, GB")}
	for _, n := range r.Nodes {
		for _, u := range n.Rails {
			if len(rows) > mostRows {
				break
			}
			part := grid.Number(ratio(u.Part))
			part = part.ColorIf(u.Part != nil && *u.Part < light, terminal.Red)
			rows = append(rows, []grid.Cell{grid.Name(n.String() + " " + u.Rail), grid.Number(gigabytes(u.Bytes)),
				part, grid.Rate(u.Peak), grid.Number(gigabytes(u.TCP))})
		}
	}
	if len(rows) > 1 {
		p.Line("")
		p.Table(rows)
	}
	for _, b := range r.BusRates {
		p.Item("bus bandwidth on " + b.String() + ": " + grid.GigabitsPerSecond(b.Rate))
	}
	return p.Flush()
}

func ratio(v *float64) string {
	if v == nil {
		return ""
	}
	return grid.Ratio(*v)
}

// gigabytes shows bytes in GB, 10⁹ bytes.
func gigabytes(v *float64) string {
	if v == nil {
		return ""
	}
	return grid.Decimal(*v/1e9, 1)
}

// Good reports whether no cause was found.
func (r Report) Good() bool { return r.Cause == "" }

// WriteJSON writes the report for scripts.
func (r Report) WriteJSON(w io.Writer) error { return terminal.WriteJSON(w, r) }
