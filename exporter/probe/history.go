package probe

import (
	"slices"
	"time"
)

// history is a bounded number of a rail's solo goodputs of the last day, spread evenly.
type history struct {
	at     []int64 // Unix time, seconds, in order
	values []float64
	gap    int64 // minimum seconds between two; grows when there are too many
}

const (
	historySpan  = int64(24 * time.Hour / time.Second)
	historySize  = 256
	historyLeast = 5 // figures for a median
)

// add adds a figure.
func (h *history) add(t time.Time, v float64) {
	now := t.Unix()
	h.expire(now)
	if n := len(h.at); n > 0 && now-h.at[n-1] < h.gap {
		return
	}
	if len(h.at) == historySize { // drop every second one, and add half as many from here on
		h.gap = (h.at[historySize-1] - h.at[0]) * 2 / historySize
		for i := range historySize / 2 {
			h.at[i], h.values[i] = h.at[2*i+1], h.values[2*i+1]
		}
		h.at, h.values = h.at[:historySize/2], h.values[:historySize/2]
	}
	h.at, h.values = append(h.at, now), append(h.values, v)
}

// expire drops what is older than a day, and what is in the future after the clock was set back.
func (h *history) expire(now int64) {
	from, _ := slices.BinarySearch(h.at, now-historySpan)
	to, _ := slices.BinarySearch(h.at, now+1)
	h.at, h.values = slices.Delete(h.at, to, len(h.at)), slices.Delete(h.values, to, len(h.values))
	h.at, h.values = slices.Delete(h.at, 0, min(from, to)), slices.Delete(h.values, 0, min(from, to))
}

// median returns the median, and false while there are too few figures.
func (h *history) median() (float64, bool) {
	n := len(h.values)
	if n < historyLeast {
		return 0, false
	}
	sorted := slices.Sorted(slices.Values(h.values))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2, true
}
