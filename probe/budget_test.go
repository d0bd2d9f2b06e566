package probe

import (
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railscope/railscope/internal/rail"
)

// TestBudget: the bucket holds an hour's worth, refills evenly, and remembers what was used.
func TestBudget(t *testing.T) {
	type step struct {
		do   func(b *budget) (wait time.Duration, ok bool)
		want float64       // left then
		wait time.Duration // for which take asks; 0: it takes
	}
	take := func(n float64) func(*budget) (time.Duration, bool) {
		return func(b *budget) (time.Duration, bool) { return b.reserve(seconds(n)) }
	}
	do := func(fn func(*budget)) func(*budget) (time.Duration, bool) {
		return func(b *budget) (time.Duration, bool) { fn(b); return 0, true }
	}
	sleep := func(d time.Duration) func(*budget) (time.Duration, bool) {
		return do(func(*budget) { time.Sleep(d) })
	}
	settle := func(taken, used float64) func(*budget) (time.Duration, bool) {
		return do(func(b *budget) { b.settle(seconds(taken), seconds(used)) })
	}
	giveBack := func(n float64) func(*budget) (time.Duration, bool) { return settle(n, 0) }
	resize := func(n float64) func(*budget) (time.Duration, bool) {
		return do(func(b *budget) { b.resize(seconds(n)) })
	}
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
		"more than it holds, when it is full": {{take(600), 3000, 0}, {take(7200), 3000, 10 * time.Minute},
			{sleep(10 * time.Minute), 3600, 0}, {take(7200), 0, 0}, {take(1), 0, 3601 * time.Second},
			{settle(7200, 600), 3000, 0}},
		"overrun is debt": {{take(600), 3000, 0}, {settle(600, 4000), 0, 0}, {take(1), 0, 401 * time.Second},
			{sleep(400 * time.Second), 0, 0}, {sleep(time.Second), 1, 0}, {take(1), 0, 0}},
		"an hour's at most": {{take(600), 3000, 0}, {settle(600, 1e9), 0, 0}, {take(1), 0, 3601 * time.Second},
			{settle(0, 100), 0, 0}, {take(1), 0, 3601 * time.Second}},
		"no debt by changing": {{take(3600), 0, 0}, {settle(3600, 7200), 0, 0}, {resize(60), 0, 0},
			{settle(0, 1), 0, 0}, {resize(3600), 0, 0}, {take(1), 0, 3601 * time.Second}},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBudget(time.Hour)
			for i, s := range steps {
				wait, ok := s.do(b)
				if ok != (s.wait == 0) || (wait-s.wait).Abs() > 10*time.Microsecond || math.Abs(b.remaining()-
					s.want) > 1e-6 {
					t.Errorf("%s, step %d: wait %v (%v), %v left; want %v, %v left", why, i, wait, ok, b.remaining(),
						s.wait, s.want)
				}
			}
		})
	}
	b := newBudget(1)
	if wait, ok := b.reserve(math.MaxInt64); !ok {
		t.Errorf("when it is full: %v", wait)
	}
	if wait, ok := b.reserve(1); ok || wait <= 0 {
		t.Errorf("what takes for ever: %v %v", wait, ok)
	}
}

// TestBudgetForms: a share of time, and bytes by the rate of the rails, whichever these are now.
func TestBudgetForms(t *testing.T) {
	n := bareNode(t, "a")
	left := func() time.Duration { return seconds(n.askBudget.remaining()).Round(time.Millisecond) }
	if got := left(); got != 18*time.Second {
		t.Errorf("of the default %v", got)
	}
	n.setBudget(Budget{Share: 0.01})
	if n.fitBudget(1e9); left() != 36*time.Second {
		t.Errorf("of 1 %%: %v", left())
	}
	n.setBudget(Budget{Bytes: 25e9})
	if got := left(); got != 2*time.Second {
		t.Errorf("of 25 GB at 100 Gb/s, of rails that are not known: %v", got)
	}
	if n.fitBudget(50e9); left() != 500*time.Millisecond {
		t.Errorf("at 400 Gb/s: %v", left())
	}
}

// TestRailRate: software devices have no rate that means anything, and a port that is down has none.
func TestRailRate(t *testing.T) {
	rails := func(capacities ...float64) (list []localRail) {
		for _, c := range capacities {
			list = append(list, localRail{Rail: rail.Rail{PCIAddress: "0000:01:00.0"}, capacity: c})
		}
		return list
	}
	soft := localRail{capacity: 312e6}
	for _, tc := range []struct {
		why   string
		rails []localRail
		want  float64
	}{
		{"none", nil, nominalRate},
		{"down", rails(0), nominalRate},
		{"two", rails(50e9, 25e9), 75e9},
		{"one is down", rails(50e9, 0), 50e9},
		{"rxe", []localRail{soft}, nominalRate},
	} {
		if got := railRate(tc.rails); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.why, got, tc.want)
		}
		var theirs []helloRail
		for _, r := range tc.rails {
			theirs = append(theirs, helloRail{Capacity: r.capacity, Software: r.software()})
		}
		if got := peerRate(theirs); got != tc.want {
			t.Errorf("%s, of the peer: %v, want %v", tc.why, got, tc.want)
		}
	}
}

// TestBudgetStretches: with more peers than the budget has time for, rounds are as far apart as its pace says. Then
// none of them is refused for long, although full rounds reserve more than others.
func TestBudgetStretches(t *testing.T) {
	const (
		interval  = time.Minute
		soloEvery = 5
		day       = 24 * time.Hour
	)
	type cost struct{ reserved, used time.Duration }
	full, other := cost{600 * time.Millisecond, 150 * time.Millisecond}, cost{290 * time.Millisecond, 9 * time.Millisecond}
	for _, tc := range []struct {
		peers int
		every time.Duration // a round with each peer
	}{{1, interval}, {4, interval}, {8, 66 * time.Second}, {16, 131 * time.Second}, {64, 524 * time.Second},
		{256, 2100 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			b := newBudget(DefaultOptions().Budget.perHour(nominalRate))
			rounds, last := make([]int, tc.peers), slices.Repeat([]time.Time{time.Now()}, tc.peers)
			longest, start := time.Duration(0), time.Now()
			for i := 0; time.Since(start) < day; i = (i + 1) % tc.peers {
				time.Sleep(max(interval/time.Duration(tc.peers), b.pace(soloEvery)))
				c := other
				if rounds[i]%soloEvery == 0 {
					c = full
				}
				if _, ok := b.reserve(c.reserved); ok {
					b.settle(c.reserved, c.used)
					b.note(c == full, c.used)
					longest = max(longest, time.Since(last[i]))
					last[i] = time.Now()
					rounds[i]++
				}
			}
			least, most := slices.Min(rounds), slices.Max(rounds)
			every := day / time.Duration(max(most, 1))
			t.Logf("%3d peers: a round with each every %v, after %v at most", tc.peers, every.Round(time.Second),
				longest.Round(time.Second))
			if least < most*9/10 || longest > 3*every || every > tc.every*11/10 {
				t.Errorf("%d peers: %d to %d rounds a day with each, want one every %v", tc.peers, least, most, tc.every)
			}
		})
	}
}
