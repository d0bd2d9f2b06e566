package tcp

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/transfer"
)

// TestBurst makes bursts over one lane and several. Bytes arrive at [transfer.Place] in the ring of their connection,
// and the figures are of the window.
func TestBurst(t *testing.T) {
	settle(t)
	for _, tc := range []struct {
		lanes, streams, size int
		chunk                int64
		depth                int
	}{
		{1, 1, 4 << 20, 1 << 20, 8},
		{1, 4, 4 << 20, 128 << 10, 8},
		{2, 1, 4 << 20, 1 << 20, 8},
		{3, 2, 4<<20 + 13, 300_001, 5},  // no size divides another
		{2, 2, 1<<20 + 13, 64 << 10, 8}, // many passes
		{2, 4, 1 << 20, 64 << 10, 1},    // more connections than depth
		{8, 1, 4096, 4096, 8},
	} {
		t.Run(fmt.Sprint(tc), func(t *testing.T) {
			tg := target(t, tc.lanes, tc.streams, tc.size)
			c := tg.dial(t)
			for pass := range 2 { // the lanes still work after a burst
				o := transfer.BurstArgs{Loads: loads(tc.lanes, tc.chunk, tc.depth), Warmup: 5 * time.Millisecond,
					Window: 10 * time.Millisecond, Writes: 3, Slow: 5 * time.Second, Pass: 67 * pass}
				r := tg.deliver(t, c, o)
				for i, l := range r.Rails {
					if len(l.Writes) != tc.streams || l.Failure != nil || l.Disturbed || l.Measured < 3*tc.chunk ||
						l.First < o.Warmup || l.Last-l.First < o.Window || c.Progress()[i] != l.Bytes {
						t.Errorf("lane %d: %+v, progress %d", i, l, c.Progress()[i])
					}
				}
			}
		})
	}
}

// TestSingleWrites: without a window each connection writes as often as it may have in flight, however fast others are.
func TestSingleWrites(t *testing.T) {
	settle(t)
	for _, tc := range []struct{ streams, depth int }{{1, 1}, {4, 4}, {2, 8}} {
		t.Run(fmt.Sprint(tc), func(t *testing.T) {
			tg := target(t, 2, tc.streams, 64<<10)
			to := tg.Addrs()
			to[1], _ = relay(t, to[1], 1e6)
			r := tg.deliver(t, tg.dialTo(t, to), transfer.BurstArgs{Loads: loads(2, 4096, tc.depth), Slow: time.Second})
			want := slices.Repeat([]int64{int64(tc.depth / tc.streams)}, tc.streams)
			for i, l := range r.Rails {
				if !slices.Equal(l.Writes, want) || l.Disturbed || l.Failure != nil {
					t.Errorf("lane %d: %+v, want writes %v", i, l, want)
				}
			}
		})
	}
}

// TestWarmup: writes during the warm-up are not measured, and without a measured byte there is no figure. The warm-up
// is so much longer than the window that more is written during it, however slow the machine is for a part of it.
func TestWarmup(t *testing.T) {
	settle(t)
	tg := target(t, 2, 2, 4<<20)
	c := tg.dial(t)
	o := transfer.BurstArgs{Loads: loads(2, 64<<10, 8), Warmup: 500 * time.Millisecond, Window: 5 * time.Millisecond,
		Slow: 10 * time.Second}
	for i, l := range tg.deliver(t, c, o).Rails {
		if l.First < o.Warmup || l.Last-l.First < o.Window || l.Measured >= l.Bytes*3/4 || l.Disturbed {
			t.Errorf("lane %d: %+v", i, l)
		}
	}
	o.Warmup, o.Slow = time.Hour, 50*time.Millisecond
	for i, l := range tg.deliver(t, c, o).Rails {
		if l.Bytes == 0 || l.Measured != 0 || l.Rate() != 0 || !l.Disturbed {
			t.Errorf("lane %d, only warm-up: %+v", i, l)
		}
	}
}

// TestSlowLane: each lane's figure is its own rate. A busy machine gets more attempts.
func TestSlowLane(t *testing.T) {
	settle(t)
	tg := target(t, 2, 1, 4<<20)
	to := tg.Addrs()
	rates := []float64{15e6, 5e6}
	// The rate is low enough that the relay remains the limit for a lane that waits for a processor.
	to[0], _ = relay(t, to[0], int(rates[0]))
	to[1], _ = relay(t, to[1], int(rates[1]))
	c := tg.dialTo(t, to)
	worst := 1.0
	for try := 0; try < 5 && worst > 0.15; try++ {
		r := tg.deliver(t, c, transfer.BurstArgs{Loads: loads(2, 64<<10, 8), Warmup: 20 * time.Millisecond,
			Window: 300 * time.Millisecond, Slow: 5 * time.Second})
		worst = 0
		for i, l := range r.Rails {
			worst = max(worst, math.Abs(l.Rate()/rates[i]-1))
		}
	}
	if worst > 0.15 {
		t.Errorf("off by %.2f", worst)
	}
}

// TestEnd: a burst ends when its window is over and enough is written, at its cap, or at its time limit, and everything
// sent is acknowledged.
func TestEnd(t *testing.T) {
	settle(t)
	const chunk = 64 << 10
	for _, tc := range []struct {
		name        string
		rate        int // rate of the first lane, bytes per second
		o           transfer.BurstArgs
		cap         int64
		least, most int64 // bounds on the chunks of the first lane
	}{
		{"writes", 8e6, transfer.BurstArgs{Window: time.Millisecond, Writes: 20, Slow: time.Hour}, 1 << 50, 21, 500},
		{"window", 8e6, transfer.BurstArgs{Window: 200 * time.Millisecond, Slow: time.Hour}, 1 << 50, 20, 500},
		{"cap", 0, transfer.BurstArgs{Window: time.Hour, Slow: time.Hour}, 10 * chunk, 10, 10 + 16},
		{"slow", 1e6, transfer.BurstArgs{Window: time.Hour, Slow: 100 * time.Millisecond}, 1 << 50, 1, 40},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tg := target(t, 2, 2, 4<<20)
			to := tg.Addrs()
			to[0], _ = relay(t, to[0], tc.rate)
			c := tg.dialTo(t, to)
			tc.o.Loads = loads(2, chunk, 8)
			tc.o.Loads[0].Cap = tc.cap
			begin := time.Now()
			r := tg.deliver(t, c, tc.o)
			if n := r.Rails[0].Bytes / chunk; n < tc.least || n > tc.most {
				t.Errorf("%d chunks, want %d to %d", n, tc.least, tc.most)
			}
			if took := time.Since(begin); took > 15*time.Second {
				t.Errorf("after %v", took)
			}
			if last := r.Rails[0].Last; last > tc.o.Slow+200*time.Millisecond {
				t.Errorf("measured until %v, while the lane ran empty", last)
			}
			tg.deliver(t, c, some(2, 8*chunk)) // the lanes still work
		})
	}
}

// TestSomeLanes: a burst over one of two lanes does not use the other.
func TestSomeLanes(t *testing.T) {
	settle(t)
	tg := target(t, 2, 2, 1<<20)
	c := tg.dial(t)
	for lane := range 2 {
		o := some(2, 1<<20)
		o.Loads = o.Loads[lane : lane+1]
		r := tg.deliver(t, c, o)
		if p := c.Progress(); len(r.Rails) != 1 || (p[1] != 0) != (lane == 1) {
			t.Errorf("a burst over lane %d: %+v, progress %v", lane, r.Rails, p)
		}
	}
}

// TestMisuse: invalid arguments yield an error, and nothing is written.
func TestMisuse(t *testing.T) {
	settle(t)
	tg := target(t, 2, 2, 128<<10)
	c := tg.dial(t)
	for i, change := range []func(*transfer.Load){
		func(l *transfer.Load) { l.Chunk = 0 },
		func(l *transfer.Load) { l.Chunk = transfer.MaxChunk + 1 },
		func(l *transfer.Load) { l.Chunk = 64<<10 + 1 }, // larger than a ring
		func(l *transfer.Load) { l.Depth = 0 },
		func(l *transfer.Load) { l.Cap = 0 },
		func(l *transfer.Load) { l.Rail = "rail2" },
		func(l *transfer.Load) { l.Rail = "rail0" }, // listed twice
	} {
		o := some(2, 1<<20)
		change(&o.Loads[1])
		if r, err := c.Burst(t.Context(), source(1), o); reason(err) != failure.Other || len(r.Rails) > 0 {
			t.Errorf("case %d: %+v, %v", i, r, err)
		}
	}
	if _, err := c.Burst(t.Context(), source(1)[1:], some(2, 1<<20)); reason(err) != failure.Other {
		t.Errorf("a short source: %v", err)
	}
	if _, err := c.Burst(t.Context(), source(1), transfer.BurstArgs{Slow: time.Second}); reason(err) != failure.Other {
		t.Errorf("no lanes: %v", err)
	}
	if n, _ := tg.Received(); n != 0 {
		t.Errorf("%d bytes were written", n)
	}
}
