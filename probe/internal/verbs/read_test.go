//go:build cgo

package verbs

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/internal/transfer"
)

// reading returns connected rails that read.
func reading(t testing.TB, ring, queuePairs, depth int, knobs ...fakeverbs.Knobs) *ends {
	t.Helper()
	return connectedBy(t, Spec{Op: transfer.Read, QueuePairs: queuePairs, Depth: depth}, ring, knobs...)
}

// TestRead: bursts over two rails bring every byte to the asker, in single reads and in many passes.
func TestRead(t *testing.T) {
	for _, tc := range []struct{ queuePairs, depth int }{{1, 1}, {1, 8}, {1, 64}, {4, 8}, {16, 64}} {
		t.Run(fmt.Sprint(tc), func(t *testing.T) {
			e := reading(t, mib, tc.queuePairs, tc.depth, make([]fakeverbs.Knobs, 2)...)
			for _, chunk := range []int64{4096, 65536, 4100} {
				if got, err := e.burst(e.single(chunk, tc.depth)); err != nil || got.Failed() ||
					got.Rails[1].Bytes == 0 {
					t.Errorf("single reads of %d: %+v, %v", chunk, got, err)
				}
			}
			o := transfer.BurstArgs{Loads: e.loads(65536, tc.depth), Window: time.Hour}
			o.Loads[0].Cap = 40 * mib // more than two passes of each ring
			if got, err := e.burst(o); err != nil || got.Failed() || got.Rails[0].Bytes < 40*mib {
				t.Errorf("%+v, %v", got, err)
			}
			for i, r := range e.peers {
				if end := r.Info(); end.RKey == 0 || end.Size != transfer.SourceLen || e.rails[i].Info().RKey != 0 {
					t.Errorf("rail %d: the source is %+v, the rings are %+v", i, end, e.rails[i].Info())
				}
			}
		})
	}
}

// TestReadGoodput: a rail carries the peer's rate. A busy machine gets more attempts.
func TestReadGoodput(t *testing.T) {
	rates := []uint64{48 * mib, 16 * mib}
	e := reading(t, 16*mib, 1, 64, make([]fakeverbs.Knobs, len(rates))...)
	for i, rate := range rates {
		e.fabric.Set("B", fmt.Sprintf("mlx5_%d", i), func(k *fakeverbs.Knobs) { k.Rate = rate })
	}
	worst := 1.0
	for try := 0; try < 5 && worst > 0.05; try++ {
		got, err := e.burst(transfer.BurstArgs{Loads: e.loads(65536, 64), Window: 100 * time.Millisecond, Writes: 16})
		if err != nil {
			t.Fatal(err)
		}
		if got.Disturbed() {
			continue
		}
		worst = 0
		for i, r := range got.Rails {
			worst = max(worst, math.Abs(r.Rate()/float64(rates[i])-1))
		}
	}
	if worst > 0.05 {
		t.Errorf("off by %.3f", worst)
	}
}

// again closes a rail and opens another one with the same memory.
func (e *ends) again(r *Rail, node string) *Rail {
	e.t.Helper()
	memory := r.memory
	if err := r.Close(); err != nil {
		e.t.Error(err)
	}
	e.fabric.Use(e.t, node)
	r = must(e.lib.OpenRail(r.spec))
	if err := r.Register(memory); err != nil {
		e.t.Fatal(err)
	}
	return r
}

// TestReadDepth: a queue pair never has more open reads than both ends support; the others wait.
func TestReadDepth(t *testing.T) {
	const reads, delay = 16, 20 * time.Millisecond
	for _, tc := range []struct {
		node  string
		least time.Duration
	}{{"neither", delay}, {"A", reads / 2 * delay}, {"B", reads / 2 * delay}} {
		t.Run(tc.node, func(t *testing.T) {
			e := reading(t, reads*4096, 1, reads, fakeverbs.Knobs{})
			a, b := e.rails[0], e.peers[0]
			if tc.node != "neither" {
				e.fabric.Set(tc.node, "mlx5_0", func(k *fakeverbs.Knobs) { k.Reads = 2 })
				a, b = e.again(a, "A"), e.again(b, "B")
				e.rails[0], e.peers[0] = a, b
				connect(t, b, a)
				connect(t, a, b)
			}
			if a, b := a.Info().Reads, b.Info().Reads; (a == 2) != (tc.node == "A") || (b == 2) != (tc.node == "B") {
				t.Errorf("A manages %d, B %d", a, b)
			}
			e.fabric.Set("A", "mlx5_0", func(k *fakeverbs.Knobs) { k.Latency = delay })
			begin := time.Now()
			got, err := e.burst(e.single(4096, reads))
			if took := time.Since(begin); err != nil || got.Failed() || took < tc.least || took > tc.least+bySurprise {
				t.Errorf("%+v, %v in %v, want %v", got, err, took, tc.least)
			}
		})
	}
}

// TestReadWrong: a read that brings a wrong byte, or none, is detected.
func TestReadWrong(t *testing.T) {
	for _, tc := range []struct {
		knobs fakeverbs.Knobs
		at    int
	}{{fakeverbs.Knobs{}, -1}, {fakeverbs.Knobs{Corrupt: 2}, 4096 + 2048}, {fakeverbs.Knobs{Lose: 3}, 2 * 4096}} {
		e := reading(t, 4*4096, 1, 4, tc.knobs)
		if _, err := e.write(e.single(4096, 4)); err != nil {
			t.Fatal(err)
		}
		e.expect(0, 4096, []int64{4})
		if at := e.wrong(0); at != tc.at {
			t.Errorf("%+v: byte %d is wrong, want %d", tc.knobs, at, tc.at)
		}
	}
}

// TestOtherOperation: memory that a target offers for one operation does not allow the other.
func TestOtherOperation(t *testing.T) {
	for _, tc := range []struct {
		asker, target transfer.Op
		want          failure.Reason
	}{
		{transfer.Read, transfer.Read, ""},
		{transfer.Write, transfer.Write, ""},
		{transfer.Read, transfer.Write, failure.RemoteAccess},
		{transfer.Write, transfer.Read, failure.RemoteAccess},
	} {
		t.Run(fmt.Sprintf("%s of %s", tc.asker, tc.target), func(t *testing.T) {
			e := connected(t, 4096, 1, 1, fakeverbs.Knobs{})
			open := func(node string, op transfer.Op, target bool, fill byte) (*Rail, []byte) {
				b := buffer(t, transfer.SourceLen)
				copy(b.Bytes(), bytes.Repeat([]byte{fill}, transfer.SourceLen))
				e.fabric.Use(t, node)
				spec := e.rails[0].spec
				spec.Op, spec.Target = op, target
				r := must(e.lib.OpenRail(spec))
				t.Cleanup(func() { _ = errors.Join(r.Close(), b.Close()) })
				if err := errors.Join(r.Register(AreaOf(b.Bytes())), r.Expect()); err != nil {
					t.Fatal(err)
				}
				return r, b.Bytes()
			}
			asker, ours := open("A", tc.asker, false, 1)
			target, theirs := open("B", tc.target, true, 2)
			connect(t, target, asker)
			connect(t, asker, target)
			_, err := e.run.Burst([]*Rail{asker}, transfer.BurstArgs{Loads: e.loads(4096, 1), Slow: time.Second,
				Deadline: time.Second})
			// The queue pair refuses before it checks any region.
			if got := reason(err); got != tc.want || err != nil &&
				!strings.Contains(err.Error(), string(tc.asker)+": IBV_WC_REM_INV_REQ_ERR") {
				t.Errorf("%v, want %q", err, tc.want)
			}
			read, wrote := ours[0] == 2, theirs[0] == 1
			if read != (tc.asker == transfer.Read && err == nil) ||
				wrote != (tc.asker == transfer.Write && err == nil) {
				t.Errorf("read %v, wrote %v", read, wrote)
			}
		})
	}
}

// TestReadEnds: a read that does not complete is abandoned after the deadline, and after a cancel, in a burst and in a
// latency measurement.
func TestReadEnds(t *testing.T) {
	for _, tc := range []struct {
		name  string
		knobs fakeverbs.Knobs
		want  failure.Reason
		says  string
	}{
		{"deadline", fakeverbs.Knobs{HangPoll: true}, failure.Timeout, "read: not completed in time"},
		{"cancel", fakeverbs.Knobs{Latency: time.Hour}, failure.Canceled, "read: canceled"},
		{"blocked", fakeverbs.Knobs{Blocked: true}, failure.RetryExceeded, "read: IBV_WC_RETRY_EXC_ERR"},
	} {
		for _, latency := range []bool{false, true} {
			t.Run(fmt.Sprint(tc.name, latency), func(t *testing.T) {
				e := reading(t, mib, 1, 32, tc.knobs)
				limit := time.Minute
				switch tc.want {
				case failure.Timeout:
					limit = 200 * time.Millisecond
				case failure.Canceled:
					defer time.AfterFunc(50*time.Millisecond, e.run.Cancel).Stop()
				}
				var err error
				begin := time.Now()
				if latency {
					_, _, err = e.run.Latency(e.rails[0], 8, 10, limit)
				} else {
					var got transfer.BurstDone
					got, err = e.run.Burst(e.rails, transfer.BurstArgs{Loads: e.loads(4096, 32), Slow: limit,
						Deadline: limit})
					if f := got.Rails[0].Failure; f == nil || !strings.Contains(f.Detail, tc.says) {
						t.Errorf("%v, want %q", f, tc.says)
					}
				}
				if took := time.Since(begin); reason(err) != tc.want || !strings.Contains(err.Error(), tc.says) ||
					took > bySurprise {
					t.Errorf("%v after %v, want %s", err, took, tc.want)
				}
			})
		}
	}
}

// TestReadLatency reads one place after the other.
func TestReadLatency(t *testing.T) {
	const samples = 20
	for _, size := range []int{8, 65536} {
		e := reading(t, mib, 4, 8, fakeverbs.Knobs{Latency: 2 * time.Millisecond})
		got, adapter, err := e.run.Latency(e.rails[0], size, samples, 5*time.Second)
		if err != nil || len(got) != samples || slices.Min(got) < 2*time.Millisecond || adapter != nil {
			t.Errorf("%v, %v, %v", got, adapter, err)
		}
		if last := e.source.Bytes()[(samples+2)*transfer.Page:][:size]; !bytes.Equal(e.memory[0].Bytes()[:size], last) {
			t.Errorf("%d bytes: not what the last one had to read", size)
		}
		for _, size := range []int{0, -1, 4*mib + 1, transfer.MaxChunk + 1} {
			if _, _, err := e.run.Latency(e.rails[0], size, 1, time.Second); reason(err) != failure.Other {
				t.Errorf("%d bytes: %v", size, err)
			}
		}
	}
}
