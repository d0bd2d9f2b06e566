package sampler

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railscope/railscope/internal/lane/lanetest"
)

// TestShortFault: a counter that cannot be read for a moment, such as a file that is being rewritten, loses no
// second: the next sample covers the missed time, is divided by the whole time, and is counted.
func TestShortFault(t *testing.T) {
	for name, fault := range map[string]struct {
		row  int // consecutive failed ticks out of ten
		read func() (string, error)
	}{
		"empty": {5, func() (string, error) { return "", nil }},
		"fails": {2, func() (string, error) { return "", errIO }},
	} {
		for _, interval := range []time.Duration{MinInterval, DefaultInterval, time.Second} {
			lanetest.Test(t, func(t *testing.T) {
				m := newMachine()
				r := m.mlx5("mlx5_0", 400, [directions]func(time.Duration) float64{idle, steady(400, 0.5)})
				transmit := r.Dir + "/ports/1/counters/port_xmit_data"
				counts, reads := m.files[transmit], 0
				m.set(transmit, func() (string, error) {
					reads++
					if reads%10 < fault.row {
						return fault.read()
					}
					return counts()
				})
				var after Snapshot
				s := m.sampler(interval, Options{})
				before := run(t, s, 20*time.Second+interval/2, func() {
					time.Sleep(40 * time.Second)
					s.Snapshot(&after)
				})
				is, was := after.Rails[0].Tally[Transmit], before.Rails[0].Tally[Transmit]
				n := is.Samples - was.Samples
				within(t, name+": busy seconds", is.Busy-was.Busy, 40)
				within(t, name+": mean", (is.sum()-was.sum())/float64(n), 0.5)
				ticks := float64(40*time.Second) / float64(interval)
				within(t, name+": samples", float64(n), float64(10-fault.row)/10*ticks)
				within(t, name+": overruns", float64(after.Devices[0].Overruns-before.Devices[0].Overruns),
					float64(fault.row)/10*ticks)
				if d := after.Dropped; d != [Reasons]uint64{} {
					t.Errorf("%s: %v dropped", name, d)
				}
			})
		}
	}
}

// TestBurstBesideSlowDevice: the effect of a burst on the balance does not wait longer for the slowest device than
// the burst is remembered.
func TestBurstBesideSlowDevice(t *testing.T) {
	for _, took := range []time.Duration{30 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond} {
		lanetest.Test(t, func(t *testing.T) {
			m := newMachine()
			slow := m.mlx5("mlx5_0", 400, [directions]func(time.Duration) float64{idle, idle})
			m.mlx5("mlx5_1", 400, [directions]func(time.Duration) float64{idle,
				pulses(400, 0.9, time.Second, time.Minute)})
			m.latency = func(path string) (before, after time.Duration) {
				if strings.HasPrefix(path, slow.Dir) && strings.Contains(path, "counters/") {
					return took / 2, took / 2
				}
				return 0, 0
			}
			s := m.sampler(DefaultInterval, Options{})
			var after Snapshot
			before := run(t, s, 3*time.Minute+30*time.Second, func() {
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				s.Snapshot(&after)
			})
			was, is := before.Sets[Transmit], after.Sets[Transmit]
			within(t, "busy seconds", is.Busy-was.Busy, 10)
			within(t, "imbalanced seconds", is.Imbalanced-was.Imbalanced, 10)
		})
	}
}
