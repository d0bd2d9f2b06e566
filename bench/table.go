// Package bench prints the result of a round: a table for people, an object for scripts, and a progress bar.
package bench

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/bench/steps"
	"github.com/railscope/railscope/bench/suite"
	"github.com/railscope/railscope/bench/tables"
	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/stats"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe/result"
)

// Options are the settings of the output, and the data shown beside a round.
type Options struct {
	Node      []finding.Finding // findings about this node; those of the round itself are left out
	Simulated bool              // the rails are those of railscope demo
	Color     bool              // colours in the table

	Settings []suite.Setting // settings beside those of the round
	Caches   []Cache         // caches whose transfer times are shown
	Earlier  []result.Result // earlier rounds of the same measurement, whose figures count as runs

	GPUsIfAny bool               // GPU memory was requested only if there are GPUs
	Compared  []suite.Change     // changes relative to a saved suite
	Steps     []steps.Done       // what a suite was joined from; nil: not a suite
	Storage   []suite.Checkpoint // checkpoints that the suite measured, too
}

// WriteTable writes the result for people: a sentence, the findings of the round, those about this node, each rail,
// and all rails together.
func WriteTable(w io.Writer, r result.Result, o Options) error {
	r = inRailOrder(r)
	p := grid.NewPrinter(w, o.Color)
	if o.Simulated {
		p.Line(suite.SimulatedNotice)
	}
	text, colour, found := verdict(r)
	for _, line := range terminal.Wrap(terminal.Plain(text), grid.MaxColumns) {
		p.Painted(line, colour)
	}
	others := besides(r, o.Node)
	for _, f := range finding.Joined(finding.Causes(check.Round(r), others...)) {
		if slices.ContainsFunc(found, func(o finding.Finding) bool { return o.Check == f.Check }) {
			p.Item(f.Evidence)
		}
		writeFix(p, f.Fix)
	}
	if len(others) > 0 {
		p.Painted("This node has other findings (railscope doctor prints the fixes):", terminal.Yellow)
		for _, f := range finding.Joined(others) {
			p.Item(string(f.Severity) + ": " + f.Title() + ": " + f.Evidence)
		}
	}
	s := Suite(r, o)
	list := append([][][]grid.Cell{railRows(r, s.Rails), partRows(r), totals(r, s.Ratios)}, suiteTables(s, asked(r))...)
	list = append(append(list, extraTables(r)...), tables.Checkpoints(o.Storage), tables.Changes(o.Compared))
	for _, rows := range list {
		if len(rows) > 0 {
			p.Line("")
			p.Table(rows)
		}
	}
	for _, note := range tables.CheckpointNotes(o.Storage) {
		p.Item(note)
	}
	writeAdvice(p, s.Advice)
	if len(s.Notes) > 0 {
		p.Line("")
		for _, text := range s.Notes {
			p.Item(text)
		}
	}
	if line := incompleteLine(s.Incomplete); line != "" {
		p.Line("")
		for _, part := range terminal.Wrap(line, grid.MaxColumns) {
			p.Painted(part, terminal.Yellow)
		}
	}
	return p.Flush() // Flush returns the first error of all writes
}

// writeAdvice writes what follows from the figures.
func writeAdvice(p grid.Printer, list []suite.Advice) {
	if len(list) > 0 {
		p.Line("")
		p.Line("WHAT TO DO")
	}
	for _, one := range list {
		p.Item(one.Text)
		writeFix(p, one.Lines)
	}
}

// writeFix writes the lines of a fix: commands unchanged, comments wrapped.
func writeFix(p grid.Printer, fix []string) {
	const indent = "    "
	for _, line := range fix {
		line = terminal.Plain(line)
		text, comment := strings.CutPrefix(line, "# ")
		if !comment {
			p.Line(indent + line)
			continue
		}
		for _, part := range terminal.Wrap(text, grid.MaxColumns-len(indent)-2) {
			p.Line(indent + "# " + part)
		}
	}
}

// besides returns the findings about this node that are not in the round.
func besides(r result.Result, node []finding.Finding) []finding.Finding {
	own := check.Round(r)
	return slices.DeleteFunc(slices.Clone(node), func(f finding.Finding) bool {
		return slices.ContainsFunc(own, func(o finding.Finding) bool {
			return o.Check == f.Check &&
				o.Subject == f.Subject
		})
	})
}

// railRows returns titles and a row per rail, or nothing if nothing was measured.
func railRows(r result.Result, rails []suite.Rail) [][]grid.Cell {
	rows := tables.Rails(rails, r.Transport == result.TCP)
	for i := range rows[min(1, len(rows)):] {
		one, row := &r.Rails[i], rows[i+1]
		slow := one.Share != nil && *one.Share < 1-result.UnevenAbove
		short := slices.ContainsFunc(r.Shortfalls(), func(s result.Shortfall) bool { return s.Rail == one.Rail })
		row[0], row[1] = row[0].ColorIf(one.Failure != nil, terminal.Red),
			row[1].ColorIf(one.Failure != nil, terminal.Red)
		n := len(row)
		row[n-2], row[n-1] = row[n-2].ColorIf(slow, terminal.Yellow), row[n-1].ColorIf(slow || short, terminal.Yellow)
	}
	return rows
}

// peerDevice returns the peer's device for people.
func peerDevice(r *result.RailResult) string {
	if r.Unpaired {
		return "unpaired"
	}
	return r.PeerDevice
}

// partRows returns the adapter's and the host's part of each rail's latency, or nothing if no adapter stamps
// completions.
func partRows(r result.Result) [][]grid.Cell {
	rows := [][]grid.Cell{{grid.Name("RAIL"), grid.Number("P50 µs"), grid.Number("ADAPTER P50 µs"),
		grid.Number("ADAPTER P99 µs"), grid.Number("HOST P50 µs"), grid.Number("HOST P99 µs")}}
	known := false
	for i := range r.Rails {
		if r.Rails[i].Unpaired {
			continue
		}
		l := cmp.Or(r.Rails[i].Latency, &result.Latency{})
		row := []grid.Cell{grid.Name(r.Rails[i].Rail)}
		for _, part := range []struct {
			of []time.Duration
			q  float64
		}{{l.Samples, 0.5}, {l.Adapter, 0.5}, {l.Adapter, 0.99}, {l.Host, 0.5}, {l.Host, 0.99}} {
			text := ""
			if len(part.of) > 0 {
				text = grid.Microseconds(result.Quantile(part.of, part.q))
			}
			row = append(row, grid.Number(text))
		}
		rows, known = append(rows, row), known || len(l.Adapter) > 0
	}
	if !known {
		return nil
	}
	return rows
}

// totals returns a row per figure of all rails together.
func totals(r result.Result, ratios []suite.Ratio) [][]grid.Cell {
	var rows [][]grid.Cell
	add := func(title, value, unit string, off bool) {
		rows = append(rows, []grid.Cell{{Text: title}, grid.Number(value).ColorIf(off, terminal.Yellow), {Text: unit}})
	}
	addFigure := func(title string, v *float64, format func(float64) string, unit string, off func(float64) bool) {
		if stats.Finite(v) != nil {
			add(title, format(*v), unit, off != nil && off(*v))
		}
	}
	addFigure("striped", r.Striped, grid.Gigabits, "Gb/s, each rail as much as it can", nil)
	addFigure("in equal parts", r.Static, grid.Gigabits, "Gb/s, rails × the slowest", nil)
	if best := bestTCP(r); best != nil {
		add("TCP", grid.Gigabits(best.BytesPerSecond), "Gb/s, "+terminal.Count(best.Streams, "stream")+" per rail",
			false)
	}
	addFigure("speed-up", r.Speedup, grid.Ratio, "RDMA ÷ TCP", func(v float64) bool { return v < result.SlowerBelow })
	if titles := tables.Ratios(ratios); len(titles) > 0 {
		rows = append(rows, titles[1:]...)
	}
	if len(r.Rails) > 1 {
		addFigure("imbalance", r.Imbalance, grid.Ratio, "0 even, 1 a rail carried nothing",
			func(v float64) bool { return v > result.UnevenAbove })
		addFigure("scaling", r.Scaling, grid.Ratio, "together ÷ sum of each alone",
			func(v float64) bool { return v < result.SharedBelow })
		addFigure("finish skew", r.FinishSkew, grid.Ratio, "1 − slowest rail ÷ fastest", nil)
	}
	few := 0
	for i := range r.Rails {
		if fewWrites(&r.Rails[i]) {
			few++
		}
	}
	if few > 0 {
		add("slow rails", strconv.Itoa(few), "with fewer than 64 writes in a burst: their figures are rough", false)
	}
	if r.Class.Source != "" {
		add("traffic class", strconv.Itoa(int(r.Class.TrafficClass)),
			fmt.Sprintf("service level %d, %s", r.Class.ServiceLevel, r.Class.Source), false)
	}
	if r.Bytes > 0 {
		unit := fmt.Sprintf("MiB moved in %.2f s", r.Duration.Seconds())
		if r.Verified {
			unit += ", verified"
		}
		add("payload", grid.Ratio(float64(r.Bytes)/(1<<20)), unit, false)
	}
	return rows
}

// asked reports whether a round has extras to compare it with. Without these, its own tables are complete.
func asked(r result.Result) bool {
	return slices.ContainsFunc(r.Extras, func(m result.Measured) bool { return measurementOf(m.Kind).compared })
}

// suiteTables returns the comparison, the bytes by the ports' counters, the sweep and the KV caches.
func suiteTables(s suite.Suite, compared bool) (list [][][]grid.Cell) {
	if compared {
		list = append(list, tables.Comparison(s.Rows), tables.Latencies(s.Rows), tables.ByPorts(s.Rows))
	}
	return append(list, tables.Sweep(s.Sweep), tables.Caches(s.KVCache))
}
