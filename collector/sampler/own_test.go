package sampler

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/railscope/railscope/internal/lane/lanetest"
	"github.com/railscope/railscope/internal/rail"
)

// TestOwnTraffic: own rounds, which use all rails evenly, followed by a job on one rail are not a job that lost
// rails. The same holds for solo bursts, which use one rail after another. A read during a round is delayed.
func TestOwnTraffic(t *testing.T) {
	const capacity, seconds = 100 * gigabit, 5.
	for _, tc := range []struct {
		why     string
		own     [][2]float64 // share of the capacity that rounds use on each rail, at each read
		job     [][2]float64 // share of the capacity that the job uses on each rail, at each read
		running []bool       // a round is under way at this read
		told    bool         // the sampler knows about own traffic
		want    bool
	}{
		{"rounds, then a job on one rail", [][2]float64{{.4, .4}, {.4, .4}, {.4, .4}, {}, {}, {}, {}},
			[][2]float64{{}, {}, {}, {.8, 0}, {.8, 0}, {.8, 0}, {.8, 0}}, nil, true, false},
		{"the same, not told", [][2]float64{{.4, .4}, {.4, .4}, {.4, .4}, {}, {}, {}, {}},
			[][2]float64{{}, {}, {}, {.8, 0}, {.8, 0}, {.8, 0}, {.8, 0}}, nil, false, true},
		{"an even job that moves to one rail", [][2]float64{{.1, 0}, {.1, .1}, {0, .1}, {.1, .1}, {}, {}, {}},
			[][2]float64{{.4, .4}, {.4, .4}, {.4, .4}, {.8, 0}, {.8, 0}, {.8, 0}, {.8, 0}}, nil, true, true},
		{"an even job, and solo bursts of one rail", [][2]float64{{}, {}, {}, {.9, 0}, {.9, 0}, {.9, 0}, {.9, 0}},
			[][2]float64{{.02, .02}, {.02, .02}, {.02, .02}, {.02, .02}, {.02, .02}, {.02, .02}, {.02, .02}}, nil, true,
			false},
		{"a round under way at each read", [][2]float64{{.4, .4}, {.4, .4}, {.4, .4}, {}, {}, {}},
			[][2]float64{{}, {}, {}, {.8, 0}, {.8, 0}, {.8, 0}}, []bool{true, true, true, true, true, false}, true,
			false},
	} {
		rails := []rail.Rail{{Name: "0", Device: "mlx5_0", Port: 1, Role: rail.Compute},
			{Name: "1", Device: "mlx5_1", Port: 1, Role: rail.Compute}}
		var own [2]uint64
		settled := true
		opts := Options{Interval: MinInterval}
		if tc.told {
			opts.Own = func(r rail.Rail) (bytes [directions]uint64, done bool) {
				i, _ := strconv.Atoi(r.Name)
				return [directions]uint64{Transmit: own[i]}, settled
			}
		}
		s := New(opts)
		s.rails = rails
		for _, r := range rails {
			s.accounts[r.Key()] = &account{lastCapacity: capacity}
		}
		suspected := false
		for at := -1; at < len(tc.own); at++ {
			for i, r := range rails {
				a := s.accounts[r.Key()]
				for d := range a.seconds {
					a.seconds[d] += seconds
				}
				if at >= 0 {
					mine := uint64(tc.own[at][i] * capacity * seconds)
					own[i] += mine
					a.bytes[Transmit] += mine + uint64(tc.job[at][i]*capacity*seconds)
				}
			}
			settled = at < 0 || at >= len(tc.running) || !tc.running[at]
			s.suspectLocked()
			suspected = s.suspect.now[SingleRail].Suspected
		}
		if suspected != tc.want {
			t.Errorf("%s: suspected %v", tc.why, suspected)
		}
	}
}

// TestOwnTrafficStuck: a measurement that never ends does not disable the verdicts.
func TestOwnTrafficStuck(t *testing.T) {
	s := New(Options{Interval: MinInterval,
		Own: func(rail.Rail) (bytes [directions]uint64, settled bool) { return bytes, false }})
	s.rails = []rail.Rail{{Name: "0", Device: "mlx5_0", Port: 1}}
	reads := 0
	for range 60 {
		if _, ok := s.ownLocked(); ok {
			reads++
		}
	}
	if reads != 60/(maxDelayed+1) {
		t.Errorf("%d reads of 60", reads)
	}
}

// TestOwnBalance: rounds of the probe neither cause nor change a verdict on balance, which depends on jobs alone,
// in each second. After a round, its bytes on the wire are known to 2 %. Without OwnTraffic, rounds affect the
// verdict.
func TestOwnBalance(t *testing.T) {
	const gbit, period = 100, 20 * time.Second
	for _, tc := range []struct {
		why    string
		job    [2]float64 // share of the capacity, constant
		told   bool
		judged bool
		want   float64 // highest imbalance, and imbalance at the end
		shares map[string]float64
	}{
		{"no job", [2]float64{}, true, false, 0, nil},
		{"no job, not told", [2]float64{}, false, true, 1, nil},
		{"stray packets", [2]float64{0.0004, 0}, true, false, 0, nil},
		{"an even job", [2]float64{.3, .3}, true, true, 0.02, map[string]float64{"0": 1, "1": 1}},
		{"an uneven one", [2]float64{.3, .12}, true, true, 0.61, map[string]float64{"0": 1, "1": 0.4}},
		{"one rail alone", [2]float64{.3, 0}, true, true, 1, map[string]float64{"0": 1, "1": 0}},
	} {
		lanetest.Test(t, func(t *testing.T) {
			begin := time.Now()
			// A round has bursts of 2 s, the first over both rails and the second over rail 0.
			rounds := func(rail int, since time.Duration) float64 {
				sum := pulses(gbit, .4, 2*time.Second, period)(since)
				if rail == 0 {
					sum += pulses(gbit, .9, 2*time.Second, period)(max(since-2*time.Second, 0))
				}
				return sum
			}
			m := newMachine()
			for i := range 2 {
				m.mlx5(fmt.Sprintf("mlx5_%d", i), gbit, [directions]func(time.Duration) float64{idle,
					func(since time.Duration) float64 {
						return rounds(i, since) +
							tc.job[i]*gbit*gigabit*since.Seconds()
					}})
			}
			opts := Options{}
			if tc.told {
				opts.Own = func(r rail.Rail) (bytes [directions]uint64, settled bool) {
					i, _ := strconv.Atoi(r.Name)
					since := time.Since(begin)
					over := since - since%period
					settled = since%period >= 5*time.Second
					if settled {
						over += 5 * time.Second
					}
					return [directions]uint64{Transmit: uint64(0.98 * rounds(i, over))}, settled
				}
			}
			s := m.sampler(DefaultInterval, opts)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); s.Run(ctx) }()
			var snap Snapshot
			most, judged := 0., false
			for range 100 {
				time.Sleep(time.Second)
				s.Snapshot(&snap)
				set := snap.Sets[Transmit]
				most, judged = max(most, set.Imbalance), judged || set.Balanced
			}
			cancel()
			<-done
			if judged != tc.judged || most > tc.want+0.001 || tc.want > 0.5 && most < tc.want-0.03 {
				t.Errorf("%s: judged: %v, imbalance up to %.3f, want %v, %.3f", tc.why, judged, most, tc.judged, tc.want)
			}
			for name, want := range tc.shares {
				if got := snap.Sets[Transmit].Shares[name]; math.Abs(got-want) > 0.03 {
					t.Errorf("%s: share %.3f of rail %s, want %.3f", tc.why, got, name, want)
				}
			}
			if n := len(snap.Sets[Transmit].Shares); tc.shares == nil && tc.told && n > 0 {
				t.Errorf("%s: %d shares", tc.why, n)
			}
		})
	}
}
