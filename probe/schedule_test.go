package probe

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestTournament: for any number of nodes, every pair meets in exactly one slot, and no node has two partners in one.
func TestTournament(t *testing.T) {
	for _, n := range []int{2, 3, 4, 5, 8, 9, 64, 101} {
		busy := map[[2]int]int{} // slot, player → partner
		for i := range n {
			for j := range n {
				if i == j {
					continue
				}
				slot, slots := pairSlot(i, j, n)
				if back, _ := pairSlot(j, i, n); back != slot {
					t.Fatalf("%d nodes: %d meets %d in slot %d, but the reverse is in %d", n, i, j, slot, back)
				}
				if want := n - 1 + n%2; slots != want || slot < 0 || slot >= slots {
					t.Fatalf("%d nodes: slot %d of %d, want %d slots", n, slot, slots, want)
				}
				if other, taken := busy[[2]int{slot, i}]; taken && other != j {
					t.Fatalf("%d nodes: %d meets %d and %d in slot %d", n, i, other, j, slot)
				}
				busy[[2]int{slot, i}] = j
			}
		}
	}
}

// TestNextRound simulates a fleet on one clock: within one cycle every node asks every other once, and no node is in
// two rounds at once.
func TestNextRound(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	for _, tc := range []struct {
		nodes    int
		interval time.Duration
		cycle    time.Duration
		half     time.Duration // that each round has for itself
	}{
		{2, time.Minute, time.Minute, 30 * time.Second},
		{3, time.Minute, time.Minute, 10 * time.Second},
		{8, 10 * time.Second, 10 * time.Second, 714 * time.Millisecond},
		{100, time.Minute, 99 * time.Second, 500 * time.Millisecond}, // too many for a minute
	} {
		var names []string
		for i := range tc.nodes {
			names = append(names, fmt.Sprintf("node-%03d", i))
		}
		slices.Sort(names)
		at := map[string][]time.Time{} // node → when it takes part in a round
		for _, self := range names {
			for _, peer := range names {
				if self == peer {
					continue
				}
				wait := untilRound(names, self, peer, tc.interval, start)
				next := start.Add(wait)
				if wait <= 0 || wait > tc.cycle {
					t.Fatalf("%d nodes: %s asks %s after %v, in a cycle of %v", tc.nodes, self, peer, wait, tc.cycle)
				}
				if again := untilRound(names, self, peer, tc.interval, next); again != tc.cycle {
					t.Fatalf("%d nodes: %s asks %s again after %v, want %v", tc.nodes, self, peer, again, tc.cycle)
				}
				// On a circle, so that the first and the last of a cycle are neighbours.
				moment := time.Unix(0, next.UnixNano()%int64(tc.cycle))
				at[self], at[peer] = append(at[self], moment), append(at[peer], moment)
			}
		}
		for node, times := range at {
			slices.SortFunc(times, time.Time.Compare)
			for i := range times {
				gap := times[(i+1)%len(times)].Sub(times[i])
				if i == len(times)-1 {
					gap += tc.cycle
				}
				if gap < tc.half-time.Millisecond {
					t.Errorf("%d nodes: two rounds of %s are %v apart, want %v", tc.nodes, node, gap, tc.half)
				}
			}
		}
	}
}

// TestNextRoundOfMany: 10,000 nodes cost no memory per peer.
func TestNextRoundOfMany(t *testing.T) {
	names := make([]string, 10_000)
	for i := range names {
		names[i] = fmt.Sprintf("node-%05d", i)
	}
	now := time.Unix(1_800_000_000, 0)
	if n := testing.AllocsPerRun(100, func() {
		untilRound(names, "node-00007", "node-09999", time.Minute, now)
	}); n > 3 {
		t.Errorf("%v allocations for one peer", n)
	}
	seen := map[time.Time]string{}
	for _, peer := range names {
		if peer == names[7] {
			continue
		}
		next := now.Add(untilRound(names, names[7], peer, time.Minute, now))
		if other := seen[next]; other != "" {
			t.Fatalf("%s and %s are asked at the same moment", other, peer)
		}
		seen[next] = peer
	}
}

// TestClockSteps: whatever happens to the wall clock, every peer is asked again within one cycle, and never twice at
// once.
func TestClockSteps(t *testing.T) {
	const interval = time.Minute
	for name, step := range map[string]time.Duration{"back": -5 * time.Hour, "forward": 5 * time.Hour,
		"a little back": -20 * time.Second, "a little forward": 20 * time.Second,
		"to the epoch": -30 * 365 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opts := DefaultOptions()
				opts.Interval, opts.Peers = interval, []string{"b:1", "c:1", "d:1", "e:1"}
				asked := map[string][]time.Duration{}
				var mu sync.Mutex
				p := NewProber(NewNode(NodeOptions{Name: "a"}), opts, func(Result) {}, Events{}.withDefaults())
				start := time.Now()
				var offset atomic.Int64
				p.now = func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }
				p.runRound = func(_ context.Context, r *round) Result {
					mu.Lock()
					defer mu.Unlock()
					asked[r.peer] = append(asked[r.peer], time.Since(start))
					return Result{Outcome: OK, Start: time.Now()}
				}
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); p.Run(ctx) }()
				time.Sleep(10*interval + 7*time.Second)
				synctest.Wait()
				offset.Store(int64(step))
				time.Sleep(10 * interval)
				stop()
				<-done
				for peer, times := range asked {
					if n := len(times); n < 19 || n > 21 {
						t.Errorf("%s was asked %d times in 20 intervals", peer, n)
					}
					for i := range times[1:] {
						if gap := times[i+1] - times[i]; gap > 2*interval {
							t.Errorf("%s was not asked for %v", peer, gap)
						}
					}
				}
				if len(asked) != len(opts.Peers) {
					t.Errorf("asked %v", asked)
				}
			})
		})
	}
}
