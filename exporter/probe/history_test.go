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
		if len(h.at) > historySize || len(h.at) != len(h.values) || !slices.IsSorted(h.at) {
			t.Fatalf("%d figures after %d s", len(h.at), second)
		}
	}
	if n, span := len(h.at), h.at[len(h.at)-1]-h.at[0]; n < historySize/4 || span < historySpan*9/
		10 || span > historySpan {
		t.Errorf("%d figures over %d s", n, span)
	}
	if m, ok := h.median(); !ok || m < 200_000-86400/2-3000 || m > 200_000-86400/2+3000 {
		t.Errorf("the median is %v", m)
	}
	h.add(noon, 1) // the clock was set back by two days
	if len(h.at) != 1 {
		t.Errorf("%d figures of the future", len(h.at)-1)
	}
}
