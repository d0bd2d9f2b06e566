package sampler

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/railscope/railscope/internal/rail"
)

// TestMeanTraffic: the mean of the last 5 s, up to now for the function and up to its last read for the physical
// port.
func TestMeanTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rail.Rail{Name: "0", Device: "mlx5_0", Port: 1}
		a := &account{}
		s := &Sampler{accounts: map[string]*account{r.Key(): a}}
		port := uint64(0)
		second := func(bytes uint64) {
			time.Sleep(time.Second)
			s.seconds++
			for d := range directions {
				a.bytes[d] += bytes * uint64(1+d)
				a.seconds[d]++
				a.history[d].add(s.seconds, a.now(d))
			}
			port += 1000
			if s.seconds%5 == 0 {
				reading := rail.StatisticsReading{At: time.Now(), Physical: [directions]uint64{port, 2 * port},
					HasPhysical: true}
				for d := range directions {
					a.physical[d].add(reading, d, tcpEvery)
				}
			}
		}
		want := func(what string, known bool, want rail.MeanTraffic) {
			t.Helper()
			got, ok := s.MeanTraffic(r)
			if ok != known || known && got != want {
				t.Errorf("%s: %+v, %v; want %+v, %v", what, got, ok, want, known)
			}
		}
		want("before the first second", false, rail.MeanTraffic{})
		for range 4 {
			second(100)
		}
		want("too early", false, rail.MeanTraffic{})
		for range 4 {
			second(100)
		}
		want("the port was read once", false, rail.MeanTraffic{})
		for range 4 {
			second(600)
		}
		want("later", true, rail.MeanTraffic{Rate: [2]float64{500, 1000}, Port: [2]float64{1000, 2000}, Physical: true,
			Over: 7 * time.Second})
		for d := range directions {
			a.physical[d].add(rail.StatisticsReading{}, d, tcpEvery)
		}
		want("the port cannot be read", false, rail.MeanTraffic{})
		s.seconds += 3
		want("the rail is gone", false, rail.MeanTraffic{})
		if _, ok := s.MeanTraffic(rail.Rail{Name: "1", Device: "mlx5_1", Port: 1}); ok {
			t.Error("a rail that was never there")
		}
	})
}

// TestCarried: the result has all bytes of own rounds two seconds after they ended, plus an interval of the device.
func TestCarried(t *testing.T) {
	r := rail.Rail{Name: "0", Device: "mlx5_0", Port: 1, Role: rail.Compute}
	var own [directions]uint64
	settled := true
	s := New(Options{Interval: MinInterval, Own: func(rail.Rail) ([directions]uint64, bool) { return own, settled }})
	a, cost := &account{lastCapacity: 7}, &Device{Name: "mlx5_0", Interval: DefaultInterval}
	s.rails, s.accounts[r.Key()], s.costs["mlx5_0"] = []rail.Rail{r}, a, cost
	if got := s.Carried("mlx5_0"); len(got) > 0 {
		t.Errorf("before the first sample: %+v", got)
	}
	a.bytes, a.seconds = [directions]uint64{100, 200}, [directions]float64{1, 2}
	for i, step := range []struct {
		own      uint64
		settled  bool
		interval time.Duration
		want     bool
	}{
		{0, true, DefaultInterval, false}, {0, true, DefaultInterval, true},
		{9, true, DefaultInterval, false}, {9, true, DefaultInterval, false}, {9, true, DefaultInterval, true},
		{9, false, DefaultInterval, false}, {9, true, DefaultInterval, false}, {9, true, DefaultInterval, true},
		{9, true, 4 * time.Second, false}, {9, true, 4 * time.Second, false}, {9, true, 4 * time.Second, true},
	} {
		own[Receive], settled, cost.Interval = step.own, step.settled, step.interval
		s.second()
		want := rail.Carried{Bytes: a.bytes, Own: own, Settled: step.want, Seconds: a.seconds, Capacity: 7,
			Group: rail.Group{Role: rail.Compute}}
		if got := s.Carried("mlx5_0")[r.Key()]; got != want {
			t.Errorf("second %d: %+v, want %+v", i, got, want)
		}
	}
	own[Transmit]++
	if s.Carried("mlx5_0")[r.Key()].Settled {
		t.Error("a round that has just ended is settled")
	}
	if got := s.Carried("mlx5_1"); len(got) > 0 {
		t.Errorf("another device: %+v", got)
	}
}
