package sampler

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/railscope/railscope/internal/lane/lanetest"
)

// TestGroups: rails are compared only with rails of the same link layer and rate, and the imbalance of a node is
// that of its worst group.
func TestGroups(t *testing.T) {
	type port struct {
		gbit int
		ib   bool
		part float64
		role string
	}
	with := func(n int, like port, others ...port) []port {
		for range n {
			others = append([]port{like}, others...)
		}
		return others
	}
	compute := port{gbit: 400, ib: true, part: 0.9}
	ethernet := func(gbit int, part float64) port { return port{gbit: gbit, part: part} }
	storage := func(part float64) port { return port{gbit: 400, ib: true, part: part, role: "storage"} }
	for name, tc := range map[string]struct {
		ports  []port
		judged bool
		want   float64
	}{
		"an H100 node, its storage bond is idle": {with(8, compute, ethernet(200, 0)), true, 0},
		"the same, its storage bond is busy":     {with(8, port{gbit: 400, ib: true}, ethernet(200, 0.8)), false, 0},
		"one of eight at 61 %, storage is idle": {with(7, compute, port{gbit: 400, ib: true, part: 0.549}, ethernet(200, 0)),
			true, 0.39},
		"compute and storage of one rate": {with(8, compute, ethernet(400, 0)), true, 0},
		"two storage ports, one of them idle": {with(8, compute, ethernet(200, 0.4), ethernet(200, 0)),
			true, 1},
		"two storage ports, both all but idle": {with(8, compute, ethernet(200, 0.004), ethernet(200, 0)),
			true, 0},
		"two rails, each of a rate of its own":         {[]port{ethernet(400, 0.9), ethernet(100, 0.1)}, false, 0},
		"one rail":                                     {[]port{compute}, false, 0},
		"an unused storage port of the same rate":      {with(8, compute, storage(0)), true, 0},
		"two storage ports of the same rate, one idle": {with(8, compute, storage(0.4), storage(0)), true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			lanetest.Test(t, func(t *testing.T) {
				m := newMachine()
				for i, p := range tc.ports {
					m.mlx5(fmt.Sprintf("mlx5_%d", i), p.gbit, [directions]func(time.Duration) float64{idle,
						steady(p.gbit, p.part)})
					if p.role != "" {
						m.rails[i].Role = p.role
					}
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

// TestInUse: if the rails that jobs use are known, only these are compared, in roles that have any.
func TestInUse(t *testing.T) {
	for name, tc := range map[string]struct {
		used   string // rails; "-" if unknown
		judged bool
		want   map[string]float64
	}{
		"unknown":                    {"-", true, map[string]float64{"compute": 1, "storage": 0.5}},
		"all":                        {"0 1 2 3 4 5", true, map[string]float64{"compute": 1, "storage": 0.5}},
		"none":                       {"", true, map[string]float64{"compute": 1, "storage": 0.5}},
		"two compute rails":          {"0 1", true, map[string]float64{"compute": 0.5, "storage": 0.5}},
		"two, one of which is idle":  {"0 2", true, map[string]float64{"compute": 1, "storage": 0.5}},
		"one of each role":           {"0 4", false, map[string]float64{}},
		"only idle ones":             {"2 3", true, map[string]float64{"storage": 0.5}},
		"a rail that does not exist": {"9", true, map[string]float64{"compute": 1, "storage": 0.5}},
	} {
		t.Run(name, func(t *testing.T) {
			lanetest.Test(t, func(t *testing.T) {
				m := newMachine()
				for i, part := range []float64{0.8, 0.4, 0, 0, 0.8, 0.4} {
					m.mlx5(fmt.Sprintf("mlx5_%d", i), 400, [directions]func(time.Duration) float64{idle, steady(400, part)})
				}
				m.rails[4].Role, m.rails[5].Role = "storage", "storage"
				set := run(t, m.sampler(DefaultInterval, Options{InUse: func() (map[string][]string, bool) {
					used := map[string][]string{}
					for name := range strings.FieldsSeq(tc.used) {
						used[name] = []string{"job"}
					}
					return used, tc.used != "-"
				}}), 20*time.Second, nil).Sets[Transmit]
				if set.Balanced != tc.judged || set.Active != 4 ||
					cmp.Diff(tc.want, set.Roles, cmpopts.EquateApprox(0, 0.01)) != "" {
					t.Errorf("%+v, want %v", set, tc.want)
				}
			})
		})
	}
}

// TestTrainedDown: a port that comes back at a quarter of its rate stays in the group of its siblings. An imbalance
// is detected if it is full and they wait for it.
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
