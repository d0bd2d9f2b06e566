package sampler

import (
	"strconv"
	"testing"

	"github.com/railscope/railscope/internal/rail"
)

// TestOwnTraffic: own rounds, which use all rails evenly, and a job on one rail are not a job that lost rails; nor are
// solo bursts, which use one rail after the other. A read while a round is under way is put off.
func TestOwnTraffic(t *testing.T) {
	const capacity, seconds = 100 * gigabit, 5.
	for _, tc := range []struct {
		why     string
		own     [][2]float64 // share of the capacity that rounds use of each rail, at each read
		job     [][2]float64 // likewise a job
		running []bool       // a round is under way at this read
		told    bool         // own is told
		want    bool
	}{
		{"rounds, then a job on one rail", [][2]float64{{.4, .4}, {.4, .4}, {.4, .4}, {}, {}, {}, {}},
			[][2]float64{{}, {}, {}, {.8, 0}, {.8, 0}, {.8, 0}, {.8, 0}}, nil, true, false},
		{"the same, not told", [][2]float64{{.4, .4}, {.4, .4}, {.4, .4}, {}, {}, {}, {}},
			[][2]float64{{}, {}, {}, {.8, 0}, {.8, 0}, {.8, 0}, {.8, 0}}, nil, false, true},
		{"an even job that moves to one rail", [][2]float64{{.1, 0}, {.1, .1}, {0, .1}, {.1, .1}, {}, {}, {}},
			[][2]float64{{.4, .4}, {.4, .4}, {.4, .4}, {.8, 0}, {.8, 0}, {.8, 0}, {.8, 0}}, nil, true, true},
		{"an even job, and solo bursts of one rail", [][2]float64{{}, {}, {}, {.9, 0}, {.9, 0}, {.9, 0}, {.9, 0}},
			[][2]float64{{.02, .02}, {.02, .02}, {.02, .02}, {.02, .02}, {.02, .02}, {.02, .02}, {.02, .02}}, nil, true, false},
		{"a round under way at each read", [][2]float64{{.4, .4}, {.4, .4}, {.4, .4}, {}, {}, {}},
			[][2]float64{{}, {}, {}, {.8, 0}, {.8, 0}, {.8, 0}}, []bool{true, true, true, true, true, false}, true, false},
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

// TestOwnTrafficStuck: a measurement that never ends does not blind the sampler.
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
