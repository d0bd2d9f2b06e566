package http

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/mdlayher/vsock"
	"github.com/prometheus/exporter-toolkit/web"

	"github.com/railscope/railscope/exporter/scrape"
	"github.com/railscope/railscope/exporter/table"
	"github.com/railscope/railscope/internal/connlimit"
	"github.com/railscope/railscope/internal/sysfs"
	"github.com/railscope/railscope/internal/systemd"
)

// shutdownWait is how long in-flight scrapes may take at shutdown.
const shutdownWait = 10 * time.Second

// Limits of the web port per client, and on the connections of all clients unless [Options] say otherwise.
const (
	requestTime = 10 * time.Second // time for a request to arrive, including its body
	answerTime  = time.Minute      // time for a response to be made and read
	idleTime    = 5 * time.Minute  // time between two requests on a connection
	maxHeader   = 32 << 10         // bytes; a proxy's cookies may be long
	maxBody     = 64 << 10         // bytes; no request needs one

	DefaultMaxConnections = 512
)

// Serve binds the addresses of flags, reads every source once, reports that it is ready, and serves until ctx is
// done. In-flight scrapes then finish, and Serve returns nil. An error is one line: what failed, and how to fix it.
func Serve(ctx context.Context, handler *Server, flags *web.FlagConfig, logger *slog.Logger) error {
	listeners, err := listen(flags, logger)
	if err != nil {
		return listenError(err)
	}
	defer func() {
		for _, l := range listeners {
			_ = l.Close() // listeners that were served are already closed
		}
	}()
	up := make(chan struct{})
	isUp := sync.OnceFunc(func() { close(up) })
	var unused sync.Map // connections without a request: browsers open some, and Shutdown would wait 5 s for each
	server := newHTTPServer(handler, logger)
	server.BaseContext = func(net.Listener) context.Context { // called when a listener is served
		isUp()
		return context.Background()
	}
	server.ConnState = func(c net.Conn, state http.ConnState) {
		connlimit.State(c, state)
		if state == http.StateNew {
			unused.Store(c, nil)
		} else {
			unused.Delete(c)
		}
	}
	server.RegisterOnShutdown(handler.Close) // streams do not end by themselves
	server.RegisterOnShutdown(func() {
		unused.Range(func(c, _ any) bool {
			_ = c.(net.Conn).Close() // no request was sent on it
			return true
		})
	})
	if file := *flags.WebConfigFile; file != "" {
		refused := func(address string) { handler.scraper.Refuse(scrape.RefusedLogin, address) }
		if err := (&webFile{path: file}).protect(server, logger, refused); err != nil {
			return listenError(err)
		}
	}
	limit := connlimit.New(connlimit.Options{Connections: affordable(handler.opts.MaxConnections, logger),
		Refused: handler.scraper.Refuse})
	failed := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { failed <- serveOn(limit.Listener(l), server, logger) }()
	}
	select {
	case err := <-failed:
		return listenError(err)
	case <-ctx.Done():
	case <-up:
		if err := handler.run(ctx, failed, logger); err != nil {
			return listenError(err)
		}
	}
	handler.stop(server, logger)
	return nil
}

func serveOn(l net.Listener, server *http.Server, logger *slog.Logger) error {
	logger.Info("Listening on", "address", l.Addr().String(), "tls", server.TLSConfig != nil)
	if server.TLSConfig != nil {
		return server.ServeTLS(l, "", "")
	}
	return server.Serve(l)
}

func (s *Server) run(ctx context.Context, failed <-chan error, logger *slog.Logger) error {
	s.scraper.Update(nil, 0, func(*table.Table, map[string]string) {}) // changes are counted from here
	s.ready.Store(true)
	systemd.Ready()
	logger.Info("Serving", "version", s.scraper.Info().Version)
	defer systemd.Watchdog(s.scraper.Alive)()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

func (s *Server) stop(server *http.Server, logger *slog.Logger) {
	s.ready.Store(false)
	systemd.Stopping()
	logger.Info("Stopping: in-flight scrapes finish first", "at_most", shutdownWait)
	grace, cancel := context.WithTimeout(context.Background(), shutdownWait)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		logger.Warn("Stopping with scrapes in flight", "waited", shutdownWait, "reading", s.scraper.Reading())
		_ = server.Close() // their clients see the connection close
	}
}

func affordable(connections int, logger *slog.Logger) int {
	const otherDescriptors = 128 // reserved for the probe port, the worker and files that are opened briefly
	most := max(sysfs.Reserve()-otherDescriptors, 16)
	if connections > most {
		logger.Warn("Connections are limited below --web.max-connections by the file descriptor limit",
			"connections", most, "asked", connections, "fix", "raise LimitNOFILE= of the unit, or ulimit -n")
		return most
	}
	return connections
}

// newHTTPServer returns a server without HTTP/2. With HTTP/2, clients control how many responses wait for them in
// memory: 512 connections with windows of 0 took 290 MB. Scrapes, pages and commands do not need it.
func newHTTPServer(handler http.Handler, logger *slog.Logger) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: requestTime, ReadTimeout: requestTime, WriteTimeout: answerTime,
		IdleTimeout: idleTime, MaxHeaderBytes: maxHeader, Protocols: &protocols,
		ConnState: connlimit.State, ErrorLog: newServerLog(logger),
	}
}

func listenError(err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w: another program uses the port; stop it, or choose another with --web.listen-address",
			err)
	}
	return fmt.Errorf("cannot listen: %w (see --web.listen-address and --web.config.file)", err)
}

// listen opens the addresses of the flags, or takes systemd's sockets. exporter-toolkit's listeners have no limits.
func listen(flags *web.FlagConfig, logger *slog.Logger) ([]net.Listener, error) {
	if flags.WebSystemdSocket != nil && *flags.WebSystemdSocket {
		logger.Info("Listening on the sockets of systemd")
		list, err := activation.Listeners()
		if err == nil && len(list) == 0 {
			err = errors.New("no sockets from systemd: start railscope by its socket unit or without " +
				"--web.systemd-socket")
		}
		return list, err
	}
	var list []net.Listener
	for _, address := range *flags.WebListenAddresses {
		l, err := listenOn(address)
		if err != nil {
			for _, l := range list {
				_ = l.Close() // not served yet
			}
			return nil, err
		}
		list = append(list, l)
	}
	return list, nil
}

// listenOn opens a TCP address, or vsock://:PORT for the host of a virtual machine.
func listenOn(address string) (net.Listener, error) {
	if !strings.HasPrefix(address, "vsock://") {
		return net.Listen("tcp", address)
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(u.Port(), 10, 32)
	if err != nil {
		return nil, fmt.Errorf("%s: invalid port: %w", address, err)
	}
	return vsock.Listen(uint32(port), nil)
}

// newServerLog returns a log for net/http. Each kind of line, identified by its first three words, is logged once
// until it stops.
func newServerLog(logger *slog.Logger) *log.Logger {
	kinds := connlimit.NewRefusals(func(_, text string) {
		logger.Warn("Web server reports (logged once until it stops)", "err", text)
	})
	return log.New(writer(func(line []byte) {
		text := strings.TrimSpace(string(line))
		if strings.HasPrefix(text, "http: panic") { // a fault in our own code
			logger.Error("Web server panicked", "err", text)
			return
		}
		words := strings.Fields(text)
		kinds.Count(strings.Join(words[:min(len(words), 3)], " "), text)
	}), "", 0)
}

// writer is an [io.Writer] that never fails.
type writer func([]byte)

func (w writer) Write(b []byte) (int, error) {
	w(b)
	return len(b), nil
}
