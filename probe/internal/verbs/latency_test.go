//go:build cgo

package verbs

import (
	"slices"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/fakeverbs"
	"github.com/railscope/railscope/probe/internal/transfer"
)

// TestLatency measures a device with a known latency: no sample is lower, and their sum is at most the elapsed time.
// Limits allow for a busy machine.
func TestLatency(t *testing.T) {
	const samples, limit = 20, 500 * time.Millisecond
	for _, queuePairs := range []int{1, 4} {
		e := connected(t, 4096, queuePairs, 8, fakeverbs.Knobs{Latency: 2 * time.Millisecond})
		slow := func(delay time.Duration) {
			e.fabric.Set("A", "mlx5_0", func(k *fakeverbs.Knobs) { k.Latency = delay })
		}
		begin := time.Now()
		got, _, err := e.run.Latency(e.rails[0], 8, samples, 5*time.Second)
		if took := time.Since(begin); err != nil || len(got) != samples || slices.Min(got) < 2*
			time.Millisecond || sum(got) > took {
			t.Errorf("in %v: %v, %v", took, got, err)
		}
		e.want[0] = slices.Clone(e.memory[0].Bytes())
		copy(e.want[0][:8], e.source.Bytes()[(samples+2)*transfer.Page:]) // the last write, after three warm-up writes
		if at := e.wrong(0); at >= 0 {
			t.Errorf("byte %d is not what was written", at)
		}
		slow(20 * time.Millisecond)
		got, _, err = e.run.Latency(e.rails[0], 8, 1000, limit)
		if err != nil || len(got) < 1 || len(got) > 25 {
			t.Errorf("within %v, 20 ms each: %v, %v", limit, got, err)
		}
		slow(200 * time.Millisecond)
		got, _, err = e.run.Latency(e.rails[0], 8, 1000, limit)
		if err != nil || len(got) != 1 {
			t.Errorf("within %v, 200 ms each: %v, %v", limit, got, err)
		}
	}
}

func sum(list []time.Duration) (all time.Duration) {
	for _, d := range list {
		all += d
	}
	return all
}

// TestLatencyFails covers a missing answer, a refusal and a cancel.
func TestLatencyFails(t *testing.T) {
	for _, tc := range []struct {
		name  string
		knobs fakeverbs.Knobs
		want  failure.Reason
		least int // minimum number of samples
	}{
		{"hangs", fakeverbs.Knobs{HangPoll: true}, failure.Timeout, 0},
		{"blocked", fakeverbs.Knobs{Blocked: true}, failure.RetryExceeded, 0},
		{"tenth", fakeverbs.Knobs{FailEvery: 10, FailStatus: 13}, failure.RNR, 6},
		{"cancelled", fakeverbs.Knobs{Latency: time.Hour}, failure.Canceled, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := connected(t, 4096, 1, 8, tc.knobs)
			limit := time.Minute
			switch tc.want {
			case failure.Timeout:
				limit = 200 * time.Millisecond
			case failure.Canceled:
				defer time.AfterFunc(50*time.Millisecond, e.run.Cancel).Stop()
			}
			begin := time.Now()
			got, _, err := e.run.Latency(e.rails[0], 8, 100, limit)
			if took := time.Since(begin); reason(err) != tc.want || len(got) != tc.least || took > bySurprise {
				t.Errorf("%d samples, %v after %v; want %d, %s", len(got), err, took, tc.least, tc.want)
			}
		})
	}
}

// BenchmarkLatency measures the cost of a write without a wire.
func BenchmarkLatency(b *testing.B) {
	e := connected(b, 4096, 1, 8, fakeverbs.Knobs{})
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := e.run.Latency(e.rails[0], 8, 100, time.Second); err != nil {
			b.Fatal(err)
		}
	}
}

// TestArrivals: one write at each time after the warm-up, not earlier, and none is left out of a device that works on
// the same processors. Failures are those of TestLatencyFails.
func TestArrivals(t *testing.T) {
	e := connected(t, 4096, 1, 8, fakeverbs.Knobs{})
	at := []time.Duration{0, 20 * time.Millisecond, 21 * time.Millisecond, 60 * time.Millisecond}
	begin := time.Now()
	got, err := e.run.Arrivals(e.rails[0], 8, at, true, 5*time.Second)
	if took := time.Since(begin); err != nil || len(got) != len(at) || took < at[3] || slices.Min(got) <= 0 {
		t.Errorf("in %v: %v, %v", took, got, err)
	}
	// A time within the previous write of the probe is not made longer by that.
	e.fabric.Set("A", "mlx5_0", func(k *fakeverbs.Knobs) { k.Latency = 50 * time.Millisecond })
	got, err = e.run.Arrivals(e.rails[0], 8, []time.Duration{0, 20 * time.Millisecond}, true, 5*time.Second)
	if err != nil || len(got) != 2 || got[1] < 50*time.Millisecond {
		t.Errorf("within a write: %v, %v", got, err)
	}
	got, err = e.run.Arrivals(e.rails[0], 8, []time.Duration{0, 0, 0, 0, 0, 0}, true, 120*time.Millisecond)
	if err != nil || len(got) < 1 || len(got) > 3 {
		t.Errorf("within 120 ms, 50 ms each: %v, %v", got, err)
	}
	for name, tc := range map[string]struct {
		at   []time.Duration
		size int
	}{"no time": {nil, 8}, "no size": {at, 0}} {
		if _, err := e.run.Arrivals(e.rails[0], tc.size, tc.at, true, time.Second); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	defer time.AfterFunc(50*time.Millisecond, e.run.Cancel).Stop()
	_, err = e.run.Arrivals(e.rails[0], 8, []time.Duration{0, time.Hour}, true, 2*time.Hour)
	if reason(err) != failure.Canceled {
		t.Errorf("canceled while it waits: %v", err)
	}
}
