package probe

import (
	"net/netip"
	"sync"
	"time"
)

// turns keeps one peer from having the node's place again and again while others
// are turned away: whoever held it when others asked waits for as long as it held
// it, or until one of them has had it. Peers are told apart by address; the zero
// address is this node, for its own rounds. Safe for concurrent use.
type turns struct {
	mu     sync.Mutex // protects all following fields
	holder netip.Addr // has the place, or had it last
	since  time.Time  // when it got it
	ended  time.Time  // when it gave it back
	others bool       // somebody else was turned away meanwhile
}

// begin notes who has the place now.
func (t *turns) begin(who netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.holder, t.since, t.ended, t.others = who, time.Now(), time.Time{}, false
}

// end notes that the place is free.
func (t *turns) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = time.Now()
}

// refused notes that somebody found the place taken.
func (t *turns) refused(who netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.others = t.others || t.ended.IsZero() && who != t.holder
}

// wait returns how long it is others' turn.
func (t *turns) wait(who netip.Addr) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if who != t.holder || !t.others || t.ended.IsZero() {
		return 0
	}
	return max(time.Until(t.ended.Add(t.ended.Sub(t.since))), 0)
}
