package record

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/internal/units"
)

// WriteJSON writes the record as one JSON object.
func (r Record) WriteJSON(w io.Writer) error {
	return terminal.WriteJSON(w, r)
}

// WriteTable writes the record for people.
func (r Record) WriteTable(w io.Writer, color bool) error {
	p := grid.NewPrinter(w, color)
	colour := terminal.Yellow
	if r.Good {
		colour = terminal.Green
	}
	head := fmt.Sprintf("%s ran %.1f s, exit code %d: %s.", strings.Join(r.Command, " "), r.Seconds,
		r.ExitCode, r.Verdict)
	for _, line := range terminal.Wrap(terminal.Plain(head), grid.MaxColumns) {
		p.Painted(line, colour)
	}
	for _, rows := range r.Tables() {
		if len(rows) > 1 {
			p.Line("")
			p.Table(rows)
		}
	}
	if r.Probe != nil && *r.Probe > 0 {
		p.Line("")
		p.Item("left out: " + units.Mebibytes(*r.Probe) + " of railscope's own rounds (peak rates include them)")
	}
	if len(r.Notes) > 0 {
		p.Line("")
		for _, n := range r.Notes {
			p.Item("not seen: " + n)
		}
	}
	return p.Flush()
}

// Tables returns the tables of rails, collectives, the log of NCCL, processes, memory and environment. A table with
// only titles is empty.
func (r Record) Tables() [][][]grid.Cell {
	collectives := [][]grid.Cell{collectiveTitles()}
	if r.Collectives != nil {
		collectives = append(collectives, r.Collectives.row("of the busiest process"))
	}
	return [][][]grid.Cell{r.railRows(), collectives, r.logRows(), r.processRows(), r.memoryRows(), r.environmentRows()}
}

func mebibytes(v *int64) grid.Cell {
	if v == nil {
		return grid.Number("")
	}
	return grid.Number(grid.Decimal(float64(*v)/(1<<20), 1))
}

// Best returns the payload of a direction, or its bytes on the wire if packets are not counted; nil if unknown.
func (d Direction) Best() *int64 {
	if d.Payload != nil {
		return d.Payload
	}
	return d.Wire
}

func (r Record) railRows() [][]grid.Cell {
	rows := [][]grid.Cell{{grid.Name("RAIL"), grid.Name("DEVICE"), grid.Number("SENT MiB"), grid.Number("PEAK Gb/s"),
		grid.Number("RECEIVED MiB"), grid.Number("PEAK Gb/s"), grid.Number("TCP MiB"), grid.Number("QUEUE PAIRS")}}
	for _, one := range r.Rails {
		row := []grid.Cell{grid.Name(one.Rail), grid.Name(one.Device)}
		for _, d := range []Direction{one.Transmit, one.Receive} {
			peak := ""
			if d.Wire != nil && d.Peak > 0 {
				peak = grid.Gigabits(d.Peak)
			}
			row = append(row, mebibytes(d.Best()), grid.Number(peak))
		}
		rows = append(rows, append(row, mebibytes(one.TCP), grid.Number(fmt.Sprint(one.Pairs))))
	}
	return rows
}

func (r Record) processRows() [][]grid.Cell {
	rows := [][]grid.Cell{{grid.Name("PROCESSES"), {Text: "QUEUE PAIRS"}}}
	for _, p := range r.Processes {
		var list []string
		for _, name := range slices.SortedFunc(maps.Keys(p.Pairs), rail.NaturalCompare) {
			list = append(list, fmt.Sprintf("%d on rail %s", p.Pairs[name], name))
		}
		rows = append(rows, []grid.Cell{grid.Name(p.Name), {Text: strings.Join(list, ", ")}})
	}
	return rows
}

func (r Record) memoryRows() [][]grid.Cell {
	rows := [][]grid.Cell{grid.Titles("MEMORY", "BEFORE GiB", "MOST GiB", "MORE GiB")}
	list := r.GPUs
	if r.Host != nil {
		list = append(slices.Clone(list), *r.Host)
	}
	for _, m := range list {
		gib := func(v int64) grid.Cell { return grid.Number(grid.Decimal(float64(v)/(1<<30), 2)) }
		rows = append(rows, []grid.Cell{grid.Name(m.Name), gib(m.Before), gib(m.Most), gib(m.Most - m.Before)})
	}
	return rows
}

func (r Record) environmentRows() [][]grid.Cell {
	rows := [][]grid.Cell{{grid.Name("ENVIRONMENT"), {Text: ""}}}
	for _, name := range slices.Sorted(maps.Keys(r.Environment)) {
		rows = append(rows, []grid.Cell{{Text: name}, grid.Name(r.Environment[name])})
	}
	return rows
}
