package bench

import (
	"fmt"
	"slices"
	"time"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/bench/suite"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe"
)

// asked reports whether a round has extras that are compared with it: without these, its own tables say it all.
func asked(r probe.Result) bool {
	compared := []probe.Kind{probe.Reads, probe.QueuePairs, probe.Subset, probe.Messages, probe.TCPTime, probe.Bond}
	return slices.ContainsFunc(r.Extras, func(m probe.Measured) bool { return slices.Contains(compared, m.Kind) })
}

// suiteTables are the comparison, the bytes by the ports' counters, the sweep and the KV caches.
func suiteTables(s suite.Suite, compared bool) (tables [][][]grid.Cell) {
	if compared {
		tables = append(tables, comparison(s.Rows), byPorts(s.Rows))
	}
	return append(tables, sweepRows(s.Sweep), cacheRows(s.KVCache))
}

// leastSamples are those from which a P95 and a P99 are shown.
const leastSamples = 100

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

func gigabitsOf(v *float64) grid.Cell {
	if v == nil {
		return grid.Number("")
	}
	return grid.Number(grid.Gigabits(*v))
}

func comparison(rows []suite.Row) [][]grid.Cell {
	table := [][]grid.Cell{grid.Titles("COMPARISON", "Gb/s", "OF LINE", "× TCP", "8 B: MEAN", "P50", "P99 µs",
		"4 KiB: P50", "P99 µs")}
	for _, row := range rows {
		line, ratio := "", ""
		if row.Goodput != nil && row.LineRate != nil {
			line = terminal.Percent(*row.Goodput / *row.LineRate)
		}
		if row.Speedup != nil {
			ratio = grid.Ratio(*row.Speedup)
		}
		table = append(table, []grid.Cell{grid.Name(row.Name).ColorIf(row.Failure != "", terminal.Red),
			gigabitsOf(row.Goodput), grid.Number(line), grid.Number(ratio), timeOf(row, smallMessage, mean, 1),
			timeOf(row, smallMessage, p50, 1), timeOf(row, smallMessage, p99, leastSamples), timeOf(row, 4096, p50, 1),
			timeOf(row, 4096, p99, leastSamples)})
	}
	return table
}

// maxPorts is how many columns of rails fit beside each other.
const maxPorts = 8

// byPorts are the bytes that the ports counted during each measurement, by rail or member of a bond.
func byPorts(rows []suite.Row) [][]grid.Cell {
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
	for _, row := range rows {
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

func sweepRows(rows []suite.Row) [][]grid.Cell {
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
			gigabitsOf(row.Goodput), timeOf(row, row.Size, mean, 1), timeOf(row, row.Size, p50, 1),
			timeOf(row, row.Size, p95, leastSamples), timeOf(row, row.Size, p99, leastSamples), grid.Number(samples)})
	}
	return table
}

// cacheRows are a row per cache, with the time of each way.
func cacheRows(list []suite.KVCache) (table [][]grid.Cell) {
	ways := []string{oneRail, allRails, overTCPs}
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
		line := []grid.Cell{grid.Name(c.Model), grid.Number(tokens), grid.Number(Size(c.Bytes)), grid.Number(Size(c.Page))}
		headline := ""
		for _, way := range ways {
			text := ""
			for _, one := range list {
				if one.Model != c.Model || one.Tokens != c.Tokens || one.Row != way || one.Seconds == nil {
					continue
				}
				text = threeDigits(*one.Seconds)
				if way != overTCPs && one.Headline != nil {
					headline = terminal.Percent(*one.Headline)
				}
			}
			line = append(line, grid.Number(text))
		}
		table = append(table, append(line, grid.Number(headline)))
	}
	return table
}

// threeDigits is a time in seconds with three digits that count.
func threeDigits(seconds float64) string {
	decimals := 4
	for limit := 0.1; decimals > 0 && seconds >= limit; limit *= 10 {
		decimals--
	}
	return grid.Decimal(seconds, decimals)
}

// changeRows are the rows of a comparison with a saved suite.
func changeRows(list []suite.Change) (table [][]grid.Cell) {
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
		table = append(table, []grid.Cell{grid.Name(c.Name), gigabitsOf(positive(c.Before)), gigabitsOf(positive(c.After)),
			grid.Number(change), {Text: what, Colour: colour}})
	}
	return table
}
