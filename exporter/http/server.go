// Package http answers the web port: the metrics, the live page, health, readiness and reload.
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

// Server answers HTTP requests.
type Server struct {
	scraper  *scrape.Scraper
	opts     Options
	ready    atomic.Bool
	page     *page.Page // nil when the metrics are at its path
	mux      *http.ServeMux
	slow     slowAnswers
	sameSite *http.CrossOriginProtection
}

// Options are what a [Server] needs besides the scraper.
type Options struct {
	TelemetryPath  string       // of the metrics; at / they replace the page
	Reload         func() error // called for a POST to /-/reload; its error is the answer
	Lifecycle      bool         // allow a reload by HTTP
	MaxConnections int          // of all clients; 0 is DefaultMaxConnections
	Logger         *slog.Logger
	Node           string // name of the node on the page; empty is the host's name
	Notice         string // shown at the top of the page; empty: none
	// Doctor examines the node for the page, in bounded time; nil: it is not examined.
	Doctor func(context.Context) ([]Finding, error)
}

// Finding is one finding of doctor.
type Finding = page.Finding

// New returns the handler. Close it after serving.
func New(scraper *scrape.Scraper, opts Options) (*Server, error) {
	opts.MaxConnections = cmp.Or(opts.MaxConnections, DefaultMaxConnections)
	s := &Server{scraper: scraper, opts: opts, mux: http.NewServeMux(), sameSite: http.NewCrossOriginProtection()}
	path := opts.TelemetryPath
	if strings.HasSuffix(path, "/") {
		path += "{$}" // that path, not all below it
	}
	s.mux.HandleFunc("GET "+path, s.metrics)
	s.mux.HandleFunc("GET /-/healthy", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, "railscope is up")
	})
	s.mux.HandleFunc("GET /-/ready", s.isReady)
	s.mux.HandleFunc("/-/reload", s.reload)
	if path == page.Path {
		return s, nil
	}
	var err error
	if s.page, err = page.New(pageOptions(scraper, opts)); err != nil {
		return nil, err
	}
	s.page.Register(s.mux)
	return s, nil
}

// Close ends the streams of open pages.
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
		answer(w, http.StatusRequestEntityTooLarge,
			"request body too large (limit "+strconv.Itoa(maxBody)+" bytes): no request needs one")
		return
	case r.Body == nil || r.Body == http.NoBody:
		// The request has arrived completely. Its deadline would end a stream, too.
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	default:
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	}
	if r.URL.Path != page.PathEvents { // the page limits its streams itself
		w = &slowAnswer{w, &s.slow}
	}
	s.mux.ServeHTTP(w, r)
}

// metrics serves the exposition. It is complete before the first byte is sent, so that a slow client delays nobody.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	format := expfmt.NegotiateAccept(r.Header, expfmt.DefaultAcceptedFormats()...)
	compressed := acceptsGzip(r.Header)
	body, err := s.scraper.Exposition(format, compressed)
	if err != nil {
		answer(w, http.StatusInternalServerError, "encode metrics: "+err.Error())
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
	w.Write(body) //nolint:errcheck // the client is gone
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
		answer(w, http.StatusOK, "ready")
		return
	}
	answer(w, http.StatusServiceUnavailable, "not ready: railscope is starting or stopping")
}

// reload applies the configuration again. It refuses pages of other sites: a browser within the network may have one
// open.
func (s *Server) reload(w http.ResponseWriter, r *http.Request) {
	switch {
	case !s.opts.Lifecycle:
		answer(w, http.StatusForbidden, "reload by HTTP is disabled: send SIGHUP (systemctl reload railscope), "+
			"or start railscope with --web.enable-lifecycle")
		return
	case r.Method != http.MethodPost && r.Method != http.MethodPut:
		w.Header().Set("Allow", "POST, PUT")
		answer(w, http.StatusMethodNotAllowed, "reload with POST: curl -X POST …/-/reload")
		return
	}
	if err := s.sameSite.Check(r); err != nil {
		s.scraper.Refuse(scrape.RefusedCrossSite, r.RemoteAddr)
		answer(w, http.StatusForbidden, "reload refused: "+err.Error())
		return
	}
	if err := s.opts.Reload(); err != nil {
		answer(w, http.StatusInternalServerError, "reload failed, the previous configuration is still active: "+err.Error())
		return
	}
	answer(w, http.StatusOK, "reloaded")
}

// answer answers with a line of text.
func answer(w http.ResponseWriter, code int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	w.Write([]byte(text + "\n")) //nolint:errcheck // the client is gone
}
