package stats

import (
	"math"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, tc := range []struct {
		list                  []float64
		median, half, highest float64
	}{
		{[]float64{3}, 3, 3, 3},
		{[]float64{4, 1}, 2.5, 1, 4},
		{[]float64{9, 1, 2}, 2, 2, 9},
		{[]float64{8, 1, 2, 4}, 3, 2, 8},
	} {
		first := tc.list[0]
		m, half, top := Median(tc.list), Quantile(tc.list, 0.5), Quantile(tc.list, 0.99)
		if m != tc.median || half != tc.half || top != tc.highest {
			t.Errorf("%v: median %v, quantiles %v and %v; want %v, %v, %v", tc.list, m, half, top, tc.median, tc.half,
				tc.highest)
		}
		if tc.list[0] != first {
			t.Errorf("the list is now %v", tc.list)
		}
	}
}

func TestUnknown(t *testing.T) {
	for v, want := range map[float64][2]bool{0: {false, true}, -1: {false, true}, 2: {true, true},
		math.Inf(1): {true, false}, math.NaN(): {true, false}} {
		positive, finite := Positive(v), Finite(&v)
		if got := [2]bool{positive != nil, finite != nil}; got != want {
			t.Errorf("%v: positive and finite %v, want %v", v, got, want)
		}
	}
	if Finite(nil) != nil {
		t.Error("nil is finite")
	}
}
