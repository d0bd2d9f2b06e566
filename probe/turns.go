package probe

import (
	"net/netip"
	"sync"
	"time"
)

// turns keeps one peer from having the node's place again and again while others are turned away: whoever held it when
// others asked waits for as long as it held it, or until one of them has had it. Peers are told apart by address; the
// zero address is this node, for its own rounds. Safe for concurrent use.
type turns struct {
	mu     sync.Mutex // protects all following fields
	holder netip.Addr // has the place, or had it last
	since  time.Time  // when it got it; zero: the place is free
	others bool       // somebody else was turned away meanwhile
	self   bool       // this node was among them

	waits netip.Addr // the peer that is to wait; the zero address: none
	until time.Time
}

// begin notes who has the place now. A round of this node's own, which nobody
// turned away, is not the turn that others waited for.
func (t *turns) begin(who netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if who.IsValid() || t.self {
		t.waits = netip.Addr{}
	}
	t.holder, t.since, t.others, t.self = who, time.Now(), false, false
}

// end notes that the place is free.
func (t *turns) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := time.Now(); t.others && t.holder.IsValid() {
		t.waits, t.until = t.holder, now.Add(now.Sub(t.since))
	}
	t.since = time.Time{}
}

// refused notes that somebody found the place taken.
func (t *turns) refused(who netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.since.IsZero() || who == t.holder {
		return
	}
	t.others, t.self = true, t.self || !who.IsValid()
}

// wait returns how long it is others' turn.
func (t *turns) wait(who netip.Addr) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !who.IsValid() || who != t.waits {
		return 0
	}
	return max(time.Until(t.until), 0)
}
