package storage

import (
	"io"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/bench/tables"
	"github.com/railscope/railscope/internal/terminal"
)

// WriteJSON writes results as a JSON array.
func WriteJSON(w io.Writer, results []Result) error {
	return terminal.WriteJSON(w, results)
}

// WriteTable writes one row per target, then failures and interfaces.
func WriteTable(w io.Writer, results []Result, color bool) error {
	p := grid.NewPrinter(w, color)
	p.Wide(120).Table(tables.Checkpoints(results))
	for _, note := range tables.CheckpointNotes(results) {
		p.Item(note)
	}
	return p.Flush()
}
