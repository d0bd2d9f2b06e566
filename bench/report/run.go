package report

import (
	"fmt"
	"strings"
	"time"

	"gonum.org/v1/plot/plotter"

	"github.com/railscope/railscope/bench/record"
	"github.com/railscope/railscope/internal/terminal"
)

// Run returns the report of a recorded command.
func Run(rec record.Record) Report {
	r := Report{title: "railscope run: " + terminal.Plain(strings.Join(rec.Command, " ")),
		subtitle: fmt.Sprintf("%s, %.1f s, exit code %d", rec.Start.UTC().Format(time.RFC1123), rec.Seconds,
			rec.ExitCode),
		verdict: terminal.Plain(rec.Verdict), good: rec.Good}
	titles := []string{"Rails", "Collectives", "NCCL", "Processes", "Memory", "Environment"}
	for i, rows := range rec.Tables() {
		s := section{Title: titles[i], Tables: []table{fromGrid(rows)}}
		if i == 0 {
			s.figures = plots(carried(rec), overTime(rec))
		}
		r.add(s)
	}
	r.add(section{Title: "Not seen", Text: cleaned(rec.Notes)})
	return r
}

// carried returns the share of each rail by direction.
func carried(rec record.Record) *figure {
	list := []share{{name: "sent"}, {name: "received"}}
	var names []string
	total := 0.0
	for _, rail := range rec.Rails {
		names = append(names, railName(rail.Rail))
		for i, d := range []record.Direction{rail.Transmit, rail.Receive} {
			v := 0.0
			if best := d.Best(); best != nil {
				v = float64(*best)
			}
			list[i].parts = append(list[i].parts, v)
			total += v
		}
	}
	if total == 0 || len(names) < 2 {
		return nil
	}
	f := shares("Share of each rail", "By payload, estimated from the bytes and packets that the ports counted.", names,
		list)
	return &f
}

// overTime returns the rate of each rail over time, both directions together.
func overTime(rec record.Record) *figure {
	var list []curve
	for _, rail := range rec.Rails {
		c := curve{name: railName(rail.Rail)}
		for _, p := range rail.Series {
			if sum := p.Transmit + p.Receive; drawable(&sum) && p.At >= 0 && p.At <= maxTime {
				c.points = append(c.points, plotter.XY{X: p.At, Y: gigabits(sum)})
			}
		}
		if len(c.points) > 1 {
			list = append(list, c)
		}
	}
	if len(list) == 0 {
		return nil
	}
	f := times("Rate of each rail", "Sent and received together, on the wire.", list)
	return &f
}

// Compared returns the report of a command that ran over RDMA and over TCP.
func Compared(c record.Comparison) Report {
	r := Report{title: "railscope run: " + terminal.Plain(strings.Join(c.Command, " ")),
		subtitle: fmt.Sprintf("%d runs, over RDMA and over TCP in turn", len(c.Runs)),
		verdict:  terminal.Plain(c.Verdict), good: c.Good}
	r.add(section{Title: "Runs",
		Tables: []table{fromGrid(c.Summary()), fromGrid(c.Table()), fromGrid(c.CollectiveTable())},
		figures: plots(ofRuns("Time of each run", "seconds", c, func(r record.Run) *float64 { return &r.Seconds }),
			ofRuns("Figure of each run", "as the command printed it", c,
				func(r record.Run) *float64 { return r.Figure }))})
	return r
}

// ofRuns has a bar for each run, those over TCP in their own colour; nil: no run has the value.
func ofRuns(title, unit string, c record.Comparison, of func(record.Run) *float64) *figure {
	var list []rate
	known := false
	for i, r := range c.Runs {
		one, v := rate{name: fmt.Sprintf("run %d, %s", i+1, r.Transport), tcp: r.Transport == record.TCP}, of(r)
		switch {
		case r.ExitCode != 0:
			one.name += fmt.Sprintf(" (exit code %d)", r.ExitCode)
		case !drawable(v):
			one.name += " (none)"
		default:
			one.value, known = *v, true
		}
		list = append(list, one)
	}
	if !known {
		return nil
	}
	f := rates(title, "Over RDMA and over TCP in turn.", unit, list)
	return &f
}
