package probe

import (
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/round"
	"github.com/railscope/railscope/probe/options"
)

// TestBudget: the bucket holds an hour's worth, refills evenly, and charges overruns.
func TestBudget(t *testing.T) {
	type step struct {
		do   func(b *node.Budget) (wait time.Duration, ok bool)
		want float64       // remaining time after the step
		wait time.Duration // wait that take returns; 0: the time is taken
	}
	take := func(n float64) func(*node.Budget) (time.Duration, bool) {
		return func(b *node.Budget) (time.Duration, bool) { return b.Reserve(options.Seconds(n)) }
	}
	do := func(fn func(*node.Budget)) func(*node.Budget) (time.Duration, bool) {
		return func(b *node.Budget) (time.Duration, bool) { fn(b); return 0, true }
	}
	sleep := func(d time.Duration) func(*node.Budget) (time.Duration, bool) {
		return do(func(*node.Budget) { time.Sleep(d) })
	}
	settle := func(taken, used float64) func(*node.Budget) (time.Duration, bool) {
		return do(func(b *node.Budget) { b.Settle(options.Seconds(taken), options.Seconds(used)) })
	}
	giveBack := func(n float64) func(*node.Budget) (time.Duration, bool) { return settle(n, 0) }
	resize := func(n float64) func(*node.Budget) (time.Duration, bool) {
		return do(func(b *node.Budget) { b.Resize(options.Seconds(n)) })
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
			// The debt of the small budget is refilled at its own rate.
			{settle(0, 60), 0, 0}, {take(30), 0, 90 * time.Minute},
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
			b := node.NewBudget(time.Hour)
			for i, s := range steps {
				wait, ok := s.do(b)
				if ok != (s.wait == 0) || (wait-s.wait).Abs() > 10*time.Microsecond || math.Abs(b.Remaining()-
					s.want) > 1e-6 {
					t.Errorf("%s, step %d: wait %v (%v), %v left; want %v, %v left", why, i, wait, ok, b.Remaining(),
						s.wait, s.want)
				}
			}
		})
	}
	b := node.NewBudget(1)
	if wait, ok := b.Reserve(math.MaxInt64); !ok {
		t.Errorf("when it is full: %v", wait)
	}
	if wait, ok := b.Reserve(1); ok || wait <= 0 {
		t.Errorf("what takes for ever: %v %v", wait, ok)
	}
}

// TestBudgetForms: a share of time, and bytes converted by the present rate of the rails.
func TestBudgetForms(t *testing.T) {
	n := bareNode(t, "a")
	left := func() time.Duration { return options.Seconds(n.AskBudget.Remaining()).Round(time.Millisecond) }
	if got := left(); got != 18*time.Second {
		t.Errorf("of the default %v", got)
	}
	n.SetBudget(options.Budget{Share: 0.01})
	n.FitBudget(1e9)
	if left() != 36*time.Second {
		t.Errorf("of 1 %%: %v", left())
	}
	n.SetBudget(options.Budget{Bytes: 25e9})
	if got := left(); got != 2*time.Second {
		t.Errorf("of 25 GB at 100 Gb/s, of rails that are not known: %v", got)
	}
	n.FitBudget(50e9)
	if left() != 500*time.Millisecond {
		t.Errorf("at 400 Gb/s: %v", left())
	}
}

// TestRailRate: software devices have no meaningful rate, and a port that is down has none.
func TestRailRate(t *testing.T) {
	rails := func(capacities ...float64) (list []node.LocalRail) {
		for _, c := range capacities {
			list = append(list, node.LocalRail{Rail: rail.Rail{PCIAddress: "0000:01:00.0"}, Capacity: c})
		}
		return list
	}
	soft := node.LocalRail{Capacity: 312e6}
	for _, tc := range []struct {
		why   string
		rails []node.LocalRail
		want  float64
	}{
		{"none", nil, node.NominalRate},
		{"down", rails(0), node.NominalRate},
		{"two", rails(50e9, 25e9), 75e9},
		{"one is down", rails(50e9, 0), 50e9},
		{"rxe", []node.LocalRail{soft}, node.NominalRate},
	} {
		if got := node.RailRate(tc.rails); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.why, got, tc.want)
		}
		var theirs []protocol.HelloRail
		for _, r := range tc.rails {
			theirs = append(theirs, protocol.HelloRail{Capacity: r.Capacity, Software: r.IsSoftware()})
		}
		if got := round.PeerRate(theirs); got != tc.want {
			t.Errorf("%s, of the peer: %v, want %v", tc.why, got, tc.want)
		}
	}
}

// TestBudgetStretches: with more peers than the budget has time for, rounds are paced so far apart that no round is
// refused for long, although full rounds reserve more than others.
func TestBudgetStretches(t *testing.T) {
	const (
		interval  = time.Minute
		soloEvery = 5
		day       = 24 * time.Hour
	)
	type cost struct{ reserved, used time.Duration }
	full, other := cost{600 * time.Millisecond, 150 * time.Millisecond},
		cost{290 * time.Millisecond, 9 * time.Millisecond}
	for _, tc := range []struct {
		peers int
		every time.Duration // time between rounds with each peer
	}{{1, interval}, {4, interval}, {8, 66 * time.Second}, {16, 131 * time.Second}, {64, 524 * time.Second},
		{256, 2100 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			b := node.NewBudget(options.DefaultOptions().Budget.PerHour(node.NominalRate))
			rounds, last := make([]int, tc.peers), slices.Repeat([]time.Time{time.Now()}, tc.peers)
			longest, start := time.Duration(0), time.Now()
			for i := 0; time.Since(start) < day; i = (i + 1) % tc.peers {
				time.Sleep(max(interval/time.Duration(tc.peers), b.Pace(soloEvery)))
				c := other
				if rounds[i]%soloEvery == 0 {
					c = full
				}
				if _, ok := b.Reserve(c.reserved); ok {
					b.Settle(c.reserved, c.used)
					b.Note(c == full, c.used)
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
