package bench

import (
	"cmp"
	"slices"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/result"
)

// inRailOrder returns a result whose rails, and bursts over them, are ordered by the rails' names. The order of
// devices may differ.
func inRailOrder(r result.Result) result.Result {
	r.Rails = sortedBy(r.Rails, func(a, b result.RailResult) int { return rail.NaturalCompare(a.Rail, b.Rail) })
	r.TCP = slices.Clone(r.TCP)
	for i := range r.TCP {
		r.TCP[i].Rails = sortedBy(r.TCP[i].Rails, func(a, b result.TCPRail) int {
			return rail.NaturalCompare(a.Rail, b.Rail)
		})
	}
	r.Extras = slices.Clone(r.Extras)
	for i := range r.Extras {
		r.Extras[i].Flows = sortedBy(r.Extras[i].Flows, func(a, b result.MeasuredFlow) int {
			return cmp.Or(byName(a, b), cmp.Compare(b.Op, a.Op)) // writes before reads
		})
	}
	for from := 0; from < len(r.Extras); {
		to := from + 1
		for to < len(r.Extras) && alike(r.Extras[from], r.Extras[to]) {
			to++
		}
		slices.SortStableFunc(r.Extras[from:to], byRails)
		from = to
	}
	return r
}

func byName(a, b result.MeasuredFlow) int { return rail.NaturalCompare(a.Rail, b.Rail) }

func sortedBy[T any](list []T, compare func(a, b T) int) []T {
	list = slices.Clone(list)
	slices.SortStableFunc(list, compare)
	return list
}

// alike reports whether two bursts of extras differ only in their rails.
func alike(a, b result.Measured) bool {
	return a.Kind == b.Kind && a.QueuePairs == b.QueuePairs && a.Memory == b.Memory && a.Size == b.Size
}

// byRails orders bursts by the number of their rails, then by the names of the rails.
func byRails(a, b result.Measured) int {
	return cmp.Or(cmp.Compare(len(a.Flows), len(b.Flows)), slices.CompareFunc(a.Flows, b.Flows, byName))
}
