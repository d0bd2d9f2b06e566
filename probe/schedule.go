package probe

import (
	"hash/fnv"
	"slices"
	"time"
)

// Each node computes on its own when it asks whom, and no two rounds of a fleet overlap: a round-robin tournament by
// the circle method, over the sorted names of all nodes and the wall clock. In each slot every node has at most one
// partner; the one that sorts first asks in the first half, the other in the second. Every pair meets once in n−1 slots
// (n if n is odd). Different lists or clocks cost only a denied lease now and then.

// minHalf is the least time in which a node may ask: a round and a margin.
const minHalf = 500 * time.Millisecond

// pairSlot returns in which slot of how many the players i and j of n meet, by the circle method: players 0…m−1 rotate,
// m does not, with m = n−1 made odd. i and j must differ and be below n.
func pairSlot(i, j, n int) (slot, slots int) {
	m := n - 1 | 1
	switch {
	case i == m:
		return 2 * j % m, m
	case j == m:
		return 2 * i % m, m
	}
	return (i + j) % m, m
}

// cycleOf is the time in which each of so many nodes asks every other once: the interval, unless that is too short.
func cycleOf(nodes int, interval time.Duration) time.Duration {
	slots := max(nodes-1, 0) | 1
	return max(interval, time.Duration(2*slots)*minHalf)
}

// untilRound returns how long self waits from now, on the wall clock, until it asks peer: more than 0, at most one
// cycle. It is a duration, waited for on the monotonic clock: setting the wall clock only moves rounds within their
// cycle. names are those of all nodes, sorted and unique, with both of these.
func untilRound(names []string, self, peer string, interval time.Duration, now time.Time) time.Duration {
	i, _ := slices.BinarySearch(names, self)
	j, _ := slices.BinarySearch(names, peer)
	slot, slots := pairSlot(i, j, len(names))
	cycle := cycleOf(len(names), interval)
	offset := cycle / time.Duration(slots) * time.Duration(slot)
	if i > j {
		offset += cycle / time.Duration(2*slots)
	}
	// Spread fleets over the cycle: otherwise all would start at the full minute.
	offset += time.Duration(hash(names[0]+"\x00"+names[len(names)-1]) % uint64(cycle))
	wait := now.Truncate(cycle).Add(offset % cycle).Sub(now.Round(0))
	if wait <= 0 {
		wait += cycle
	}
	return wait
}

// hash spreads names over 64 bits (FNV-1a).
func hash(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s)) // never fails
	return h.Sum64()
}
