package probe

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/railscope/railscope/probe/internal/target"
)

// How long to wait before listening is retried.
const (
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
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

// newControlListener returns the listener that accepts on l, or retries after err if that is nil, once it is started.
func newControlListener(address string, l net.Listener, err error, s *Service) *controlListener {
	c := &controlListener{address: address, service: s, l: l}
	c.ctx, c.stop = context.WithCancel(context.Background())
	if l == nil {
		s.events.Stopped(err)
	}
	return c
}

// start passes connections to the server until the listener is closed.
func (c *controlListener) start(server *target.Server) {
	c.running.Go(func() { c.run(server) })
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

// run serves, and listens again after an error, until the listener is closed.
func (c *controlListener) run(server *target.Server) {
	wait := firstRetry // before the next try to listen
	for c.ctx.Err() == nil {
		if l := c.current(); l != nil {
			err := server.Serve(l) // retries what passes, such as too many open files
			if c.ctx.Err() == nil {
				wait = firstRetry
				c.set(nil)
				c.service.events.Stopped(err)
			}
			continue
		}
		select {
		case <-time.After(wait):
		case <-c.ctx.Done():
			return
		}
		wait = min(2*wait, lastRetry)
		if l, err := c.service.listen(c.address); err == nil { // the first error was reported
			c.set(l)
			c.announce()
		}
	}
}
