package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	proving  = 5 * time.Second       // a connection that has not proved itself by then is closed
	breather = 50 * time.Millisecond // between two accepts of which the first failed
)

// Target lets others who know a key write into a buffer. Close it.
type Target struct {
	buf       []byte
	key       [32]byte
	grant     *grant
	listeners []*net.TCPListener // as asked for; nil where that was not possible
	stop      func() bool        // watching the context
	proving   time.Duration      // that a connection has to prove itself
	wg        sync.WaitGroup

	mu      sync.Mutex // protects all following fields
	closed  bool
	waiting waiting
	proven  map[*net.TCPConn]struct{}
}

// Listen lets askers who know key write into buf, on a free port of each of
// addrs, or of all addresses when addrs is nil, until ctx ends, the target is
// closed or somebody wants to write more than granted bytes. Where it cannot
// listen the error says so, and the others work; the target is nil only when
// there are none. Others may read buf at any time, and see what has been
// acknowledged to the asker.
func Listen(ctx context.Context, addrs []netip.Addr, buf []byte, key [32]byte, granted int64) (*Target, error) {
	return listen(ctx, addrs, buf, key, granted, proving)
}

// listen is [Listen] with another time in which connections prove themselves.
func listen(
	ctx context.Context, addrs []netip.Addr, buf []byte, key [32]byte, granted int64, proving time.Duration,
) (*Target, error) {
	t := &Target{buf: buf, key: key, grant: newGrant(granted), proving: proving, proven: map[*net.TCPConn]struct{}{}}
	var config net.ListenConfig
	config.SetMultipathTCP(false) // which path a connection takes is for the asker to choose
	where := []string{":0"}
	if addrs != nil {
		where = where[:0]
	}
	for _, a := range addrs {
		where = append(where, netip.AddrPortFrom(a, 0).String())
	}
	var errs []error
	for _, w := range where {
		l, err := config.Listen(ctx, "tcp", w)
		if err != nil {
			errs = append(errs, fmt.Errorf("tcp target: %w", err))
			t.listeners = append(t.listeners, nil)
			continue
		}
		t.listeners = append(t.listeners, l.(*net.TCPListener))
	}
	if len(errs) == len(where) {
		return nil, errors.Join(append(errs, errors.New("tcp target: no address to listen on"))...)
	}
	t.stop = context.AfterFunc(ctx, t.shut)
	for _, l := range t.listeners {
		if l != nil {
			t.wg.Go(func() { t.accept(l) })
		}
	}
	return t, errors.Join(errs...)
}

// Addrs returns where the target listens, in the order that was asked for; the
// zero AddrPort where it cannot. When it listens on all addresses that is one
// element, of which only the port means anything.
func (t *Target) Addrs() []netip.AddrPort {
	addrs := make([]netip.AddrPort, len(t.listeners))
	for i, l := range t.listeners {
		if l != nil {
			addrs[i] = l.Addr().(*net.TCPAddr).AddrPort()
		}
	}
	return addrs
}

// Taken returns how many bytes of payload were written into the buffer, and
// whether somebody wanted to write more than granted. While connections are open
// it includes what is still arriving.
func (t *Target) Taken() (bytes int64, exceeded bool) {
	return t.grant.taken(), t.grant.exceeded.Load()
}

// Close closes all connections and listeners. When it returns nothing more is
// written into the buffer. It may be called twice.
func (t *Target) Close() {
	t.stop()
	t.shut()
	t.wg.Wait()
}

// shut closes everything and waits for nothing.
func (t *Target) shut() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for _, l := range t.listeners {
		if l != nil {
			_ = l.Close()
		}
	}
	for _, u := range t.waiting {
		_ = u.conn.Close()
	}
	for c := range t.proven {
		_ = c.Close()
	}
}

func (t *Target) accept(l *net.TCPListener) {
	for {
		c, err := l.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(breather) // out of file descriptors, and soon maybe not any more
			continue
		}
		if !t.serve(c) {
			_ = c.Close()
		}
	}
}

// serve starts to serve a connection.
func (t *Target) serve(c *net.TCPConn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	if oldest := t.waiting.add(c); oldest != nil {
		_ = oldest.SetLinger(0) // no TIME_WAIT for a flood
		_ = oldest.Close()
	}
	t.wg.Go(func() {
		err := t.talk(c)
		_ = c.Close()
		t.mu.Lock()
		t.waiting.remove(c)
		delete(t.proven, c)
		t.mu.Unlock()
		if errors.Is(err, errGrant) {
			t.shut()
		}
	})
	return true
}

// admit takes a connection that has proved itself out of those that wait, unless
// there are too many.
func (t *Target) admit(c *net.TCPConn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || len(t.proven) >= MaxConns || !t.waiting.remove(c) {
		return false
	}
	t.proven[c] = struct{}{}
	return true
}

// talk serves a connection until it ends, and returns why. The asker notices
// itself, and whoever else was there is not worth a word.
func (t *Target) talk(c *net.TCPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	if err := errors.Join(tune(raw, ""), c.SetDeadline(time.Now().Add(t.proving))); err != nil {
		return err
	}
	s := socket{c, raw}
	if err := greet(s, t.key, nonce(), func() bool { return t.admit(c) }); err != nil {
		return err
	}
	if err := c.SetDeadline(time.Time{}); err != nil {
		return err
	}
	return receive(s, t.buf, t.grant)
}

// socket reads like the connection it is. But what it reads into the race
// detector does not take for a write: two lanes may both bring the bytes of one
// place, when a burst goes around the buffer or a lane's chunks are sent again
// on another. The bytes are the same, so the order is all the same.
type socket struct {
	*net.TCPConn
	raw syscall.RawConn
}

func (s socket) Read(p []byte) (n int, err error) {
	closed := s.raw.Read(func(fd uintptr) bool {
		for {
			n, _, err = unix.Recvfrom(int(fd), p, 0)
			if !errors.Is(err, unix.EINTR) {
				return !errors.Is(err, unix.EAGAIN)
			}
		}
	})
	switch {
	case closed != nil:
		return 0, closed
	case err != nil:
		return 0, err
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return n, nil
}
