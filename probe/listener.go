package probe

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// How long a door waits before it tries to listen again, and before it accepts
// again after an error that passes, such as too many open files.
const (
	firstRetry  = time.Second
	lastRetry   = 30 * time.Second
	acceptRetry = 100 * time.Millisecond
)

// door is the listener of the control channel. It outlives the responders behind it, so that a reload closes no port,
// and it tries again when its address cannot be listened on.
type controlListener struct {
	address string // as configured
	service *Service
	up      atomic.Bool
	ctx     context.Context // done when it is closed
	stop    context.CancelFunc
	running sync.WaitGroup

	mu sync.Mutex // protects all following fields
	l  net.Listener
}

// openDoor returns the door at an address that was listened on with l, or not with err.
func newControlListener(address string, l net.Listener, err error, s *Service) *controlListener {
	d := &controlListener{address: address, service: s, l: l}
	d.ctx, d.stop = context.WithCancel(context.Background())
	d.up.Store(l != nil)
	if l == nil {
		s.events.Stopped(err)
	}
	d.running.Go(d.run)
	return d
}

// close closes the door. Connections that came in stay.
func (d *controlListener) close() {
	d.stop()
	d.mu.Lock()
	if d.l != nil {
		_ = d.l.Close() // nothing was written to it
	}
	d.mu.Unlock()
	d.running.Wait()
}

// announce tells where peers are answered, if they are.
func (d *controlListener) announce() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.up.Load() && d.l != nil {
		d.service.events.Answering(d.l.Addr())
	}
}

// run accepts, and listens again after the listener has died, until the door is closed.
func (d *controlListener) run() {
	for d.ctx.Err() == nil {
		d.mu.Lock()
		l := d.l
		d.mu.Unlock()
		if l == nil {
			d.relisten()
			continue
		}
		err := d.accept(l)
		_ = l.Close() // it is of no more use
		d.up.Store(false)
		d.mu.Lock()
		d.l = nil
		d.mu.Unlock()
		if d.ctx.Err() == nil {
			d.service.events.Stopped(err)
		}
	}
}

// accept hands on connections until the listener or the door ends.
func (d *controlListener) accept(l net.Listener) error {
	for {
		c, err := l.Accept()
		switch {
		case d.ctx.Err() != nil:
			if err == nil {
				_ = c.Close() // nobody is there any more to answer
			}
			return d.ctx.Err()
		case err != nil && isTemporary(err):
			d.wait(acceptRetry)
			continue
		case err != nil:
			return err
		}
		select {
		case d.service.conns <- c:
		case <-d.ctx.Done():
			_ = c.Close() // likewise
		}
	}
}

// passes reports whether an error of Accept says nothing of the listener.
func isTemporary(err error) bool {
	for _, errno := range []unix.Errno{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.ECONNABORTED,
		unix.ECONNRESET, unix.EINTR, unix.EAGAIN} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// reopen listens, however often it has to try.
func (d *controlListener) relisten() {
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		d.wait(wait)
		if d.ctx.Err() != nil {
			return
		}
		l, err := d.service.listen(d.address)
		if err != nil {
			continue // it was said when it began
		}
		d.mu.Lock()
		if d.ctx.Err() != nil {
			_ = l.Close() // close did not see it
			l = nil
		}
		d.l = l
		d.up.Store(l != nil)
		d.mu.Unlock()
		d.announce()
		return
	}
}

func (d *controlListener) wait(t time.Duration) {
	timer := time.NewTimer(t)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-d.ctx.Done():
	}
}

// tap is the listener of one responder: what comes through the door, while the responder is in force.
type responderListener struct {
	conns  <-chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newResponderListener(conns <-chan net.Conn) *responderListener {
	return &responderListener{conns: conns, closed: make(chan struct{})}
}

// Accept implements [net.Listener].
func (t *responderListener) Accept() (net.Conn, error) {
	select {
	case c := <-t.conns:
		return c, nil
	case <-t.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener]. The door stays open.
func (t *responderListener) Close() error {
	t.once.Do(func() { close(t.closed) })
	return nil
}

// Addr implements [net.Listener].
func (t *responderListener) Addr() net.Addr { return &net.TCPAddr{} }
