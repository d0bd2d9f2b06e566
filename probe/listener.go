package probe

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// How long to wait before listening is retried, and before connections are accepted again after a temporary error such
// as too many open files.
const (
	firstRetry  = time.Second
	lastRetry   = 30 * time.Second
	acceptRetry = 100 * time.Millisecond
)

// controlListener is the listener of the control channel. It outlives responders, so that a reload closes no port, and
// listens again if its address was not available.
type controlListener struct {
	address string // as configured
	service *Service
	ctx     context.Context // done when it is closed
	stop    context.CancelFunc
	running sync.WaitGroup

	mu sync.Mutex // protects all following fields
	l  net.Listener
}

// newControlListener accepts on l, or retries after err if that is nil.
func newControlListener(address string, l net.Listener, err error, s *Service) *controlListener {
	c := &controlListener{address: address, service: s, l: l}
	c.ctx, c.stop = context.WithCancel(context.Background())
	if l == nil {
		s.events.Stopped(err)
	}
	c.running.Go(c.run)
	return c
}

// close closes the listener. Accepted connections stay open.
func (c *controlListener) close() {
	c.stop()
	if l := c.current(); l != nil {
		_ = l.Close() // ends Accept
	}
	c.running.Wait()
}

// current is the listener; nil while it retries.
func (c *controlListener) current() net.Listener {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.l
}

// set sets the listener; nil to retry.
func (c *controlListener) set(l net.Listener) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l != nil && c.ctx.Err() != nil {
		_ = l.Close() // close did not see it
		l = nil
	}
	c.l = l
}

// announce reports the address on which peers are answered, if they are.
func (c *controlListener) announce() {
	if l := c.current(); l != nil {
		c.service.events.Answering(l.Addr())
	}
}

// run passes on connections, and listens again after an error, until the listener is closed.
func (c *controlListener) run() {
	wait := firstRetry // before the next try to listen
	for c.ctx.Err() == nil {
		l := c.current()
		if l == nil {
			c.wait(wait)
			wait = min(2*wait, lastRetry)
			if c.ctx.Err() != nil {
				break
			}
			if l, err := c.service.listen(c.address); err == nil { // the first error was reported
				c.set(l)
				c.announce()
			}
			continue
		}
		conn, err := l.Accept()
		switch {
		case err == nil:
			select {
			case c.service.conns <- conn:
			case <-c.ctx.Done():
				_ = conn.Close() // nobody answers any more
			}
		case c.ctx.Err() != nil:
		case isTemporary(err):
			c.wait(acceptRetry)
		default:
			wait = firstRetry
			_ = l.Close() // no longer used
			c.set(nil)
			c.service.events.Stopped(err)
		}
	}
}

// isTemporary reports whether Accept can succeed after this error.
func isTemporary(err error) bool {
	return slices.ContainsFunc([]unix.Errno{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.ECONNABORTED,
		unix.ECONNRESET, unix.EINTR, unix.EAGAIN}, func(errno unix.Errno) bool { return errors.Is(err, errno) })
}

func (c *controlListener) wait(t time.Duration) {
	select {
	case <-time.After(t):
	case <-c.ctx.Done():
	}
}

// responderListener passes the connections of a [controlListener] to one responder while its options apply.
type responderListener struct {
	conns <-chan net.Conn
	ctx   context.Context // done when it is closed
	stop  context.CancelFunc
}

func newResponderListener(conns <-chan net.Conn) *responderListener {
	ctx, stop := context.WithCancel(context.Background())
	return &responderListener{conns: conns, ctx: ctx, stop: stop}
}

// Accept implements [net.Listener].
func (l *responderListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener]. The control listener stays open.
func (l *responderListener) Close() error {
	l.stop()
	return nil
}

// Addr implements [net.Listener].
func (l *responderListener) Addr() net.Addr { return &net.TCPAddr{} }
