package storage

import (
	"io"
	"strings"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/internal/units"
)

// WriteJSON writes results as a JSON array.
func WriteJSON(w io.Writer, results []Result) error {
	return terminal.WriteJSON(w, results)
}

// WriteTable writes one row per target, then failures and interfaces.
func WriteTable(w io.Writer, results []Result, color bool) error {
	p := grid.NewPrinter(w, color)
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
	}
	p.Wide(120).Table(rows)
	for _, r := range results {
		if notes := r.notes(); notes != "" {
			p.Item(r.Target + ": " + notes)
		}
	}
	return p.Flush()
}

func (r Result) notes() string {
	if r.Failure != "" {
		return "failed: " + r.Failure
	}
	notes := []string{"GZIP " + units.Mebibytes(r.GzipBytes) + " of " + units.Mebibytes(r.GzipOfBytes)}
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
