// Package bench prints the result of a round: a table for people, an object for scripts, and a progress bar.
package bench

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/bench/suite"
	"github.com/railscope/railscope/bench/tables"
	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe"
)

// Options are what is shown beside a round, and how.
type Options struct {
	Node      []finding.Finding // about this node; those that the round has, too, are left out
	Simulated bool              // the rails are those of railscope demo
	Color     bool              // of the table

	Settings []suite.Setting // beside those that the round knows
	Caches   []Cache         // whose times are asked for
	Earlier  []probe.Result  // of the same, whose figures count as runs
	Compared []suite.Change  // with a saved one
}

// WriteTable writes the result for people: a sentence, the findings, those about this node, each rail, and all of them
// together.
func WriteTable(w io.Writer, r probe.Result, o Options) error {
	p := grid.NewPrinter(w, o.Color)
	if o.Simulated {
		p.Line("Simulated by railscope demo: the figures say nothing about RDMA.")
	}
	text, colour, found := verdict(r)
	for _, line := range terminal.Wrap(terminal.Plain(text), grid.MaxColumns) {
		p.Line(p.Paint(line, colour))
	}
	for _, f := range found {
		p.Item(f.Evidence)
	}
	if others := besides(r, o.Node); len(others) > 0 {
		p.Line(p.Paint("This node has other findings (railscope doctor prints the fixes):", terminal.Yellow))
		for _, f := range others {
			p.Item(string(f.Severity) + ": " + f.Title() + ": " + f.Evidence)
		}
	}
	list := append([][][]grid.Cell{railRows(r), partRows(r), totals(r)}, suiteTables(Suite(r, o), asked(r))...)
	list = append(append(list, extraTables(r)...), tables.Changes(o.Compared))
	for _, rows := range list {
		if len(rows) > 0 {
			p.Line("")
			p.Table(rows)
		}
	}
	if failures := extraFailures(r); len(failures) > 0 {
		p.Line("")
		for _, text := range failures {
			p.Item(text)
		}
	}
	return p.Flush() // it has kept the first error
}

// besides returns the findings about this node that the round has not.
func besides(r probe.Result, node []finding.Finding) []finding.Finding {
	own := check.Round(r)
	return slices.DeleteFunc(slices.Clone(node), func(f finding.Finding) bool {
		return slices.ContainsFunc(own, func(o finding.Finding) bool { return o.Check == f.Check && o.Subject == f.Subject })
	})
}

// railRows are titles and a row per rail; none if nothing was measured.
func railRows(r probe.Result) [][]grid.Cell {
	striped := "STRIPED Gb/s"
	if r.Transport == probe.TCP {
		striped = "TCP Gb/s"
	}
	rows := [][]grid.Cell{{grid.Name("RAIL"), grid.Name("DEVICE"), grid.Name("PEER DEVICE"), grid.Number("P50 µs"),
		grid.Number("P99 µs"),
		grid.Number("MAX µs"), grid.Number("SOLO Gb/s"), grid.Number(striped), grid.Number("OF EXPECTED")}}
	measured := false
	for i := range r.Rails {
		one := &r.Rails[i]
		measured = measured || one.Latency != nil || one.Solo != nil || one.Stealing != nil
		slow := one.Share != nil && *one.Share < 1-check.UnevenAbove
		short := slices.ContainsFunc(r.Shortfalls(), func(s probe.Shortfall) bool { return s.Rail == one.Rail })
		rows = append(rows, railRow(one, slow, short))
	}
	if !measured {
		return nil
	}
	return rows
}

func railRow(r *probe.RailResult, slow, short bool) []grid.Cell {
	device := r.Device
	if r.Port > 1 {
		device += "/" + strconv.Itoa(r.Port)
	}
	failed := r.Failure != nil
	row := []grid.Cell{grid.Name(r.Rail).ColorIf(failed, terminal.Red),
		grid.Name(cmp.Or(device, r.Netdev)).ColorIf(failed, terminal.Red), grid.Name(r.PeerDevice)}
	for _, q := range []float64{0.5, 0.99, 1} {
		latency := ""
		if r.Latency != nil && len(r.Latency.Samples) > 0 {
			latency = grid.Microseconds(r.Latency.Quantile(q))
		}
		row = append(row, grid.Number(latency))
	}
	expected := ""
	if r.Stealing != nil && r.Expected != nil && *r.Expected > 0 {
		expected = terminal.Percent(r.Stealing.BytesPerSecond() / *r.Expected)
	}
	return append(row, grid.Number(flow(r.Solo)), grid.Number(flow(r.Stealing)).ColorIf(slow, terminal.Yellow),
		grid.Number(expected).ColorIf(slow || short, terminal.Yellow))
}

// partRows are the adapter's and the host's part of each rail's latency; none if no adapter stamps completions.
func partRows(r probe.Result) [][]grid.Cell {
	rows := [][]grid.Cell{{grid.Name("RAIL"), grid.Number("P50 µs"), grid.Number("ADAPTER P50 µs"),
		grid.Number("ADAPTER P99 µs"), grid.Number("HOST P50 µs"), grid.Number("HOST P99 µs")}}
	known := false
	for i := range r.Rails {
		l := cmp.Or(r.Rails[i].Latency, &probe.Latency{})
		row := []grid.Cell{grid.Name(r.Rails[i].Rail)}
		for _, part := range []struct {
			of []time.Duration
			q  float64
		}{{l.Samples, 0.5}, {l.Adapter, 0.5}, {l.Adapter, 0.99}, {l.Host, 0.5}, {l.Host, 0.99}} {
			text := ""
			if len(part.of) > 0 {
				text = grid.Microseconds(probe.Quantile(part.of, part.q))
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

func flow(f *probe.Flow) string {
	if f == nil {
		return ""
	}
	return grid.Gigabits(f.BytesPerSecond())
}

// totals are a row per figure of all rails together.
func totals(r probe.Result) [][]grid.Cell {
	var rows [][]grid.Cell
	add := func(title, value, unit string, off bool) {
		rows = append(rows, []grid.Cell{{Text: title}, grid.Number(value).ColorIf(off, terminal.Yellow), {Text: unit}})
	}
	addFigure := func(title string, v *float64, format func(float64) string, unit string, off func(float64) bool) {
		if finite(v) != nil {
			add(title, format(*v), unit, off != nil && off(*v))
		}
	}
	addFigure("striped", r.Stealing, grid.Gigabits, "Gb/s, each rail as much as it can", nil)
	addFigure("in equal parts", r.Static, grid.Gigabits, "Gb/s, rails × the slowest", nil)
	if best := bestTCP(r); best != nil {
		add("TCP", grid.Gigabits(best.BytesPerSecond), "Gb/s, "+terminal.Count(best.Streams, "stream")+" per rail", false)
	}
	addFigure("speed-up", r.Speedup, grid.Ratio, "RDMA ÷ TCP", func(v float64) bool { return v < check.SlowerBelow })
	if len(r.Rails) > 1 {
		addFigure("imbalance", r.Imbalance, grid.Ratio, "0 even, 1 a rail carried nothing",
			func(v float64) bool { return v > check.UnevenAbove })
		addFigure("scaling", r.Scaling, grid.Ratio, "together ÷ sum of each alone",
			func(v float64) bool { return v < check.SharedBelow })
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
			fmt.Sprintf("service level %d, %s", r.Class.ServiceLevel, terminal.Plain(r.Class.Source)), false)
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

// asked reports whether a round has extras that are compared with it: without these, its own tables say it all.
func asked(r probe.Result) bool {
	compared := []probe.Kind{probe.Reads, probe.QueuePairs, probe.Subset, probe.Messages, probe.TCPTime, probe.Bond}
	return slices.ContainsFunc(r.Extras, func(m probe.Measured) bool { return slices.Contains(compared, m.Kind) })
}

// suiteTables are the comparison, the bytes by the ports' counters, the sweep and the KV caches.
func suiteTables(s suite.Suite, compared bool) (list [][][]grid.Cell) {
	if compared {
		list = append(list, tables.Comparison(s.Rows), tables.ByPorts(s.Rows))
	}
	return append(list, tables.Sweep(s.Sweep), tables.Caches(s.KVCache))
}
