package demo

import (
	"io"
	"math"
	"sync"
	"time"
)

// What one packet of RoCE v2 over IPv4 holds, in bytes: payload at the simulated
// MTU, and Ethernet, IPv4, UDP, BTH and ICRC around it (IBTA 1.5, annex A17). A
// TCP segment on an interface of 9000 bytes, and what is around that.
const (
	rocePayload, roceHeader = 4096, 58
	tcpPayload, tcpHeader   = 8948, 66
)

// tcpPart is how much of a rail TCP gets: a kernel's stack does not fill a fast
// link with one connection.
const tcpPart = 0.4

// How much is passed on in one piece, what of it is too little to tell of
// anything, and how long a sender that has more to send takes for it.
const (
	piece = 64 << 10
	small = rocePayload      // a message of less is over before anybody can be late
	slack = time.Millisecond // from one piece to the next
)

// traffic is what a port has carried in one direction.
type traffic struct{ bytes, packets uint64 }

func (t *traffic) add(bytes, packets uint64) { t.bytes, t.packets = t.bytes+bytes, t.packets+packets }

// port is one node's end of a link.
type port struct {
	sent, received       [2]traffic // by transport
	marked, cnps, slowed uint64     // packets with the mark of congestion, notifications of it sent and received
	paused               traffic    // pause frames, and microseconds in place of bytes
	down                 bool
}

// The transports, as indices.
const (
	byRDMA = iota
	byTCP
)

// link is what joins one rail of one node with the same of the other: full
// duplex, shaped, and counted at both ends.
type link struct {
	rate float64 // bytes per second on the wire in one direction, headers and all

	mu    sync.Mutex // protects all following fields
	ports [nodes]port
	free  [nodes]time.Time     // when the wire has carried what was sent so far, by sender
	late  [nodes]time.Duration // by how much senders came later than they were told to
}

// carry counts payload that one node sends, in whole packets.
func (l *link) carry(from, transport int, payload float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	bytes, packets := onWire(transport, payload)
	l.ports[from].sent[transport].add(bytes, packets)
	l.ports[1-from].received[transport].add(bytes, packets)
}

// onWire is what payload comes to on the wire.
func onWire(transport int, payload float64) (bytes, packets uint64) {
	each, header := rocePayload, roceHeader
	if transport == byTCP {
		each, header = tcpPayload, tcpHeader
	}
	packets = uint64(math.Ceil(payload / float64(each)))
	return uint64(payload) + packets*uint64(header), packets
}

// reserve takes the wire for so many bytes, and returns how long that lasts from
// now on: what was sent before may still be under way. A sender that came late,
// because this machine had other things to do, finds the wire as it would have
// been had it come in time; one that had nothing to send finds it idle.
func (l *link) reserve(from int, bytes, rate float64) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if idle := now.Sub(l.free[from]); idle > l.late[from]+slack {
		l.free[from] = now
	}
	l.free[from] = l.free[from].Add(time.Duration(bytes / rate * float64(time.Second)))
	l.late[from] = max(now.Sub(l.free[from]), 0) // what is still to be made up for
	return l.free[from].Sub(now)
}

// delayed notes that a sender was held up for so long beyond what it was told.
func (l *link) delayed(from int, by time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late[from] = max(l.late[from], by)
}

// shaped passes on what is written no faster than the link carries it, and
// counts it at both ends.
type shaped struct {
	link      *link
	from      int
	transport int
	to        io.Writer
	before    func() // each piece
}

// Write implements [io.Writer]. It waits a few milliseconds at most at a time,
// so that a connection that is closed meanwhile ends it soon.
func (s *shaped) Write(p []byte) (n int, err error) {
	rate := s.link.rate
	if s.transport == byTCP {
		rate *= tcpPart
	}
	for len(p) > 0 {
		s.before()
		part := p[:min(len(p), piece)]
		start := time.Now()
		bytes, _ := onWire(s.transport, float64(len(part)))
		wait := s.link.reserve(s.from, float64(bytes), rate)
		if wait > 0 {
			time.Sleep(wait)
		}
		s.link.carry(s.from, s.transport, float64(len(part)))
		m, err := s.to.Write(part)
		if n += m; err != nil {
			return n, err
		}
		if len(part) > small {
			s.link.delayed(s.from, time.Since(start)-max(wait, 0))
		}
		p = p[len(part):]
	}
	return n, nil
}
