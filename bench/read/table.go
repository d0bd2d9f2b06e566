package read

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/internal/terminal"
)

// WriteJSON writes the results as a JSON list.
func WriteJSON(w io.Writer, results []Result) error {
	return terminal.WriteJSON(w, append([]Result{}, results...))
}

// Beside is the context of the results: the rails of this node, and their rate in the last round.
type Beside struct {
	Rails     []Rail
	LastRound float64 // bytes per second; 0 if unknown
}

// WriteTable writes the results for people, in lines of at most columns characters, without columns that are empty.
func WriteTable(w io.Writer, results []Result, beside Beside, columns int, color bool) error {
	p := grid.NewPrinter(w, color).Wide(columns)
	if len(results) > 0 {
		p.Table(table(results, beside))
	}
	marked := false
	for _, r := range results {
		for _, mark := range r.Marks {
			if !marked {
				p.Line("")
				p.Painted("Marked with !, and kept:", terminal.Yellow)
			}
			marked = true
			p.Item(fmt.Sprintf("%s:%d: %s", r.File, r.Line, mark))
		}
	}
	return p.Flush()
}

// column is a column of the table, with a function for its text in a row; empty if the row has none.
type column struct {
	title grid.Cell
	text  func(*Result) string
}

func table(results []Result, beside Beside) (rows [][]grid.Cell) {
	columns := columnsBeside(beside)
	used := columns[:0:0]
	for _, c := range columns {
		for i := range results {
			if c.text(&results[i]) != "" {
				used = append(used, c)
				break
			}
		}
	}
	titles := []grid.Cell{}
	for _, c := range used {
		titles = append(titles, c.title)
	}
	rows = append(rows, titles)
	for i := range results {
		row := []grid.Cell{}
		for _, c := range used {
			cell := grid.Name(c.text(&results[i]))
			if c.title.Right {
				cell = grid.Number(c.text(&results[i]))
			}
			row = append(row, cell.ColorIf(len(results[i].Marks) > 0, terminal.Yellow))
		}
		rows = append(rows, row)
	}
	return rows
}

func columnsBeside(beside Beside) []column {
	list := []column{
		{grid.Name("FILE"), func(r *Result) string { return r.File + ":" + strconv.Itoa(r.Line) }},
		{grid.Name("TEST"), func(r *Result) string { return strings.TrimSpace(r.Tool + " " + r.Test) }},
		{grid.Name("RAIL"), func(r *Result) string { return r.Rail }},
		{grid.Number("SIZE"), func(r *Result) string {
			if r.Bytes == nil {
				return ""
			}
			return mebibytes(*r.Bytes)
		}},
		{grid.Number("Gb/s"), func(r *Result) string { return rate(r.Rate) + sign(r, r.Rate != nil) }},
		{grid.Number("BUS Gb/s"), func(r *Result) string {
			return rate(r.BusRate) + sign(r, r.Rate == nil && r.BusRate != nil)
		}},
	}
	for _, l := range []struct {
		title string
		of    func(*Latency) *float64
	}{
		{"MEAN µs", func(l *Latency) *float64 { return l.Avg }}, {"P50 µs", func(l *Latency) *float64 { return l.P50 }},
		{"P99 µs", func(l *Latency) *float64 { return l.P99 }},
	} {
		list = append(list, column{grid.Number(l.title), func(r *Result) string {
			if r.Latency == nil || l.of(r.Latency) == nil {
				return ""
			}
			return grid.Microseconds(duration(*l.of(r.Latency)))
		}})
	}
	lineRate := func(r *Result) string {
		if v := lineRateOf(r.Rail, beside.Rails); v > 0 {
			return strings.TrimSuffix(rate(&v), ".00")
		}
		return ""
	}
	round := func(r *Result) string {
		if beside.LastRound == 0 || lineRate(r) == "" {
			return ""
		}
		return rate(&beside.LastRound)
	}
	return append(list, column{grid.Number("LINE Gb/s"), lineRate}, column{grid.Number("ROUND Gb/s"), round})
}

func rate(v *float64) string {
	if v == nil {
		return ""
	}
	return grid.Gigabits(*v)
}

// sign returns the sign of a marked row, for the first column of a rate in the row.
func sign(r *Result, here bool) string {
	if here && len(r.Marks) > 0 {
		return " !"
	}
	return ""
}
