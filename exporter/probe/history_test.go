package probe

import (
	"slices"
	"testing"
	"time"
)

// TestHistory: a day of figures, spread evenly, in bounded memory.
func TestHistory(t *testing.T) {
	var h history
	noon := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for second := range 200_000 { // one a second, for more than two days
		h.add(noon.Add(time.Duration(second)*time.Second), float64(second))
		if len(h.figures) > 256 || !slices.IsSortedFunc(h.figures, func(a, b figure) int { return int(a.at - b.at) }) {
			t.Fatalf("%d figures after %d s", len(h.figures), second)
		}
	}
	if n, span := len(h.figures), h.figures[len(h.figures)-1].at-h.figures[0].at; n < 200 ||
		span < historySpan*9/10 || span > historySpan {
		t.Errorf("%d figures over %d s", n, span)
	}
	if m, ok := h.median(); !ok || m < 200_000-86400/2-3000 || m > 200_000-86400/2+3000 {
		t.Errorf("the median is %v", m)
	}
	h.add(noon, 1) // the clock was set back by two days
	if len(h.figures) != 1 {
		t.Errorf("%d figures of the future", len(h.figures)-1)
	}
}
