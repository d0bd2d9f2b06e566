package sampler

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/railscope/railscope/internal/lane/lanetest"
)

// TestLag: a rail lags if it never goes faster than half of the rate of its equals, for minutes in which it carries as
// much for the same jobs. Steps of jobs last 2 s; rates are shares of 400 Gb/s.
func TestLag(t *testing.T) {
	const gbit, step = 400, 2 * time.Second
	type load = func(time.Duration) float64
	job := func(share float64) load { // Each step carries the bytes of 180 ms at the full rate.
		return pulses(gbit, share, time.Duration(0.18/share*float64(time.Second)), step)
	}
	between := func(from, to time.Duration, of load) load {
		return func(since time.Duration) float64 { return of(min(since, to)) - of(min(since, from)) }
	}
	plus := func(all ...load) load {
		return func(since time.Duration) (sum float64) {
			for _, of := range all {
				sum += of(since)
			}
			return sum
		}
	}
	times := func(n int, of load) (list []load) {
		for range n {
			list = append(list, of)
		}
		return list
	}
	one := func(jobs string) func(rail int) string { return func(int) string { return jobs } }
	for name, tc := range map[string]struct {
		loads    []load
		jobs     func(rail int) string // nil: not known
		role     string
		interval time.Duration
		runs     time.Duration
		want     map[int]Lag // in shares of the rate
	}{
		"an even job": {loads: times(8, job(0.9)), jobs: one("a")},
		"one of eight at a third": {loads: append(times(7, job(0.9)), job(0.3)), jobs: one("a"),
			want: map[int]Lag{7: {0.3, 0.9}}},
		"one of two":                         {loads: []load{job(0.9), job(0.3)}, jobs: one("a"), want: map[int]Lag{1: {0.3, 0.9}}},
		"one of two, processes are not read": {loads: []load{job(0.9), job(0.3)}, want: map[int]Lag{1: {0.3, 0.9}}},
		"above half":                         {loads: append(times(7, job(0.9)), job(0.5)), jobs: one("a")},
		"read every 2 s, a step is longer":   {loads: []load{job(0.9), job(0.3)}, interval: 2 * time.Second},
		"it ended 50 minutes ago": {loads: []load{between(0, 9*time.Minute, job(0.9)),
			between(0, 9*time.Minute, job(0.3))}, runs: 59 * time.Minute, want: map[int]Lag{1: {0.3, 0.9}}},
		"it ended 65 minutes ago": {loads: []load{between(0, 9*time.Minute, job(0.9)),
			between(0, 9*time.Minute, job(0.3))}, runs: 75 * time.Minute},
		"four minutes": {loads: []load{between(0, 230*time.Second, job(0.9)), between(0, 230*time.Second, job(0.3))}},
		"five minutes": {loads: []load{between(0, 290*time.Second, job(0.9)), between(0, 290*time.Second, job(0.3))},
			want: map[int]Lag{1: {0.3, 0.9}}},
		"it recovered": {loads: []load{job(0.9), plus(between(0, 7*time.Minute, job(0.3)),
			between(7*time.Minute, time.Hour, job(0.9)))}},
		"it carries less": {loads: append(times(7, job(0.9)), pulses(gbit, 0.3, 200*time.Millisecond, step)),
			jobs: one("a")},
		"it carries more, slowly": {loads: append(times(7, job(0.9)), steady(gbit, 0.3)), jobs: one("a")},
		"a rail that the job does not use carries storage": {loads: append(times(7, job(0.9)), steady(gbit, 0.09)),
			jobs: func(rail int) string { return []string{"a", ""}[rail/7] }},
		"another job on one rail": {loads: append(times(7, job(0.9)), job(0.3)),
			jobs: func(rail int) string { return []string{"a", "b"}[rail/7] }},
		"one job on all rails, another on one": {loads: append(times(7, job(0.9)), job(0.3)),
			jobs: func(rail int) string { return []string{"a", "a b"}[rail/7] }},
		"another role": {loads: append(times(7, job(0.9)), job(0.3)), role: "storage"},
		"jobs of different hours": {loads: []load{between(0, 10*time.Minute, job(0.9)),
			between(10*time.Minute, time.Hour, job(0.3))}, runs: 25 * time.Minute},
		"slow everywhere": {loads: times(8, job(0.3)), jobs: one("a")},
		"little traffic": {loads: []load{pulses(gbit, 0.15, step/10, step), pulses(gbit, 0.05, 3*step/10, step)},
			jobs: one("a")},
		"idle": {loads: times(8, idle), jobs: one("a")},
	} {
		lanetest.Test(t, func(t *testing.T) {
			m := newMachine()
			for i, of := range tc.loads {
				m.mlx5(fmt.Sprintf("mlx5_%d", i), gbit, [directions]load{idle, of})
			}
			if last := len(m.rails) - 1; tc.role != "" {
				m.rails[last].Role = tc.role
			}
			opts := Options{}
			if tc.jobs != nil {
				opts.InUse = func() (map[string][]string, bool) {
					jobs := map[string][]string{}
					for i, r := range m.rails {
						if of := tc.jobs(i); of != "" {
							jobs[r.Name] = []string{of}
						}
					}
					return jobs, true
				}
			}
			snap := run(t, m.sampler(max(tc.interval, DefaultInterval), opts), max(tc.runs, 8*time.Minute), nil)
			for i, r := range snap.Rails {
				got, want := r.Lag[Transmit], tc.want[i]
				got.Rate, got.Equals = got.Rate/gbit/gigabit, got.Equals/gbit/gigabit
				if math.Abs(got.Rate-want.Rate) > 0.01 || math.Abs(got.Equals-want.Equals) > 0.01 {
					t.Errorf("%s: rail %d %.2f, want %.2f", name, i, got, want)
				}
				if r.Lag[Receive] != (Lag{}) {
					t.Errorf("%s: rail %d lags without traffic", name, i)
				}
			}
		})
	}
}

// TestLagRepaired: a rail whose capacity has changed is judged anew, because its link may have been repaired.
func TestLagRepaired(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		const gbit, step, ended = 400, 2 * time.Second, 6 * time.Minute
		m := newMachine()
		var dir string
		for i, share := range []float64{0.9, 0.3} {
			of := pulses(gbit, share, time.Duration(0.18/share*float64(time.Second)), step)
			dir = m.mlx5(fmt.Sprintf("mlx5_%d", i), gbit, [directions]func(time.Duration) float64{idle,
				func(since time.Duration) float64 { return of(min(since, ended)) }}).Dir
		}
		s := m.sampler(DefaultInterval, Options{})
		lag := func() Lag {
			var snap Snapshot
			s.Snapshot(&snap)
			return snap.Rails[1].Lag[Transmit]
		}
		run(t, s, ended+time.Minute, func() {
			if lag() == (Lag{}) {
				t.Error("no lag before the repair")
			}
			for _, rate := range []string{"200", "400"} { // The link trains anew.
				m.text(dir+"/ports/1/rate", rate+" Gb/sec (4X EDR)\n")
				time.Sleep(2 * time.Minute)
			}
			if got := lag(); got != (Lag{}) {
				t.Errorf("after the repair: %+v", got)
			}
		})
	})
}
