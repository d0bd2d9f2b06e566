package sampler

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railscope/railscope/internal/lane/lanetest"
)

// load is the traffic of a rail: a part of its rate while it is on.
type load struct {
	gbit int
	part float64
	// always on if period is 0; an edge may lose a sample, so both are long compared with the interval
	on, period time.Duration
}

func (l load) carried() func(time.Duration) float64 {
	if l.period == 0 {
		return steady(l.gbit, l.part)
	}
	return pulses(l.gbit, l.part, l.on, l.period)
}

// onSeconds returns for how many seconds of a time it is on.
func (l load) onSeconds(of time.Duration) float64 {
	if l.period == 0 {
		return of.Seconds()
	}
	return (of/l.period*l.on + min(of%l.period, l.on)).Seconds()
}

// disturbances returns delays of reads: none, up to 1/20 of the interval for each, and for 1 % of the reads a delay
// that makes the next samples late.
var disturbances = map[string]func(interval time.Duration) func(string) (before, after time.Duration){
	"calm": func(time.Duration) func(string) (time.Duration, time.Duration) { return nil },
	"jitter": func(interval time.Duration) func(string) (time.Duration, time.Duration) {
		var mu sync.Mutex
		r := rand.New(rand.NewPCG(1, 2))
		return func(path string) (time.Duration, time.Duration) {
			if !strings.Contains(path, "counters/") {
				return 0, 0
			}
			mu.Lock()
			defer mu.Unlock()
			return time.Duration(r.Int64N(int64(interval / 50))), time.Duration(r.Int64N(int64(interval / 50)))
		}
	},
	"late": func(interval time.Duration) func(string) (time.Duration, time.Duration) {
		var mu sync.Mutex
		n := map[string]int{}
		return func(path string) (time.Duration, time.Duration) {
			if !strings.Contains(path, "port_rcv_data") {
				return 0, 0
			}
			mu.Lock()
			defer mu.Unlock()
			n[path]++
			if n[path]%97 == 0 {
				return 5 * interval / 2, 0
			}
			return 0, 0
		}
	},
}

// TestTruth samples rails with known loads and compares the second half of the samples with the truth, within 2 %.
func TestTruth(t *testing.T) {
	alike := func(n int, l load) (list []load) {
		for range n {
			list = append(list, l)
		}
		return list
	}
	third := func(n int) []load {
		list := alike(n, load{gbit: 400, part: 0.9})
		list[n-1].part = 0.3
		return list
	}
	cases := map[string][]load{
		"full":                    alike(2, load{gbit: 400, part: 1}),
		"half":                    alike(3, load{gbit: 100, part: 0.5}),
		"one of two at a third":   third(2),
		"one of three at a third": third(3),
		"one of four at a third":  third(4),
		"one of eight at a third": third(8),
		"one of eight at half":    append(alike(7, load{gbit: 400, part: 0.9}), load{gbit: 400, part: 0.45}),
		"one of eight at 61 %":    append(alike(7, load{gbit: 400, part: 0.9}), load{gbit: 400, part: 0.549}),
		"one of eight at 80 %":    append(alike(7, load{gbit: 400, part: 0.9}), load{gbit: 400, part: 0.72}),
		"one of sixteen is idle":  append(alike(15, load{gbit: 400, part: 0.9}), load{gbit: 400}),
		"all on one":              append(alike(3, load{gbit: 200}), load{gbit: 200, part: 0.6}),
		"ten seconds on and five off": alike(4, load{gbit: 400, part: 0.97, on: 10 * time.Second,
			period: 15 * time.Second}),
		"below busy": alike(2, load{gbit: 400, part: 0.005}),
	}
	for name, loads := range cases {
		for disturbed, latency := range disturbances {
			for _, interval := range []time.Duration{MinInterval, DefaultInterval, MaxInterval} {
				if raced && (len(loads) > 3 || interval == MinInterval) {
					// values are only compared without the race detector (make test-nocgo), which is seven times
					// slower
					continue
				}
				if interval == MaxInterval && (disturbed != "calm" || loads[0].period > 0) {
					continue // an edge loses a sample, a large part of a minute here
				}
				t.Run(fmt.Sprintf("%s, %s, every %v", name, disturbed, interval), func(t *testing.T) {
					lanetest.Test(t, func(t *testing.T) { testTruth(t, loads, latency(interval), interval) })
				})
			}
		}
	}
}

func testTruth(t *testing.T, loads []load, latency func(string) (time.Duration, time.Duration),
	interval time.Duration) {
	m := newMachine()
	m.latency = latency
	for i, l := range loads {
		m.mlx5(fmt.Sprintf("mlx5_%d", i), l.gbit, [directions]func(time.Duration) float64{idle, l.carried()})
	}
	half := time.Minute
	if interval == MinInterval {
		half = 15 * time.Second // 1,500 samples, and at least one period of each load
	}
	s := m.sampler(interval, Options{})
	var before, after Snapshot
	before = run(t, s, half, func() {
		time.Sleep(half)
		synctest.Wait()
		s.Snapshot(&after)
	})
	anyBusy := 0.0
	var parts []float64
	for i, l := range loads {
		was, is := before.Rails[i].Tally[Transmit], after.Rails[i].Tally[Transmit]
		on := l.onSeconds(half)
		n := float64(is.Samples - was.Samples)
		within(t, fmt.Sprintf("rail %d: mean utilisation", i), (is.sum()-was.sum())/n, l.part*on/half.Seconds())
		busy, saturated := 0.0, 0.0
		if l.part > BusyAbove {
			busy = on
		}
		if l.part > SaturatedAbove {
			saturated = on
		}
		within(t, fmt.Sprintf("rail %d: busy seconds", i), is.Busy-was.Busy, busy)
		within(t, fmt.Sprintf("rail %d: saturated seconds", i), is.Saturated-was.Saturated, saturated)
		anyBusy = max(anyBusy, busy)
		parts = append(parts, l.part)
		if idle := after.Rails[i].Tally[Receive]; idle.Busy != 0 || idle.sum() != 0 || idle.Samples == 0 {
			t.Errorf("rail %d received nothing, and yet %+v", i, idle)
		}
	}
	set := after.Sets[Transmit]
	within(t, "seconds in which any rail was busy", set.Busy-before.Sets[Transmit].Busy, anyBusy)
	if anyBusy == 0 {
		if set.Balanced || set.Active != 0 || set.Busy != 0 {
			t.Errorf("idle rails: %+v", set)
		}
		return
	}
	want := 1 - slices.Min(parts)/slices.Max(parts)
	if !set.Balanced || math.Abs(set.Imbalance-want) > 0.02 {
		t.Errorf("imbalance %v (%v), want %v", set.Imbalance, set.Balanced, want)
	}
	imbalanced := 0.0
	if want > 0.25 {
		imbalanced = anyBusy
	}
	within(t, "imbalanced seconds", set.Imbalanced-before.Sets[Transmit].Imbalanced, imbalanced)
	if got := after.Sets[Receive]; got.Busy != 0 || got.Balanced || got.Imbalanced != 0 || !got.Known {
		t.Errorf("nothing was received, and yet %+v", got)
	}
}

// within checks that got is within 2 % of want or, if want is 0, of a second.
func within(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > max(0.02*want, 0.0002) {
		t.Errorf("%s: %.4f, want %.4f", what, got, want)
	}
}
