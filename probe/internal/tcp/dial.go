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

	"github.com/railscope/railscope/probe/internal/failure"
)

const (
	connecting = 5 * time.Second // all of a lane, from the first SYN to the answer to the last preamble
	unheard    = 5 * time.Second // the kernel gives up a connection when the other's acknowledges nothing for this long
)

// Dial connects to a target over all lanes at once, each by as many streams.
// Lanes that cannot be had have a failure, the others nil; all lanes may have
// one. It takes a bounded time; when ctx ends later the lanes stay.
func Dial(ctx context.Context, lanes []Lane, streams int, key [32]byte) (*Conn, []*failure.Failure) {
	c, failures := &Conn{}, make([]*failure.Failure, len(lanes))
	var wg sync.WaitGroup
	for i, at := range lanes {
		l := &lane{Lane: at}
		c.lanes = append(c.lanes, l)
		if streams < 1 || streams > MaxConns/len(lanes) {
			failures[i] = l.fail(failure.New(failure.StageConnect, failure.Other,
				"%d streams on each of %d lanes: a target takes %d connections", streams, len(lanes), MaxConns))
			continue
		}
		wg.Go(func() {
			if err := l.dial(ctx, i, streams, key); err != nil {
				failures[i] = l.fail(whyNot(at, err))
			}
		})
	}
	wg.Wait()
	return c, failures
}

func (l *lane) dial(ctx context.Context, number, streams int, key [32]byte) error {
	ctx, cancel := context.WithTimeout(ctx, connecting)
	defer cancel()
	if l.Local.IsValid() && l.Local.Unmap().Is4() != l.Remote.Addr().Unmap().Is4() {
		return fmt.Errorf("%w: from %v to %v", unix.EADDRNOTAVAIL, l.Local, l.Remote)
	}
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error { return tune(raw, l.Netdev) }}
	d.SetMultipathTCP(false) // a lane is one path
	for i := range streams {
		for try := 1; ; try++ {
			conn, err := d.DialTCP(ctx, "tcp", netip.AddrPortFrom(l.Local, 0), l.Remote)
			if err != nil {
				return err
			}
			if err = l.adopt(ctx, conn, key, number, i); err == nil {
				break
			}
			if try >= introductions || !displaced(err) || ctx.Err() != nil {
				return fmt.Errorf("%v accepts the connection, and then: %w", l.Remote, err)
			}
			time.Sleep(time.Duration(try) * 20 * time.Millisecond)
		}
	}
	return nil
}

// introductions is how often a stream tries to prove itself: while strangers
// flood the target's port, it may be taken for one of them.
const introductions = 4

// displaced reports whether the target ended a connection before its proof.
func displaced(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE)
}

// adopt makes a stream of a connection, once both ends have proved themselves.
func (l *lane) adopt(ctx context.Context, conn *net.TCPConn, key [32]byte, number, i int) error {
	s := &stream{conn: conn, out: conn}
	if l.Through != nil {
		s.out = l.Through(conn)
	}
	if err := s.introduce(ctx, key, uint32(number), uint32(i)); err != nil {
		_ = conn.Close()
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken != nil { // while it came about
		_ = conn.Close()
		return l.broken
	}
	l.streams = append(l.streams, s)
	return nil
}

// introduce proves both ends to each other, as long as ctx lasts.
func (s *stream) introduce(ctx context.Context, key [32]byte, lane, number uint32) error {
	raw, err := s.conn.SyscallConn()
	if err != nil {
		return err
	}
	s.raw = raw
	// Closing drops what is not sent yet: bytes of a lane that was given up
	// must not turn up in the target's buffer later.
	if err := s.conn.SetLinger(0); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.conn.Close() })
	err = introduce(s.conn, key, nonce(), lane, number)
	if !stop() {
		return ctx.Err()
	}
	return err
}

// tune sets what a socket needs before it connects.
func tune(raw syscall.RawConn, netdev string) error {
	var err error
	control := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unheard.Milliseconds()))
		if netdev != "" {
			// Of two rails in one subnet the routes choose one, whatever the
			// socket's address. Where that may not be changed (EPERM) or the
			// interface is another's (ENODEV) the routes have to do.
			_ = unix.BindToDevice(int(fd), netdev)
		}
	})
	return errors.Join(control, err) // Go sets TCP_NODELAY itself
}

// whyNot names why a lane does not come about.
func whyNot(l Lane, err error) *failure.Failure {
	reason := failure.TCPBroken
	var timeout net.Error
	switch {
	case errors.Is(err, context.Canceled):
		reason = failure.Canceled
	case errors.Is(err, unix.ECONNREFUSED):
		reason = failure.TCPRefused
	case errors.Is(err, unix.EADDRNOTAVAIL):
		reason = failure.NoAddress
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH), errors.Is(err, context.DeadlineExceeded),
		errors.As(err, &timeout) && timeout.Timeout():
		reason = failure.TCPUnreachable
	}
	f := failure.New(failure.StageConnect, reason, "%v", err)
	f.Rail = l.Rail
	return f
}
