package probe

import (
	"slices"
	"time"
)

// history is a bounded number of a rail's solo goodputs of the last day, spread evenly.
type history struct{ figures []figure } // oldest first

type figure struct {
	at    int64 // Unix time, seconds
	value float64
}

const (
	historySpan  = int64(24 * time.Hour / time.Second)
	historyGap   = historySpan / 250 // between two figures, once there are enough for a median
	historyLeast = 5                 // figures for a median
)

// add adds a figure, unless the last one is too recent.
func (h *history) add(t time.Time, v float64) {
	h.expire(t)
	now, n := t.Unix(), len(h.figures)
	if n < historyLeast || now-h.figures[n-1].at >= historyGap {
		h.figures = append(h.figures, figure{now, v})
	}
}

// expire drops what is older than a day, and what is in the future after the clock was set back.
func (h *history) expire(t time.Time) {
	now := t.Unix()
	h.figures = slices.DeleteFunc(h.figures, func(f figure) bool { return f.at < now-historySpan || f.at > now })
}

// median returns the median, and false while there are too few figures.
func (h *history) median() (float64, bool) {
	n := len(h.figures)
	if n < historyLeast {
		return 0, false
	}
	values := make([]float64, n)
	for i, f := range h.figures {
		values[i] = f.value
	}
	slices.Sort(values)
	return (values[(n-1)/2] + values[n/2]) / 2, true
}
