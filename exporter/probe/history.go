package probe

import (
	"slices"
	"time"
)

// history is what a rail's solos were in the last day: few enough to keep, and
// spread evenly over the day.
type history struct {
	at  []int64 // Unix time, seconds, in order
	was []float64
	gap int64 // least seconds between two; grows when there are too many
}

const (
	historySpan  = int64(24 * time.Hour / time.Second)
	historySize  = 256
	historyLeast = 5 // figures that make a past
)

// add takes in a figure.
func (h *history) add(t time.Time, v float64) {
	now := t.Unix()
	h.forget(now)
	if n := len(h.at); n > 0 && now-h.at[n-1] < h.gap {
		return
	}
	if len(h.at) == historySize { // drop every second one, and take in as many from here on
		h.gap = (h.at[historySize-1] - h.at[0]) * 2 / historySize
		for i := range historySize / 2 {
			h.at[i], h.was[i] = h.at[2*i+1], h.was[2*i+1]
		}
		h.at, h.was = h.at[:historySize/2], h.was[:historySize/2]
	}
	h.at, h.was = append(h.at, now), append(h.was, v)
}

// forget drops what is older than a day, and what is of the future after the
// clock was set back.
func (h *history) forget(now int64) {
	from, _ := slices.BinarySearch(h.at, now-historySpan)
	to, _ := slices.BinarySearch(h.at, now+1)
	h.at, h.was = slices.Delete(h.at, to, len(h.at)), slices.Delete(h.was, to, len(h.was))
	h.at, h.was = slices.Delete(h.at, 0, min(from, to)), slices.Delete(h.was, 0, min(from, to))
}

// median returns the median, and whether there is enough to tell.
func (h *history) median() (float64, bool) {
	n := len(h.was)
	if n < historyLeast {
		return 0, false
	}
	sorted := slices.Sorted(slices.Values(h.was))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2, true
}
