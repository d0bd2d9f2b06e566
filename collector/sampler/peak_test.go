package sampler

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/internal/lane/lanetest"
	"github.com/railscope/railscope/internal/rail"
)

// TestPeak: the highest rates of a job over 1 s and over 100 ms, at several intervals of the sampler. Rates are shares
// of 400 Gb/s.
func TestPeak(t *testing.T) {
	const gbit = 400
	for _, tc := range []struct {
		why           string
		interval      time.Duration
		carried       func(time.Duration) float64
		second, tenth float64
	}{
		{"steady", DefaultInterval, steady(gbit, 0.9), 0.9, 0.9},
		{"steady, read every 10 ms", MinInterval, steady(gbit, 0.9), 0.9, 0.9},
		{"steady, read every 2 s", 2 * time.Second, steady(gbit, 0.9), 0.9, 0},
		{"0.5 s of each 2 s", DefaultInterval, pulses(gbit, 0.9, time.Second/2, 2*time.Second), 0.45, 0.9},
		{"0.5 s of each 2 s, read every 10 ms", MinInterval, pulses(gbit, 0.9, time.Second/2, 2*time.Second), 0.45,
			0.9},
		{"0.5 s of each 2 s, some samples late", DefaultInterval, pulses(gbit, 0.9, time.Second/2, 2*time.Second), 0.45,
			0.9},
		{"below busy", DefaultInterval, steady(gbit, 0.005), 0, 0},
		{"idle", DefaultInterval, idle, 0, 0},
		{"more than the rail can carry", DefaultInterval, steady(gbit, 1.2), 0, 0},
	} {
		lanetest.Test(t, func(t *testing.T) {
			m := newMachine()
			m.mlx5("mlx5_0", gbit, [directions]func(time.Duration) float64{idle, tc.carried})
			if strings.HasSuffix(tc.why, "late") {
				m.latency = disturbances["late"](tc.interval)
			}
			snap := run(t, m.sampler(tc.interval, Options{}), 121*time.Second, nil)
			peaks := snap.Rails[0].Peaks[Transmit]
			for window, want := range [PeakWindows]float64{tc.second, tc.tenth} {
				if got := peaks[window].Rate / gbit / gigabit; math.Abs(got-want) > 0.02*want+0.001 {
					t.Errorf("%s: %.3f over %s, want %.3f", tc.why, got, PeakWindow(window), want)
				}
			}
			if snap.Rails[0].Peaks[Receive] != [PeakWindows]Peak{} {
				t.Errorf("%s: peaks without traffic: %+v", tc.why, snap.Rails[0].Peaks[Receive])
			}
		})
	}
}

// TestPeakForgets: a peak is that of the last hour, with its time, and no longer.
func TestPeakForgets(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		begin := time.Now()
		m := newMachine()
		burst := func(since, at time.Duration, share float64) float64 { // for 10 s
			return share * 100 * gigabit * min(max(since-at, 0), 10*time.Second).Seconds()
		}
		m.mlx5("mlx5_0", 100, [directions]func(time.Duration) float64{idle, func(since time.Duration) float64 {
			return burst(since, 10*time.Second, 0.8) + burst(since, 61*time.Minute+5*time.Second, 0.2)
		}})
		s := m.sampler(time.Second, Options{})
		at := func(after time.Duration) Peak {
			var snap Snapshot
			time.Sleep(time.Until(begin.Add(after)))
			s.Snapshot(&snap)
			return snap.Rails[0].Peaks[Transmit][PeakSecond]
		}
		run(t, s, 0, func() {
			for _, tc := range []struct{ after, share, from, to float64 }{ // minutes; seconds after the start
				{5, 0.8, 10, 21}, {60, 0.8, 10, 21}, {61, 0, math.Inf(-1), 0}, {62, 0.2, 3665, 3676},
				{121, 0.2, 3665, 3676}, {122, 0, math.Inf(-1), 0},
			} {
				p := at(time.Duration(tc.after * float64(time.Minute)))
				when := p.At.Sub(begin).Seconds()
				if got := p.Rate / 100 / gigabit; math.Abs(got-tc.share) > 0.02 || when < tc.from || when > tc.to {
					t.Errorf("after %v minutes: %.2f of %.0f s, want %.2f", tc.after, got, when, tc.share)
				}
			}
		})
	})
}

// TestPeakWithoutOwn: a round of the probe is no peak, and a job's traffic beside rounds is one between them.
func TestPeakWithoutOwn(t *testing.T) {
	const gbit, period = 100, 20 * time.Second
	for _, tc := range []struct {
		why       string
		job, want float64
	}{{"no job", 0, 0}, {"a job", 0.3, 0.3}} {
		lanetest.Test(t, func(t *testing.T) {
			begin := time.Now()
			rounds := pulses(gbit, 0.95, 300*time.Millisecond, period)
			m := newMachine()
			m.mlx5("mlx5_0", gbit, [directions]func(time.Duration) float64{idle, func(since time.Duration) float64 {
				return rounds(since) + tc.job*gbit*gigabit*since.Seconds()
			}})
			// Even if much of a round is not known to be its own.
			own := func(rail.Rail) (bytes [directions]uint64, settled bool) {
				since := time.Since(begin)
				settled = since%period >= 2*time.Second
				if !settled {
					since -= since % period
				}
				return [directions]uint64{Transmit: uint64(0.6 * rounds(since))}, settled
			}
			snap := run(t, m.sampler(DefaultInterval, Options{Own: own}), 5*period, nil)
			for window, p := range snap.Rails[0].Peaks[Transmit] {
				if got := p.Rate / gbit / gigabit; math.Abs(got-tc.want) > 0.02 {
					t.Errorf("%s: %.3f over %s, want %.1f", tc.why, got, PeakWindow(window), tc.want)
				}
			}
		})
	}
}
