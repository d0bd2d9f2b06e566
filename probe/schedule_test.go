package probe

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestTournament: whatever the number of nodes, every pair meets in exactly one
// slot, and nobody has two partners in one.
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

// TestNextRound simulates a fleet on one clock: within one cycle every node asks
// every other once, and at no moment is a node in two rounds.
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
				next := nextRound(names, self, peer, tc.interval, start)
				if wait := next.Sub(start); wait <= 0 || wait > tc.cycle {
					t.Fatalf("%d nodes: %s asks %s after %v, in a cycle of %v", tc.nodes, self, peer, wait, tc.cycle)
				}
				if again := nextRound(names, self, peer, tc.interval, next); again.Sub(next) != tc.cycle {
					t.Fatalf("%d nodes: %s asks %s again after %v, want %v", tc.nodes, self, peer, again.Sub(next), tc.cycle)
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
	if n := testing.AllocsPerRun(100, func() { nextRound(names, "node-00007", "node-09999", time.Minute, now) }); n > 3 {
		t.Errorf("%v allocations for one peer", n)
	}
	seen := map[time.Time]string{}
	for _, peer := range names {
		if peer == names[7] {
			continue
		}
		next := nextRound(names, names[7], peer, time.Minute, now)
		if other := seen[next]; other != "" {
			t.Fatalf("%s and %s are asked at the same moment", other, peer)
		}
		seen[next] = peer
	}
}
