package sampler

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/lane/lanetest"
	"github.com/railscope/railscope/internal/rail"
)

// TestHalfRead: if one direction could not be read, both start again. The device may have been replaced before the
// next read, which the time does not show at a long interval.
func TestHalfRead(t *testing.T) {
	for _, interval := range []time.Duration{time.Second, MaxInterval} {
		lanetest.Test(t, func(t *testing.T) {
			m := newMachine()
			r := m.mlx5("mlx5_0", 100, [directions]func(time.Duration) float64{idle, idle})
			var after Snapshot
			s := m.sampler(interval, Options{})
			run(t, s, 5*interval+interval/2, func() {
				transmit := r.Dir + "/ports/1/counters/port_xmit_data"
				m.set(transmit, func() (string, error) { return "", errIO })
				time.Sleep(interval)
				m.mu.Lock()
				m.life++
				m.mu.Unlock()
				m.text(r.Dir+"/ports/1/counters/port_rcv_data", "1000000000000\n") // counter of another device
				m.text(transmit, "1000000000000\n")
				time.Sleep(5 * interval)
				s.Snapshot(&after)
			})
			for d, tally := range after.Rails[0].Tally {
				if tally.sum() != 0 || tally.Busy != 0 {
					t.Errorf("every %v: %s of an idle rail: %v busy seconds, utilisations of %v", interval,
						Direction(d), tally.Busy, tally.sum())
				}
			}
		})
	}
}

// TestDroppedStays: dropped samples of a device that disappeared stay counted.
func TestDroppedStays(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		m := newMachine()
		r := m.mlx5("mlx5_0", 100, [directions]func(time.Duration) float64{idle, idle})
		m.mlx5("mlx5_1", 100, [directions]func(time.Duration) float64{idle, idle})
		s := m.sampler(DefaultInterval, Options{})
		var before, after Snapshot
		run(t, s, 2*time.Second, func() {
			m.text(r.Dir+"/ports/1/counters/port_rcv_data", "1\n")
			time.Sleep(time.Second)
			s.Snapshot(&before)
			m.mu.Lock()
			m.rails = m.rails[1:]
			m.mu.Unlock()
			time.Sleep(3 * time.Second)
			s.Snapshot(&after)
		})
		if len(after.Devices) != 1 || before.Dropped[droppedReset] != 1 || after.Dropped != before.Dropped {
			t.Errorf("%v were dropped, and %v with %d of two devices left", before.Dropped, after.Dropped,
				len(after.Devices))
		}
	})
}

// TestWindowIsOfNow: a rail that was absent is judged by its traffic since its return, not by older traffic in its
// window.
func TestWindowIsOfNow(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		m := newMachine()
		first20 := func(since time.Duration) float64 {
			return 400 * gigabit * min(since, 20*time.Second).Seconds()
		}
		m.mlx5("mlx5_0", 400, [directions]func(time.Duration) float64{idle, first20})
		m.mlx5("mlx5_1", 400, [directions]func(time.Duration) float64{idle, idle})
		s := m.sampler(DefaultInterval, Options{})
		var after Snapshot
		run(t, s, 18*time.Second, func() {
			m.mu.Lock()
			all := m.rails
			m.rails = all[1:]
			m.mu.Unlock()
			time.Sleep(10 * time.Minute)
			m.mu.Lock()
			m.rails = []rail.Rail{all[0], all[1]}
			m.mu.Unlock()
			time.Sleep(4 * time.Second)
			synctest.Wait()
			s.Snapshot(&after)
		})
		if set := after.Sets[Transmit]; set.Active != 0 || set.Balanced {
			t.Errorf("nothing moves for ten minutes, and yet %+v", set)
		}
	})
}

// TestDeadRail: a rail that went down while the others are busy carries nothing, which counts as imbalance. A rail
// that was never up does not count.
func TestDeadRail(t *testing.T) {
	for _, n := range []int{2, 8} {
		lanetest.Test(t, func(t *testing.T) {
			m := newMachine()
			var ports []string
			down := make([]bool, n+1)
			for i := range n + 1 {
				part := func(since time.Duration) float64 {
					if down[i] {
						return 200 * gigabit * 20
					}
					return 200 * gigabit * since.Seconds()
				}
				r := m.mlx5(fmt.Sprintf("mlx5_%d", i), 400, [directions]func(time.Duration) float64{idle, part})
				ports = append(ports, r.Dir+"/ports/1")
			}
			down[n] = true // it was never up
			m.text(ports[n]+"/state", "1: DOWN\n")
			s := m.sampler(DefaultInterval, Options{})
			var after Snapshot
			before := run(t, s, 20*time.Second, func() {
				down[0] = true
				m.text(ports[0]+"/state", "1: DOWN\n")
				time.Sleep(time.Minute)
				synctest.Wait()
				s.Snapshot(&after)
			})
			if set := before.Sets[Transmit]; !set.Balanced || set.Imbalance > 0.001 || set.Imbalanced != 0 ||
				set.Active != n {
				t.Errorf("%d rails are even, one was never up: %+v", n, set)
			}
			set := after.Sets[Transmit]
			within(t, "imbalance", set.Imbalance, 1)
			if grew := set.Imbalanced - before.Sets[Transmit].Imbalanced; !set.Balanced || set.Active != n-
				1 || grew < 51 || grew > 61 {
				t.Errorf("one of %d died a minute ago: %v imbalanced seconds, %+v", n, grew, set)
			}
		})
	}
}

// TestAllDead: if all rails went down, none is active.
func TestAllDead(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		m := newMachine()
		r := m.mlx5("mlx5_0", 400, [directions]func(time.Duration) float64{idle, idle})
		s := m.sampler(DefaultInterval, Options{})
		var after Snapshot
		run(t, s, 5*time.Second, func() {
			m.text(r.Dir+"/ports/1/state", "1: DOWN\n")
			time.Sleep(20 * time.Second)
			s.Snapshot(&after)
		})
		if set := after.Sets[Transmit]; !set.Known || set.Active != 0 || set.Balanced {
			t.Errorf("with all rails down: %+v", set)
		}
	})
}

// TestBusyOfSlowDevice: a device that is sampled less often than others counts for the whole time that its samples
// cover.
func TestBusyOfSlowDevice(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		m := newMachine()
		slow := m.mlx5("mlx5_0", 400, [directions]func(time.Duration) float64{idle, steady(400, 0.5)})
		m.latency = func(path string) (time.Duration, time.Duration) {
			if strings.HasPrefix(path, slow.Dir) && strings.Contains(path, "counters/") {
				return 150 * time.Millisecond, 150 * time.Millisecond
			}
			return 0, 0
		}
		s := m.sampler(MinInterval, Options{})
		var after Snapshot
		before := run(t, s, 3*time.Minute, func() {
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			s.Snapshot(&after)
		})
		if every := after.Devices[0].Interval; every < 4*time.Second {
			t.Errorf("sampled every %v", every)
		}
		within(t, "busy seconds of any rail", after.Sets[Transmit].Busy-before.Sets[Transmit].Busy, 300)
	})
}

// TestRailsGone: rails were balanced, and then all devices but one disappeared, as after fatal errors. The
// remaining rail's traffic raises single_rail until the devices return or the job ends.
func TestRailsGone(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		m := newMachine()
		ends := func(since time.Duration) float64 {
			return 200 * gigabit * min(since, 300*time.Second).Seconds()
		}
		for i := range 3 {
			m.mlx5(fmt.Sprintf("mlx5_%d", i), 400, [directions]func(time.Duration) float64{idle, ends})
		}
		all := m.rails
		only := func(rails []rail.Rail) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.rails = rails
		}
		s := m.sampler(DefaultInterval, Options{})
		run(t, s, time.Minute, func() {
			expect := func(what string, want Suspicion) {
				t.Helper()
				var snap Snapshot
				s.Snapshot(&snap)
				if got := snap.Fallback[SingleRail]; got != want {
					t.Errorf("%s: %+v, want %+v", what, got, want)
				}
			}
			expect("even", Suspicion{Known: true})
			others := slices.Clone(all)
			others[1].Role, others[2].Role = "storage", "storage"
			only(others)
			time.Sleep(30 * time.Second)
			expect("two of three are for storage", Suspicion{})
			only(all)
			time.Sleep(30 * time.Second)
			expect("even again", Suspicion{Known: true})
			only(all[1:])
			time.Sleep(30 * time.Second)
			expect("one of three left", Suspicion{Known: true})
			only(all[2:])
			time.Sleep(30 * time.Second)
			expect("two of three left", Suspicion{Known: true, Suspected: true})
			only(all)
			time.Sleep(30 * time.Second)
			expect("they are back", Suspicion{Known: true})
			only(all[2:])
			time.Sleep(30 * time.Second)
			expect("they left again", Suspicion{Known: true, Suspected: true})
			time.Sleep(6 * time.Minute)
			expect("and the job ended", Suspicion{})
		})
	})
}

// TestPaceAtTheLimit: a device whose reads take a little more or a little less than 1/10 of the interval does not
// change its pace all the time.
func TestPaceAtTheLimit(t *testing.T) {
	for _, usual := range []time.Duration{time.Millisecond, 2 * time.Millisecond, 7 * time.Millisecond} {
		p := newPace(MinInterval)
		changes := 0
		for i := range 1000 {
			took := usual - usual/10
			if i/20%2 == 0 {
				took = usual + usual/10
			}
			if p.note(took) {
				changes++
			}
		}
		if changes > 2 {
			t.Errorf("reads of %v ± 10 %%: %d changes in 10 s", usual, changes)
		}
	}
}

// TestRenamed: a new name of a rail after a reload loses no sample, and starts no second read of a device whose
// first read is stuck.
func TestRenamed(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.mlx5("mlx5_0", 400, [directions]func(time.Duration) float64{idle, steady(400, 0.5)})
		rename := func(name string) {
			m.mu.Lock()
			m.rails[0].Name, m.rails[0].Role, m.rails[0].GPU, m.rails[0].GPUDistance = name, name, name, rail.PIX
			m.mu.Unlock()
			time.Sleep(2 * time.Second)
		}
		s := m.sampler(DefaultInterval, Options{})
		var after Snapshot
		before := run(t, s, 5*time.Second+50*time.Millisecond, func() {
			rename("east")
			s.Snapshot(&after)
			m.mu.Lock()
			m.latency = func(path string) (time.Duration, time.Duration) {
				if strings.Contains(path, "port_rcv_data") {
					return time.Minute, 0
				}
				return 0, 0
			}
			m.mu.Unlock()
			time.Sleep(2 * time.Second)
			began := m.readsOf("port_rcv_data")
			rename("west")
			rename("north")
			if n := m.readsOf("port_rcv_data") - began; n != 0 {
				t.Errorf("%d more reads of a device that is stuck", n)
			}
			var stuck Snapshot
			s.Snapshot(&stuck)
			if d := stuck.Devices[0]; d.Stuck < 5*time.Second || stuck.Rails[0].Name != "north" {
				t.Errorf("%s is stuck for %v", stuck.Rails[0].Name, d.Stuck)
			}
		})
		if n := after.Rails[0].Tally[Transmit].Samples - before.Rails[0].Tally[Transmit].Samples; n != 20 ||
			after.Rails[0].Name != "east" {
			t.Errorf("%d samples of %s in 2 s", n, after.Rails[0].Name)
		}
	})
}

// readsOf returns the number of reads of files of a name that have started.
func (m *machine) readsOf(name string) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for path, times := range m.reads {
		if strings.HasSuffix(path, name) {
			n += times
		}
	}
	return n
}

// TestCachedCounters: the kernel answers hw_counters from a cache for slightly more than 10 ms. With samples as
// frequent as that, every second value would be old, and a load of 50 % would appear as 0 and 100 % in turns.
func TestCachedCounters(t *testing.T) {
	for lifespan, every := range map[int]time.Duration{10: 20 * time.Millisecond, 200: 400 * time.Millisecond} {
		lanetest.Test(t, func(t *testing.T) {
			m := newMachine()
			r := m.mlx5("efa_0", 100, [directions]func(time.Duration) float64{idle, idle})
			port := r.Dir + "/ports/1"
			delete(m.files, port+"/counters/port_rcv_data")
			delete(m.files, port+"/counters/port_xmit_data")
			begin, read := time.Now(), time.Time{}
			for _, name := range []string{"rx_bytes", "tx_bytes"} {
				m.set(port+"/hw_counters/"+name, func() (string, error) {
					if time.Since(read) > time.Duration(lifespan)*time.Millisecond+4*time.Millisecond {
						read = time.Now()
					}
					return fmt.Sprint(uint64(0.6 * 100 * gigabit * read.Sub(begin).Seconds())), nil
				})
			}
			if lifespan != 10 { // without the file, the lifespan is 10
				m.text(port+"/hw_counters/lifespan", fmt.Sprintln(lifespan))
			}
			s := m.sampler(MinInterval, Options{})
			var after Snapshot
			before := run(t, s, 10*time.Second+5*time.Millisecond, func() { // between two ticks
				time.Sleep(20 * time.Second)
				s.Snapshot(&after)
			})
			was, is := before.Rails[0].Tally[Transmit], after.Rails[0].Tally[Transmit]
			within(t, "busy seconds", is.Busy-was.Busy, 20)
			within(t, "saturated seconds", is.Saturated-was.Saturated, 0)
			if got := after.Devices[0].Interval; got != every {
				t.Errorf("sampled every %v, want %v", got, every)
			}
		})
	}
}

// TestBrokenCounter: a counter that cannot be read is a fault as long as that lasts, not a device without that
// counter. mlx5 returns EINVAL if its firmware fails, as other drivers do for a counter that they lack.
func TestBrokenCounter(t *testing.T) {
	for _, why := range []error{errIO, unix.EINVAL} {
		lanetest.Test(t, func(t *testing.T) {
			m := newMachine()
			r := m.mlx5("mlx5_0", 400, [directions]func(time.Duration) float64{idle, idle})
			never := m.mlx5("mlx5_1", 400, [directions]func(time.Duration) float64{idle, idle})
			m.set(never.Dir+"/ports/1/counters/port_xmit_data", func() (string, error) { return "", unix.EINVAL })
			s := m.sampler(DefaultInterval, Options{})
			var after Snapshot
			run(t, s, 5*time.Second, func() {
				m.set(r.Dir+"/ports/1/counters/port_xmit_data", func() (string, error) { return "", why })
				time.Sleep(10 * time.Second)
				s.Snapshot(&after)
			})
			if err := after.Devices[0].Err; !errors.Is(err, why) || errors.Is(err, rail.ErrUncounted) {
				t.Errorf("a read that fails: %v", err)
			}
			if err := after.Devices[1].Err; !errors.Is(err, rail.ErrUncounted) {
				t.Errorf("of one that never counted: %v", err)
			}
		})
	}
}
