// Package statussock is HTTP over a Unix socket in the state directory, by which commands on the same machine query
// the running process. Only root and the process's own user may connect: the socket's permissions and the kernel's
// peer credentials enforce it.
package statussock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/connlimit"
)

const (
	fileName = "status.sock"
	maxPath  = 107 // bytes of sun_path without the final zero (unix(7))

	maxConnections = 16
	readTime       = 5 * time.Second
	answerTime     = 10 * time.Second // time to make and send a response
	retryEvery     = 5 * time.Second
)

// URL is the beginning of every request's address; the host is not used.
const URL = "http://railscope"

// ErrNotRunning is returned, always wrapped, if no process answers in the directory.
var ErrNotRunning = errors.New("no running railscope answers there")

// Server answers on the socket of a state directory.
type Server struct {
	path    string
	handler http.Handler
}

// New returns a server of the socket in dir.
func New(dir string, handler http.Handler) *Server {
	return &Server{path: filepath.Join(dir, fileName), handler: handler}
}

// Run serves until ctx is done. It starts when owned reports that this process holds the lock of the directory: a
// socket that then exists is left over from a process that was killed. Run ends before the lock is released. report
// may be nil. It is called once with an error until the error changes, and with nil when the socket is open.
func (s *Server) Run(ctx context.Context, owned func() bool, report func(error)) {
	last := ""
	for ctx.Err() == nil {
		if owned() {
			l, err := s.listen(ctx)
			if text := fmt.Sprint(err); text != last && report != nil {
				report(err)
				last = text
			}
			if err == nil {
				s.serve(ctx, l)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryEvery):
		}
	}
}

// listen opens the socket, to which only this user may connect, and removes one that was left behind.
func (s *Server) listen(ctx context.Context) (net.Listener, error) {
	if len(s.path) > maxPath {
		return nil, fmt.Errorf("listen on %s: the path has more than %d bytes: use a shorter --state.dir", s.path,
			maxPath)
	}
	if info, err := os.Lstat(s.path); err == nil {
		if info.Mode().Type() != os.ModeSocket {
			return nil, fmt.Errorf("listen on %s: the file is not a socket: remove it", s.path)
		}
		if err := os.Remove(s.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("remove the socket of an earlier process: %w", err)
		}
	}
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var chmod error
		// Before bind, so that the socket never has another mode (net/unix/af_unix.c, unix_bind_bsd).
		err := c.Control(func(fd uintptr) { chmod = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(err, chmod)
	}}
	l, err := config.Listen(ctx, "unix", s.path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", s.path, err)
	}
	own := ownClients{l.(*net.UnixListener), uint32(os.Geteuid())}
	return connlimit.New(connlimit.Options{Connections: maxConnections}).Listener(own), nil
}

// ownClients closes connections of users other than root and this process's user.
type ownClients struct {
	*net.UnixListener
	user uint32
}

func (l ownClients) mayAsk(client uint32) bool { return client == 0 || client == l.user }

func (l ownClients) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if client, err := userOf(c); err == nil && l.mayAsk(client) {
			return c, nil
		}
		_ = c.Close() // it gets no response
	}
}

// userOf returns the user of the process that connected (SO_PEERCRED of unix(7)).
func userOf(c *net.UnixConn) (uint32, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var got error
	err = raw.Control(func(fd uintptr) { cred, got = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, got); err != nil {
		return 0, err
	}
	return cred.Uid, nil
}

// serve serves until ctx is done or the listener fails.
func (s *Server) serve(ctx context.Context, l net.Listener) {
	srv := &http.Server{Handler: s.handler, ReadTimeout: readTime, WriteTimeout: answerTime, IdleTimeout: readTime,
		MaxHeaderBytes: 8 << 10}
	defer context.AfterFunc(ctx, func() { _ = srv.Close() })() // also removes the socket
	_ = srv.Serve(l)                                           // always returns an error
	_ = srv.Close()
}

// Client returns a client of the process that serves in dir. A request takes at most timeout. If no process runs,
// its error wraps [ErrNotRunning].
func Client(dir string, timeout time.Duration) *http.Client {
	path := filepath.Join(dir, fileName)
	return &http.Client{Timeout: timeout, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
			if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
				err = fmt.Errorf("%s: %w", path, ErrNotRunning)
			}
			return c, err
		},
	}}
}
