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
	connectTimeout = 5 * time.Second // limit for a lane, from the first SYN to the last proof
	userTimeout    = 5 * time.Second // TCP_USER_TIMEOUT: limit for an acknowledgement by the peer's kernel
	handshakeTries = 4               // a flood of the target's port may displace this stream
)

// Dial connects to a target over all lanes at once. The streams of a lane share its memory bytes at the target.
// failures has one element per lane, nil if it is connected. Dial takes a bounded time; the lanes outlive ctx.
func Dial(ctx context.Context, lanes []Lane, streams int, memory int64, key [32]byte) (c *Conn,
	failures []*failure.Failure) {
	c, failures = &Conn{}, make([]*failure.Failure, len(lanes))
	var wg sync.WaitGroup
	for i, at := range lanes {
		l := &lane{Lane: at, ring: memory / int64(max(streams, 1))}
		c.lanes = append(c.lanes, l)
		if streams < 1 || streams > MaxConns/len(lanes) {
			failures[i] = l.fail(failure.New(failure.StageConnect, failure.Other,
				"%d streams on each of %d lanes: a target accepts %d connections", streams, len(lanes), MaxConns))
			continue
		}
		wg.Go(func() {
			if err := l.dial(ctx, uint32(i), streams, key); err != nil {
				failures[i] = l.fail(notConnected(err))
			}
		})
	}
	wg.Wait()
	return c, failures
}

func (l *lane) dial(ctx context.Context, number uint32, streams int, key [32]byte) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
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
			if err = l.addStream(ctx, conn, key, number, uint32(i)); err == nil {
				break
			}
			if try >= handshakeTries || !displaced(err) || ctx.Err() != nil {
				return fmt.Errorf("%v accepted the connection, then: %w", l.Remote, err)
			}
			time.Sleep(time.Duration(try) * 20 * time.Millisecond)
		}
	}
	return nil
}

// displaced reports whether the target closed a connection before its proof.
func displaced(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE)
}

// addStream adds a connection as a stream after both ends have proved themselves, or else closes it.
func (l *lane) addStream(ctx context.Context, conn *net.TCPConn, key [32]byte, lane, number uint32) (err error) {
	defer func() {
		if err != nil {
			_ = conn.Close()
		}
	}()
	s := &stream{conn: conn, out: conn, timeout: ackTimeout}
	if l.Through != nil {
		s.out = l.Through(conn)
	}
	s.raw, err = conn.SyscallConn()
	if err != nil {
		return err
	}
	// Closing drops unsent bytes: those of an ended lane must not arrive in the target's buffer later.
	if err := conn.SetLinger(0); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	err = handshake(conn, key, newNonce(), lane, number)
	if !stop() {
		return ctx.Err()
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken != nil { // broken during the handshake
		return l.broken
	}
	l.streams = append(l.streams, s)
	return nil
}

// tune sets socket options before connecting.
func tune(raw syscall.RawConn, netdev string) error {
	var err error
	control := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds()))
		if netdev != "" {
			// For two rails in one subnet the routes choose one, whatever the socket's address. Without permission
			// (EPERM) or in another network namespace (ENODEV) the routes decide.
			_ = unix.BindToDevice(int(fd), netdev)
		}
	})
	return errors.Join(control, err) // Go sets TCP_NODELAY itself
}

// notConnected returns the failure of a lane that did not connect.
func notConnected(err error) *failure.Failure {
	reason := failure.TCPBroken
	timeout, isNet := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, context.Canceled):
		reason = failure.Canceled
	case errors.Is(err, unix.ECONNREFUSED):
		reason = failure.TCPRefused
	case errors.Is(err, unix.EADDRNOTAVAIL):
		reason = failure.NoAddress
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH), errors.Is(err, context.DeadlineExceeded),
		isNet && timeout.Timeout():
		reason = failure.TCPUnreachable
	}
	return failure.New(failure.StageConnect, reason, "%v", err)
}
