package connlimit

import (
	"net"
	"slices"
	"sync"
	"time"
)

// Why a connection was refused, or closed before it was answered.
const (
	Connections = "connections" // all places are taken
	Address     = "address"     // one address has as many places as it may have
	Timeout     = "timeout"     // a request did not arrive, or an answer was not read, in time
)

// Options are the bounds of a [Limit].
type Options struct {
	Connections int // open at a time; an address has at most half of them

	// Strangers is how many of them may be unproven; when one more comes, the
	// oldest unproven one is closed. 0: connections need not prove themselves.
	Strangers    int
	StrangerTime time.Duration // after which an unproven connection is closed

	// Refused is called for each connection that is refused or timed out, with
	// its address. It must not block, nor call the limit.
	Refused func(reason, from string)
}

// Limit holds the bounds over the connections of one or more listeners. Safe for
// concurrent use.
type Limit struct {
	opts Options

	mu        sync.Mutex // protects all following fields
	open      int
	addresses map[address]*holder
	strangers []*Conn // oldest first
}

// holder counts the connections of one address.
type holder struct{ open, strangers int }

// New returns a limit that nothing counts against yet.
func New(o Options) *Limit {
	if o.Refused == nil {
		o.Refused = func(string, string) {}
	}
	return &Limit{opts: o, addresses: map[address]*holder{}}
}

// Open returns how many connections are open, and how many of them are unproven.
func (l *Limit) Open() (all, strangers int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open, len(l.strangers)
}

// Listener returns inner with the bounds of l on what it accepts.
func (l *Limit) Listener(inner net.Listener) net.Listener { return &listener{inner, l} }

type listener struct {
	net.Listener
	limit *Limit
}

// Accept implements [net.Listener]. It returns only connections that have a place.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.limit.Admit(c); c != nil {
			return c, nil
		}
	}
}

// Admit gives c a place, or closes it and returns nil. The place is free again
// when the returned connection is closed.
func (l *Limit) Admit(c net.Conn) net.Conn {
	from := addressOf(c.RemoteAddr())
	made, displaced, reason := l.place(c, from)
	if displaced != nil {
		_ = displaced.Conn.Close() // whoever uses it learns so
		l.opts.Refused(reason, displaced.RemoteAddr().String())
	}
	if made == nil {
		_ = c.Close() // nothing was sent, so nothing can be lost
		l.opts.Refused(reason, c.RemoteAddr().String())
		return nil
	}
	return made
}

// place takes a place for c, at the cost of an unproven connection if need be.
func (l *Limit) place(c net.Conn, from address) (made, displaced *Conn, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.addresses[from]
	if h == nil {
		h = &holder{}
	}
	switch {
	case from.known && h.open >= max(l.opts.Connections/2, 1):
		if reason, displaced = Address, l.oldestLocked(func(s *Conn) bool { return s.from == from }); displaced == nil {
			return nil, nil, reason
		}
	case l.open >= l.opts.Connections, l.opts.Strangers > 0 && len(l.strangers) >= l.opts.Strangers:
		most := 0
		for _, s := range l.strangers {
			most = max(most, l.addresses[s.from].strangers)
		}
		// The oldest of whoever has most: who opens many does not displace others.
		reason, displaced = Connections, l.oldestLocked(func(s *Conn) bool {
			return l.addresses[s.from].strangers == most
		})
		if displaced == nil {
			return nil, nil, reason
		}
	}
	if displaced != nil {
		l.freeLocked(displaced)
	}
	made = &Conn{Conn: c, limit: l, from: from, holds: true}
	l.open++
	l.addresses[from] = h
	h.open++
	if l.opts.Strangers > 0 {
		made.stranger = true
		h.strangers++
		l.strangers = append(l.strangers, made)
		made.timer = time.AfterFunc(l.opts.StrangerTime, made.expire)
	}
	return made, displaced, reason
}

// oldestLocked returns the oldest unproven connection of those that fit.
func (l *Limit) oldestLocked(fits func(*Conn) bool) *Conn {
	if i := slices.IndexFunc(l.strangers, fits); i >= 0 {
		return l.strangers[i]
	}
	return nil
}

// freeLocked takes the place of c away, if it has one.
func (l *Limit) freeLocked(c *Conn) {
	if !c.holds {
		return
	}
	l.provenLocked(c)
	c.holds = false
	l.open--
	h := l.addresses[c.from]
	if h.open--; h.open == 0 {
		delete(l.addresses, c.from)
	}
}

// provenLocked takes c off the unproven ones, and reports whether it was one.
func (l *Limit) provenLocked(c *Conn) bool {
	if !c.stranger {
		return false
	}
	c.stranger = false
	c.timer.Stop()
	l.addresses[c.from].strangers--
	l.strangers = slices.DeleteFunc(l.strangers, func(s *Conn) bool { return s == c })
	return true
}
