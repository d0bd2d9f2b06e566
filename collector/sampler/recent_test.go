package sampler

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestRecent is what people are shown of the last seconds, for what an account
// had counted at each.
func TestRecent(t *testing.T) {
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
		now      second // the account, a moment after
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
		var r Recent
		for _, s := range tc.taken {
			r.add(s.bytes, s.seconds, s.number, tc.interval)
		}
		r.rateUpTo(tc.now.bytes, tc.now.seconds)
		if diff := cmp.Diff(tc.want, r.AppendTo(nil), cmpopts.EquateNaNs()); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", tc.name, diff)
		}
		if diff := cmp.Diff(tc.rate, r.Rate, cmpopts.EquateNaNs()); diff != "" {
			t.Errorf("%s: rate (-want +got)\n%s", tc.name, diff)
		}
	}
}

// TestRecentForgets: it holds two minutes, and a rail that was away for an hour
// costs no more than that.
func TestRecentForgets(t *testing.T) {
	var r Recent
	for i := range 1000 {
		r.add(uint64(i)*100, float64(i), i, time.Second/10)
	}
	if got := r.AppendTo(nil); len(got) != RecentSeconds || got[0] != 100 || got[RecentSeconds-1] != 100 {
		t.Errorf("%d rates: %v", len(got), got)
	}
	r.add(200000, 1001, 5000, time.Second/10)
	if got := r.AppendTo(nil); len(got) != RecentSeconds || !math.IsNaN(got[0]) || math.IsNaN(got[RecentSeconds-1]) {
		t.Errorf("after an hour away, %d rates: %v", len(got), got)
	}
}
