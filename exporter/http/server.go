// Package http serves the web port: metrics, live page, status, health, readiness and reload.
package http

import (
	"cmp"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/common/expfmt"

	"github.com/railscope/railscope/exporter/page"
	"github.com/railscope/railscope/exporter/scrape"
	exporterstatus "github.com/railscope/railscope/exporter/status"
	"github.com/railscope/railscope/exporter/table"
	"github.com/railscope/railscope/internal/status"
)

// Server answers HTTP requests.
type Server struct {
	scraper  *scrape.Scraper
	opts     Options
	ready    atomic.Bool // status code of /-/ready: 200 or 503
	page     *page.Page  // nil if the metrics are at its path
	mux      *http.ServeMux
	slow     slowAnswers
	sameSite *http.CrossOriginProtection
}

// Options configure a [Server] beyond its scraper.
type Options struct {
	// without the fields that the scraper provides; if Metrics, the path of the metrics, is /, there is no page
	Page           page.Options
	Reload         func() error // called for a POST to /-/reload; its error is the response
	Lifecycle      bool         // allow a reload by HTTP
	MaxConnections int          // limit for all clients; 0 is DefaultMaxConnections
}

// New returns the handler. Close it after serving.
func New(scraper *scrape.Scraper, opts Options) *Server {
	opts.MaxConnections = cmp.Or(opts.MaxConnections, DefaultMaxConnections)
	if opts.Page.Started.IsZero() {
		opts.Page.Started = time.Now()
	}
	s := &Server{scraper: scraper, opts: opts, mux: http.NewServeMux(), sameSite: http.NewCrossOriginProtection()}
	path := opts.Page.Metrics
	if strings.HasSuffix(path, "/") {
		path += "{$}" // match only that path, not paths below it
	}
	s.mux.HandleFunc("GET "+path, s.metrics)
	s.mux.HandleFunc("GET /-/healthy", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "railscope is up\n") //nolint:errcheck // the client is gone
	})
	s.mux.HandleFunc("GET /-/ready", func(w http.ResponseWriter, _ *http.Request) {
		if !s.ready.Load() {
			http.Error(w, "not ready: railscope is starting or stopping", http.StatusServiceUnavailable)
			return
		}
		io.WriteString(w, "ready\n") //nolint:errcheck // the client is gone
	})
	s.mux.HandleFunc("/-/reload", s.reload)
	s.mux.Handle("GET "+status.Path, exporterstatus.Handler(scraper, opts.Page))
	if path != page.Path {
		s.page = page.New(pageOptions(scraper, opts.Page))
		s.page.Register(s.mux)
	}
	return s
}

// Close ends the streams of open pages.
func (s *Server) Close() {
	if s.page != nil {
		s.page.Close()
	}
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.ContentLength > maxBody:
		s.scraper.Refuse(scrape.RefusedBody, r.RemoteAddr)
		w.Header().Set("Connection", "close")
		http.Error(w, "request body too large (limit "+strconv.Itoa(maxBody)+" bytes): no request needs one",
			http.StatusRequestEntityTooLarge)
		return
	case r.Body == nil || r.Body == http.NoBody:
		// The request has arrived completely. Its deadline would also end a stream.
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	default:
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	}
	if r.URL.Path != page.PathEvents { // the page limits its own streams
		w = &slowAnswer{w, &s.slow}
	}
	s.mux.ServeHTTP(w, r)
}

// metrics serves the exposition. It is complete before the first byte is sent, so that a slow client delays no
// other.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	request := scrape.Request{Format: expfmt.NegotiateAccept(r.Header, expfmt.DefaultAcceptedFormats()...),
		Compressed: acceptsGzip(r.Header), Wait: waitFor(r.Header)}
	if names := r.URL.Query()["collect[]"]; len(names) > 0 {
		for _, name := range names {
			if err := s.scraper.Unknown(name); err != nil {
				http.Error(w, "collect[]: "+err.Error(), http.StatusBadRequest)
				return
			}
		}
		slices.Sort(names)
		request.Sources = slices.Compact(names)
	}
	body, err := s.scraper.Scrape(request)
	if err != nil {
		http.Error(w, "encode metrics: "+err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", string(request.Format))
	h.Add("Vary", "Accept")
	h.Add("Vary", "Accept-Encoding")
	if request.Compressed {
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.Write(body) //nolint:errcheck // the client is gone
}

// waitFor returns how long a scrape may wait for a source: Prometheus' timeout minus the time for the response; 0:
// the default.
func waitFor(h http.Header) time.Duration {
	const answer = 500 * time.Millisecond // time to write and to send the response
	timeout, err := strconv.ParseFloat(h.Get("X-Prometheus-Scrape-Timeout-Seconds"), 64)
	if err != nil || !(timeout > 0 && timeout < time.Hour.Seconds()) {
		return 0
	}
	d := time.Duration(timeout * float64(time.Second))
	return max(d-answer, d/2)
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

// reload applies the configuration again. It refuses requests from pages of other sites, which a browser inside the
// network may have open.
func (s *Server) reload(w http.ResponseWriter, r *http.Request) {
	switch {
	case !s.opts.Lifecycle:
		http.Error(w, "reload by HTTP is disabled: send SIGHUP (systemctl reload railscope), or start railscope with "+
			"--web.enable-lifecycle", http.StatusForbidden)
		return
	case r.Method != http.MethodPost && r.Method != http.MethodPut:
		w.Header().Set("Allow", "POST, PUT")
		http.Error(w, "reload with POST: curl -X POST …/-/reload", http.StatusMethodNotAllowed)
		return
	}
	if err := s.sameSite.Check(r); err != nil {
		s.scraper.Refuse(scrape.RefusedCrossSite, r.RemoteAddr)
		http.Error(w, "reload refused: "+err.Error(), http.StatusForbidden)
		return
	}
	if err := s.opts.Reload(); err != nil {
		http.Error(w, "reload failed, the previous configuration is still active: "+err.Error(),
			http.StatusInternalServerError)
		return
	}
	io.WriteString(w, "reloaded\n") //nolint:errcheck // the client is gone
}

// pageOptions adds the fields that the scraper provides.
func pageOptions(scraper *scrape.Scraper, o page.Options) page.Options {
	o.Version, o.Logger = scraper.Info().Version, cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Refused = func(address string) { scraper.Refuse(scrape.RefusedStreams, address) }
	o.Read = func(sources []string, view func(page.Reading, map[string]string)) {
		scraper.Update(sources, 0, func(series *table.Table, failed map[string]string) { view(series, failed) })
	}
	return page.WithSources(o, scraper.Sources())
}

// maxSlow is the number of responses that may wait for clients, each holding its text. A healthy client reads in
// milliseconds.
const maxSlow = 64

// slowAnswers ends the oldest response if too many wait for their clients. Safe for concurrent use.
type slowAnswers struct {
	mu      sync.Mutex
	waiting []*slowAnswer // oldest first
}

// slowAnswer is a response that counts as waiting while one of its writes blocks.
type slowAnswer struct {
	http.ResponseWriter
	all *slowAnswers
}

func (a *slowAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *slowAnswer) Write(b []byte) (int, error) {
	a.all.add(a)
	defer a.all.remove(a)
	return a.ResponseWriter.Write(b)
}

func (s *slowAnswers) add(a *slowAnswer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) >= maxSlow {
		_ = http.NewResponseController(s.waiting[0]).SetWriteDeadline(time.Now()) // makes its write fail
		s.waiting = s.waiting[1:]
	}
	s.waiting = append(s.waiting, a)
}

func (s *slowAnswers) remove(a *slowAnswer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = slices.DeleteFunc(s.waiting, func(other *slowAnswer) bool { return other == a })
}
