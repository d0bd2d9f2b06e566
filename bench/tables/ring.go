package tables

import (
	"fmt"
	"strconv"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/bench/suite"
)

// RingMembers returns a table of what each node of a ring carried to its successor.
func RingMembers(r *suite.Ring) [][]grid.Cell {
	rows := [][]grid.Cell{{grid.Name("NODE"), grid.Name("TO"), grid.Number("RAILS"), grid.Number("ALONE Gb/s"),
		grid.Number("TOGETHER Gb/s"), grid.Number("TCP Gb/s")}}
	for _, m := range r.Members {
		rows = append(rows, []grid.Cell{grid.Name(m.Node), grid.Name(m.Successor),
			grid.Number(ofAll(m.Rails, m.AllRails)), grid.Rate(m.Alone), grid.Rate(m.Together), grid.Rate(m.TCP)})
	}
	return rows
}

// ofAll formats how many rails carry, and the number of all rails if it is larger; 0 of 0: unknown.
func ofAll(carry, all int) string {
	switch {
	case all == 0:
		return "-"
	case carry == all:
		return strconv.Itoa(all)
	}
	return fmt.Sprintf("%d of %d", carry, all)
}

// Ring returns a table of the figures of all nodes of a ring together.
func Ring(r *suite.Ring) [][]grid.Cell {
	rows := [][]grid.Cell{{grid.Name("ALL-REDUCE"), grid.Number(grid.Size(r.Bytes)), {Text: ""}}}
	add := func(title, value, unit, colour string) {
		rows = append(rows, []grid.Cell{{Text: title}, grid.Number(value).ColorIf(colour != "", colour), {Text: unit}})
	}
	n := float64(len(r.Members))
	add("each node sends", grid.Decimal(2*(n-1)/n*float64(r.Bytes)/(1<<30), 2), "GiB, 2 (n − 1) / n of the size", "")
	for _, one := range []struct {
		title       string
		time, share *float64
		unit        string
	}{{"measured", r.Measured, r.Share, fmt.Sprintf("s, of the slowest node while all send; derived from a burst of "+
		"%.0f ms", r.Burst*1e3)},
		{"predicted", r.Predicted, share(r.Predicted, r.StepTime), "s, of the slowest node alone"},
		{"over TCP", r.TCP, r.TCPShare, "s, of the slowest node alone"}} {
		if one.time == nil {
			continue
		}
		add(one.title, grid.ThreeDigits(*one.time), one.unit, "")
		if one.share != nil {
			value, unit := grid.OfStep(*one.share)
			text, colour := grid.Band(*one.share)
			add("  that is", value, unit+", "+text, colour)
		}
	}
	if r.Bus != nil {
		add("bus bandwidth", grid.Gigabits(*r.Bus), fmt.Sprintf("Gb/s, %s GB/s as nccl-tests prints it",
			grid.Decimal(*r.Bus/1e9, 2)), "")
	}
	if r.Ratio != nil {
		add("measured ÷ predicted", grid.Ratio(*r.Ratio), r.Meaning, "")
	}
	return rows
}

func share(time, step *float64) *float64 {
	if time == nil || step == nil {
		return nil
	}
	return new(*time / *step)
}
