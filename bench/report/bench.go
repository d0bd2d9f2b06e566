package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot/plotter"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/bench/suite"
	"github.com/railscope/railscope/bench/tables"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe/result"
)

// Bench is the report of a benchmark of a peer, or of a ring.
func Bench(s suite.Suite) Report {
	r := Report{title: strings.TrimSpace("railscope bench: "+terminal.Plain(s.Node)) + " to " + terminal.Plain(s.Peer),
		subtitle: s.Start.UTC().Format(time.RFC1123), verdict: terminal.Plain(s.Verdict), good: s.Good}
	if s.Carrier == string(result.Simulated) {
		r.verdict = suite.SimulatedNotice + " " + r.verdict
	}
	if s.Ring != nil {
		r.title = "railscope bench: all-reduce over " + terminal.Count(len(s.Members), "node")
		r.add(section{Title: "All-reduce", Tables: []table{fromGrid(tables.Ring(s.Ring))}})
		r.add(section{Title: "Nodes", Tables: []table{fromGrid(tables.RingMembers(s.Ring))}, Text: failures(s.Rows),
			figures: plots(goodputs(s))})
		s.Rows = nil // the sections of a peer
	}
	r.add(findings(s))
	for i, one := range s.Advice {
		part := section{Text: []string{terminal.Plain(one.Text)}, Code: cleaned(one.Lines)}
		if i == 0 {
			part.Title = "What to do"
		}
		r.add(part)
	}
	if rows := tables.Rails(s.Rails, s.Carrier == "tcp"); len(rows) > 0 {
		r.add(section{Title: "Rails", Tables: []table{fromGrid(rows)}})
	}
	r.add(section{Title: "Comparison", Tables: []table{fromGrid(tables.Comparison(s.Rows)),
		fromGrid(tables.Latencies(s.Rows)),
		fromGrid(tables.Ratios(s.Ratios))}, Text: failures(s.Rows),
		figures: plots(goodputs(s), memories(s), latencies(s))})
	r.add(section{Title: "Which rail carried it",
		Tables: []table{fromGrid(tables.ByPorts(s.Rows))}, figures: plots(railShares(s))})
	r.add(section{Title: "Sizes of messages", Tables: []table{fromGrid(tables.Sweep(s.Sweep))}, Text: failures(s.Sweep),
		figures: plots(sweep(s))})
	r.add(section{Title: "KV cache", Tables: []table{fromGrid(tables.Caches(s.KVCache))}})
	r.add(section{Title: "Checkpoints", Tables: []table{fromGrid(tables.Checkpoints(s.Storage))},
		Text: cleaned(tables.CheckpointNotes(s.Storage))})
	r.add(section{Title: "Changes since the saved benchmark", Tables: []table{fromGrid(tables.Changes(s.Compared))}})
	r.add(section{Title: "Not measured", Text: cleaned(s.Notes)})
	var rows [][]string
	for _, setting := range s.Settings {
		rows = append(rows, []string{setting.Name, setting.Here, setting.There})
	}
	r.add(section{Title: "Settings", Tables: []table{words([]string{"Setting", "Here", "Peer"}, rows)}})
	return r
}

func findings(s suite.Suite) section {
	var rows [][]string
	for _, f := range s.Findings {
		rows = append(rows, []string{string(f.Severity), f.Title(), f.Evidence, strings.Join(f.Fix, "; ")})
	}
	return section{Title: "Findings", Tables: []table{words([]string{"Severity", "Finding", "Evidence", "Fix"}, rows)}}
}

// failures returns the reasons of rows without a figure.
func failures(rows []suite.Row) (list []string) {
	for _, row := range rows {
		if row.Failure != "" {
			list = append(list, terminal.Plain(row.Name+": "+row.Failure))
		}
	}
	return list
}

// plots returns the figures that have data.
func plots(list ...*figure) (out []figure) {
	for _, f := range list {
		if f != nil {
			out = append(out, *f)
		}
	}
	return out
}

func goodputs(s suite.Suite) *figure {
	var list []rate
	known := false
	for _, row := range tables.Tried(s.Rows) {
		list, known = append(list, barOf(row)), known || drawable(row.Goodput)
	}
	if !known {
		return nil
	}
	f := rates("Goodput", "Goodput of each measurement. The mark is the line rate of its rails, unless it is "+
		"more than 10 times the best.", "Gb/s", list)
	return &f
}

// barOf is the goodput of a row, which is named also if it has none.
func barOf(row suite.Row) rate {
	one := rate{row.Name, row.Transport == "tcp", 0, gigabits(limit(row.LineRate))}
	if drawable(row.Goodput) {
		one.value = gigabits(*row.Goodput)
		return one
	}
	one.name, one.line = fmt.Sprintf("%s (%s)", row.Name, cmp.Or(row.Reason, "not measured")), 0
	return one
}

// memories are rows of memory that GPUs use beside those of plain host memory that are alike.
func memories(s suite.Suite) *figure {
	var list []rate
	for _, row := range tables.Tried(s.Rows) {
		if row.Transport != "rdma" || row.Memory == "host" || row.Memory == "" {
			continue
		}
		if i := slices.IndexFunc(s.Rows, func(other suite.Row) bool {
			return drawable(other.Goodput) && other.Memory == "host" && other.Op == row.Op &&
				slices.Equal(other.Rails, row.Rails)
		}); i >= 0 && !slices.Contains(list, barOf(s.Rows[i])) {
			list = append(list, barOf(s.Rows[i]))
		}
		list = append(list, barOf(row))
	}
	if len(list) == 0 {
		return nil
	}
	f := rates("By memory", "The same transfer from plain memory of the host and from memory that GPUs use: cuda_host "+
		"and rocm_host are on the host, cuda_staged on the GPU and copied over the host.", "Gb/s", list)
	return &f
}

// Bounds on what can be plotted: a file may have any value, and a logarithmic scale has no zero.
const (
	maxRate = 1e15 // bytes per second
	minTime = 1e-9 // seconds
	maxTime = 1e6
)

// drawable reports whether a rate can be plotted.
func drawable(bytesPerSecond *float64) bool {
	return bytesPerSecond != nil && *bytesPerSecond >= 0 && *bytesPerSecond <= maxRate
}

// limit returns a line rate in bytes per second; 0 if unknown.
func limit(bytesPerSecond *float64) float64 {
	if !drawable(bytesPerSecond) {
		return 0
	}
	return *bytesPerSecond
}

func latencies(s suite.Suite) *figure {
	var list []span
	for _, row := range s.Rows {
		for _, l := range row.Latency {
			name := row.Name + ", " + grid.Size(l.Bytes)
			switch {
			case l.P50 < minTime || l.P99 < l.P50 || l.P99 > maxTime:
			case l.Samples < tables.LeastSamples:
				list = append(list, span{fmt.Sprintf("%s (P50 of %d)", name, l.Samples), l.P50, l.P50})
			default:
				list = append(list, span{name, l.P50, l.P99})
			}
		}
	}
	if len(list) == 0 {
		return nil
	}
	f := spans("Latency", "Time of one message, one at a time: RDMA from post to completion, TCP there and back. "+
		"Of fewer than 100 messages, P50 alone.", list)
	return &f
}

// railShares returns the rows that used several rails, split by their ports' counters, or else by goodput.
func railShares(s suite.Suite) *figure {
	overTCP := func(row suite.Row) bool { return row.Transport != "rdma" }
	rails := tables.Ports(slices.DeleteFunc(slices.Clone(s.Rows), overTCP), func(suite.Part) bool { return true })
	var list []share
	some := false
	for _, row := range s.Rows {
		if len(row.PerRail) < 2 || slices.ContainsFunc(row.PerRail, func(p suite.Part) bool {
			return !slices.Contains(rails, p.Rail) // a member of a bond
		}) {
			continue
		}
		one, known := share{name: row.Name, parts: make([]float64, len(rails))}, true
		counted := !slices.ContainsFunc(row.PerRail, func(p suite.Part) bool { return p.CounterBytes == nil })
		for _, p := range row.PerRail {
			i := slices.Index(rails, p.Rail)
			switch {
			case !counted && !drawable(p.Goodput), counted && *p.CounterBytes < 0:
				known = false
			case counted:
				one.parts[i] = float64(*p.CounterBytes)
			default:
				one.parts[i] = *p.Goodput
			}
		}
		if !known {
			one.name, one.parts = row.Name+" (not known)", make([]float64, len(rails))
		}
		list, some = append(list, one), some || known
	}
	if !some {
		return nil
	}
	names := make([]string, len(rails))
	for i, rail := range rails {
		names[i] = railName(rail)
	}
	f := shares("Share of each rail", "By the bytes that the ports sent meanwhile, where they count; else by goodput.",
		names, list)
	return &f
}

func sweep(s suite.Suite) *figure {
	measured, line := curve{name: "goodput"}, curve{name: "line rate", dashed: true}
	var missing []string
	gap := false
	for _, row := range s.Sweep {
		if !drawable(row.Goodput) || row.Size <= 0 {
			missing, gap = append(missing, fmt.Sprintf("%s (%s)", row.Name, cmp.Or(row.Reason, "no figure"))), true
			continue
		}
		if gap && len(measured.points) > 0 {
			measured.gaps = append(measured.gaps, len(measured.points))
		}
		gap = false
		measured.points = append(measured.points, plotter.XY{X: float64(row.Size), Y: gigabits(*row.Goodput)})
		if limit(row.LineRate) > 0 {
			line.points = append(line.points, plotter.XY{X: float64(row.Size), Y: gigabits(*row.LineRate)})
		}
	}
	if n := len(measured.points); n < 2 || measured.points[0].X >= measured.points[n-1].X {
		return nil
	}
	list, best := []curve{measured}, 0.0
	for _, p := range measured.points {
		best = max(best, p.Y)
	}
	if len(line.points) > 1 && line.points[0].Y <= farthest*best {
		list = append(list, line)
	}
	f := sizes("Goodput by size of messages", "All rails together.", unit(missing), list)
	return &f
}

// maxMissing is how many sizes without a figure the axis names.
const maxMissing = 4

// unit is the label of the axis of sizes, with those that have no figure.
func unit(missing []string) string {
	const label = "size of a message"
	if len(missing) == 0 {
		return label
	}
	text := strings.Join(missing[:min(len(missing), maxMissing)], ", ")
	if more := len(missing) - maxMissing; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return label + "; not measured: " + terminal.Plain(text)
}
