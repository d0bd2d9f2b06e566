package sampler

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/lane/lanetest"
)

// TestBurst: a burst of 200 ms of full load per minute is detected at any shorter interval, wherever it begins.
func TestBurst(t *testing.T) {
	for _, begins := range []time.Duration{30 * time.Second, 30*time.Second + 50*time.Millisecond,
		30*time.Second + 93*time.Millisecond} {
		lanetest.Test(t, func(t *testing.T) {
			m := newMachine()
			burst := func(since time.Duration) float64 {
				return 400 * gigabit * max(0, min(since-begins, 200*time.Millisecond)).Seconds()
			}
			m.mlx5("mlx5_0", 400, [directions]func(time.Duration) float64{idle, burst})
			m.mlx5("mlx5_1", 400, [directions]func(time.Duration) float64{idle, idle})
			s := m.sampler(DefaultInterval, Options{})
			var during Snapshot
			snap := run(t, s, begins+5*time.Second, func() {
				s.Snapshot(&during)
				time.Sleep(30*time.Second - 5*time.Second)
			})
			tally := snap.Rails[0].Tally[Transmit]
			full := len(tally.outside(0, 0, SaturatedAbove))
			if full < 1 || tally.Busy < 0.19 || tally.Busy > 0.31 || tally.sum() < 1.99 || tally.sum() > 2.01 {
				t.Errorf("a burst at %v: %d full samples, %v busy seconds, sum %v", begins, full, tally.Busy,
					tally.sum())
			}
			if set := during.Sets[Transmit]; set.Active != 1 || !set.Balanced || set.Imbalance < 0.99 || set.Busy <
				0.19 || set.Busy > 0.31 || set.Imbalanced != set.Busy {
				t.Errorf("a burst at %v on one of two: %+v", begins, set)
			}
		})
	}
}

// TestCounterSteps: a counter that decreases, a device that disappears, and one that returns with other counters
// cause no burst and lose no more samples than necessary.
func TestCounterSteps(t *testing.T) {
	const carried = 0.5 * 400 * gigabit
	for name, tc := range map[string]struct {
		disturb func(m *machine, port string)
		dropped [Reasons]uint64 // per direction; at least 1 if one is expected
	}{
		"reset": {func(m *machine, port string) {
			begin := time.Now()
			for _, name := range []string{"port_rcv_data", "port_xmit_data"} {
				m.set(port+"/counters/"+name, func() (string, error) {
					return fmt.Sprint(uint64(carried*time.Since(begin).Seconds()) / 4), nil
				})
			}
		}, [Reasons]uint64{1, 0, 0}},
		"gone for 30 s": {func(m *machine, port string) {
			back := m.gone("mlx5_0")
			time.Sleep(30 * time.Second)
			back()
		}, [Reasons]uint64{0, 1, 0}},
		"another device of the name, with more on its counters": {func(m *machine, port string) {
			m.gone("mlx5_0")()
			begin := time.Now()
			for _, name := range []string{"port_rcv_data", "port_xmit_data"} {
				m.set(port+"/counters/"+name, func() (string, error) {
					return fmt.Sprint(uint64(1e15) + uint64(carried*time.Since(begin).Seconds())/4), nil
				})
			}
		}, [Reasons]uint64{0, 1, 0}},
		"a new life, found by the finder": {func(m *machine, port string) {
			m.mu.Lock()
			m.rails[0].ID = "mlx5_0#2"
			m.life++
			m.mu.Unlock()
		}, [Reasons]uint64{0, 1, 0}},
		"firmware that fails for 5 s": {func(m *machine, port string) {
			was := m.files[port+"/counters/port_xmit_data"]
			m.set(port+"/counters/port_xmit_data", func() (string, error) { return "", errIO })
			time.Sleep(5 * time.Second)
			m.set(port+"/counters/port_xmit_data", was)
		}, [Reasons]uint64{0, 1, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			lanetest.Test(t, func(t *testing.T) {
				m := newMachine()
				r := m.mlx5("mlx5_0", 400, [directions]func(time.Duration) float64{steady(400, 0.5), steady(400, 0.5)})
				s := m.sampler(DefaultInterval, Options{})
				var after Snapshot
				before := run(t, s, 10*time.Second+37*time.Millisecond, func() {
					tc.disturb(m, r.Dir+"/ports/1")
					time.Sleep(10 * time.Second)
					synctest.Wait()
					s.Snapshot(&after)
				})
				for d := range directions {
					was, is := before.Rails[0].Tally[d], after.Rails[0].Tally[d]
					n := is.Samples - was.Samples
					if others := is.outside(0, 0.25, 0.75); n < 80 || len(others) > 0 {
						t.Errorf("%s: %d samples after it, with %v; want about 100, all of a half", Direction(d), n,
							others)
					}
					within(t, Direction(d)+": mean", (is.sum()-was.sum())/float64(n), 0.5)
				}
				for reason, n := range tc.dropped {
					if got := after.Dropped[reason]; (got > 0) != (n > 0) {
						t.Errorf("%d samples dropped for %s, want some: %v", got, DropReason(reason), n > 0)
					}
				}
			})
		})
	}
}

// TestCapacityUnknown: a rail that is down has no utilization and causes no imbalance. Its bytes continue when it
// is up again.
func TestCapacityUnknown(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.mlx5("mlx5_0", 400, [directions]func(time.Duration) float64{idle, steady(400, 1)})
		r := m.mlx5("mlx5_1", 400, [directions]func(time.Duration) float64{idle, steady(400, 1)})
		m.text(r.Dir+"/ports/1/state", "1: DOWN\n")
		s := m.sampler(DefaultInterval, Options{})
		var up Snapshot
		down := run(t, s, 20*time.Second, func() {
			m.text(r.Dir+"/ports/1/state", "4: ACTIVE\n")
			time.Sleep(20 * time.Second)
			s.Snapshot(&up)
		})
		if tally := down.Rails[1].Tally[Transmit]; tally.Samples != 0 || tally.Saturated != 0 {
			t.Errorf("utilisation of a rail whose capacity is unknown: %+v", tally)
		}
		if set := down.Sets[Transmit]; !set.Known || set.Active != 1 || set.Balanced {
			t.Errorf("with one rail whose capacity is known: %+v", set)
		}
		if set := up.Sets[Transmit]; set.Active != 2 || !set.Balanced || set.Imbalance > 0.001 {
			t.Errorf("with both: %+v", set)
		}
		if tally := up.Rails[1].Tally[Transmit]; tally.Saturated < 17 || tally.Saturated > 20 {
			t.Errorf("%v saturated seconds, want those since it is up", tally.Saturated)
		}
	})
}

// TestSlowDevice: a device whose reads take long is read less often and reports that; others are read as before.
// When it is fast again, its pace returns.
func TestSlowDevice(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		m := newMachine()
		slow := m.mlx5("mlx5_0", 400, [directions]func(time.Duration) float64{idle, steady(400, 0.5)})
		m.mlx5("mlx5_1", 400, [directions]func(time.Duration) float64{idle, steady(400, 0.5)})
		var took atomic.Int64 // duration of each of the two reads
		took.Store(int64(10 * time.Millisecond))
		m.latency = func(path string) (time.Duration, time.Duration) {
			if strings.HasPrefix(path, slow.Dir) && strings.Contains(path, "counters/") {
				half := time.Duration(took.Load()) / 2
				return half, half
			}
			return 0, 0
		}
		var told []string
		s := m.sampler(DefaultInterval, Options{Paced: func(device string, every, took time.Duration) {
			told = append(told, fmt.Sprintf("%s every %v, takes %v", device, every, took))
		}})
		var first, later, back Snapshot
		run(t, s, 20*time.Second+50*time.Millisecond, func() { // between two ticks
			s.Snapshot(&first)
			time.Sleep(20 * time.Second)
			s.Snapshot(&later)
			tally, was := later.Rails[0].Tally[Transmit], first.Rails[0].Tally[Transmit]
			if n := tally.Samples - was.Samples; n != 100 {
				t.Errorf("%d samples of the slow device in 20 s, want 100", n)
			}
			within(t, "its mean", (tally.sum()-was.sum())/float64(tally.Samples-was.Samples), 0.5)
			if n := later.Devices[1].Samples - first.Devices[1].Samples; n != 2*200 {
				t.Errorf("%d samples of the other in 20 s, want 400", n)
			}
			if got := later.Devices[0].Interval; got != 200*time.Millisecond {
				t.Errorf("it is read every %v", got)
			}
			if spent := later.Devices[0].Reading - first.Devices[0].Reading; spent != 100*20*time.Millisecond {
				t.Errorf("reading took %v, want 2 s of 20", spent)
			}
			took.Store(0)
			time.Sleep(5 * time.Second)
			s.Snapshot(&back)
		})
		if got := back.Devices[0].Interval; got != DefaultInterval {
			t.Errorf("quick again, it is read every %v", got)
		}
		if diff := cmp.Diff([]string{"mlx5_0 every 200ms, takes 20ms", "mlx5_0 every 100ms, takes 1ns"},
			told); diff != "" {
			t.Errorf("-want +told:\n%s", diff)
		}
	})
}

// TestLateOnce: one slow read changes neither the pace nor the results, and is counted.
func TestLateOnce(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.mlx5("mlx5_0", 400, [directions]func(time.Duration) float64{idle, steady(400, 0.5)})
		n := 0
		m.latency = func(path string) (time.Duration, time.Duration) {
			if strings.Contains(path, "xmit_data") {
				n++
				if n == 50 {
					return 310 * time.Millisecond, 0
				}
			}
			return 0, 0
		}
		snap := run(t, m.sampler(DefaultInterval, Options{}), 20*time.Second, nil)
		d, tally := snap.Devices[0], snap.Rails[0].Tally[Transmit]
		if d.Overruns != 3 || d.Interval != DefaultInterval || snap.Dropped != [Reasons]uint64{0, 0, 1} {
			t.Errorf("after a read of 310 ms: %+v", d)
		}
		if others := tally.outside(0, 0.25, 0.75); len(others) > 0 {
			t.Errorf("a half looks like %v", others)
		}
	})
}

// TestStuckDevice: a device whose read never returns loses its own samples only, and the sampler still ends.
func TestStuckDevice(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		m := newMachine()
		stuck := m.mlx5("mlx5_0", 400, [directions]func(time.Duration) float64{idle, steady(400, 0.5)})
		m.mlx5("mlx5_1", 400, [directions]func(time.Duration) float64{idle, steady(400, 0.5)})
		s := m.sampler(DefaultInterval, Options{})
		var after Snapshot
		run(t, s, 10*time.Second+50*time.Millisecond, func() {
			m.mu.Lock()
			m.latency = func(path string) (time.Duration, time.Duration) {
				if strings.HasPrefix(path, stuck.Dir) {
					return time.Minute, 0
				}
				return 0, 0
			}
			m.mu.Unlock()
			var before Snapshot
			s.Snapshot(&before)
			time.Sleep(20 * time.Second)
			s.Snapshot(&after)
			if n := after.Devices[1].Samples - before.Devices[1].Samples; n != 400 {
				t.Errorf("%d samples of the device that is well, want 400", n)
			}
			if n := after.Devices[0].Samples - before.Devices[0].Samples; n != 0 || after.Devices[0].Stuck < 19*
				time.Second || after.Devices[1].Stuck != 0 {
				t.Errorf("%d samples of the stuck one, stuck for %v and %v", n, after.Devices[0].Stuck,
					after.Devices[1].Stuck)
			}
		})
	})
}

// TestGPUPeaks: peaks since the start and of the last minute.
func TestGPUPeaks(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		m := newMachine()
		begin := time.Now()
		s := m.sampler(DefaultInterval, Options{GPUs: func() ([]collector.GPUUse, bool) {
			used := uint64(0)
			if since := time.Since(begin).Round(time.Second); since == 5*time.Second {
				used = 900
			} else if since == 100*time.Second {
				used = 300
			}
			return []collector.GPUUse{{Index: 1, Used: used, UsedKnown: time.Since(begin) < 200*time.Second},
				{Index: 0}}, true
		}})
		var snap Snapshot
		at := func(when time.Duration, want ...GPUPeaks) {
			time.Sleep(when + 500*time.Millisecond - time.Since(begin))
			s.Snapshot(&snap)
			if diff := cmp.Diff(want, append([]GPUPeaks(nil), snap.GPUs...)); diff != "" {
				t.Errorf("after %v: -want +got\n%s", when, diff)
			}
		}
		run(t, s, time.Second, func() {
			at(4*time.Second, GPUPeaks{1, 0, 0})
			at(5*time.Second, GPUPeaks{1, 900, 900})
			at(64*time.Second, GPUPeaks{1, 900, 900})
			at(65*time.Second, GPUPeaks{1, 900, 0})
			at(120*time.Second, GPUPeaks{1, 900, 300})
			at(300 * time.Second) // no value for a long time
		})
	})
}
