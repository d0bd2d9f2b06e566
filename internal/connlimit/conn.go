package connlimit

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"
)

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
