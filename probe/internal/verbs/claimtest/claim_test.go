//go:build cgo

package claimtest

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/transfer"
)

// wire is a simulated rail: a queue that moves bytes at a rate, and a delay.
type wire struct {
	rate    float64       // bytes per second
	latency time.Duration // from the end of the transfer to the completion
	free    time.Duration // when the queue is empty
	posted  []write
}

type write struct {
	length int64
	done   time.Duration
}

// play runs a burst of simulated time with the scheduler's decisions and
// returns how long it took and what was moved. It fails the test when the burst
// stops short of its total and its limit.
func play(t *testing.T, wires []wire, o transfer.BurstArgs) (took time.Duration, moved int64) {
	t.Helper()
	shares := make([]share, len(wires))
	for i := range shares {
		shares[i] = share{alive: true, window: min(2, o.Depth)}
	}
	unclaimed, now := o.Total, time.Duration(0)
	for {
		for i := range wires {
			w, s := &wires[i], &shares[i]
			s.age = now
			if o.Limit > 0 && now >= o.Limit {
				continue
			}
			for n := claim(shares, i, unclaimed, now, o); n > 0; n = claim(shares, i, unclaimed, now, o) {
				if n > unclaimed || n > o.Chunk || s.writes >= o.Depth {
					t.Fatalf("rail %d takes %d of %d with %d writes in flight", i, n, unclaimed, s.writes)
				}
				w.free = max(w.free, now) + time.Duration(float64(n)/w.rate*1e9)
				w.posted = append(w.posted, write{n, w.free + w.latency})
				unclaimed -= n
				s.inflight += n
				s.writes++
			}
		}
		next, at := -1, time.Duration(math.MaxInt64)
		for i, w := range wires {
			if len(w.posted) > 0 && w.posted[0].done < at {
				next, at = i, w.posted[0].done
			}
		}
		if next < 0 {
			break
		}
		now = at
		w, s := &wires[next], &shares[next]
		s.inflight -= w.posted[0].length
		s.done += w.posted[0].length
		s.writes--
		s.window = min(s.window+1, o.Depth)
		w.posted = w.posted[1:]
		for i := range shares {
			shares[i].age = now
		}
	}
	if unclaimed != 0 && (o.Limit == 0 || now < o.Limit*9/10) {
		t.Fatalf("nobody takes the last %d bytes after %v", unclaimed, now)
	}
	return now, o.Total - unclaimed
}

// TestClaim plays bursts over rails of different rates: stealing comes to
// nearly the sum of them.
func TestClaim(t *testing.T) {
	const gb = 1e9 / 8
	us := time.Microsecond
	eight := slices.Repeat([]float64{400 * gb}, 8)
	for _, tc := range []struct {
		name  string
		rates []float64
		delay time.Duration
		total int64
		chunk int64
		least float64
	}{
		{"two alike", []float64{100 * gb, 100 * gb}, 5 * us, 64 << 20, 1 << 20, 0.985},
		{"one at a third", []float64{100 * gb, 100 * gb / 3}, 5 * us, 64 << 20, 1 << 20, 0.97},
		{"one at a third, first", []float64{100 * gb / 3, 100 * gb}, 5 * us, 64 << 20, 1 << 20, 0.97},
		{"one at a tenth", []float64{100 * gb, 10 * gb}, 5 * us, 64 << 20, 1 << 20, 0.97},
		{"one at a hundredth", []float64{100 * gb, 1 * gb}, 5 * us, 64 << 20, 1 << 20, 0.97},
		{"eight alike", []float64{400 * gb, 400 * gb, 400 * gb, 400 * gb, 400 * gb, 400 * gb, 400 * gb, 400 * gb},
			5 * us, 1 << 30, 1 << 20, 0.97},
		{"eight alike, default transfer", eight, 5 * us, 32 << 20, 1 << 20, 0.87},
		{"eight alike, default transfer, far", eight, 10 * us, 32 << 20, 1 << 20, 0.79},
		{"eight alike, 256MiB transfer, far", eight, 10 * us, 128 << 20, 1 << 20, 0.93},
		{"eight, one at half", []float64{400 * gb, 400 * gb, 400 * gb, 200 * gb, 400 * gb, 400 * gb, 400 * gb,
			400 * gb}, 5 * us, 1 << 30, 1 << 20, 0.97},
		{"Soft-RoCE", []float64{1 * gb, 1 * gb / 3}, 200 * us, 64 << 20, 1 << 20, 0.97},
		{"ended by the limit", []float64{30e6 / 8, 10e6 / 8}, time.Millisecond, 32 << 20, 1 << 20, 0.97},
		{"ended by the limit, alike", []float64{30e6 / 8, 30e6 / 8}, time.Millisecond, 32 << 20, 1 << 20, 0.97},
		{"ended by the limit, one at a tenth", []float64{30e6 / 8, 3e6 / 8}, time.Millisecond, 32 << 20, 1 << 20, 0.95},
		{"far away", []float64{100 * gb, 50 * gb}, 500 * us, 1 << 30, 1 << 20, 0.85},
		{"one", []float64{100 * gb}, 5 * us, 64 << 20, 1 << 20, 0.99},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sum, wires := 0.0, []wire(nil)
			for _, r := range tc.rates {
				sum += r
				wires = append(wires, wire{rate: r, latency: tc.delay})
			}
			took, moved := play(t, wires, transfer.BurstArgs{Stealing: true, Total: tc.total, Chunk: tc.chunk, Depth: 8,
				Limit: 3 * time.Second})
			share := float64(moved) / took.Seconds() / sum
			t.Logf("%.4f of the sum, in %v", share, took)
			if share < tc.least || share > 1.0001 {
				t.Errorf("%.4f of the sum of rates, want %v", share, tc.least)
			}
		})
	}
}

// TestClaimTiny plays bursts that are hardly anything: everything is taken.
func TestClaimTiny(t *testing.T) {
	for _, total := range []int64{1, 8, 16, 24, 100, 4096, 4097, 12345, 70001, 1<<20 + 1} {
		for _, chunk := range []int64{8, 1024, 4096, 65536} {
			if total/chunk > 10000 {
				continue
			}
			wires := []wire{{rate: 1e9, latency: time.Microsecond}, {rate: 1e8, latency: time.Microsecond},
				{rate: 1e9, latency: time.Millisecond}}
			t.Run(fmt.Sprintf("%d by %d", total, chunk), func(t *testing.T) {
				play(t, wires, transfer.BurstArgs{Stealing: true, Total: total, Chunk: chunk, Depth: 4})
			})
		}
	}
}

// TestClaimRefuses asks in situations in which a rail has enough to do.
func TestClaimRefuses(t *testing.T) {
	o := transfer.BurstArgs{Stealing: true, Chunk: 1 << 20, Depth: 8}
	fast := share{inflight: 4 << 20, done: 300 << 20, age: time.Second, writes: 4, window: 8, alive: true}
	slow := share{inflight: 1 << 20, done: 100 << 20, age: time.Second, writes: 1, window: 8, alive: true}
	with := func(s share, change func(*share)) share { change(&s); return s }
	for _, tc := range []struct {
		name      string
		shares    []share
		unclaimed int64
		stealing  bool
		want      int64
	}{
		{"plenty left", []share{slow, fast}, 1 << 30, true, 1 << 20},
		{"nothing left", []share{slow, fast}, 0, true, 0},
		{"the end: the others are done before", []share{with(slow, func(s *share) { s.inflight = 2 << 20 }), fast},
			1 << 20, true, 0},
		{"window full", []share{with(slow, func(s *share) { s.writes = 8 }), fast}, 1 << 30, true, 0},
		{"dead", []share{with(slow, func(s *share) { s.alive = false }), fast}, 1 << 30, true, 0},
		{"nothing known yet: the smallest", []share{{window: 2, alive: true}, fast}, 1 << 30, true, 1 << 16},
		{"nobody does anything: the fastest must", []share{with(fast, func(s *share) { s.inflight, s.writes = 0, 0 }),
			with(slow, func(s *share) { s.inflight, s.writes = 0, 0 })}, 1 << 12, true, 1 << 12},
		{"a quarter of a second is in flight", []share{with(slow, func(s *share) {
			s.done, s.inflight, s.writes = 8<<20, 2<<20, 2
		})}, 1 << 30, false, 0},
		{"but two always", []share{with(slow, func(s *share) {
			s.done, s.inflight, s.writes = 1, 1<<20, 1
		})}, 1 << 30, false, 1 << 20},
		{"static, the rest", []share{slow}, 1234, false, 1234},
	} {
		o := o
		o.Stealing = tc.stealing
		if got := claim(tc.shares, 0, tc.unclaimed, 0, o); got != tc.want {
			t.Errorf("%s: takes %d, want %d", tc.name, got, tc.want)
		}
	}
}
