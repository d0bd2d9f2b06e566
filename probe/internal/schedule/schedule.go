package schedule

import (
	"hash/fnv"
	"time"

	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/result"
)

// maxPace is the longest part of the cycle reserved for one round.
const maxPace = 24 * time.Hour

// assumedRound is the assumed duration of a round before the first was measured.
const assumedRound = 250 * time.Millisecond

// maxLoad is the fraction of a node's time that rounds and answers may take before the cycle is extended.
// TestFleet measures its effect on the longest gap of a pair.
const maxLoad = 0.7

// Schedule decides when each peer is asked. Not safe for concurrent use.
type Schedule struct {
	self     string // name of this node
	interval time.Duration
	Random   func(n time.Duration) time.Duration // random duration in [0, n)
	Pace     func() time.Duration                // time between two rounds that the budget allows; nil: unlimited

	Turns map[string]*turn // turns by address
	Took  time.Duration    // mean duration of the last rounds that moved bytes
}

// turn is the state of one peer in the schedule.
type turn struct {
	began  time.Time // start of the cycle, at the pair's offset
	next   time.Time // next attempt of this cycle, or start of the next cycle
	asking bool
	missed bool // the last cycle ended without a round, denied to its end
}

// NewSchedule returns a schedule that begins at a moment that depends on the name self.
func NewSchedule(self string, interval time.Duration, random func(time.Duration) time.Duration) *Schedule {
	return &Schedule{self: self, interval: interval, Random: random, Turns: map[string]*turn{}, Took: assumedRound}
}

// maxFirst is the longest delay of a peer's first round: with a small budget, a cycle can outlast the day on which
// the node is a peer.
const maxFirst = 10 * time.Minute

// Set replaces the peers. Peers that stay keep their turn.
func (s *Schedule) Set(peers []string, now time.Time) {
	before := s.Turns
	s.Turns = make(map[string]*turn, len(peers))
	for _, peer := range peers {
		s.Turns[peer] = before[peer]
	}
	cycle := s.Cycle()
	for peer, t := range s.Turns {
		if t == nil {
			first := now.Add(time.Duration(hash(peer+"\x00"+s.self) % uint64(min(cycle, maxFirst))))
			s.Turns[peer] = &turn{began: first, next: first}
		}
	}
}

// Cycle returns the time from one round with a peer to the next, or 0 without peers: the interval, rounded up to a
// multiple that rounds, about as many answers, and the budget need.
func (s *Schedule) Cycle() time.Duration {
	if len(s.Turns) == 0 {
		return 0
	}
	needed := time.Duration(float64(2*len(s.Turns)) * float64(s.Took) / maxLoad)
	if s.Pace != nil {
		needed = max(needed, time.Duration(len(s.Turns))*min(s.Pace(), maxPace))
	}
	return max((needed+s.interval-1)/s.interval, 1) * s.interval
}

// Next returns the next peer to ask, and when; empty: none.
func (s *Schedule) Next() (peer string, at time.Time) {
	for name, t := range s.Turns {
		if !t.asking && (peer == "" || t.next.Before(at)) {
			peer, at = name, t.next
		}
	}
	return peer, at
}

// Begin starts a round with a peer.
func (s *Schedule) Begin(peer string) { s.Turns[peer].asking = true }

// Overdue reports whether rounds with a peer were denied for half of a cycle.
func (s *Schedule) Overdue(peer string, now time.Time) bool {
	t := s.Turns[peer]
	return t != nil && (t.missed || now.Sub(t.began) >= s.Cycle()/2)
}

// End ends a round with a peer, and reports whether its result is the final one of the cycle: a denied round that
// will be retried has none.
func (s *Schedule) End(peer string, r *result.Result, now time.Time) (final bool) {
	if r.Transport != result.NoTransport || r.Bytes > 0 {
		s.Took += (r.Duration - r.Waited - s.Took) / 8
	}
	t := s.Turns[peer]
	if t == nil {
		return true
	}
	t.asking = false
	over := t.began.Add(s.Cycle())
	if r.RetryAfter > 0 {
		most := protocol.RetryMost
		if s.Overdue(peer, now) {
			most = 2 * protocol.RetryLeast
		}
		again := now.Add(max(r.RetryAfter, protocol.RetryLeast+s.Random(most-protocol.RetryLeast)))
		if again.Before(over) {
			t.next = again
			return false
		}
	}
	t.missed = r.RetryAfter > 0
	for !over.After(now) {
		over = over.Add(s.Cycle())
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
