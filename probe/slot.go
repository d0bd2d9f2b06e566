package probe

import (
	"cmp"
	"context"
	"net/netip"
	"sync"
	"time"
)

// slot is the node's one place for a transfer: it asks or answers, never both and never two, because each would distort
// the other's figures. It is fair: a peer that held it while others were denied waits for as long as it held it, or
// until one of them has had it. Peers are identified by address; the zero address is this node, for its own rounds.
// Safe for concurrent use.
type slot struct {
	place chan struct{} // holds one token

	mu       sync.Mutex // protects all following fields
	activity string     // of the holder, for people; empty: none
	user     netip.Addr // of the current transfer, or of the last one
	since    time.Time  // when the current transfer started; zero: there is none
	denied   bool       // another was denied during this transfer
	denySelf bool       // this node was among them

	waiting netip.Addr // the peer that has to wait; the zero address: none
	until   time.Time
}

func newSlot() *slot { return &slot{place: make(chan struct{}, 1)} }

// acquire acquires the slot for who, or returns what its holder is doing if that lasts longer than wait.
func (s *slot) acquire(ctx context.Context, wait time.Duration, who netip.Addr, activity string) (holder string,
	ok bool) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	select {
	case s.place <- struct{}{}:
	default:
		select {
		case s.place <- struct{}{}:
		case <-ctx.Done():
			s.deny(who)
			return cmp.Or(s.holder(), "busy"), false
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.activity = activity
	return "", true
}

// holder is what the holder is doing; empty when the slot is free, or changes hands at this moment.
func (s *slot) holder() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.activity
}

// start records that the holder's transfer starts. A round of this node that nobody denied does not end the wait of a
// peer.
func (s *slot) start(who netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if who.IsValid() || s.denySelf {
		s.waiting = netip.Addr{}
	}
	s.user, s.since, s.denied, s.denySelf = who, time.Now(), false, false
}

// deny records that who found the slot taken.
func (s *slot) deny(who netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() || who == s.user {
		return
	}
	s.denied, s.denySelf = true, s.denySelf || !who.IsValid()
}

func (s *slot) release() {
	s.mu.Lock()
	if now := time.Now(); !s.since.IsZero() && s.denied && s.user.IsValid() {
		s.waiting, s.until = s.user, now.Add(now.Sub(s.since))
	}
	s.since, s.activity = time.Time{}, ""
	s.mu.Unlock()
	<-s.place
}

// cooldown returns how long who has to wait until others have had the slot.
func (s *slot) cooldown(who netip.Addr) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !who.IsValid() || who != s.waiting {
		return 0
	}
	return max(time.Until(s.until), 0)
}
