package page

import (
	"math"
	"testing"
	"time"
)

// TestFigures: formatting of values. An unknown value is never 0.
func TestFigures(t *testing.T) {
	for _, tc := range []struct {
		v    float64
		unit string
		want string
	}{
		{0, "rate", "0\u00a0b/s"}, {1, "rate", "8\u00a0b/s"}, {0.0625, "rate", "0.50\u00a0b/s"},
		{124.9, "rate", "999\u00a0b/s"},
		{124.96, "rate", "1.00\u00a0kb/s"}, {1.2492e9, "rate", "9.99\u00a0Gb/s"}, {1.2495e9, "rate", "10.0\u00a0Gb/s"},
		{1.2495e10, "rate", "100\u00a0Gb/s"}, {5e10, "rate", "400\u00a0Gb/s"}, {4e11, "rate", "3200\u00a0Gb/s"},
		{3.5e13, "count", "35.0\u00a0TB"}, {3e23, "count", "300000\u00a0EB"},
		{8.5520809984e10, "bytes", "79.6\u00a0GiB"}, {1023, "bytes", "1023\u00a0B"}, {1024, "bytes", "1.00\u00a0KiB"},
		{0, "bytes", "0\u00a0B"},
		{0.004, "ratio", "0.00"}, {1, "ratio", "1.00"}, {0.0001, "percent", "<1\u00a0%"}, {0, "percent", "0\u00a0%"},
		{0.845, "percent", "85\u00a0%"}, {1.7, "percent", "170\u00a0%"},
		{4096, "", "4096"}, {16, "", "16"},
	} {
		if got := fig(&tc.v, "x", tc.unit); got.Text != tc.want || !got.Known {
			t.Errorf("%v as %s: %q, want %q", tc.v, tc.unit, got.Text, tc.want)
		}
	}
	for v, want := range map[float64]string{68.66: "68.7/s", 0.1: "6.00/min", 12345: "12.3\u00a0k/s"} {
		if got := perSecond(v); got != want {
			t.Errorf("%v per second: %q, want %q", v, got, want)
		}
	}
	if got := fig(nil, "x", "rate"); got.Known || got.Text != "" {
		t.Errorf("nothing is %+v", got)
	}
	if got := micro(new(2.314e-6)) + " " + micro(new(0.00123)); got != "2.31\u00a0µs 1.23\u00a0ms" {
		t.Error(got)
	}
}

// TestSpan: formatting of durations.
func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{-time.Second: "0 s", 59 * time.Second: "59 s",
		61 * time.Second:            "1 min",
		2*time.Hour + 5*time.Minute: "2 h 5 min", 76*time.Hour + 59*time.Minute: "3 d 4 h"} {
		if got := span(then(), then().Add(d)); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

// TestSpark: the line of the last two minutes ends at the right edge and has gaps where the rate is unknown.
func TestSpark(t *testing.T) {
	nan := math.NaN()
	for _, tc := range []struct {
		name     string
		recent   []float64
		capacity *float64
		line     string
	}{
		{"nothing", nil, new(100.0), ""},
		{"half", []float64{50, 50, 50, 50}, new(100.0), "M117 17L120 17"},
		{"up and down", []float64{0, 100, 0}, new(100.0), "M118 32L119 2L120 32"},
		{"beyond the capacity", []float64{100, 170}, new(100.0), "M119 2L120 2"},
		{"a gap", []float64{100, nan, nan, 0}, new(100.0), "M117 2M120 32"},
		{"the highest is the measure", []float64{5, 10}, nil, "M119 17L120 2"},
		{"idle, and nothing to measure by", []float64{0, 0}, nil, ""},
	} {
		if got := spark(tc.recent, tc.capacity); got.Line != tc.line {
			t.Errorf("%s: %q, want %q", tc.name, got.Line, tc.line)
		}
	}
	full := make([]float64, recentSeconds)
	if got, want := spark(full, new(1.0)), (sparkline{"M1 32L120 32", "M1 32L120 32L120 32L1 32Z"}); got != want {
		t.Errorf("idle for two minutes: %+v, want %+v", got, want)
	}
}

// TestMoved: a counter has a rate while it moves and for a minute after; one that decreases starts again.
func TestMoved(t *testing.T) {
	b, at := newBuilder(Options{}), then()
	for i, tc := range []struct {
		after time.Duration
		v     float64
		want  float64
	}{
		{0, 1000, 0},
		{time.Second, 1000, 0},
		{time.Second, 1020, 10},
		{28 * time.Second, 1020, 20. / 30},
		{30 * time.Second, 1020, 0},
		{time.Second, 1031, 11. / 31},
		{time.Second, 5, 0}, // the device was reset
		{time.Second, 6, 1},
		{2 * time.Minute, 600, 0}, // no page was open in between
	} {
		at = at.Add(tc.after)
		if got := b.moved("x", tc.v, at); math.Abs(got-tc.want) > 1e-9 {
			t.Errorf("%d: %v, want %v", i, got, tc.want)
		}
	}
}
