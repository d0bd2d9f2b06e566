// Package connlimit bounds what the connections of a server can cost.
//
// A [Limit] accepts every connection, and closes and counts those beyond a bound at once: a listener that stops
// accepting leaves clients in the backlog, where neither they nor the operator see why they get no answer.
//
// Where connections must prove themselves, one that has not is closed after a fixed time, whatever state its request is
// in. Deadlines that net/http sets cannot extend that time. Unproven connections displace each other, never a proven
// one.
package connlimit

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"
)

// Why a connection was refused, or closed before it was answered.
const (
	Connections = "connections" // all places are taken
	Address     = "address"     // one address has half of the places
	Timeout     = "timeout"     // a request did not arrive, or an answer was not read, in time
)

// Options are the bounds of a [Limit].
type Options struct {
	Connections int // open at a time; an address has at most half of them

	// Strangers is how many may be unproven; one more closes the oldest of these. 0: none has to prove itself.
	Strangers    int
	StrangerTime time.Duration // after which an unproven connection is closed

	// Refused is called for each connection that is refused or timed out; it must not block, nor call the limit.
	Refused func(reason, from string)
}

// Limit holds the bounds over the connections of one or more listeners. Safe for concurrent use.
type Limit struct {
	opts Options

	mu   sync.Mutex
	open []*Conn // oldest first; protected by mu
}

// New returns a limit without connections.
func New(o Options) *Limit {
	if o.Refused == nil {
		o.Refused = func(string, string) {}
	}
	return &Limit{opts: o}
}

// Open returns how many connections are open, and how many of them are unproven.
func (l *Limit) Open() (all, strangers int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.open {
		if c.stranger {
			strangers++
		}
	}
	return len(l.open), strangers
}

// Listener returns inner with the bounds of l.
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

// Admit gives c a place, or closes it and returns nil. The place is free again when the returned connection is closed.
func (l *Limit) Admit(c net.Conn) net.Conn {
	made, displaced, reason := l.place(c)
	if displaced != nil {
		_ = displaced.Conn.Close() // reads and writes fail from now on
		l.opts.Refused(reason, displaced.RemoteAddr().String())
	}
	if made == nil {
		_ = c.Close() // nothing was sent, so nothing can be lost
		l.opts.Refused(reason, c.RemoteAddr().String())
		return nil
	}
	return made
}

// place gives c a place, at the cost of an unproven connection if need be.
func (l *Limit) place(c net.Conn) (made, displaced *Conn, reason string) {
	from := addressOf(c.RemoteAddr())
	l.mu.Lock()
	defer l.mu.Unlock()
	own, unproven, most := 0, 0, 0
	strangers := map[netip.Prefix]int{}
	for _, o := range l.open {
		if o.from == from {
			own++
		}
		if o.stranger {
			unproven++
			strangers[o.from]++
			most = max(most, strangers[o.from])
		}
	}
	var fits func(from netip.Prefix) bool // whether to displace its oldest unproven connection
	switch {
	case from.IsValid() && own >= max(l.opts.Connections/2, 1):
		reason, fits = Address, func(of netip.Prefix) bool { return of == from }
	case len(l.open) >= l.opts.Connections, l.opts.Strangers > 0 && unproven >= l.opts.Strangers:
		// The address with most: one that opens many does not displace others.
		reason, fits = Connections, func(of netip.Prefix) bool { return strangers[of] == most }
	}
	if reason != "" {
		i := slices.IndexFunc(l.open, func(o *Conn) bool { return o.stranger && fits(o.from) })
		if i < 0 {
			return nil, nil, reason
		}
		displaced = l.open[i]
		l.freeLocked(displaced)
	}
	made = &Conn{Conn: c, limit: l, from: from}
	l.open = append(l.open, made)
	if l.opts.Strangers > 0 {
		made.stranger = true
		made.timer = time.AfterFunc(l.opts.StrangerTime, made.expire)
	}
	return made, displaced, reason
}

func (l *Limit) freeLocked(c *Conn) {
	c.proveLocked()
	l.open = slices.DeleteFunc(l.open, func(o *Conn) bool { return o == c })
}

// addressOf returns the IPv4 address, or /64 of IPv6, to which a place is counted; invalid for other networks.
func addressOf(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	prefix, _ := ip.Prefix(min(ip.BitLen(), 64)) // cannot fail
	return prefix
}

// Quiet is how long a reason must not have occurred before it is reported again.
const Quiet = 3 * time.Minute

// Refusals counts refusals by reason and reports the first of each. Safe for concurrent use.
type Refusals struct {
	report  func(reason, from string)
	reasons []string

	mu    sync.Mutex // protects all following fields
	count map[string]uint64
	last  map[string]time.Time
}

// NewRefusals returns counts of 0. report, unless nil, is called with a reason's first refusal after [Quiet].
func NewRefusals(report func(reason, from string), reasons ...string) *Refusals {
	return &Refusals{report: report, reasons: reasons, count: map[string]uint64{}, last: map[string]time.Time{}}
}

// Count counts one refusal, by one of the reasons.
func (r *Refusals) Count(reason, from string) {
	r.mu.Lock()
	again := time.Since(r.last[reason]) > Quiet
	r.count[reason]++
	r.last[reason] = time.Now()
	r.mu.Unlock()
	if again && r.report != nil {
		r.report(reason, from)
	}
}

// Each calls fn, which must not count, with every reason and its count, in their order.
func (r *Refusals) Each(fn func(reason string, n uint64)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, reason := range r.reasons {
		fn(reason, r.count[reason])
	}
}

// Conn is a connection that has a place.
type Conn struct {
	net.Conn
	limit *Limit
	from  netip.Prefix

	stranger bool        // not proven yet; protected by limit.mu
	timer    *time.Timer // of an unproven one

	mu    sync.Mutex // protects all following fields
	heard bool       // data has arrived
	idle  bool       // no request is being read or answered
	abort bool       // net/http aborts its read
	slow  bool       // it was counted as timed out
}

// Of returns the connection of this package below c, which may be TLS; nil if there is none.
func Of(c net.Conn) *Conn {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	of, _ := c.(*Conn)
	return of
}

// Prove lifts the bounds on unproven connections.
func (c *Conn) Prove() {
	c.limit.mu.Lock()
	defer c.limit.mu.Unlock()
	c.proveLocked()
}

func (c *Conn) proveLocked() {
	if c.stranger {
		c.stranger = false
		c.timer.Stop()
	}
}

// expire closes a connection that has not proven itself in time.
func (c *Conn) expire() {
	c.limit.mu.Lock()
	late := c.stranger // else it was proven or closed just now
	if late {
		c.limit.freeLocked(c)
	}
	c.limit.mu.Unlock()
	if !late {
		return
	}
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // what was not sent is dropped: the kernel would keep trying for minutes
	}
	_ = c.Conn.Close() // reads and writes fail from now on
	c.limit.opts.Refused(Timeout, c.RemoteAddr().String())
}

// Close implements [net.Conn], and frees the place.
func (c *Conn) Close() error {
	c.limit.mu.Lock()
	c.limit.freeLocked(c)
	c.limit.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite lets net/http finish an answer before it closes the connection.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Read implements [net.Conn].
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.note(n > 0, err)
	return n, err
}

// Write implements [net.Conn].
func (c *Conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if err != nil {
		c.note(false, err)
	}
	return n, err
}

// note counts the first deadline that passed within a request, not on connections without data, which browsers open.
func (c *Conn) note(heard bool, err error) {
	c.mu.Lock()
	c.heard = c.heard || heard
	passed := errors.Is(err, os.ErrDeadlineExceeded) && c.heard && !c.idle && !c.abort && !c.slow
	c.slow = c.slow || passed
	c.mu.Unlock()
	if passed {
		c.limit.opts.Refused(Timeout, c.RemoteAddr().String())
	}
}

// SetReadDeadline implements [net.Conn]. net/http aborts its reads with a deadline long ago.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	c.abort = !t.IsZero() && time.Since(t) > time.Hour
	c.mu.Unlock()
	return c.Conn.SetReadDeadline(t)
}

// State is for [http.Server.ConnState]: a connection that waits for its next request is not counted as timed out.
func State(c net.Conn, state http.ConnState) {
	if c := Of(c); c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.idle = state == http.StateIdle
	}
}
