package sampler

import (
	"testing"
	"time"
)

// TestPace: the median of nine reads decides.
func TestPace(t *testing.T) {
	const ms = time.Millisecond
	for name, tc := range map[string]struct {
		interval time.Duration
		took     []time.Duration
		want     int // stride at the end
	}{
		"quick": {100 * ms, []time.Duration{ms, ms, ms, ms, ms, ms, ms, ms, ms, ms}, 1},
		"a tenth": {100 * ms, []time.Duration{10 * ms, 10 * ms, 10 * ms, 10 * ms, 10 * ms, 10 * ms,
			10 * ms}, 1},
		"four hiccups": {100 * ms, []time.Duration{ms, 900 * ms, 900 * ms, ms, 900 * ms, 900 * ms, ms, ms,
			ms, ms}, 1},
		"more than a tenth": {100 * ms, []time.Duration{11 * ms, 11 * ms, 11 * ms, 11 * ms, 11 * ms}, 2},
		"at 10 ms":          {10 * ms, []time.Duration{7 * ms, 7 * ms, 7 * ms, 7 * ms, 7 * ms}, 7},
		"never slower than 10 s": {100 * ms, []time.Duration{9000 * ms, 9000 * ms, 9000 * ms, 9000 * ms, 9000 * ms},
			100},
		"10 s is all there is": {10000 * ms, []time.Duration{9000 * ms, 9000 * ms, 9000 * ms, 9000 * ms, 9000 * ms},
			1},
		"not back for a little": {100 * ms, []time.Duration{25 * ms, 25 * ms, 25 * ms, 25 * ms, 25 * ms, 19 * ms,
			19 * ms, 19 * ms, 19 * ms, 19 * ms}, 3},
		"back when it is quicker": {100 * ms, []time.Duration{25 * ms, 25 * ms, 25 * ms, 25 * ms, 25 * ms, ms, ms, ms,
			ms, ms}, 1},
	} {
		p := newPace(tc.interval)
		for _, took := range tc.took {
			p.note(took)
		}
		if p.stride != tc.want {
			t.Errorf("%s: every %v, want every %v", name, p.every(), tc.interval*time.Duration(tc.want))
		}
	}
}

// TestUnion: the time in which any rail was busy, for overlapping samples in any order.
func TestUnion(t *testing.T) {
	u := union{ticks: make([]uint8, 16)}
	u.mark(Receive, 0, 3)
	u.mark(Receive, 2, 5)
	u.mark(Transmit, 4, 5)
	if got := u.count(4); got != [directions]int64{4, 0} {
		t.Errorf("up to 4: %v", got)
	}
	u.mark(Receive, 1, 7) // ticks 5, 6 and 7, which are already counted: the count stays
	u.mark(Transmit, 30, 40)
	if got := u.count(10); got != [directions]int64{3, 1} {
		t.Errorf("up to 10: %v", got)
	}
	u.mark(Receive, 10, 1000) // more ticks than the ring holds
	if got := u.count(1000); got != [directions]int64{16, 0} {
		t.Errorf("up to 1000: %v", got)
	}
	u.mark(Receive, 900, 1001)
	if got := u.count(1001); got != [directions]int64{1, 0} {
		t.Errorf("up to 1001: %v", got)
	}
}
