package probe

import (
	"hash/fnv"
	"time"
)

// A node asks each of its peers once in a cycle, at an offset by a hash of the pair: no node knows the schedule of
// another. A round that finds the peer's only slot taken is tried again after a random time until the cycle ends. One
// that was denied for half of the cycle is overdue: it is tried again sooner, and waits for both slots (round.persist).
// Everything runs on the monotonic clock, so that a step of the wall clock changes nothing.

const (
	retryLeast, retryMost = time.Second, 5 * time.Second // before a round that was denied is tried again

	// maxPace is the longest time that the cycle leaves for one round.
	maxPace = 24 * time.Hour

	// assumedRound is the duration of a round before any was measured.
	assumedRound = 250 * time.Millisecond
	// maxLoad is the most of a node's time that its rounds and answers may take before the cycle is made longer.
	// TestFleet measures what that does to the longest gap of a pair.
	maxLoad = 0.7
)

// schedule is when each peer is asked. Not safe for concurrent use.
type schedule struct {
	self     string // name of this node
	interval time.Duration
	random   func(n time.Duration) time.Duration // in [0, n)
	pace     func() time.Duration                // between two rounds that the budget allows; nil: any

	turns map[string]*turn // by address
	took  time.Duration    // mean duration of the last rounds that moved bytes
}

// turn is one peer's.
type turn struct {
	began  time.Time // the cycle, at the pair's offset
	next   time.Time // attempt of this cycle, or began of the next one
	asking bool
	missed bool // the last cycle ended without a round: it was denied to its end
}

func newSchedule(self string, interval time.Duration, random func(time.Duration) time.Duration) *schedule {
	return &schedule{self: self, interval: interval, random: random, turns: map[string]*turn{}, took: assumedRound}
}

// maxFirst is the latest that a peer is asked for the first time: with a small budget a cycle can outlast the day for
// which the peer is one.
const maxFirst = 10 * time.Minute

// set replaces the peers. Those that stay keep their turn.
func (s *schedule) set(peers []string, now time.Time) {
	before := s.turns
	s.turns = make(map[string]*turn, len(peers))
	for _, peer := range peers {
		s.turns[peer] = before[peer]
	}
	cycle := s.cycle()
	for peer, t := range s.turns {
		if t == nil {
			first := now.Add(time.Duration(hash(peer+"\x00"+s.self) % uint64(min(cycle, maxFirst))))
			s.turns[peer] = &turn{began: first, next: first}
		}
	}
}

// cycle is the time from one round with a peer to the next; 0 without peers. It is the interval, or as many of them as
// rounds and answers need, of which there are about as many, and as the budget needs.
func (s *schedule) cycle() time.Duration {
	if len(s.turns) == 0 {
		return 0
	}
	needed := time.Duration(float64(2*len(s.turns)) * float64(s.took) / maxLoad)
	if s.pace != nil {
		needed = max(needed, time.Duration(len(s.turns))*min(s.pace(), maxPace))
	}
	return max((needed+s.interval-1)/s.interval, 1) * s.interval
}

// next returns the peer that is asked next, and when; empty: none.
func (s *schedule) next() (peer string, at time.Time) {
	for name, t := range s.turns {
		if !t.asking && (peer == "" || t.next.Before(at)) {
			peer, at = name, t.next
		}
	}
	return peer, at
}

// begin starts a round with a peer.
func (s *schedule) begin(peer string) { s.turns[peer].asking = true }

// overdue reports whether rounds with a peer were denied for half of a cycle.
func (s *schedule) overdue(peer string, now time.Time) bool {
	t := s.turns[peer]
	return t != nil && (t.missed || now.Sub(t.began) >= s.cycle()/2)
}

// end ends a round with a peer, and reports whether its result is that of the cycle: a round that was denied and is
// tried again has none.
func (s *schedule) end(peer string, r *Result, now time.Time) (final bool) {
	if r.Transport != NoTransport || r.Bytes > 0 {
		s.took += (r.Duration - s.took) / 8
	}
	t := s.turns[peer]
	if t == nil {
		return true
	}
	t.asking = false
	over := t.began.Add(s.cycle())
	if r.RetryAfter > 0 {
		most := retryMost
		if s.overdue(peer, now) {
			most = 2 * retryLeast
		}
		again := now.Add(max(r.RetryAfter, retryLeast+s.random(most-retryLeast)))
		if again.Before(over) {
			t.next = again
			return false
		}
	}
	t.missed = r.RetryAfter > 0
	for !over.After(now) {
		over = over.Add(s.cycle())
	}
	t.began, t.next = over, over
	return true
}

// hash spreads names over 64 bits (FNV-1a).
func hash(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s)) // never fails
	return h.Sum64()
}
