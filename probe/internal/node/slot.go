package node

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/worker"
)

// Place is what a transfer needs of a node: a slot, and the worker of the transfer that holds it.
type Place struct {
	Slot   *Slot
	Worker *worker.Worker
}

// Slot is the node's one place for a transfer: it asks or answers, never both and never two, because each would distort
// the other's figures. It is fair: a peer that held it while others were denied waits for as long as it held it, or
// until one of them has had it; and one that was denied has a claim, which a peer cannot pass twice. Peers are
// identified by address; the zero address is this node, for its own rounds. Safe for concurrent use.
type Slot struct {
	Place chan struct{} // holds one token

	mu       sync.Mutex // protects all following fields
	activity string     // what the holder does, for people; empty: none
	user     netip.Addr // address of the current or last holder
	since    time.Time  // when the current transfer started; zero: there is none
	denied   bool       // another was denied during this transfer
	denySelf bool       // this node was among them

	waiting netip.Addr // the peer that has to wait; the zero address: none
	until   time.Time

	claims map[netip.Addr]*claim
}

// claim is the precedence of an asker that was denied. It ends when the asker has had the slot, or does not retry.
type claim struct {
	until  time.Time
	passed map[netip.Addr]bool // had the slot since
}

// Bounds of claims.
const (
	ClaimTime = 2 * protocol.RetryMost // since the last denial
	maxClaims = 1000
)

// NewSlot returns a free slot.
func NewSlot() *Slot { return &Slot{Place: make(chan struct{}, 1), claims: map[netip.Addr]*claim{}} }

// Acquire acquires the slot for who, or returns what its holder is doing if that lasts longer than wait.
func (s *Slot) Acquire(ctx context.Context, wait time.Duration, who netip.Addr, activity string) (holder string,
	ok bool) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	select {
	case s.Place <- struct{}{}:
	default:
		select {
		case s.Place <- struct{}{}:
		case <-ctx.Done():
			s.Deny(who)
			return cmp.Or(s.Holder(), "busy"), false
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.activity = activity
	return "", true
}

// TryAcquire acquires the slot if it is free at this moment. One that finds it taken has no claim on it.
func (s *Slot) TryAcquire(activity string) bool {
	select {
	case s.Place <- struct{}{}:
	default:
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.activity = activity
	return true
}

// Holder is what the holder is doing; empty when the slot is free, or changes hands at this moment.
func (s *Slot) Holder() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.activity
}

// Start records that the holder's transfer starts. A round of this node that nobody denied does not end the wait of a
// peer.
func (s *Slot) Start(who netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if who.IsValid() || s.denySelf {
		s.waiting = netip.Addr{}
	}
	s.user, s.since, s.denied, s.denySelf = who, time.Now(), false, false
	delete(s.claims, who)
	for _, c := range s.claims {
		c.passed[who] = true
	}
}

// Deny records that who found the slot taken.
func (s *Slot) Deny(who netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.since.IsZero() {
		if who == s.user {
			return
		}
		s.denied, s.denySelf = true, s.denySelf || !who.IsValid()
	}
	now := time.Now()
	maps.DeleteFunc(s.claims, func(_ netip.Addr, c *claim) bool { return !now.Before(c.until) })
	if s.claims[who] == nil && len(s.claims) < maxClaims {
		s.claims[who] = &claim{passed: map[netip.Addr]bool{}}
	}
	if c := s.claims[who]; c != nil {
		c.until = now.Add(ClaimTime)
	}
}

// Waive ends the claim of one that had its turn, and was denied for another reason.
func (s *Slot) Waive(who netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.claims, who)
}

// Release frees the slot.
func (s *Slot) Release() {
	s.mu.Lock()
	if now := time.Now(); !s.since.IsZero() && s.denied && s.user.IsValid() {
		s.waiting, s.until = s.user, now.Add(now.Sub(s.since))
	}
	s.since, s.activity = time.Time{}, ""
	s.mu.Unlock()
	<-s.Place
}

// Cooldown returns how long who has to wait until others have had the slot; of a claim, which may end at any moment,
// when to ask again.
func (s *Slot) Cooldown(who netip.Addr) (wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !who.IsValid() {
		return 0
	}
	if who == s.waiting {
		wait = max(time.Until(s.until), 0)
	}
	for _, c := range s.claims {
		if c.passed[who] {
			wait = max(wait, min(time.Until(c.until), protocol.RetryLeast))
		}
	}
	return wait
}
