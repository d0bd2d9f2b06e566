package http

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/exporter-toolkit/web"

	"github.com/railscope/railscope/exporter/table"
	"github.com/railscope/railscope/internal/connlimit"
	"github.com/railscope/railscope/internal/sysfs"
	"github.com/railscope/railscope/internal/systemd"
)

// shutdownWait is how long running scrapes may take to end at shutdown.
const shutdownWait = 10 * time.Second

// What the web port allows a client, and how many connections all of them have
// unless [Options] say otherwise.
const (
	requestTime = 10 * time.Second // for a request to arrive, its body too
	answerTime  = time.Minute      // for an answer to be made and read
	idleTime    = 5 * time.Minute  // between two requests of a connection
	maxHeader   = 32 << 10         // bytes; a proxy's cookies may be long
	maxBody     = 64 << 10         // bytes; nothing that is asked needs one
	maxHTTP2    = 32               // requests at a time on a connection with HTTP/2

	DefaultMaxConnections = 512
)

// Serve binds the addresses of flags, reads every source once, reports ready,
// and serves until ctx is done. Then it ends the streams of open pages, lets
// in-flight scrapes finish for a while and returns nil. An error says in one line
// what could not be bound or read, and what to do.
func Serve(ctx context.Context, handler *Server, flags *web.FlagConfig, logger *slog.Logger) error {
	var bound atomic.Int32
	up := make(chan struct{})
	spare := spareConns{list: map[net.Conn]bool{}}
	server := newHTTPServer(handler, logger)
	server.BaseContext = func(net.Listener) context.Context { // called once for each listener that is bound
		if bound.Add(1) == 1 {
			close(up)
		}
		return context.Background()
	}
	server.ConnState = func(c net.Conn, state http.ConnState) {
		connlimit.State(c, state)
		spare.note(c, state)
	}
	server.RegisterOnShutdown(handler.Close) // streams have no end of their own
	server.RegisterOnShutdown(spare.close)
	listeners, err := listen(flags, logger)
	if err != nil {
		return cannotListen(err)
	}
	defer func() {
		for _, l := range listeners {
			_ = l.Close() // unless it was served, it is open
		}
	}()
	limit := connlimit.New(connlimit.Options{Connections: affordable(handler.maxConnections, logger), Refused: handler.scraper.Refuse})
	failed := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { failed <- web.Serve(limit.Listener(l), server, flags, logger) }()
	}
	select {
	case err := <-failed:
		return cannotListen(err)
	case <-ctx.Done():
	case <-up:
		handler.scraper.Update(nil, func(*table.Table, map[string]string) {}) // the first read: what changes is counted from here
		handler.SetReady(true)
		systemd.Ready()
		logger.Info("Serving", "version", handler.scraper.Info().Version)
		stop := systemd.Watchdog(handler.scraper.Alive)
		defer stop()
		select {
		case err := <-failed:
			return cannotListen(err)
		case <-ctx.Done():
		}
	}
	handler.SetReady(false)
	systemd.Stopping()
	logger.Info("Stopping: in-flight scrapes finish first", "at_most", shutdownWait)
	grace, cancel := context.WithTimeout(context.Background(), shutdownWait)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		logger.Warn("Stopping although scrapes have not finished", "waited", shutdownWait, "reading", handler.scraper.Reading())
		_ = server.Close() // their clients see the connection end
	}
	return nil
}

// otherDescriptors is what is left of the reserve for the probe port, the worker and
// files that are opened for a moment.
const otherDescriptors = 128

// affordable returns how many connections there are descriptors for.
func affordable(connections int, logger *slog.Logger) int {
	most := max(sysfs.Reserve()-otherDescriptors, 16)
	if connections > most {
		logger.Warn("Fewer connections than --web.max-connections: the limit on file descriptors leaves no room for more", "connections", most, "asked", connections,
			"fix", "raise LimitNOFILE= of the unit, or ulimit -n")
		return most
	}
	return connections
}

// newHTTPServer returns a server with the bounds of the web port on requests.
func newHTTPServer(handler http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: requestTime, ReadTimeout: requestTime, WriteTimeout: answerTime, IdleTimeout: idleTime,
		MaxHeaderBytes: maxHeader, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxHTTP2}, ConnState: connlimit.State,
		ErrorLog: newServerLog(logger),
	}
}

// spareConns are the connections on which nothing has come yet. Browsers open
// some for later, and net/http waits 5 s for each at shutdown.
type spareConns struct {
	mu   sync.Mutex
	list map[net.Conn]bool
}

func (s *spareConns) note(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state == http.StateNew {
		s.list[c] = true
	} else {
		delete(s.list, c)
	}
}

func (s *spareConns) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.list {
		_ = c.Close() // nobody has said anything on it
	}
}

func cannotListen(err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w: another program has that port; stop it, or choose one with --web.listen-address", err)
	}
	return fmt.Errorf("cannot listen: %w (see --web.listen-address and --web.config.file)", err)
}
