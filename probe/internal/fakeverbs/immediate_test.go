package fakeverbs

import (
	"fmt"
	"testing"
	"time"
)

// immediate posts a write with immediate, without bytes, and returns its completion.
func (e *end) immediate(to *end, value int) string {
	e.t.Helper()
	e.want("ok", "write %s - %d %d 0 1 %d 0 %d", e.letter, to.addr, to.rkey, signaled, value)
	got, _ := e.poll(1, 5*time.Second)
	return got
}

// lacks fails the test unless exactly this many bytes of an endpoint's memory are missing.
func (e *end) lacks(bytes int) {
	e.t.Helper()
	e.want(fmt.Sprintf("%d wrong", bytes), "check %s - 7", e.letter)
}

// TestImmediate: a write with immediate consumes a receive, which completes with its value. Unused receives are
// flushed.
func TestImmediate(t *testing.T) {
	_, a, b := pair(t, Knobs{})
	b.want("ok", "recv b - 2")
	b.want("recv: errno 12", "recv b - 1")
	if got := a.immediate(b, 77); got != "0:0/0" {
		t.Error(got)
	}
	if got, _ := b.poll(2, 50*time.Millisecond); got != "0:imm77" {
		t.Error(got)
	}
	b.want("ok", "recv b - 1")
	if got := a.immediate(b, 78) + a.immediate(b, 79); got != "0:0/00:0/0" {
		t.Error(got)
	}
	if got, _ := b.poll(2, 5*time.Second); got != "1:imm78 0:imm79" {
		t.Error(got)
	}
	if got := a.immediate(b, 80); got != "0:13/129" {
		t.Error("without a receive:", got)
	}
	_, _, b = pair(t, Knobs{})
	b.want("ok", "recv b - 2")
	b.want("ok", "err b -")
	if got, _ := b.poll(2, 5*time.Second); got != "0:5/249 1:5/249" {
		t.Error("in error:", got)
	}
}

// TestLateAndLost: a late write completes without its bytes, which arrive with the next immediate. A lost write's never
// arrive.
func TestLateAndLost(t *testing.T) {
	for _, tc := range []struct {
		knobs Knobs
		lacks int // bytes that are missing after the immediate
	}{{Knobs{Late: 2}, size - 3*4096}, {Knobs{Lose: 2}, size - 2*4096}, {Knobs{Late: 9, Lose: 9}, size - 3*4096}} {
		_, a, b := pair(t, tc.knobs)
		a.want("ok", "fill a - 7")
		b.want("ok", "recv b - 1")
		for range 3 {
			if got, _ := a.write(b, 4096, 1); got != "0:0/0" {
				t.Fatal(got)
			}
			b.addr += 4096
		}
		if tc.knobs.Late != 9 {
			b.lacks(size - 2*4096)
		}
		if got := a.immediate(b, 1); got != "0:0/0" {
			t.Fatal(got)
		}
		b.lacks(tc.lacks)
	}
}

// TestParked: the bytes of a parked write arrive with a later post of its process, unless the queue pair or the memory
// is gone by then.
func TestParked(t *testing.T) {
	for name, tc := range map[string]struct {
		before string // command at the other end
		lacks  int
	}{"open": {"query b -", size - 4096}, "in error": {"err b -", size}, "gone": {"close b -", 0}} {
		f, a, b := pair(t, Knobs{Blocked: true, Park: true})
		a.want("ok", "fill a - 7")
		if got, _ := a.write(b, 4096, 1); got != "0:12/129" {
			t.Fatal(got)
		}
		b.lacks(size)
		b.do("%s", tc.before)
		f.Set("A", "mlx5_0", func(k *Knobs) { *k = Knobs{} })
		c, d := a.open("c", "mlx5_0", "192.0.2.1"), b.open("d", "mlx5_0", "192.0.2.2")
		connect(c, d)
		if got, _ := c.write(d, 8, 1); got != "0:0/0" {
			t.Errorf("%s: %s", name, got)
		}
		if tc.lacks > 0 {
			b.lacks(tc.lacks)
		}
		d.want(fmt.Sprintf("%d wrong", 0), "check d - 0")
	}
}
