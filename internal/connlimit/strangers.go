package connlimit

import (
	"net/netip"
	"slices"
	"time"
)

// Of an address from which a connection was proven in the last hour, a few unproven connections do not count when one
// is to be displaced.
const (
	knownTime      = time.Hour
	knownStrangers = 4
	maxKnown       = 4096 // addresses
)

// Bounds of what the server does for unproven connections between two of their reads, such as a TLS handshake.
const (
	workBurst = 50 * time.Millisecond // worked without a pause, if there was no work before
	workTurn  = 50 * time.Millisecond // after which another connection may work beside one that waits for something
)

// patience is how long a connection that has sent something may wait for its turn before others displace it. Closing a
// flood's connections at once costs least, and what waits gets its turn.
const patience = time.Second

// serves reports whether an unproven connection works, or waits for its turn with patience.
func (l *Limit) serves(c *Conn) bool {
	return (c.turn != nil || l.work.working == c) && time.Since(c.since) < patience
}

// work lets one unproven connection at a time work, in the order in which their data arrived, and pauses all of them so
// that they work at most a share of the time. What a connection worked until it is proven does not count. Protected by
// the mu of its [Limit].
type work struct {
	share   float64 // 0: without bounds
	working *Conn
	since   time.Time
	waiting []*Conn
	other   bool      // the last turn was for a known address
	free    time.Time // until then all pause
	timer   *time.Timer
}

// begin waits for c's turn. It returns false if c was closed meanwhile.
func (l *Limit) begin(c *Conn) bool {
	l.mu.Lock()
	if !c.stranger {
		defer l.mu.Unlock()
		return !c.freed
	}
	turn := make(chan struct{})
	c.turn = turn
	l.work.waiting = append(l.work.waiting, c)
	l.nextLocked()
	l.mu.Unlock()
	<-turn
	l.mu.Lock()
	defer l.mu.Unlock()
	return !c.freed
}

// end ends c's turn.
func (l *Limit) end(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.work.working == c {
		l.endLocked()
		l.nextLocked()
	}
}

func (l *Limit) endLocked() {
	w := &l.work
	cost := time.Since(w.since)
	w.working.worked += cost
	w.working = nil
	w.free = latest(w.free, time.Now().Add(-w.pause(workBurst))).Add(w.pause(cost))
}

// leaveLocked takes a connection out that was proven or closed.
func (l *Limit) leaveLocked(c *Conn, proven bool) {
	w := &l.work
	if w.share == 0 {
		return
	}
	if proven { // if it was closed, its turn lasts until the server notices
		if w.working == c {
			l.endLocked()
		}
		w.free = w.free.Add(-w.pause(c.worked))
	}
	w.waiting = slices.DeleteFunc(w.waiting, func(o *Conn) bool { return o == c })
	if c.turn != nil {
		close(c.turn)
		c.turn = nil
	}
	l.nextLocked()
}

// nextLocked gives the turn to the connection that has waited longest, now or when the pause is over.
func (l *Limit) nextLocked() {
	w := &l.work
	if w.working != nil && time.Since(w.since) >= workTurn {
		l.endLocked()
	}
	if len(w.waiting) == 0 {
		return
	}
	wait := time.Until(w.free)
	if w.working != nil {
		wait = workTurn - time.Since(w.since)
	}
	if wait <= 0 {
		i := 0
		w.other = !w.other
		if w.other { // every other turn is for addresses that are known, if one waits
			i = max(slices.IndexFunc(w.waiting, func(c *Conn) bool { return l.knows(c.from) }), 0)
		}
		c := w.waiting[i]
		w.waiting = slices.Delete(w.waiting, i, i+1)
		close(c.turn)
		w.working, w.since, c.turn = c, time.Now(), nil
		wait = workTurn
	}
	if w.timer != nil {
		w.timer.Stop()
	}
	w.timer = time.AfterFunc(wait, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.nextLocked()
	})
}

// pause is the time in which so much may be worked.
func (w *work) pause(worked time.Duration) time.Duration {
	return time.Duration(float64(worked) / w.share)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (l *Limit) knows(from netip.Prefix) bool { return time.Since(l.known[from]) < knownTime }

// rememberLocked notes an address from which a connection was proven.
func (l *Limit) rememberLocked(from netip.Prefix) {
	if l.known[from].IsZero() && len(l.known) >= maxKnown {
		var oldest netip.Prefix
		at := time.Now()
		for other, proven := range l.known {
			if proven.Before(at) {
				oldest, at = other, proven
			}
		}
		delete(l.known, oldest)
	}
	l.known[from] = time.Now()
}
