package http

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/common/expfmt"

	"github.com/railscope/railscope/exporter/page"
	"github.com/railscope/railscope/exporter/scrape"
)

// Server answers HTTP: the metrics, the live page, health, readiness and reload.
type Server struct {
	scraper *scrape.Scraper
	reload  func() error
	ready   atomic.Bool
	page    *page.Page // nil where the metrics are in its place
	mux     *http.ServeMux
	slow    slowAnswers

	maxConnections int
	lifecycle      bool
	sameSite       *http.CrossOriginProtection
}

// Options are what a [Server] needs beside the scraper.
type Options struct {
	TelemetryPath string       // of the metrics; at / they take the place of the page
	Reload        func() error // is called for a POST to /-/reload; its error is the answer
	Lifecycle     bool         // a reload may be asked for by HTTP

	MaxConnections int // of all clients; 0 is DefaultMaxConnections

	Logger *slog.Logger
	Node   string // as the page calls it; empty asks the kernel
	Notice string // the page shows it above everything; empty: nothing
	// Doctor looks at the node for the page, in bounded time; nil: nobody does.
	Doctor func(context.Context) ([]Finding, error)
}

// Finding is what doctor complains about.
type Finding = page.Finding

// New returns the handler. Close it when it has served.
func New(scraper *scrape.Scraper, opts Options) (*Server, error) {
	s := &Server{scraper: scraper, reload: opts.Reload, mux: http.NewServeMux(),
		maxConnections: cmp.Or(opts.MaxConnections, DefaultMaxConnections), lifecycle: opts.Lifecycle, sameSite: http.NewCrossOriginProtection()}
	path := opts.TelemetryPath
	if strings.HasSuffix(path, "/") {
		path += "{$}" // that path, not all below it
	}
	s.mux.HandleFunc("GET "+path, s.metrics)
	s.mux.HandleFunc("GET /-/healthy", func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, "railscope is up") })
	s.mux.HandleFunc("GET /-/ready", s.isReady)
	s.mux.HandleFunc("/-/reload", s.doReload)
	if path == page.Path {
		return s, nil
	}
	var err error
	pages := pageOptions(scraper, opts)
	pages.Refused = func(from string) { s.scraper.Refuse(scrape.RefusedStreams, from) }
	if s.page, err = page.New(pages); err != nil {
		return nil, err
	}
	s.page.Register(s.mux)
	return s, nil
}

// Close ends the streams of open pages, which otherwise have no end.
func (s *Server) Close() {
	if s.page != nil {
		s.page.Close()
	}
}

// SetReady makes /-/ready answer 200 or 503.
func (s *Server) SetReady(ready bool) { s.ready.Store(ready) }

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.ContentLength > maxBody:
		s.scraper.Refuse(scrape.RefusedBody, r.RemoteAddr)
		w.Header().Set("Connection", "close")
		say(w, http.StatusRequestEntityTooLarge, "the request has a body of more than "+strconv.Itoa(maxBody)+" bytes, and none is needed")
		return
	case r.Body == nil || r.Body == http.NoBody:
		// All of it has arrived. The limit for that would end a stream, too.
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	default:
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	}
	if r.URL.Path != page.PathEvents { // the page has limits of its own for its streams
		w = &answer{w, &s.slow}
	}
	s.mux.ServeHTTP(w, r)
}

// metrics serves the exposition. It is complete before the first byte leaves,
// so that a slow client holds up nobody.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	format := expfmt.NegotiateAccept(r.Header, expfmt.DefaultAcceptedFormats()...)
	compressed := acceptsGzip(r.Header)
	body, err := s.scraper.Exposition(format, compressed)
	if err != nil {
		say(w, http.StatusInternalServerError, err.Error())
		return
	}
	h := w.Header()
	h.Set("Content-Type", string(format))
	h.Add("Vary", "Accept")
	h.Add("Vary", "Accept-Encoding")
	if compressed {
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.Write(body) //nolint:errcheck // a client that has gone away is not our fault
}

func acceptsGzip(h http.Header) bool {
	for _, list := range h.Values("Accept-Encoding") {
		for coding := range strings.SplitSeq(list, ",") {
			name, params, _ := strings.Cut(strings.TrimSpace(coding), ";")
			if name == "gzip" && strings.TrimSpace(params) != "q=0" {
				return true
			}
		}
	}
	return false
}

func (s *Server) isReady(w http.ResponseWriter, _ *http.Request) {
	if s.ready.Load() {
		say(w, http.StatusOK, "ready")
		return
	}
	say(w, http.StatusServiceUnavailable, "not ready: the first read is not over, or railscope is stopping")
}

// doReload reads the configuration again for who may ask for it: not for a page
// of another site, which a browser within the network has open.
func (s *Server) doReload(w http.ResponseWriter, r *http.Request) {
	switch {
	case !s.lifecycle:
		say(w, http.StatusForbidden, "reload by HTTP is off: send SIGHUP (systemctl reload railscope), or start railscope with --web.enable-lifecycle")
		return
	case r.Method != http.MethodPost && r.Method != http.MethodPut:
		w.Header().Set("Allow", "POST, PUT")
		say(w, http.StatusMethodNotAllowed, "reload with POST: curl -X POST …/-/reload")
		return
	}
	if err := s.sameSite.Check(r); err != nil {
		s.scraper.Refuse(scrape.RefusedCrossSite, r.RemoteAddr)
		say(w, http.StatusForbidden, "reload refused: "+err.Error())
		return
	}
	if err := s.reload(); err != nil {
		say(w, http.StatusInternalServerError, "the configuration in force was kept: "+err.Error())
		return
	}
	say(w, http.StatusOK, "reloaded")
}

func say(w http.ResponseWriter, code int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	w.Write([]byte(text + "\n")) //nolint:errcheck // a client that has gone away is not our fault
}
