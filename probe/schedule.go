package probe

import (
	"hash/fnv"
	"slices"
	"time"
)

// Every node works out alone when it asks whom, and no two rounds of a fleet meet: a round-robin tournament by the
// circle method, over the sorted names of all nodes, with the wall clock for a conductor. In each slot every node has
// at most one partner; in the slot's first half the one that sorts first asks, in the second half the other. Every pair
// meets once in n−1 slots (n if n is odd). Lists or clocks that differ cost nothing but a denied lease now and then.

// minHalf is the least time a node gets to ask: a round, and some air.
const minHalf = 500 * time.Millisecond

// pairSlot returns in which slot of how many the players i and j of n meet, by the circle method: players 0…m−1 go
// round, m stands still, with m = n−1 made odd. i and j must differ and be below n.
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

// cycleOf is how long it takes so many nodes until each has asked every other
// once: the interval, unless that is too short.
func cycleOf(nodes int, interval time.Duration) time.Duration {
	slots := max(nodes-1, 0) | 1
	return max(interval, time.Duration(2*slots)*minHalf)
}

// untilRound returns how long self waits, from now on the wall clock, until it asks peer: more than nothing, and at
// most one cycle. It is a duration so that whoever waits does so by the monotonic clock: a wall clock that is set back
// by hours, or forward, moves the rounds within their cycle, and does nothing else. names are those of all nodes,
// sorted, without doubles, and hold both.
func untilRound(names []string, self, peer string, interval time.Duration, now time.Time) time.Duration {
	i, _ := slices.BinarySearch(names, self)
	j, _ := slices.BinarySearch(names, peer)
	slot, slots := pairSlot(i, j, len(names))
	cycle := cycleOf(len(names), interval)
	offset := cycle / time.Duration(slots) * time.Duration(slot)
	if i > j {
		offset += cycle / time.Duration(2*slots)
	}
	// Not all pairs of nodes in the world at the full minute.
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
