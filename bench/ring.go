package bench

import (
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/bench/suite"
	"github.com/railscope/railscope/bench/tables"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/stats"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe/result"
)

// RingOptions are what a ring is measured for.
type RingOptions struct {
	Start    time.Time
	Bytes    int64         // size of the all-reduce
	StepTime time.Duration // time of a training step; 0: not known
}

// Ring is what several runs of a ring measured, as rows; the figures of the ring are those of its best run.
func Ring(runs []result.RingResult, o RingOptions) suite.Suite {
	var all []suite.Suite
	for _, r := range runs {
		all = append(all, singleRing(r, o))
	}
	best := slices.MinFunc(all, func(a, b suite.Suite) int { return compareTimes(a.Measured, b.Measured) })
	s := suite.Merge(all)
	s.Verdict, s.Ring = best.Verdict, best.Ring
	return s
}

// compareTimes orders what was not measured last.
func compareTimes(a, b *float64) int {
	of := func(v *float64) float64 {
		if v == nil {
			return math.Inf(1)
		}
		return *v
	}
	return int(math.Copysign(1, of(a)-of(b)))
}

func singleRing(r result.RingResult, o RingOptions) suite.Suite {
	ring := newRing(r, o)
	s := suite.Suite{Version: suite.Version, Start: o.Start.UTC(), Good: ring.Measured != nil,
		Settings: []suite.Setting{},
		Rows:     []suite.Row{}, Ratios: []suite.Ratio{}, Sweep: []suite.Row{}, KVCache: []suite.KVCache{},
		Findings: []finding.Finding{}, Notes: []string{}, Ring: ring, Rails: []suite.Rail{},
		Further: suite.Further{Storage: []suite.Checkpoint{}, Compared: []suite.Change{}, Advice: []suite.Advice{}},
		Carrier: string(result.NoTransport), Incomplete: suite.Incomplete{Unmeasured: []suite.Unmeasured{}}}
	took := "not measured"
	if s.Good {
		s.Carrier = string(result.RDMA)
		took = grid.ThreeDigits(*ring.Measured) + " s"
	}
	s.Verdict = fmt.Sprintf("All-reduce of %s over %d nodes: %s.", grid.Size(o.Bytes), len(r.Members), took)
	add := func(name string, transport result.Transport, goodput *float64, f *result.Failure) {
		row := suite.Row{Name: terminal.Plain(name), Transport: string(transport), Op: "ring", Memory: host,
			Rails: []string{}, Goodput: stats.Finite(goodput), Runs: []float64{}, Latency: []suite.Latency{},
			PerRail: []suite.Part{}}
		if row.Goodput != nil {
			row.Runs = append(row.Runs, *row.Goodput)
		} else {
			fail(&row, f)
		}
		s.Rows = append(s.Rows, row)
	}
	add("bus bandwidth", result.RDMA, ring.Bus, nil)
	for _, m := range r.Members {
		switch {
		case m.Failure != nil:
			s.Notes = append(s.Notes, m.Node+": "+m.Failure.Error())
		case m.RailFailure != nil:
			s.Notes = append(s.Notes, m.Node+": "+terminal.Count(m.AllRails-m.Rails, "rail")+" had no part: "+
				m.RailFailure.Error())
		}
		way := ", " + m.Node + " to " + m.Successor
		add("together"+way, result.RDMA, m.Together, m.Failure)
		add("alone"+way, result.RDMA, m.Alone, m.Failure)
		add("TCP"+way, result.TCP, m.TCP, m.Failure)
	}
	return s
}

func newRing(r result.RingResult, o RingOptions) *suite.Ring {
	out := &suite.Ring{Bytes: o.Bytes, Members: []suite.RingMember{}, Burst: result.RingWindow.Seconds(),
		StepTime: nonZero(o.StepTime.Seconds())}
	out.Measured, out.Predicted, out.TCP = r.Seconds(o.Bytes)
	of := func(a, b *float64) *float64 {
		if a == nil || b == nil {
			return nil
		}
		return new(*a / *b)
	}
	out.Ratio, out.Share, out.TCPShare = of(out.Measured, out.Predicted), of(out.Measured, out.StepTime),
		of(out.TCP, out.StepTime)
	if out.Measured != nil {
		out.Bus = new(busBandwidth(o.Bytes, len(r.Members), *out.Measured))
	}
	if out.Ratio != nil {
		out.Meaning = ringMeaning(*out.Ratio)
	}
	for _, m := range r.Members {
		out.Members = append(out.Members, suite.RingMember{Node: m.Node, Successor: m.Successor, Rails: m.Rails,
			AllRails: m.AllRails, Alone: stats.Finite(m.Alone), Together: stats.Finite(m.Together),
			TCP:     stats.Finite(m.TCP),
			Failure: newJSONFailure(m.Failure), OfRail: newJSONFailure(m.RailFailure)})
	}
	return out
}

// busBandwidth is what nccl-tests prints as busbw of an all-reduce, in bytes per second: its algbw, size ÷ time, by
// 2 (n − 1) / n (doc/PERFORMANCE.md of nccl-tests).
func busBandwidth(bytes int64, nodes int, seconds float64) float64 {
	n := float64(nodes)
	return float64(bytes) / seconds * 2 * (n - 1) / n
}

// ringMeaning is what measured ÷ predicted says, by the thresholds of rails that share something.
func ringMeaning(ratio float64) string {
	const shared, slower = 1 / result.SharedBelow, 1 / result.ScalingAbove
	switch {
	case ratio > shared:
		return fmt.Sprintf("above %.2f: the nodes share something", shared)
	case ratio < slower:
		return fmt.Sprintf("below %.2f: a node was slower alone, measure again", slower)
	}
	return fmt.Sprintf("%.2f to %.2f: all at once is as fast as alone", slower, shared)
}

// WriteRing writes a ring for people.
func WriteRing(w io.Writer, s suite.Suite, color bool) error {
	p := grid.NewPrinter(w, color)
	colour := terminal.Red
	if s.Good {
		colour = terminal.Green
	}
	p.Painted(s.Verdict, colour)
	for _, note := range s.Notes {
		p.Item(note)
	}
	figures := tables.Ring(s.Ring)[1:] // the sentence has the title
	for _, rows := range [][][]grid.Cell{tables.RingMembers(s.Ring), figures, tables.Changes(s.Compared)} {
		if len(rows) > 0 {
			p.Line("")
			p.Table(rows)
		}
	}
	return p.Flush()
}

// WriteRingJSON writes a ring as one object for scripts. Every key is always present; what was not measured is null.
func WriteRingJSON(w io.Writer, s suite.Suite) error {
	return terminal.WriteJSON(w, s)
}
