// Package stats has the statistics that several packages need, and figures that may be unknown.
package stats

import (
	"cmp"
	"math"
	"slices"
)

// Median returns the median of a list that is not empty: of an even number, the mean of the middle two.
func Median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Quantile returns the quantile q of a list that is not empty, by nearest rank: always one of its values.
func Quantile[T cmp.Ordered](list []T, q float64) T {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[max(int(math.Ceil(q*float64(len(sorted))))-1, 0)]
}

// Positive returns v, or nil for 0, which stands for unknown.
func Positive(v float64) *float64 {
	if v <= 0 {
		return nil
	}
	return &v
}

// Finite returns v, or nil for what JSON cannot represent.
func Finite(v *float64) *float64 {
	if v == nil || math.IsNaN(*v) || math.IsInf(*v, 0) {
		return nil
	}
	return v
}
