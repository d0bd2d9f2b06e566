package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe"
)

// RingOptions are what a ring is measured for.
type RingOptions struct {
	Bytes    int64         // of the all-reduce
	StepTime time.Duration // of a training step; 0: not known
	Color    bool
}

// WriteRing writes a ring for people.
func WriteRing(w io.Writer, r probe.RingResult, o RingOptions) error {
	p := grid.NewPrinter(w, o.Color)
	measured, predicted, tcp := r.Seconds(o.Bytes)
	head := fmt.Sprintf("All-reduce of %s over %d nodes", grid.Size(o.Bytes), len(r.Members))
	if measured != nil {
		p.Line(p.Paint(fmt.Sprintf("%s: %s s.", head, grid.ThreeDigits(*measured)), terminal.Green))
	} else {
		p.Line(p.Paint(head+": not measured.", terminal.Red))
	}
	for _, m := range r.Members {
		switch {
		case m.Failure != nil:
			p.Item(m.Node + ": " + m.Failure.Error())
		case m.RailFailure != nil:
			p.Item(m.Node + ": " + terminal.Count(m.AllRails-m.Rails, "rail") + " had no part: " + m.RailFailure.Error())
		}
	}
	rows := [][]grid.Cell{{grid.Name("NODE"), grid.Name("TO"), grid.Number("RAILS"), grid.Number("ALONE Gb/s"),
		grid.Number("TOGETHER Gb/s"), grid.Number("TCP Gb/s")}}
	for _, m := range r.Members {
		rows = append(rows, []grid.Cell{grid.Name(m.Node), grid.Name(m.Successor), grid.Number(ofAll(m.Rails, m.AllRails)),
			grid.Rate(m.Alone), grid.Rate(m.Together), grid.Rate(m.TCP)})
	}
	p.Line("")
	p.Table(rows)
	if totals := ringTotals(r, o, measured, predicted, tcp); len(totals) > 0 {
		p.Line("")
		p.Table(totals)
	}
	return p.Flush()
}

// ofAll is how many carry, and of how many if these are more; 0 of 0: not known.
func ofAll(carry, all int) string {
	switch {
	case all == 0:
		return "-"
	case carry == all:
		return strconv.Itoa(all)
	}
	return fmt.Sprintf("%d of %d", carry, all)
}

func ringTotals(r probe.RingResult, o RingOptions, measured, predicted, tcp *float64) (rows [][]grid.Cell) {
	add := func(title, value, unit, colour string) {
		rows = append(rows, []grid.Cell{{Text: title}, grid.Number(value).ColorIf(colour != "", colour), {Text: unit}})
	}
	n := float64(len(r.Members))
	add("each node sends", grid.Decimal(2*(n-1)/n*float64(o.Bytes)/(1<<30), 2), "GiB, 2 (n − 1) / n of the size", "")
	for _, one := range []struct {
		title string
		v     *float64
		unit  string
	}{{"measured", measured, fmt.Sprintf("s, of the slowest node while all send; derived from a burst of "+
		"%d ms", probe.RingWindow.Milliseconds())},
		{"predicted", predicted, "s, of the slowest node alone"}, {"over TCP", tcp, "s, of the slowest node alone"}} {
		if one.v == nil {
			continue
		}
		add(one.title, grid.ThreeDigits(*one.v), one.unit, "")
		if o.StepTime > 0 {
			share := *one.v / o.StepTime.Seconds()
			text, colour := grid.Band(share)
			add("  of a step", grid.Decimal(100*share, 1), "%, "+text, colour)
		}
	}
	if measured != nil && predicted != nil {
		add("measured ÷ predicted", grid.Ratio(*measured / *predicted), "above 1: the nodes share something", "")
	}
	return rows
}

// jsonRing is the object of a ring. Every key is always present; what was not measured is null.
type jsonRing struct {
	Bytes   int64            `json:"bytes"`
	Members []jsonRingMember `json:"members"`

	Measured  *float64 `json:"seconds"`
	Predicted *float64 `json:"predicted_seconds"`
	TCP       *float64 `json:"tcp_seconds"`
	Ratio     *float64 `json:"measured_of_predicted_ratio"`
	StepTime  *float64 `json:"step_seconds"`
	Share     *float64 `json:"step_ratio"` // that synchronisation by RDMA takes of a step
	TCPShare  *float64 `json:"tcp_step_ratio"`
}

type jsonRingMember struct {
	Node      string       `json:"node"`
	Successor string       `json:"successor"`
	Rails     int          `json:"rails"` // that carried it
	AllRails  int          `json:"all_rails"`
	Alone     *float64     `json:"alone_bytes_per_second"`
	Together  *float64     `json:"together_bytes_per_second"`
	TCP       *float64     `json:"tcp_bytes_per_second"`
	Failure   *jsonFailure `json:"failure"`
	OfRail    *jsonFailure `json:"rail_failure"`
}

// WriteRingJSON writes a ring as one object for scripts.
func WriteRingJSON(w io.Writer, r probe.RingResult, o RingOptions) error {
	out := jsonRing{Bytes: o.Bytes, Members: []jsonRingMember{}, StepTime: nonZero(o.StepTime.Seconds())}
	out.Measured, out.Predicted, out.TCP = r.Seconds(o.Bytes)
	of := func(a, b *float64) *float64 {
		if a == nil || b == nil {
			return nil
		}
		return new(*a / *b)
	}
	out.Ratio, out.Share, out.TCPShare = of(out.Measured, out.Predicted), of(out.Measured, out.StepTime),
		of(out.TCP, out.StepTime)
	for _, m := range r.Members {
		out.Members = append(out.Members, jsonRingMember{m.Node, m.Successor, m.Rails, m.AllRails, finite(m.Alone),
			finite(m.Together), finite(m.TCP), newJSONFailure(m.Failure), newJSONFailure(m.RailFailure)})
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(out)
}
