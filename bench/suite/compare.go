package suite

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/railscope/railscope/internal/stats"
)

// MaxFile bounds a saved suite, in bytes.
const MaxFile = 64 << 20

// Read reads a suite as `bench --save` writes it. Keys of the round beside it are skipped.
func Read(r io.Reader) (Suite, error) {
	var s Suite
	data, err := io.ReadAll(io.LimitReader(r, MaxFile+1))
	switch {
	case err != nil:
		return s, err
	case len(data) > MaxFile:
		return s, fmt.Errorf("larger than %d MiB: not a saved benchmark", MaxFile>>20)
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("not a saved benchmark: %w", err)
	}
	switch {
	case s.Version == 0:
		return s, errors.New("not a saved benchmark: no key \"version\"; write one by railscope bench --save")
	case s.Version != Version:
		return s, fmt.Errorf("a benchmark of form %d, this version reads form %d: save it anew", s.Version, Version)
	}
	return s, nil
}

// Merge is the last of several suites, with the runs of all of them in each row. The best run counts.
func Merge(list []Suite) Suite {
	out := list[len(list)-1]
	out.Rows, out.Sweep = mergeRows(list, func(s Suite) []Row { return s.Rows }),
		mergeRows(list, func(s Suite) []Row { return s.Sweep })
	for _, s := range list {
		out.Good = out.Good && s.Good
	}
	return out
}

// same reports whether two rows measure the same. Those of a sweep have their size as name.
func (r Row) same(other Row) bool {
	return r.Name == other.Name && r.Op == other.Op
}

func mergeRows(list []Suite, of func(Suite) []Row) []Row {
	rows := slices.Clone(of(list[len(list)-1]))
	for _, s := range slices.Backward(list) { // what the last did not come to
		for _, row := range of(s) {
			if !slices.ContainsFunc(rows, row.same) {
				rows = append(rows, row)
			}
		}
	}
	for i := range rows {
		row := &rows[i]
		row.Runs = []float64{}
		for _, s := range list {
			for _, one := range of(s) {
				if one.same(*row) && one.Goodput != nil {
					row.Runs = append(row.Runs, *one.Goodput)
				}
			}
		}
		if len(row.Runs) > 0 && (row.Goodput != nil || row.Skipped) {
			row.Goodput = new(slices.Max(row.Runs))
			row.Failure, row.Reason, row.Skipped = "", "", false
		}
	}
	return rows
}

// Change is what a row is now, relative to what it was.
type Change struct {
	Name    string  `json:"name"`
	Before  float64 `json:"before_bytes_per_second"` // medians; 0: without a figure
	After   float64 `json:"after_bytes_per_second"`
	Changed bool    `json:"changed"` // beyond the runs' own spread
	Missing string  `json:"missing"` // why there is no comparison; empty: there is one
}

// minChange is the part by which medians must differ.
const minChange = 0.02

// Worse reports whether the row carries less than before.
func (c Change) Worse() bool { return c.Changed && c.After < c.Before }

// Compare compares the rows of two suites by name. A row has changed if the ranges of its runs are disjoint, and the
// medians differ by more than 2 %.
func Compare(before, after Suite) (list []Change) {
	for _, rows := range [][2][]Row{{before.Rows, after.Rows}, {before.Sweep, after.Sweep}} {
		for _, was := range rows[0] {
			i := slices.IndexFunc(rows[1], was.same)
			if i < 0 {
				list = append(list, Change{Name: was.Name, Missing: "not measured now"})
				continue
			}
			list = append(list, compareRow(was, rows[1][i]))
		}
		for _, is := range rows[1] {
			if !slices.ContainsFunc(rows[0], is.same) {
				list = append(list, Change{Name: is.Name, Missing: "not measured before"})
			}
		}
	}
	return list
}

func compareRow(was, is Row) Change {
	c := Change{Name: was.Name}
	switch {
	case len(was.Runs) == 0 && len(is.Runs) == 0:
		c.Missing = "without a figure before and now"
		return c
	case len(was.Runs) == 0:
		c.Missing = "without a figure before"
		return c
	case len(is.Runs) == 0 && is.Skipped:
		c.Before, c.Missing = stats.Median(was.Runs), "not measured now: "+is.Reason
		return c
	case len(is.Runs) == 0: // it fails now
		c.Before, c.Changed = stats.Median(was.Runs), true
		return c
	}
	c.Before, c.After = stats.Median(was.Runs), stats.Median(is.Runs)
	disjoint := slices.Min(is.Runs) > slices.Max(was.Runs) || slices.Max(is.Runs) < slices.Min(was.Runs)
	c.Changed = disjoint && (c.After > c.Before*(1+minChange) || c.After < c.Before*(1-minChange))
	return c
}
