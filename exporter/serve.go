package exporter

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

	"github.com/railscope/railscope/internal/systemd"
)

// shutdownWait is how long running scrapes may take to end at shutdown.
const shutdownWait = 10 * time.Second

// Serve binds the addresses of flags, reads every source once, reports ready,
// and serves until ctx is done. Then it ends the streams of open pages, lets
// running scrapes end and returns nil. An error says in one line what could not be bound or read, and what to
// do.
func Serve(ctx context.Context, handler *Server, flags *web.FlagConfig, logger *slog.Logger) error {
	var bound atomic.Int32
	up := make(chan struct{})
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 5 * time.Minute,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
		BaseContext: func(net.Listener) context.Context { // called once for each listener that is bound
			if bound.Add(1) == 1 {
				close(up)
			}
			return context.Background()
		},
	}
	server.RegisterOnShutdown(handler.Close) // streams have no end of their own
	spare := spareConns{list: map[net.Conn]bool{}}
	server.ConnState = spare.note
	server.RegisterOnShutdown(spare.close)
	failed := make(chan error, 1)
	go func() { failed <- web.ListenAndServe(server, flags, logger) }()
	select {
	case err := <-failed:
		return cannotListen(err)
	case <-ctx.Done():
	case <-up:
		handler.scraper.UseText(func([]byte) {}) // the first read: what changes is counted from here
		handler.SetReady(true)
		systemd.Ready()
		logger.Info("Serving", "version", handler.scraper.opts.Info.Version)
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
	logger.Info("Stopping: running scrapes are let to end", "at_most", shutdownWait)
	grace, cancel := context.WithTimeout(context.Background(), shutdownWait)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		return fmt.Errorf("stop: scrapes were still running after %v: %w", shutdownWait, err)
	}
	return nil
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
