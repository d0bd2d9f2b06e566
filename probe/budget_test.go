package probe

import (
	"math"
	"testing"
	"testing/synctest"
	"time"
)

// TestBudget: the bucket holds an hour's worth, refills evenly, and remembers what was used.
func TestBudget(t *testing.T) {
	type step struct {
		do   func(b *budget) (wait time.Duration, ok bool)
		want float64       // left then
		wait time.Duration // for which take asks; 0: it takes
	}
	take := func(n int64) func(*budget) (time.Duration, bool) {
		return func(b *budget) (time.Duration, bool) { return b.reserve(n) }
	}
	do := func(fn func(*budget)) func(*budget) (time.Duration, bool) {
		return func(b *budget) (time.Duration, bool) { fn(b); return 0, true }
	}
	sleep := func(d time.Duration) func(*budget) (time.Duration, bool) {
		return do(func(*budget) { time.Sleep(d) })
	}
	giveBack := func(n int64) func(*budget) (time.Duration, bool) { return do(func(b *budget) { b.settle(n, 0) }) }
	settle := func(taken, used int64) func(*budget) (time.Duration, bool) {
		return do(func(b *budget) { b.settle(taken, used) })
	}
	resize := func(n int64) func(*budget) (time.Duration, bool) { return do(func(b *budget) { b.resize(n) }) }
	for why, steps := range map[string][]step{
		"full at first": {{sleep(time.Hour), 3600, 0}, {take(3600), 0, 0}, {take(1), 0, time.Second}},
		"refills evenly": {{take(3600), 0, 0}, {sleep(time.Minute), 60, 0}, {take(61), 60, time.Second},
			{sleep(time.Second), 61, 0}, {take(61), 0, 0}},
		"never over the hour": {{take(100), 3500, 0}, {sleep(10 * time.Hour), 3600, 0}, {giveBack(1000), 3600, 0}},
		"a refusal is free": {{take(3600), 0, 0}, {sleep(10 * time.Second), 10, 0}, {take(20), 10, 10 * time.Second},
			{take(10), 0, 0}},
		"gives back": {{take(3000), 600, 0}, {giveBack(2000), 2600, 0}, {take(2600), 0, 0}},
		"larger":     {{take(3600), 0, 0}, {resize(7200), 3600, 0}, {sleep(time.Second), 3602, 0}},
		"smaller":    {{take(600), 3000, 0}, {resize(1800), 1200, 0}, {sleep(time.Hour), 1800, 0}},
		"smaller than used": {{take(3000), 600, 0}, {resize(1800), 0, 0}, {take(1), 0, 2402 * time.Second},
			{sleep(2400 * time.Second), 0, 0}, {sleep(2 * time.Second), 1, 0}},
		"no gain by changing": {{take(3600), 0, 0}, {resize(1), 0, 0}, {resize(3600), 0, 0}, {take(1), 0, time.Second}},
		"an hour, however much smaller": {
			{take(3600), 0, 0}, {resize(60), 0, 0}, {take(30), 0, 90 * time.Minute}, {sleep(30 * time.Minute), 0, 0},
			{take(30), 0, time.Hour}, {sleep(30 * time.Minute), 0, 0}, {sleep(30 * time.Minute), 30, 0},
			{take(30), 0, 0},
			{settle(0, 60), 0, 0}, {take(30), 0, 90 * time.Minute}, // a debt of its own is repaid at its own rate
		},
		"debt, and much later": {{take(3600), 0, 0}, {resize(60), 0, 0}, {sleep(90 * time.Minute), 30, 0},
			{sleep(10 * time.Hour), 60, 0}},
		"more than it holds": {{take(7200), 3600, time.Hour}},
		"overrun is debt": {{take(600), 3000, 0}, {settle(600, 4000), 0, 0}, {take(1), 0, 401 * time.Second},
			{sleep(400 * time.Second), 0, 0}, {sleep(time.Second), 1, 0}, {take(1), 0, 0}},
		"an hour's at most": {{take(600), 3000, 0}, {settle(600, 1<<60), 0, 0}, {take(1), 0, 3601 * time.Second},
			{settle(0, 100), 0, 0}, {take(1), 0, 3601 * time.Second}},
		"no debt by changing": {{take(3600), 0, 0}, {settle(3600, 7200), 0, 0}, {resize(60), 0, 0},
			{settle(0, 1), 0, 0}, {resize(3600), 0, 0}, {take(1), 0, 3601 * time.Second}},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBudget(3600)
			for i, s := range steps {
				wait, ok := s.do(b)
				if ok != (s.wait == 0) || (wait-s.wait).Abs() > time.Microsecond || math.Abs(b.remaining()-
					s.want) > 1e-6 {
					t.Errorf("%s, step %d: wait %v (%v), %v left; want %v, %v left", why, i, wait, ok, b.remaining(),
						s.wait, s.want)
				}
			}
		})
	}
	if wait, ok := newBudget(1).reserve(math.MaxInt64); ok || wait <= 0 {
		t.Errorf("what would take for ever: %v %v", wait, ok)
	}
}
