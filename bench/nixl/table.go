package nixl

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/bench/read"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/internal/units"
)

// WriteTable writes the results for people.
func WriteTable(w io.Writer, s Settings, rows []Row, color bool) error {
	p := grid.NewPrinter(w, color)
	table := [][]grid.Cell{{grid.Name("BACKEND"), grid.Name("MEMORY"), grid.Name("RAILS"), grid.Number("THREADS"),
		grid.Number("BLOCK"), grid.Number("Gb/s"), grid.Number("MEAN µs"), grid.Number("P99 µs"),
		grid.Number("ITERATIONS")}}
	for _, row := range rows {
		c := row.Combination
		devices := strings.Join(c.Devices, ",")
		if devices == "" {
			devices = "all"
		}
		about := []grid.Cell{grid.Name(c.Backend), grid.Name(c.Memory), grid.Name(devices),
			grid.Number(fmt.Sprint(c.Threads))}
		if len(row.Results) == 0 {
			table = append(table, append(about, grid.Number("").ColorIf(true, terminal.Red), grid.Number("failed"),
				grid.Number(""), grid.Number(""), grid.Number("")))
		}
		for _, r := range row.Results {
			table = append(table, append(slices.Clone(about), figures(s, c, r)...))
		}
	}
	p.Table(table)
	for _, row := range rows {
		if row.Rails != nil {
			var list []string
			for _, name := range slices.SortedFunc(maps.Keys(row.Rails), rail.NaturalCompare) {
				list = append(list, fmt.Sprintf("rail %s %s", name, units.Mebibytes(row.Rails[name])))
			}
			p.Line("")
			p.Item(fmt.Sprintf("%s: %s; TCP %s", row.Combination, strings.Join(list, ", "), units.Mebibytes(row.TCP)))
		}
		if row.Failure != "" {
			p.Item(fmt.Sprintf("%s failed: %s", row.Combination, row.Failure))
		}
	}
	writeCauses(p, rows)
	return p.Flush()
}

// writeCauses writes each cause once, and of how many of several runs it is.
func writeCauses(p grid.Printer, rows []Row) {
	var causes []string
	of := map[string]int{}
	for _, row := range rows {
		for _, cause := range row.Causes {
			of[cause]++
			if of[cause] == 1 {
				causes = append(causes, cause)
			}
		}
	}
	for _, cause := range causes {
		if of[cause] > 1 {
			cause = fmt.Sprintf("%d of %d runs: %s", of[cause], len(rows), cause)
		}
		p.Item(cause)
	}
}

// figures returns the cells of one block size.
func figures(s Settings, c Combination, r read.Result) []grid.Cell {
	cells := make([]grid.Cell, 5)
	for i := range cells {
		cells[i] = grid.Number("")
	}
	if r.Bytes != nil {
		cells[0] = grid.Number(grid.Size(*r.Bytes))
		cells[4] = grid.Number(fmt.Sprint(s.Ran(*r.Bytes, c.Threads)))
	}
	if r.Rate != nil {
		cells[1] = grid.Number(grid.Gigabits(*r.Rate))
	}
	if l := r.Latency; l != nil {
		for i, v := range []*float64{l.Avg, l.P99} {
			if v != nil {
				cells[2+i] = grid.Number(grid.Microseconds(time.Duration(*v * 1e9)))
			}
		}
	}
	return cells
}

type jsonRow struct {
	Backend string           `json:"backend"`
	Memory  string           `json:"memory"`
	Devices []string         `json:"devices"` // empty for all
	Threads int              `json:"threads"`
	Results []read.Result    `json:"results"`
	Rails   map[string]int64 `json:"rail_bytes"` // null if not read
	TCP     int64            `json:"tcp_bytes"`
	Failure string           `json:"failure"`
	Causes  []string         `json:"causes"`
}

// WriteJSON writes the results as a JSON list.
func WriteJSON(w io.Writer, rows []Row) error {
	list := []jsonRow{}
	for _, r := range rows {
		c := r.Combination
		list = append(list, jsonRow{c.Backend, c.Memory, append([]string{}, c.Devices...), c.Threads,
			append([]read.Result{}, r.Results...), r.Rails, r.TCP, r.Failure, append([]string{}, r.Causes...)})
	}
	return terminal.WriteJSON(w, list)
}
