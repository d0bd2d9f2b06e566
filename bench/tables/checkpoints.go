package tables

import (
	"strings"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/bench/suite"
	"github.com/railscope/railscope/internal/units"
)

// Checkpoints returns a table with a row for each target, or nothing if there is none.
func Checkpoints(results []suite.Checkpoint) [][]grid.Cell {
	if len(results) == 0 {
		return nil
	}
	rows := [][]grid.Cell{grid.Titles("TARGET", "SIZE", "SAVE s", "Gb/s", "PART P50 s", "P99 s",
		"LOAD s", "Gb/s", "PART P50 s", "P99 s")}
	for _, r := range results {
		row := []grid.Cell{grid.Name(r.Target)}
		figures := make([]string, 9)
		if r.Failure == "" {
			s, l := r.PartSeconds.Save, r.PartSeconds.Load
			figures = []string{units.Mebibytes(r.Bytes),
				grid.ThreeDigits(r.SaveSeconds), grid.Gigabits(r.SaveBytesPerSecond), grid.ThreeDigits(s.P50),
				grid.ThreeDigits(s.P99), grid.ThreeDigits(r.LoadSeconds), grid.Gigabits(r.LoadBytesPerSecond),
				grid.ThreeDigits(l.P50), grid.ThreeDigits(l.P99)}
		}
		for _, f := range figures {
			row = append(row, grid.Number(f))
		}
		rows = append(rows, row)
		if c := r.Compressed; c != nil {
			rows = append(rows, []grid.Cell{grid.Name(r.Target + ", gzip"), grid.Number(units.Mebibytes(c.Bytes)),
				grid.Number(grid.ThreeDigits(c.SaveSeconds)), grid.Number(grid.Gigabits(c.SaveBytesPerSecond)),
				grid.Number(""),
				grid.Number(""), grid.Number(grid.ThreeDigits(c.LoadSeconds)),
				grid.Number(grid.Gigabits(c.LoadBytesPerSecond)), grid.Number(""), grid.Number("")})
		}
	}
	return rows
}

// CheckpointNotes returns how each target was measured, or why it failed.
func CheckpointNotes(results []suite.Checkpoint) (list []string) {
	for _, r := range results {
		if notes := checkpointNotes(r); notes != "" {
			list = append(list, r.Target+": "+notes)
		}
	}
	return list
}

func checkpointNotes(r suite.Checkpoint) string {
	if r.Failure != "" {
		return "failed: " + r.Failure
	}
	var notes []string
	if r.Cache != "" {
		notes = append(notes, map[string]string{"direct": "read by O_DIRECT",
			"advised": "read after posix_fadvise"}[r.Cache])
	}
	if r.Memory {
		notes = append(notes, "this is memory, not storage")
	}
	for _, i := range r.Interfaces {
		name := i.Name
		if i.Rail {
			name += " (a rail)"
		}
		notes = append(notes, name+" sent "+units.Mebibytes(i.Sent)+", received "+units.Mebibytes(i.Received))
	}
	return strings.Join(notes, "; ")
}
