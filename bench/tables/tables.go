// Package tables formats results of a benchmark as tables, for terminal and report.
package tables

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/bench/suite"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/stats"
	"github.com/railscope/railscope/internal/terminal"
)

// Ways of moving a KV cache: names in rows of [suite.KVCache].
const (
	OneRail  = "one rail"
	AllRails = "all rails"
	OverTCP  = "TCP"
)

// SmallMessage is the message size of a round's latencies, in bytes.
const SmallMessage = 8

// LeastSamples is the least number of samples for which a P95 and a P99 are shown.
const LeastSamples = 100

// timeOf returns a latency figure of a row for messages of this size, in µs.
func timeOf(row suite.Row, bytes int64, of func(suite.Latency) float64, least int) grid.Cell {
	i := slices.IndexFunc(row.Latency, func(l suite.Latency) bool { return l.Bytes == bytes })
	if i < 0 || row.Latency[i].Samples < least {
		return grid.Number("")
	}
	return grid.Number(microseconds(of(row.Latency[i])))
}

func microseconds(seconds float64) string { return grid.Microseconds(time.Duration(seconds * 1e9)) }

// rateOf formats a rate, or the reason why it was not measured in one word.
func rateOf(bytesPerSecond *float64, reason string) grid.Cell {
	if bytesPerSecond == nil && reason != "" {
		return grid.Number(terminal.Plain(reason)).ColorIf(true, terminal.Yellow)
	}
	return grid.Rate(bytesPerSecond)
}

func mean(l suite.Latency) float64 { return l.Mean }
func p50(l suite.Latency) float64  { return l.P50 }
func p95(l suite.Latency) float64  { return l.P95 }
func p99(l suite.Latency) float64  { return l.P99 }

// Rails returns a table with a line for each rail of a round, or nothing if nothing was measured.
func Rails(rails []suite.Rail, overTCP bool) [][]grid.Cell {
	striped, measured := "STRIPED Gb/s", false
	if overTCP {
		striped = "TCP Gb/s"
	}
	rows := [][]grid.Cell{{grid.Name("RAIL"), grid.Name("DEVICE"), grid.Name("PEER DEVICE"), grid.Number("P50 µs"),
		grid.Number("P99 µs"), grid.Number("MAX µs"), grid.Number("SOLO Gb/s"), grid.Number(striped),
		grid.Number("OF EXPECTED")}}
	for _, r := range rails {
		measured = measured || r.Latency != nil || r.Solo != nil || r.Striped != nil
		row := []grid.Cell{grid.Name(r.Rail), grid.Name(r.Device), grid.Name(r.Peer)}
		for _, of := range []func(suite.Latency) float64{p50, p99, func(l suite.Latency) float64 { return l.Max }} {
			text := ""
			if r.Latency != nil {
				text = microseconds(of(*r.Latency))
			}
			row = append(row, grid.Number(text))
		}
		expected := ""
		if r.Striped != nil && r.Expected != nil && *r.Expected > 0 {
			expected = terminal.Percent(*r.Striped / *r.Expected)
		}
		rows = append(rows, append(row, rateOf(r.Solo, reason(r.WhySolo)), rateOf(r.Striped, reason(r.WhyStriped)),
			grid.Number(expected)))
	}
	if !measured {
		return nil
	}
	return rows
}

func reason(w *suite.Why) string {
	if w == nil {
		return ""
	}
	return w.Reason
}

// Comparison returns a table with a line per row.
func Comparison(rows []suite.Row) [][]grid.Cell {
	table := [][]grid.Cell{grid.Titles("COMPARISON", "Gb/s", "OF LINE", "× TCP")}
	for _, row := range Tried(rows) {
		line, ratio := "", ""
		if row.Goodput != nil && row.LineRate != nil {
			line = terminal.Percent(*row.Goodput / *row.LineRate)
		}
		if row.Speedup != nil {
			ratio = grid.Ratio(*row.Speedup)
		}
		table = append(table, []grid.Cell{grid.Name(row.Name).ColorIf(row.Failure != "", terminal.Red),
			rateOf(row.Goodput, row.Reason), grid.Number(line), grid.Number(ratio)})
	}
	return table
}

// Latencies returns a table with a line for each row and size of its messages.
func Latencies(rows []suite.Row) (table [][]grid.Cell) {
	for _, row := range Tried(rows) {
		for _, l := range row.Latency {
			if table == nil {
				table = [][]grid.Cell{grid.Titles("LATENCY", "SIZE", "MEAN µs", "P50 µs", "P95 µs", "P99 µs", "MAX µs",
					"MESSAGES")}
			}
			line := []grid.Cell{grid.Name(row.Name), grid.Number(grid.Size(l.Bytes))}
			for _, of := range []func(suite.Latency) float64{mean, p50, p95, p99} {
				line = append(line, grid.Number(microseconds(of(l))))
			}
			if l.Samples < LeastSamples {
				line[4], line[5] = grid.Number(""), grid.Number("")
			}
			table = append(table, append(line, grid.Number(microseconds(l.Max)), grid.Number(fmt.Sprint(l.Samples))))
		}
	}
	return table
}

// maxRatio is the maximum width of the names in a ratio's rows.
const maxRatio = 70

// Ratios returns a table of what rows carry relative to others.
func Ratios(list []suite.Ratio) (table [][]grid.Cell) {
	for i, one := range list {
		if i == 0 {
			table = append(table, []grid.Cell{grid.Name("RATIO"), {Text: "", Right: true}, {Text: "OF"}})
		}
		table = append(table, []grid.Cell{{Text: terminal.Plain(one.Name)}, grid.Number(grid.Ratio(one.Ratio)),
			{Text: grid.Shorten(terminal.Plain(one.Row+" ÷ "+one.Of), maxRatio)}})
	}
	return table
}

// Tried returns the rows of measurements that began. A note explains those that did not.
func Tried(rows []suite.Row) []suite.Row {
	return slices.DeleteFunc(slices.Clone(rows), func(row suite.Row) bool {
		return row.Goodput == nil && len(row.Rails) == 0 && row.Transport != "tcp"
	})
}

// maxPorts is how many columns of rails fit on a line.
const maxPorts = 8

// Ports returns the names of the rails of rows, in rail order, then those of members of bonds. Names without a
// wanted part are left out.
func Ports(rows []suite.Row, wanted func(suite.Part) bool) (names []string) {
	isRail := func(name string) bool {
		return slices.ContainsFunc(rows, func(row suite.Row) bool { return slices.Contains(row.Rails, name) })
	}
	order := map[bool]int{true: 0, false: 1}
	for _, row := range rows {
		for _, p := range row.PerRail {
			if wanted(p) && !slices.Contains(names, p.Rail) {
				names = append(names, p.Rail)
			}
		}
	}
	slices.SortStableFunc(names, func(a, b string) int {
		return cmp.Or(order[isRail(a)]-order[isRail(b)], rail.NaturalCompare(a, b))
	})
	return names
}

// ByPorts returns the bytes that the ports counted during each measurement, by rail or member of a bond.
func ByPorts(rows []suite.Row) [][]grid.Cell {
	names := Ports(rows, func(p suite.Part) bool { return p.CounterBytes != nil })
	names = names[:min(len(names), maxPorts)]
	if len(names) == 0 {
		return nil
	}
	table := [][]grid.Cell{{grid.Name("MiB BY THE PORTS")}}
	for _, name := range names {
		table[0] = append(table[0], grid.Cell{Text: shortRail(name), Right: true})
	}
	for _, row := range Tried(rows) {
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

// Sweep returns a table with a line per size.
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
			rateOf(row.Goodput, row.Reason), timeOf(row, row.Size, mean, 1), timeOf(row, row.Size, p50, 1),
			timeOf(row, row.Size, p95, LeastSamples), timeOf(row, row.Size, p99, LeastSamples), grid.Number(samples)})
	}
	return table
}

// Caches returns a table with a row per cache, and the time of each way.
func Caches(list []suite.KVCache) (table [][]grid.Cell) {
	ways := []string{OneRail, AllRails, OverTCP}
	for i, c := range list {
		if i == 0 {
			table = append(table, grid.Titles("KV CACHE", "TOKENS", "SIZE", "PAGE", "ONE RAIL s", "ALL RAILS s",
				"TCP s", "OF LARGE READS"))
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
				if one.Model != c.Model || one.Tokens != c.Tokens || one.Row != way {
					continue
				}
				if one.Seconds == nil {
					text = terminal.Plain(one.Reason)
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

// Changes returns the rows of a comparison with a saved suite.
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
		table = append(table, []grid.Cell{grid.Name(c.Name), grid.Rate(stats.Positive(c.Before)),
			grid.Rate(stats.Positive(c.After)),
			grid.Number(change), {Text: what, Colour: colour}})
	}
	return table
}
