// Package tables shows what a benchmark measured as tables, for terminal and report.
package tables

import (
	"fmt"
	"slices"
	"time"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/bench/suite"
	"github.com/railscope/railscope/internal/terminal"
)

// Ways of moving a KV cache, as rows of [suite.KVCache] are called.
const (
	OneRail  = "one rail"
	AllRails = "all rails"
	OverTCP  = "TCP"
)

// SmallMessage is the size of the messages of a round's latencies, in bytes.
const SmallMessage = 8

// LeastSamples are those from which a P95 and a P99 are shown.
const LeastSamples = 100

// timeOf is a figure of a row's latency of messages of so many bytes, in µs.
func timeOf(row suite.Row, bytes int64, of func(suite.Latency) float64, least int) grid.Cell {
	i := slices.IndexFunc(row.Latency, func(l suite.Latency) bool { return l.Bytes == bytes })
	if i < 0 || row.Latency[i].Samples < least {
		return grid.Number("")
	}
	return grid.Number(grid.Microseconds(time.Duration(of(row.Latency[i]) * 1e9)))
}

func mean(l suite.Latency) float64 { return l.Mean }
func p50(l suite.Latency) float64  { return l.P50 }
func p95(l suite.Latency) float64  { return l.P95 }
func p99(l suite.Latency) float64  { return l.P99 }

// Comparison has a line for each row.
func Comparison(rows []suite.Row) [][]grid.Cell {
	table := [][]grid.Cell{grid.Titles("COMPARISON", "Gb/s", "OF LINE", "× TCP", "8 B: MEAN", "P50", "P99 µs",
		"4 KiB: P50", "P99 µs")}
	for _, row := range tried(rows) {
		line, ratio := "", ""
		if row.Goodput != nil && row.LineRate != nil {
			line = terminal.Percent(*row.Goodput / *row.LineRate)
		}
		if row.Speedup != nil {
			ratio = grid.Ratio(*row.Speedup)
		}
		table = append(table, []grid.Cell{grid.Name(row.Name).ColorIf(row.Failure != "", terminal.Red),
			grid.Rate(row.Goodput), grid.Number(line), grid.Number(ratio), timeOf(row, SmallMessage, mean, 1),
			timeOf(row, SmallMessage, p50, 1), timeOf(row, SmallMessage, p99, LeastSamples), timeOf(row, 4096, p50, 1),
			timeOf(row, 4096, p99, LeastSamples)})
	}
	return table
}

// tried are the rows of what began. Of what did not, a note says why.
func tried(rows []suite.Row) []suite.Row {
	return slices.DeleteFunc(slices.Clone(rows), func(row suite.Row) bool {
		return row.Goodput == nil && len(row.Rails) == 0
	})
}

// maxPorts is how many columns of rails fit beside each other.
const maxPorts = 8

// ByPorts are the bytes that the ports counted during each measurement, by rail or member of a bond.
func ByPorts(rows []suite.Row) [][]grid.Cell {
	var names []string
	for _, row := range rows {
		for _, p := range row.PerRail {
			if p.CounterBytes != nil && !slices.Contains(names, p.Rail) && len(names) < maxPorts {
				names = append(names, p.Rail)
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	table := [][]grid.Cell{{grid.Name("MiB BY THE PORTS")}}
	for _, name := range names {
		table[0] = append(table[0], grid.Cell{Text: terminal.Plain(shortRail(name)), Right: true})
	}
	for _, row := range tried(rows) {
		line := []grid.Cell{grid.Name(row.Name)}
		for _, name := range names {
			text := ""
			for _, p := range row.PerRail {
				if p.Rail == name && p.CounterBytes != nil {
					text = grid.Decimal(float64(*p.CounterBytes)/(1<<20), 1)
				}
			}
			line = append(line, grid.Number(text))
		}
		table = append(table, line)
	}
	return table
}

func shortRail(name string) string {
	if len(name) <= 2 {
		return "RAIL " + name
	}
	return grid.Shorten(name, 10)
}

// Sweep has a line for each size.
func Sweep(rows []suite.Row) [][]grid.Cell {
	if len(rows) == 0 {
		return nil
	}
	table := [][]grid.Cell{grid.Titles("SIZE", "Gb/s", "MEAN µs", "P50 µs", "P95 µs", "P99 µs", "TRANSFERS")}
	for _, row := range rows {
		samples := ""
		if len(row.Latency) > 0 {
			samples = fmt.Sprint(row.Latency[0].Samples)
		}
		table = append(table, []grid.Cell{grid.Name(row.Name).ColorIf(row.Failure != "", terminal.Yellow),
			grid.Rate(row.Goodput), timeOf(row, row.Size, mean, 1), timeOf(row, row.Size, p50, 1),
			timeOf(row, row.Size, p95, LeastSamples), timeOf(row, row.Size, p99, LeastSamples), grid.Number(samples)})
	}
	return table
}

// Caches are a row per cache, with the time of each way.
func Caches(list []suite.KVCache) (table [][]grid.Cell) {
	ways := []string{OneRail, AllRails, OverTCP}
	for i, c := range list {
		if i == 0 {
			table = append(table, grid.Titles("KV CACHE", "TOKENS", "SIZE", "PAGE", "ONE RAIL s", "ALL RAILS s", "TCP s",
				"OF LARGE READS"))
		}
		if i > 0 && list[i-1].Model == c.Model && list[i-1].Tokens == c.Tokens {
			continue
		}
		tokens := ""
		if c.Tokens > 0 {
			tokens = fmt.Sprint(c.Tokens)
		}
		line := []grid.Cell{grid.Name(c.Model), grid.Number(tokens), grid.Number(grid.Size(c.Bytes)),
			grid.Number(grid.Size(c.Page))}
		headline := ""
		for _, way := range ways {
			text := ""
			for _, one := range list {
				if one.Model != c.Model || one.Tokens != c.Tokens || one.Row != way || one.Seconds == nil {
					continue
				}
				text = grid.ThreeDigits(*one.Seconds)
				if way != OverTCP && one.Headline != nil {
					headline = terminal.Percent(*one.Headline)
				}
			}
			line = append(line, grid.Number(text))
		}
		table = append(table, append(line, grid.Number(headline)))
	}
	return table
}

// Changes are the rows of a Comparison with a saved suite.
func Changes(list []suite.Change) (table [][]grid.Cell) {
	for i, c := range list {
		if i == 0 {
			table = append(table, []grid.Cell{grid.Name("CHANGES"), grid.Number("BEFORE Gb/s"), grid.Number("NOW Gb/s"),
				grid.Number("CHANGE"), {Text: ""}})
		}
		change, what, colour := "", "within the runs' own spread", ""
		switch {
		case c.Missing != "":
			what = c.Missing
		case c.Worse():
			what, colour = "worse", terminal.Red
		case c.Changed:
			what, colour = "better", terminal.Green
		}
		if c.Before > 0 && c.After > 0 {
			change = fmt.Sprintf("%+.1f %%", 100*(c.After/c.Before-1))
		}
		table = append(table, []grid.Cell{grid.Name(c.Name), grid.Rate(positive(c.Before)), grid.Rate(positive(c.After)),
			grid.Number(change), {Text: what, Colour: colour}})
	}
	return table
}

func positive(v float64) *float64 {
	if v <= 0 {
		return nil
	}
	return &v
}
