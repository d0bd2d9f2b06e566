package storage

import (
	"encoding/json"
	"io"
	"strings"

	"github.com/railscope/railscope/bench/grid"
)

// WriteJSON writes results as a JSON array.
func WriteJSON(w io.Writer, results []Result) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(results)
}

// WriteTable writes one row per target, then failures and interfaces.
func WriteTable(w io.Writer, results []Result, color bool) error {
	p := grid.NewPrinter(w, color)
	rows := [][]grid.Cell{grid.Titles("target", "size", "save s", "Gb/s", "p50 s", "p99 s", "load s", "Gb/s", "p50 s", "p99 s")}
	for _, r := range results {
		row := []grid.Cell{grid.Name(r.Target)}
		figures := make([]string, 9)
		if r.Failure == "" {
			s, l := r.PartSeconds.Save, r.PartSeconds.Load
			figures = []string{grid.Mebibytes(r.Bytes),
				grid.Decimal(r.SaveSeconds, 3), grid.Gigabits(r.SaveBytesPerSecond), grid.Decimal(s.P50, 3), grid.Decimal(s.P99, 3),
				grid.Decimal(r.LoadSeconds, 3), grid.Gigabits(r.LoadBytesPerSecond), grid.Decimal(l.P50, 3), grid.Decimal(l.P99, 3)}
		}
		for _, f := range figures {
			row = append(row, grid.Number(f))
		}
		rows = append(rows, row)
	}
	p.Table(rows)
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
	notes := []string{"gzip makes " + grid.Mebibytes(r.GzipBytes) + " of " + grid.Mebibytes(r.GzipOfBytes)}
	if r.Cache != "" {
		notes = append(notes, "page cache: "+r.Cache)
	}
	if r.Memory {
		notes = append(notes, "this is memory, not storage")
	}
	for _, i := range r.Interfaces {
		kind := "management"
		if i.Rail {
			kind = "rail"
		}
		notes = append(notes, i.Name+" ("+kind+") sent "+grid.Mebibytes(i.Sent)+", received "+grid.Mebibytes(i.Received))
	}
	return strings.Join(notes, "; ")
}
