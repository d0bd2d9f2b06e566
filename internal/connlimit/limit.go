// Package connlimit limits the cost of a server's connections.
//
// A [Limit] accepts every connection, and closes and counts those beyond a limit at once: a listener that stops
// accepting leaves clients in the backlog, where neither they nor the operator see why they get no response.
//
// If connections must prove themselves, an unproven connection is closed after a fixed time, whatever the state of
// its request. Deadlines that net/http sets cannot extend that time. Unproven connections displace each other,
// never a proven one.
package connlimit

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Reasons why a connection was refused, or closed before its response.
const (
	Connections = "connections" // all places are taken
	Address     = "address"     // one address has half of the places
	Timeout     = "timeout"     // a request did not arrive, or a response was not read, in time
)

// Options configure a [Limit].
type Options struct {
	Connections int // limit of open connections; one address may have half of them

	// Strangers limits the unproven connections; one more closes the oldest. 0: connections need not prove
	// themselves.
	Strangers    int
	StrangerTime time.Duration // time after which an unproven connection is closed
	Work         float64       // share of a core that unproven connections may take together; 0: all of it

	// Refused is called for each connection that is refused or timed out. It must not block or call the limit.
	Refused func(reason, from string)
}

// Limit limits the connections of one or more listeners. Safe for concurrent use.
type Limit struct {
	opts Options

	mu    sync.Mutex // protects all following fields
	open  []*Conn    // oldest first
	known map[netip.Prefix]time.Time
	work  work
}

// New returns a limit without connections.
func New(o Options) *Limit {
	if o.Refused == nil {
		o.Refused = func(string, string) {}
	}
	return &Limit{opts: o, known: map[netip.Prefix]time.Time{}, work: work{share: o.Work}}
}

// Open returns the number of open connections, and how many of them are unproven.
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

// Listener returns inner with the limits of l.
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

// Admit gives c a place, or closes it and returns nil. The place is free again when the returned connection is
// closed.
func (l *Limit) Admit(c net.Conn) net.Conn {
	made, displaced, reason := l.place(c)
	if displaced != nil {
		_ = displaced.Conn.Close() // reads and writes fail from now on
		l.opts.Refused(reason, displaced.RemoteAddr().String())
	}
	if made == nil {
		_ = c.Close() // nothing was sent that could be lost
		l.opts.Refused(reason, c.RemoteAddr().String())
		return nil
	}
	return made
}

// place gives c a place, if necessary that of an unproven connection.
func (l *Limit) place(c net.Conn) (made, displaced *Conn, reason string) {
	from := addressOf(c.RemoteAddr())
	l.mu.Lock()
	defer l.mu.Unlock()
	own, unproven := 0, 0
	strangers := map[netip.Prefix]int{from: 0}
	for _, o := range l.open {
		if o.from == from {
			own++
		}
		if o.stranger {
			unproven++
			strangers[o.from]++
		}
	}
	most := -knownStrangers
	for of, n := range strangers {
		if l.knows(of) {
			n -= knownStrangers
		}
		strangers[of], most = n, max(most, n)
	}
	var fits func(from netip.Prefix) bool // reports whether the address' oldest unproven connection may be displaced
	switch {
	case from.IsValid() && own >= max(l.opts.Connections/2, 1):
		reason, fits = Address, func(of netip.Prefix) bool { return of == from }
	case len(l.open) >= l.opts.Connections, l.opts.Strangers > 0 && unproven >= l.opts.Strangers:
		// The address with the most: one that opens many does not displace others.
		reason, fits = Connections, func(of netip.Prefix) bool { return strangers[of] == most }
	}
	if reason != "" {
		i := slices.IndexFunc(l.open, func(o *Conn) bool { return o.stranger && fits(o.from) && !l.serves(o) })
		if i < 0 && strangers[from]+1 < most { // it is not of those that flood
			i = slices.IndexFunc(l.open, func(o *Conn) bool { return o.stranger && fits(o.from) })
		}
		if i < 0 {
			return nil, nil, reason
		}
		displaced = l.open[i]
		l.freeLocked(displaced)
	}
	made = &Conn{Conn: c, limit: l, from: from, since: time.Now()}
	l.open = append(l.open, made)
	if l.opts.Strangers > 0 {
		made.stranger = true
		made.works.Store(l.opts.Work > 0)
		made.timer = time.AfterFunc(l.opts.StrangerTime, made.expire)
	}
	return made, displaced, reason
}

func (l *Limit) freeLocked(c *Conn) {
	c.freed = true
	c.leaveStrangersLocked(false)
	l.open = slices.DeleteFunc(l.open, func(o *Conn) bool { return o == c })
}

// addressOf returns the IPv4 address, or /64 of IPv6, that owns a place; invalid for other networks.
func addressOf(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	return place(tcp.AddrPort().Addr())
}

// Place returns the owner of the places of a client's address in net/http's form; invalid for networks other than
// TCP.
func Place(address string) netip.Prefix {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return netip.Prefix{}
	}
	return place(at.Addr())
}

func place(ip netip.Addr) netip.Prefix {
	ip = ip.Unmap().WithZone("")
	prefix, _ := ip.Prefix(min(ip.BitLen(), 64)) // cannot fail
	return prefix
}

// Quiet is the time without a reason after which it is reported again.
const Quiet = 3 * time.Minute

// Refusals counts refusals by reason, and reports the first of each. Safe for concurrent use.
type Refusals struct {
	report  func(reason, from string)
	reasons []string

	mu    sync.Mutex // protects all following fields
	count map[string]uint64
	last  map[string]time.Time
}

// NewRefusals returns counts of 0. If report is not nil, it is called with a reason's first refusal after [Quiet].
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

// Each calls fn with every reason and its count, in order. fn must not call Count.
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

	works atomic.Bool // it needs turns to work

	// Protected by limit.mu.
	since    time.Time
	stranger bool          // not proven yet
	freed    bool          // it has no place any more
	turn     chan struct{} // closed when it may work; nil: it does not wait
	worked   time.Duration
	timer    *time.Timer // timer of an unproven connection

	mu    sync.Mutex // protects all following fields
	heard bool       // data has arrived
	idle  bool       // no request is being read or answered
	abort bool       // net/http is aborting its read
	slow  bool       // already counted as timed out
}

// Of returns the connection of this package below c, which may be TLS; nil if there is none.
func Of(c net.Conn) *Conn {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = t.NetConn()
	}
	of, _ := c.(*Conn)
	return of
}

// Prove exempts the connection from the limits of unproven connections.
func (c *Conn) Prove() {
	c.limit.mu.Lock()
	defer c.limit.mu.Unlock()
	c.leaveStrangersLocked(true)
}

func (c *Conn) leaveStrangersLocked(proven bool) {
	if !c.stranger {
		return
	}
	c.stranger = false
	c.timer.Stop()
	c.limit.leaveLocked(c, proven)
	if proven {
		c.works.Store(false)
		c.limit.rememberLocked(c.from)
	}
}

// expire closes a connection that has not proven itself in time.
func (c *Conn) expire() {
	c.limit.mu.Lock()
	late := c.stranger // false if it was proven or closed just now
	if late {
		c.limit.freeLocked(c)
	}
	c.limit.mu.Unlock()
	if !late {
		return
	}
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // drop unsent data, which the kernel would retransmit for minutes
	}
	_ = c.Conn.Close() // reads and writes fail from now on
	c.limit.opts.Refused(Timeout, c.RemoteAddr().String())
}

// Close implements [net.Conn], and frees the place.
func (c *Conn) Close() error {
	c.limit.mu.Lock()
	c.limit.freeLocked(c)
	c.limit.mu.Unlock()
	if c.works.Load() {
		c.limit.end(c)
	}
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
	if c.works.Load() {
		c.limit.end(c)
	}
	n, err := c.Conn.Read(b)
	c.note(n > 0, err)
	if n > 0 && c.works.Load() && !c.limit.begin(c) {
		return 0, net.ErrClosed
	}
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

// note counts the first deadline that passes within a request. Connections without data do not count, because
// browsers open them.
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

// SetReadDeadline implements [net.Conn]. net/http aborts its reads with a deadline far in the past.
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
