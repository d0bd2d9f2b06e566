// Package statussock is HTTP over a Unix socket in the state directory, by which commands on the same machine ask the
// running process. Its permissions are the authentication: the user of that process, and root.
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
	maxPath  = 107 // bytes, of sun_path without its end (unix(7))

	maxConnections = 16
	readTime       = 5 * time.Second
	answerTime     = 10 * time.Second // to make and to send an answer
	retryEvery     = 5 * time.Second
)

// URL begins the address of every request; the host is not used.
const URL = "http://railscope"

// ErrNotRunning is the error of a directory in which no process answers. It is always wrapped.
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

// Run answers until ctx is done, from the moment on when owned reports that this process holds the lock of the
// directory: a socket that exists then is that of a process that was killed. Run ends before the lock is released.
// report, which may be nil, is called with an error, once until it changes, and with nil when the socket is open.
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

// listen opens the socket, which only this user may connect to, and removes one that was left behind.
func (s *Server) listen(ctx context.Context) (net.Listener, error) {
	if len(s.path) > maxPath {
		return nil, fmt.Errorf("listen on %s: the path has more than %d bytes: use a shorter --state.dir", s.path, maxPath)
	}
	if info, err := os.Lstat(s.path); err == nil {
		if info.Mode().Type() != os.ModeSocket {
			return nil, fmt.Errorf("listen on %s: it exists and is no socket: remove it", s.path)
		}
		if err := os.Remove(s.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("remove the socket of an earlier process: %w", err)
		}
	}
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var chmod error
		// Before bind, so that it never has another mode (net/unix/af_unix.c, unix_bind_bsd).
		err := c.Control(func(fd uintptr) { chmod = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(err, chmod)
	}}
	l, err := config.Listen(ctx, "unix", s.path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", s.path, err)
	}
	return connlimit.New(connlimit.Options{Connections: maxConnections}).Listener(l), nil
}

// serve answers until ctx is done, or the listener fails.
func (s *Server) serve(ctx context.Context, l net.Listener) {
	srv := &http.Server{Handler: s.handler, ReadTimeout: readTime, WriteTimeout: answerTime, IdleTimeout: readTime,
		MaxHeaderBytes: 8 << 10}
	defer context.AfterFunc(ctx, func() { _ = srv.Close() })() // which removes the socket
	_ = srv.Serve(l)                                           // ends with an error, always
	_ = srv.Close()
}

// Client returns a client of the process that answers in dir. A request takes at most timeout. If none runs, its error
// wraps [ErrNotRunning].
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
