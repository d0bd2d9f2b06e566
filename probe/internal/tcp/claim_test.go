package tcp

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/transfer"
)

// simulate runs a plan over lanes that send their queue in order, lane i at rates[i] bytes per second, and get each
// acknowledgement rtt later. Lanes in dies break at that time. It returns the time of the last acknowledgement and
// what each lane carried, and fails the test unless every byte was sent exactly once.
func simulate(t *testing.T, p *plan, total int64, rates []float64, rtt time.Duration,
	dies map[int]time.Duration) (time.Duration, []int64) {
	t.Helper()
	type job struct {
		s    transfer.Range
		done time.Duration
	}
	jobs, free := make([][]job, len(rates)), make([]time.Duration, len(rates))
	carried, seen := make([]int64, len(rates)), map[transfer.Range]bool{}
	var now time.Duration
	for step := 0; ; step++ {
		if step > 1e6 {
			t.Fatal("no end")
		}
		allDone := true
		for i := range rates {
			s, v := p.claim(i, now)
			for ; v == granted; s, v = p.claim(i, now) {
				if at, n := s.Offset%p.wrap,
					len(p.lanes[i].inFlight); s.Length <= 0 || s.Length > p.chunk || at+s.Length > p.wrap || n > p.depth {
					t.Fatalf("claim %+v, of chunks of %d, the end at %d; the lane has %d of %d in flight", s, p.chunk,
						p.wrap, n, p.depth)
				}
				free[i] = max(free[i], now) + time.Duration(float64(s.Length)/rates[i]*1e9)
				jobs[i] = append(jobs[i], job{s, free[i] + rtt})
			}
			allDone = allDone && v == finished
		}
		next, who := time.Duration(-1), -1
		for i := range jobs {
			if len(jobs[i]) > 0 && (who < 0 || jobs[i][0].done < next) {
				next, who = jobs[i][0].done, i
			}
		}
		for i, at := range dies {
			if !p.lanes[i].dead && (who < 0 || at <= next) {
				next, who, jobs[i] = at, -1, nil
				p.remove(i)
			}
		}
		if who < 0 && allDone {
			break
		}
		if now = max(now, next); who < 0 {
			continue
		}
		s := jobs[who][0].s
		jobs[who] = jobs[who][1:]
		if !p.complete(who, s, now) || seen[s] {
			t.Fatalf("%+v completes twice, or was nobody's", s)
		}
		seen[s] = true
		carried[who] += s.Length
	}
	var sum int64
	for _, n := range carried {
		sum += n
	}
	if sum != total {
		t.Fatalf("carried %d of %d bytes", sum, total)
	}
	return now, carried
}

// alive returns n times true.
func alive(n int) []bool { return slices.Repeat([]bool{true}, n) }

// TestSum: stealing reaches at least 0.95 of the sum of the lanes' rates, in bursts of milliseconds and of seconds.
func TestSum(t *testing.T) {
	const gb = 1e9
	for _, rates := range [][]float64{
		{gb}, {gb, gb}, {gb, gb / 3}, {gb / 3, gb}, {gb, gb / 10}, {gb, gb / 100}, {gb, gb / 2, gb / 3, gb / 4},
		{12 * gb, 4 * gb}, {gb / 8, gb / 24}, {gb, gb, gb, gb, gb, gb, gb, gb / 3},
	} {
		for _, each := range []int64{32 << 20, 512 << 20} {
			total := each * int64(len(rates))
			t.Run(fmt.Sprintf("%.2g/%d", rates, total>>20), func(t *testing.T) {
				sum := 0.0
				for _, r := range rates {
					sum += r
				}
				p := newPlan(transfer.BurstArgs{Stealing: true, Total: total, Chunk: 1 << 20, Depth: 8}, 64<<20, alive(len(rates)))
				took, carried := simulate(t, p, total, rates, 50*time.Microsecond, nil)
				got := float64(total) / took.Seconds() / sum
				t.Logf("%.3f of the sum; carried %v", got, carried)
				if got < 0.95 {
					t.Errorf("%.3f of the sum, want at least 0.95", got)
				}
			})
		}
	}
}

// TestStaticPlan: equal parts of whole pages, and the slowest lane's time.
func TestStaticPlan(t *testing.T) {
	const total = 100<<20 + 2
	p := newPlan(transfer.BurstArgs{Total: total, Chunk: 1 << 20, Depth: 8}, 7<<20, alive(3))
	took, carried := simulate(t, p, total, []float64{1e9, 1e9, 1e8}, 0, nil)
	for _, n := range carried {
		if d := n - total/3; d < -4096 || d > 4096+2 {
			t.Errorf("carried %v", carried)
		}
	}
	if want := 349_525_400 * time.Nanosecond; (took - want).Abs() > 50*time.Microsecond {
		t.Errorf("took %v, want %v", took, want)
	}
}

// TestDeath: when a lane breaks, the others send what it did not deliver.
func TestDeath(t *testing.T) {
	for _, at := range []time.Duration{0, 100 * time.Microsecond, 10 * time.Millisecond, 30 * time.Millisecond} {
		p := newPlan(transfer.BurstArgs{Stealing: true, Total: 64 << 20, Chunk: 1 << 20, Depth: 8}, 10<<20+4096, alive(3))
		_, carried := simulate(t, p, 64<<20, []float64{1e9, 1e9, 1e7}, time.Microsecond,
			map[int]time.Duration{2: at, 1: at / 2})
		t.Logf("deaths at %v: carried %v", at, carried)
	}
}

// TestQueue: a lane of 1 MB/s has at most 250 ms or two chunks in flight, and the first claims of any lane are small.
func TestQueue(t *testing.T) {
	p := newPlan(transfer.BurstArgs{Stealing: true, Total: 1 << 40, Chunk: 64 << 10, Depth: 1000}, 1<<30, alive(1))
	var now time.Duration
	for range 1000 {
		for _, v := p.claim(0, now); v == granted; _, v = p.claim(0, now) {
		}
		if l := p.lanes[0]; l.queued > 250_000+64<<10 {
			t.Fatalf("%d bytes in flight at %.0f B/s", l.queued, l.rate)
		}
		now += 65536 * time.Microsecond
		p.complete(0, p.lanes[0].inFlight[0], now)
	}
	if n := len(p.lanes[0].inFlight); n < 2 {
		t.Errorf("%d in flight at the end", n)
	}
	p = newPlan(transfer.BurstArgs{Stealing: true, Total: 1 << 40, Chunk: 1 << 20, Depth: 8}, 1<<30, alive(1))
	for i := range 3 {
		if s, v := p.claim(0, 0); (v == granted) != (i < firstWindow) || s.Length > 64<<10 {
			t.Errorf("claim %d: %+v, %v", i, s, v)
		}
	}
}

// TestStop: no more claims afterwards.
func TestStop(t *testing.T) {
	p := newPlan(transfer.BurstArgs{Stealing: true, Total: 1 << 30, Chunk: 1 << 20, Depth: 8}, 1<<30, alive(2))
	s, _ := p.claim(0, 0)
	p.stopped = true
	for i := range 2 {
		if _, v := p.claim(i, 0); v != finished {
			t.Errorf("lane %d: %v", i, v)
		}
	}
	if !p.complete(0, s, time.Millisecond) || p.complete(0, s, time.Millisecond) {
		t.Error("what is in flight completes once")
	}
}
