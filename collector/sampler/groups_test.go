package sampler

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railscope/railscope/internal/lane/lanetest"
)

// TestGroups: rails are compared with those of their link layer and rate alone,
// and a node is as imbalanced as its worst group.
func TestGroups(t *testing.T) {
	type port struct {
		gbit int
		ib   bool
		part float64
	}
	with := func(n int, like port, others ...port) []port {
		for range n {
			others = append([]port{like}, others...)
		}
		return others
	}
	compute := port{400, true, 0.9}
	for name, tc := range map[string]struct {
		ports  []port
		judged bool
		want   float64
	}{
		"an H100 node, its storage bond is idle": {with(8, compute, port{200, false, 0}), true, 0},
		"the same, its storage bond is busy":     {with(8, port{400, true, 0}, port{200, false, 0.8}), false, 0},
		"one of eight at 61 %, storage is idle": {with(7, compute, port{400, true, 0.549}, port{200, false, 0}),
			true, 0.39},
		"compute and storage of one rate": {with(8, compute, port{400, false, 0}), true, 0},
		"two storage ports, one of them idle": {with(8, compute, port{200, false, 0.4}, port{200, false, 0}),
			true, 1},
		"two storage ports, both all but idle": {with(8, compute, port{200, false, 0.004}, port{200, false, 0}),
			true, 0},
		"two rails, each of a rate of its own": {[]port{{400, false, 0.9}, {100, false, 0.1}}, false, 0},
		"one rail":                             {[]port{compute}, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			lanetest.Test(t, func(t *testing.T) {
				m := newMachine()
				for i, p := range tc.ports {
					m.mlx5(fmt.Sprintf("mlx5_%d", i), p.gbit, [directions]func(time.Duration) float64{idle,
						steady(p.gbit, p.part)})
					if p.ib {
						m.rails[i].LinkLayer = "InfiniBand"
					}
				}
				set := run(t, m.sampler(DefaultInterval, Options{}), 20*time.Second, nil).Sets[Transmit]
				if set.Balanced != tc.judged || math.Abs(set.Imbalance-tc.want) > 0.01 {
					t.Errorf("imbalance %v, judged: %v; want %v, %v", set.Imbalance, set.Balanced, tc.want, tc.judged)
				}
				if imbalanced := set.Imbalanced > 0; imbalanced != (tc.want > 0.25) {
					t.Errorf("%v imbalanced seconds of %v", set.Imbalanced, set.Busy)
				}
			})
		})
	}
}

// TestTrainedDown: a port that comes back at a quarter of its rate stays in the
// group of its siblings. Where it is full and they wait for it, that is seen.
func TestTrainedDown(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		m := newMachine()
		carried := steady(400, 0.25)
		var dir string
		for i := range 8 {
			dir = m.mlx5(fmt.Sprintf("mlx5_%d", i), 400, [directions]func(time.Duration) float64{idle, carried}).Dir
		}
		s := m.sampler(DefaultInterval, Options{})
		var after Snapshot
		before := run(t, s, 20*time.Second, func() {
			m.text(dir+"/ports/1/rate", "100 Gb/sec (4X EDR)\n")
			time.Sleep(30 * time.Second)
			synctest.Wait()
			s.Snapshot(&after)
		})
		was, is := before.Sets[Transmit], after.Sets[Transmit]
		if !was.Balanced || was.Imbalance > 0.01 || !is.Balanced || math.Abs(is.Imbalance-0.75) > 0.01 ||
			is.Imbalanced < 10 {
			t.Errorf("before it trained down %+v, after %+v", was, is)
		}
	})
}
