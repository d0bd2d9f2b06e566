package report

import (
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot/plotter"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/bench/suite"
	"github.com/railscope/railscope/bench/tables"
	"github.com/railscope/railscope/internal/terminal"
)

// Bench is the report of a benchmark of a peer.
func Bench(s suite.Suite) Report {
	r := Report{title: strings.TrimSpace("railscope bench: "+terminal.Plain(s.Node)) + " to " + terminal.Plain(s.Peer),
		subtitle: s.Start.UTC().Format(time.RFC1123), verdict: terminal.Plain(s.Verdict), good: s.Good}
	r.add(findings(s))
	r.add(section{Title: "Comparison", Tables: []table{fromGrid(tables.Comparison(s.Rows))}, Text: failures(s.Rows),
		figures: plots(goodputs(s), memories(s), latencies(s))})
	r.add(section{Title: "Which rail carried it",
		Tables: []table{fromGrid(tables.ByPorts(s.Rows))}, figures: plots(railShares(s))})
	r.add(section{Title: "Sizes of messages", Tables: []table{fromGrid(tables.Sweep(s.Sweep))}, Text: failures(s.Sweep),
		figures: plots(sweep(s))})
	r.add(section{Title: "KV cache", Tables: []table{fromGrid(tables.Caches(s.KVCache))}})
	r.add(section{Title: "Changes since the saved benchmark", Tables: []table{fromGrid(tables.Changes(s.Compared))}})
	r.add(section{Title: "Not measured", Text: cleaned(s.Notes)})
	var rows [][]string
	for _, one := range s.Settings {
		rows = append(rows, []string{one.Name, one.Here, one.There})
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

// failures say why rows have no figure.
func failures(rows []suite.Row) (list []string) {
	for _, row := range rows {
		if row.Failure != "" {
			list = append(list, terminal.Plain(row.Name+": "+row.Failure))
		}
	}
	return list
}

// plots are those with something to show.
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
	for _, row := range s.Rows {
		if drawable(row.Goodput) {
			list = append(list, rate{row.Name, row.Transport == "tcp", *row.Goodput, limit(row.LineRate)})
		}
	}
	if len(list) == 0 {
		return nil
	}
	f := rates("Goodput", "Goodput of each measurement. The mark is the line rate of its rails, unless it is "+
		"more than 10 times the best.", list)
	return &f
}

// memories are rows of GPU memory beside those of host memory that are alike.
func memories(s suite.Suite) *figure {
	var list []rate
	for _, row := range s.Rows {
		if !drawable(row.Goodput) || row.Transport != "rdma" || row.Memory == "host" || row.Memory == "" {
			continue
		}
		if i := slices.IndexFunc(s.Rows, func(other suite.Row) bool {
			return drawable(other.Goodput) && other.Memory == "host" && other.Op == row.Op &&
				slices.Equal(other.Rails, row.Rails)
		}); i >= 0 {
			host := s.Rows[i]
			list = append(list, rate{host.Name, false, *host.Goodput, limit(host.LineRate)})
		}
		list = append(list, rate{row.Name, false, *row.Goodput, limit(row.LineRate)})
	}
	if len(list) == 0 {
		return nil
	}
	f := rates("Host and GPU memory", "The same transfer from GPU memory and from host memory.", list)
	return &f
}

// Bounds of what can be plotted: a file can have anything, and a logarithmic scale has no zero.
const (
	mostRate  = 1e15 // bytes per second
	leastTime = 1e-9 // seconds
	mostTime  = 1e6
)

// drawable reports whether a rate is one.
func drawable(bytesPerSecond *float64) bool {
	return bytesPerSecond != nil && *bytesPerSecond >= 0 && *bytesPerSecond <= mostRate
}

// limit is a line rate; 0: not known.
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
			if l.P50 >= leastTime && l.P99 >= l.P50 && l.P99 <= mostTime && l.Samples >= tables.LeastSamples {
				list = append(list, span{row.Name + ", " + grid.Size(l.Bytes), l.P50, l.P99})
			}
		}
	}
	if len(list) == 0 {
		return nil
	}
	f := spans("Latency", "Time of one message, of 100 or more, one at a time: RDMA from post to completion, TCP there "+
		"and back.", list)
	return &f
}

// railShares are the rows that used several rails, divided by what their ports counted, else by goodput.
func railShares(s suite.Suite) *figure {
	var rails []string
	for _, row := range s.Rows {
		for _, p := range row.PerRail {
			if row.Transport == "rdma" && !slices.Contains(rails, p.Rail) {
				rails = append(rails, p.Rail)
			}
		}
	}
	slices.Sort(rails)
	var list []share
	for _, row := range s.Rows {
		if len(row.PerRail) < 2 {
			continue
		}
		one, known := share{name: row.Name, parts: make([]float64, len(rails))}, true
		counted := !slices.ContainsFunc(row.PerRail, func(p suite.Part) bool { return p.CounterBytes == nil })
		for _, p := range row.PerRail {
			i := slices.Index(rails, p.Rail)
			switch {
			case i < 0 || !counted && !drawable(p.Goodput), counted && *p.CounterBytes < 0:
				known = false
			case counted:
				one.parts[i] = float64(*p.CounterBytes)
			default:
				one.parts[i] = *p.Goodput
			}
		}
		if known {
			list = append(list, one)
		}
	}
	if len(list) == 0 {
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
	for _, row := range s.Sweep {
		if !drawable(row.Goodput) || row.Size <= 0 {
			continue
		}
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
	f := sizes("Goodput by size of messages", "All rails together.", list)
	return &f
}
