package sampler

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railscope/railscope/internal/lane/lanetest"
	"github.com/railscope/railscope/internal/rail"
)

// written returns a counter that is updated once per period, at offset, to what carried returns.
func written(carried func(time.Duration) float64, period, offset time.Duration) func(time.Duration) float64 {
	return func(since time.Duration) float64 {
		return carried(max(0, (since-offset)/period*period+offset))
	}
}

// slow adds a rail of another driver, whose counter of transmitted bytes is updated once per period.
func (m *machine) slow(n int, driver string, carried func(time.Duration) float64, period, offset time.Duration) {
	m.mlx5(fmt.Sprintf("mlx5_%d", n), 400,
		[directions]func(time.Duration) float64{idle, written(carried, period, offset)})
	m.rails[n].Driver = driver
}

// between runs the sampler and returns its snapshots after the first and the second time.
func between(t *testing.T, s *Sampler, first, second time.Duration) (before, after Snapshot) {
	t.Helper()
	before = run(t, s, first, func() {
		time.Sleep(second)
		synctest.Wait()
		s.Snapshot(&after)
	})
	return before, after
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.IsNaN(got) || math.Abs(got-want) > max(0.03*want, 0.0002) {
		t.Errorf("%s: %.4f, want %.4f", what, got, want)
	}
}

// TestSlowCounters: three rails of bnxt whose counters are updated once a second, at different times.
func TestSlowCounters(t *testing.T) {
	for _, n := range []int{2, 8} {
		for _, drift := range []time.Duration{0, 3 * time.Millisecond} {
			t.Run(fmt.Sprintf("%d rails, drift %v", n, drift), func(t *testing.T) {
				lanetest.Test(t, func(t *testing.T) {
					m := newMachine()
					part := func(i int) float64 { return []float64{0.4, 0.4 / 3}[i/(n-1)] }
					for i := range n {
						m.slow(i, "bnxt_en", steady(400, part(i)), time.Second+drift, time.Duration(i%2)*time.Second/2+
							50*time.Millisecond)
					}
					if n == 2 && drift == 0 {
						m.latency = disturbances["jitter"](DefaultInterval)
					}
					s := m.sampler(DefaultInterval, Options{})
					exact := 0.03
					if drift > 0 {
						exact = 0.1 // one sample, if another tick sees the update
					}
					testSlowCounters(t, s, m.rails, part, exact)
				})
			})
		}
	}
}

func testSlowCounters(t *testing.T, s *Sampler, rails []rail.Rail, part func(int) float64, exact float64) {
	t.Helper()
	const half = time.Minute
	var after Snapshot
	before := run(t, s, half, func() {
		for range 10 { // at ten moments of a period
			time.Sleep(half/10 + 30*time.Millisecond)
			synctest.Wait()
			s.Snapshot(&after)
			for i, r := range after.Rails {
				if want := part(i) * 400 * gigabit; math.Abs(r.Rate[Transmit]-want) > exact*want {
					t.Errorf("rail %d: rate %v, want %v", i, r.Rate[Transmit], want)
				}
				if mean, ok := s.MeanTraffic(rails[i]); !ok || mean.Over < 8*time.Second ||
					math.Abs(mean.Rate[Transmit]/part(i)/400/gigabit-1) > 0.03 {
					t.Errorf("rail %d: mean traffic %+v, %v", i, mean, ok)
				}
				for _, rate := range r.Recent[Transmit][RecentSeconds/4:] {
					if want := part(i) * 400 * gigabit; !(math.Abs(rate-want) <= exact*want) {
						t.Errorf("rail %d: %v in a second, want %v", i, rate, want)
					}
				}
			}
			near(t, "imbalance", after.Sets[Transmit].Imbalance, 2./3)
		}
	})
	took := half.Seconds() + 0.3
	for i := range rails {
		was, is := before.Rails[i].Tally[Transmit], after.Rails[i].Tally[Transmit]
		name := fmt.Sprintf("rail %d: ", i)
		near(t, name+"mean utilization", (is.sum()-was.sum())/float64(is.Samples-was.Samples), part(i))
		near(t, name+"busy seconds", is.Busy-was.Busy, took)
		near(t, name+"samples", float64(is.Samples-was.Samples), took)
		near(t, name+"saturated seconds", is.Saturated, 0)
		if others := is.outside(was.Samples, part(i)-0.05, part(i)+0.05); len(others) > 0 {
			t.Errorf("%ssamples of %v", name, others)
		}
	}
	near(t, "seconds in which any rail was busy", after.Sets[Transmit].Busy-before.Sets[Transmit].Busy, took)
	if after.Dropped != [Reasons]uint64{} {
		t.Errorf("dropped: %v", after.Dropped)
	}
}

// TestSlowCounterStarts: a load that starts and stops loses no bytes, and appears at most one period longer.
func TestSlowCounterStarts(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.slow(0, "bnxt_en", pulses(400, 0.9, 100*time.Second, 150*time.Second), time.Second, 330*time.Millisecond)
		s := m.sampler(DefaultInterval, Options{})
		before, after := between(t, s, 145*time.Second, 450*time.Second)
		was, is := before.Rails[0].Tally[Transmit], after.Rails[0].Tally[Transmit]
		near(t, "busy seconds", is.Busy-was.Busy, 300)
		near(t, "saturated seconds", is.Saturated, 0)
		near(t, "mean", (is.sum()-was.sum())/float64(is.Samples-was.Samples), 0.6)
		anyBusy := after.Sets[Transmit].Busy - before.Sets[Transmit].Busy
		if math.Abs(anyBusy-(is.Busy-was.Busy)) > 0.5 {
			t.Errorf("%v s in which any was busy, %v s of the rail", anyBusy, is.Busy-was.Busy)
		}
		a := s.accounts[m.rails[0].Key()]
		near(t, "bytes", float64(a.bytes[Transmit]), 0.9*400*gigabit*400)
		near(t, "seconds", a.seconds[Transmit], 595)
	})
}

// TestUnknownDriver: a counter of an unknown driver counts as slow until it moves at each read.
func TestUnknownDriver(t *testing.T) {
	for name, tc := range map[string]struct {
		period, offset time.Duration
		fast           bool
	}{
		"once a second":          {time.Second, 370 * time.Millisecond, false},
		"once a second, drifts":  {997 * time.Millisecond, 370 * time.Millisecond, false},
		"less than at each read": {190 * time.Millisecond, 0, false},
		"at each read":           {time.Microsecond, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			lanetest.Test(t, func(t *testing.T) {
				m := newMachine()
				m.slow(0, "ionic", steady(400, 0.7), tc.period, tc.offset)
				time.Sleep(10*time.Second + 200*time.Millisecond) // the load starts before the sampler
				s := m.sampler(DefaultInterval, Options{})
				a := s.newAccount()
				a.capacity = 400 * gigabit // known from the first sample on
				s.accounts[m.rails[0].Key()] = a
				before, after := between(t, s, 5*time.Second, time.Minute)
				was, is := before.Rails[0].Tally[Transmit], after.Rails[0].Tally[Transmit]
				near(t, "mean", is.sum()/float64(is.Samples), 0.7)
				near(t, "saturated seconds", is.Saturated, 0)
				near(t, "busy seconds", is.Busy-was.Busy, 60)
				if n := is.Samples - was.Samples; (n >= 599) != tc.fast || n < 30 {
					t.Errorf("%d samples in a minute", n)
				}
			})
		})
	}
}

// TestSlowCounterAtOnce: an adapter that is late once writes twice within 0.2 s, which does not make the counter a
// fast one.
func TestSlowCounterAtOnce(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		m := newMachine()
		late := func(since time.Duration) float64 {
			at := since / time.Second * time.Second
			if at == 20*time.Second && since < 20*time.Second+850*time.Millisecond {
				at -= time.Second
			}
			return steady(400, 0.4)(at)
		}
		m.slow(0, "bnxt_en", late, time.Microsecond, 0)
		_, after := between(t, m.sampler(DefaultInterval, Options{}), 10*time.Second, time.Minute)
		near(t, "saturated seconds", after.Rails[0].Tally[Transmit].Saturated, 0)
		near(t, "mean", after.Rails[0].Tally[Transmit].sum()/float64(after.Rails[0].Tally[Transmit].Samples), 0.4)
	})
}

// TestCounterStalls: a counter that moved at each read and then stalls under load causes no saturated sample, and
// counts as slow from then on. The same holds for a slow counter that stalls for longer than its period.
func TestCounterStalls(t *testing.T) {
	for driver, stall := range map[string]time.Duration{"ionic": 700 * time.Millisecond,
		"bnxt_en": 3500 * time.Millisecond} {
		t.Run(driver, func(t *testing.T) {
			lanetest.Test(t, func(t *testing.T) {
				m := newMachine()
				carried := func(since time.Duration) float64 {
					if rest := since % (10 * time.Second); rest > 10*time.Second-stall {
						since += 10*time.Second - stall - rest
					}
					return steady(400, 0.4)(since)
				}
				period := time.Microsecond
				if driver == "bnxt_en" {
					period = time.Second
				}
				m.slow(0, driver, carried, period, 0)
				s := m.sampler(DefaultInterval, Options{})
				before, after := between(t, s, 19*time.Second, time.Minute)
				near(t, "saturated seconds", after.Rails[0].Tally[Transmit].Saturated, 0)
				if n := after.Rails[0].Tally[Transmit].Samples - before.Rails[0].Tally[Transmit].Samples; n > 90 {
					t.Errorf("%d samples in a minute", n)
				}
			})
		})
	}
}

// TestSlowSoftware: the first samples of a software device are long; later, each read ends a sample.
func TestSlowSoftware(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.rxe(0, steady(10, 0.3), idle)
		m.rails[0].NetdevPeriod = 2 * time.Second // the period of an unknown driver
		s := m.sampler(DefaultInterval, Options{})
		before, after := between(t, s, 1500*time.Millisecond, 20*time.Second)
		first, later := before.Rails[0].Tally[Transmit], after.Rails[0].Tally[Transmit]
		if first.Samples > 1 || later.Samples < 195 {
			t.Errorf("%d samples after 1.5 s, %d after 20 s more", first.Samples, later.Samples)
		}
		near(t, "mean", later.sum()/float64(later.Samples), 0.3)
		if w := s.accounts[m.rails[0].Key()].window; w != 0 {
			t.Errorf("a window of %v", w)
		}
	})
}

// TestSlowInterface: a software device on an interface whose driver updates its counters slightly more often than
// every 2 s.
func TestSlowInterface(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.rxe(0, written(steady(10, 0.6), 1997*time.Millisecond, 0), idle)
		m.rails[0].NetdevPeriod = 2 * time.Second
		s := m.sampler(DefaultInterval, Options{})
		var after Snapshot
		before := run(t, s, 20*time.Second+500*time.Millisecond, func() {
			for range 200 {
				time.Sleep(time.Second)
				synctest.Wait()
				if mean, ok := s.MeanTraffic(m.rails[0]); !ok || math.Abs(mean.Rate[Transmit]/10/gigabit-0.6) > 0.05 {
					t.Errorf("mean traffic %+v, %v", mean, ok)
				}
			}
			s.Snapshot(&after)
		})
		was, is := before.Rails[0].Tally[Transmit], after.Rails[0].Tally[Transmit]
		near(t, "saturated seconds", is.Saturated, 0)
		near(t, "mean", (is.sum()-was.sum())/float64(is.Samples-was.Samples), 0.6)
		if anyBusy := after.Sets[Transmit].Busy - before.Sets[Transmit].Busy; math.Abs(anyBusy-200) > 0.5 {
			t.Errorf("%v s in which any was busy", anyBusy)
		}
		for i, rate := range after.Rails[0].Recent[Transmit] {
			if math.IsNaN(rate) {
				t.Errorf("second %d has no rate", i)
			}
		}
	})
}

// TestSlowCounterFails: if the counter moved between failed reads, the time of the move is not known.
func TestSlowCounterFails(t *testing.T) {
	for _, period := range []time.Duration{time.Second, 930 * time.Millisecond} {
		lanetest.Test(t, func(t *testing.T) { testSlowCounterFails(t, period) })
	}
}

func testSlowCounterFails(t *testing.T, period time.Duration) {
	m := newMachine()
	m.slow(0, "bnxt_en", steady(400, 0.7), period, 50*time.Millisecond)
	path := m.rails[0].Dir + "/ports/1/counters/port_xmit_data"
	counts, reads := m.files[path], 0
	m.set(path, func() (string, error) {
		reads++
		if reads%13 < 6 {
			return "", nil
		}
		return counts()
	})
	s := m.sampler(DefaultInterval, Options{})
	_, after := between(t, s, time.Second, 5*time.Minute)
	near(t, "saturated seconds", after.Rails[0].Tally[Transmit].Saturated, 0)
	a := s.accounts[m.rails[0].Key()]
	near(t, "bytes", float64(a.bytes[Transmit])/a.seconds[Transmit]/400/gigabit, 0.7)
	near(t, "seconds", a.seconds[Transmit], 300)
}

// TestMoveSeenLate: after a move at an unknown time, a sample ends when the counter has not moved for a period.
func TestMoveSeenLate(t *testing.T) {
	begin := time.Now()
	c := counter{start: mark{at: begin, known: true}, aligned: true, read: begin, moved: begin,
		window: time.Second}
	c.pace.Note(0, begin, time.Second)
	for at := 1500 * time.Millisecond; at <= 2500*time.Millisecond; at += DefaultInterval {
		now := mark{value: 10, at: begin.Add(at), tick: int64(at / DefaultInterval)}
		s, what := c.add(now, time.Second, DefaultInterval, DefaultInterval)
		want := sample{grew: 10, took: 1500 * time.Millisecond, to: 15}
		if last := at == 2500*time.Millisecond; (what == counted) != last || last && s != want {
			t.Errorf("after %v: %+v, %d; want %+v", at, s, what, want)
		}
	}
}

// TestOwnOfSlowCounter: bytes of own measurements may be missing in the samples for two periods.
func TestOwnOfSlowCounter(t *testing.T) {
	r := rail.Rail{Name: "0", Device: "bnxt_re0", Port: 1}
	s := New(Options{Interval: DefaultInterval,
		Own: func(rail.Rail) (bytes [directions]uint64, settled bool) { return bytes, true }})
	a := &account{window: 2 * time.Second, seconds: [directions]float64{1, 1}}
	s.rails, s.accounts[r.Key()], s.costs[r.Device] = []rail.Rail{r}, a, &Device{Interval: DefaultInterval}
	for second := range 8 {
		a.quiet = second
		_, own := s.ownLocked()
		if carried := s.Carried(r.Device)[r.Key()].Settled; own != (second > 4) || carried != (second > 4) {
			t.Errorf("second %d: %v, %v", second, own, carried)
		}
	}
}
