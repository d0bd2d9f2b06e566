package probe

import (
	"cmp"
	"context"
	"sync"
)

// slot is the node's one place for a transfer: it asks or answers, never both at once and never two, because each would
// measure the other. Safe for concurrent use.
type slot struct {
	place chan struct{} // holds one token

	mu   sync.Mutex // protects held
	held string     // what holds it, for people; empty: nothing
}

func newSlot() *slot { return &slot{place: make(chan struct{}, 1)} }

// take takes the slot if it is free, and otherwise says what holds it.
func (s *slot) take(what string) (holder string, ok bool) {
	select {
	case s.place <- struct{}{}:
		s.set(what)
		return "", true
	default:
		return cmp.Or(s.holder(), "busy"), false
	}
}

// wait takes the slot when it becomes free before ctx is done, and otherwise says what holds it.
func (s *slot) wait(ctx context.Context, what string) (holder string, ok bool) {
	select {
	case s.place <- struct{}{}:
		s.set(what)
		return "", true
	case <-ctx.Done():
		return cmp.Or(s.holder(), "busy"), false
	}
}

// free gives the slot back.
func (s *slot) free() {
	s.set("")
	<-s.place
}

func (s *slot) set(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = what
}

func (s *slot) holder() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held // for a moment nothing, when it changes hands
}
