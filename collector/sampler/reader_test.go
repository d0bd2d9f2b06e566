package sampler

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/lane/lanetest"
)

// idleRails adds rails without traffic.
func idleRails(m *machine, n int) {
	for i := range n {
		m.mlx5(fmt.Sprintf("mlx5_%d", i), 400, [directions]func(time.Duration) float64{idle, idle})
	}
}

// hang makes every read of the devices take long, from the next read on; 0 ends it.
func (m *machine) hang(long time.Duration, devices ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.latency = func(path string) (time.Duration, time.Duration) {
		if slices.ContainsFunc(devices, func(d string) bool { return strings.Contains(path, "/"+d+"/") }) {
			return long, 0
		}
		return 0, 0
	}
}

// TestManyHang: devices that hang simultaneously delay the others by a few ticks once, and not while they hang.
func TestManyHang(t *testing.T) {
	for _, interval := range []time.Duration{MinInterval, DefaultInterval} {
		lanetest.Test(t, func(t *testing.T) {
			m := newMachine()
			idleRails(m, 16)
			hung := []string{"mlx5_1", "mlx5_3", "mlx5_4", "mlx5_7", "mlx5_10", "mlx5_14"}
			s := m.sampler(interval, Options{})
			run(t, s, 2*time.Second+interval/2, func() {
				alarms := m.alarms.Load()
				ticks := func(what string, runs time.Duration, lost int) {
					t.Helper()
					var before, after Snapshot
					s.Snapshot(&before)
					time.Sleep(runs)
					s.Snapshot(&after)
					for i, d := range after.Devices {
						n := int(d.Samples-before.Devices[i].Samples) / int(directions)
						want := int(runs / interval)
						if slices.Contains(hung, d.Name) && what != "they answer" {
							if n > 1 || d.Stuck == 0 {
								t.Errorf("%s: %d samples of %s, stuck for %v", what, n, d.Name, d.Stuck)
							}
						} else if n < want-lost || n > want {
							t.Errorf("%s: %d samples of %s, want %d", what, n, d.Name, want)
						}
					}
				}
				m.hang(time.Minute, hung...)
				ticks("they hang", 10*time.Second, int(2*hangAfter/interval)+1)
				m.hang(0)
				ticks("they still hang", 30*time.Second, 0)
				time.Sleep(30 * time.Second)
				ticks("they answer", 30*time.Second, 0)
				if n := m.alarms.Load(); n != alarms {
					t.Errorf("%d alarms when all answer again, %d before", n, alarms)
				}
			})
		})
	}
}

// TestSlowOnesApart: slow devices that are still read at the normal pace do not delay each other.
func TestSlowOnesApart(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		m := newMachine()
		idleRails(m, 16)
		var slow []string
		for i := range 14 {
			slow = append(slow, fmt.Sprintf("mlx5_%d", i))
		}
		m.hang(4*time.Millisecond, slow...) // two files per device: more than 100 ms if read one after the other
		s := m.sampler(DefaultInterval, Options{})
		run(t, s, 5*time.Second+50*time.Millisecond, func() {
			for _, what := range []string{"slow", "quick again"} {
				var before, after Snapshot
				s.Snapshot(&before)
				time.Sleep(5 * time.Second)
				s.Snapshot(&after)
				for i, d := range after.Devices {
					if n := d.Samples - before.Devices[i].Samples; n != 100 || d.Interval != DefaultInterval {
						t.Errorf("%s: %d samples of %s every %v", what, n, d.Name, d.Interval)
					}
				}
				m.hang(0)
			}
		})
	})
}

// TestStuckReplaced: the result of a stuck read is dropped if another device has taken the name. The other device
// is sampled meanwhile.
func TestStuckReplaced(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.mlx5("mlx5_0", 400, [directions]func(time.Duration) float64{idle, steady(400, 0.5)})
		idleRails(m, 0)
		s := m.sampler(DefaultInterval, Options{})
		run(t, s, 5*time.Second+50*time.Millisecond, func() {
			m.hang(10*time.Second, "mlx5_0")
			time.Sleep(time.Second)
			m.hang(0)
			m.mu.Lock()
			m.rails[0].ID = "mlx5_0#2"
			m.mu.Unlock()
			time.Sleep(2 * time.Second)
			var before, after Snapshot
			s.Snapshot(&before)
			if d := before.Devices[0]; d.Stuck != 0 || d.Samples < 100 {
				t.Errorf("the other device: %+v", d)
			}
			time.Sleep(20 * time.Second) // the stuck read has returned
			s.Snapshot(&after)
			if n := after.Devices[0].Samples - before.Devices[0].Samples; n != 400 || after.Dropped != before.Dropped {
				t.Errorf("%d samples in 20 s, %v dropped, before %v", n, after.Dropped, before.Dropped)
			}
			within(t, "busy", after.Rails[0].Tally[Transmit].Busy-before.Rails[0].Tally[Transmit].Busy, 20)
		})
	})
}

// TestRefused: a counter that the firmware refuses is read once a minute, and the error stays.
func TestRefused(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		m := newMachine()
		r := m.mlx5("mlx5_0", 400, [directions]func(time.Duration) float64{idle, idle})
		s := m.sampler(DefaultInterval, Options{})
		run(t, s, 5*time.Second+50*time.Millisecond, func() {
			path := r.Dir + "/ports/1/counters/port_xmit_data"
			answers := m.files[path]
			m.set(path, func() (string, error) { return "", unix.EINVAL })
			before := m.readsOf("port_xmit_data")
			time.Sleep(20 * time.Second)
			if n := m.readsOf("port_xmit_data") - before; n != 1 {
				t.Errorf("%d reads in 20 s", n)
			}
			time.Sleep(5 * time.Minute)
			if n := m.readsOf("port_xmit_data") - before; n > 7 {
				t.Errorf("%d reads in 5 min", n)
			}
			var snap, after Snapshot
			s.Snapshot(&snap)
			if snap.Devices[0].Err == nil {
				t.Error("no error")
			}
			m.set(path, answers)
			time.Sleep(time.Minute + time.Second)
			s.Snapshot(&snap)
			time.Sleep(10 * time.Second)
			s.Snapshot(&after)
			if after.Devices[0].Samples-
				snap.Devices[0].Samples != 200 || after.Devices[0].Err != nil {
				t.Errorf("it answers again: %+v", after.Devices[0])
			}
		})
	})
}

// TestAlarms: both kinds fire once, at the time that was set last, and never after they are closed.
func TestAlarms(t *testing.T) {
	for name, a := range map[string]Alarm{"kernel": KernelAlarm(), "runtime": RuntimeAlarm()} {
		start := time.Now()
		a.Set(time.Hour)
		time.AfterFunc(10*time.Millisecond, func() { a.Set(10 * time.Millisecond) })
		if ok := a.Wait(); !ok || time.Since(start) < 20*time.Millisecond || time.Since(start) > 10*time.Second {
			t.Errorf("%s: %v after %v", name, ok, time.Since(start))
		}
		a.Set(-time.Second)
		if !a.Wait() {
			t.Errorf("%s: closed by a time in the past", name)
		}
		time.AfterFunc(10*time.Millisecond, a.Close)
		if a.Wait() {
			t.Errorf("%s rang", name)
		}
		a.Set(0)
		if a.Wait() {
			t.Errorf("%s rang after it was closed", name)
		}
		a.Close()
	}
}
