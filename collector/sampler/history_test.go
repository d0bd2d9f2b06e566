package sampler

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestRates: rates of the last seconds, computed from the account's total at each second.
func TestRates(t *testing.T) {
	nan := math.NaN()
	type second struct {
		number  int
		bytes   uint64
		seconds float64
	}
	for _, tc := range []struct {
		name     string
		interval time.Duration
		taken    []second
		want     []float64
		now      second // account a moment later
		rate     float64
	}{
		{"nothing yet", time.Second / 10, nil, nil, second{}, nan},
		{"a burst", time.Second / 10, []second{{1, 0, 1}, {2, 500, 2}, {3, 1500, 3}, {4, 1500, 4}},
			[]float64{0, 500, 1000, 0}, second{4, 1500, 4.5}, 0},
		{"begun a moment ago shows at once", time.Second / 10, []second{{1, 0, 1}, {2, 0, 2}}, []float64{0, 0},
			second{2, 300, 2.5}, 200},
		{"the first sample", time.Second / 10, []second{{1, 0, 0}, {2, 90, 0.9}}, []float64{nan, 100},
			second{2, 90, 0.9}, 100},
		{"stuck", time.Second / 10, []second{{1, 100, 1}, {2, 200, 2}, {3, 200, 2}, {4, 200, 2}, {5, 200, 2}},
			[]float64{100, 100, 100, nan, nan}, second{5, 200, 2}, nan},
		{"samples rarer than seconds", 3 * time.Second, []second{{1, 0, 0}, {2, 0, 0}, {3, 300, 3}, {4, 300, 3},
			{5, 300, 3}, {6, 900, 6}}, []float64{nan, nan, 100, 100, 100, 200}, second{6, 900, 6}, 200},
		{"away for two seconds", time.Second / 10, []second{{1, 100, 1}, {4, 200, 2}}, []float64{100, nan, nan, 100},
			second{4, 200, 2}, 100},
	} {
		var h history
		for _, s := range tc.taken {
			h.add(s.number, point{bytes: s.bytes, seconds: s.seconds})
		}
		rates, rate := h.rates(nil, tc.interval, point{bytes: tc.now.bytes, seconds: tc.now.seconds})
		if diff := cmp.Diff(tc.want, rates, cmpopts.EquateNaNs()); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", tc.name, diff)
		}
		if diff := cmp.Diff(tc.rate, rate, cmpopts.EquateNaNs()); diff != "" {
			t.Errorf("%s: rate (-want +got)\n%s", tc.name, diff)
		}
	}
}

// TestHistoryForgets: the history covers two minutes, also after the rail was absent for an hour.
func TestHistoryForgets(t *testing.T) {
	var h history
	for i := range 1000 {
		h.add(i+1, point{bytes: uint64(i) * 100, seconds: float64(i)})
	}
	if got, _ := h.rates(nil, time.Second/10, point{}); len(got) != RecentSeconds ||
		got[0] != 100 || got[RecentSeconds-1] != 100 {
		t.Errorf("%d rates: %v", len(got), got)
	}
	h.add(5000, point{bytes: 200000, seconds: 1001})
	if w := h.over(10); w.seconds != 0 {
		t.Errorf("a window of %v s right after the rail came back", w.seconds)
	}
	if got, _ := h.rates(nil, time.Second/10, point{}); len(got) != RecentSeconds ||
		!math.IsNaN(got[0]) || math.IsNaN(got[RecentSeconds-1]) {
		t.Errorf("after an hour away, %d rates: %v", len(got), got)
	}
}
