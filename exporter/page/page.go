// Package page is the live page: what a node's rails do now, drawn for people.
//
// The server draws all of it, as HTML and SVG, so that the page is complete without JavaScript. With JavaScript it
// keeps a stream of events open and gets what changed of the drawing, once a second: see docs/architecture.md.
package page

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

// Reading has the series of the last scrape.
type Reading interface {
	// Each calls each with the series of a row, given by its name without the namespace: the values of these labels,
	// which may not be kept, and the value. It reports whether the row and the labels exist.
	Each(row string, labels []string, each func(values []string, v float64)) bool
}

// Options have the data of the page. What is nil is not shown.
type Options struct {
	Node    string // name of the node; empty is the host's name
	Notice  string // shown above everything; empty: none
	Metrics string // path of the metrics, from /
	Version string
	Started time.Time
	Logger  *slog.Logger

	// Read reads the sources of these names in bounded time, and lets view see the series and why sources failed.
	Read func(sources []string, view func(series Reading, failed map[string]string))
	// Recent appends a rail's bytes per second in each of the last seconds, and returns the rate now; NaN is unknown.
	Recent func(rail string, direction int, to []float64) (recent []float64, now float64, ok bool)
	// Peers returns the peers as configured, with their last rounds; probing is false without a probe.
	Peers func() (peers []Peer, probing bool)
	// Refused is called with the address of a client that gets no stream because all are taken.
	Refused func(address string)
	// Exam returns the findings that stand, and how the node was examined last; it must not wait.
	Exam func() Exam
}

// WithSources adds what sources have for the page besides series, and the name of the host where a name is missing.
func WithSources[S any](o Options, sources []S) Options {
	if o.Node == "" {
		o.Node, _ = os.Hostname()
	}
	for _, src := range sources {
		switch src := any(src).(type) {
		case interface {
			Recent(rail string, direction int, to []float64) ([]float64, float64, bool)
		}:
			o.Recent = src.Recent
		case interface{ Peers() ([]Peer, bool) }:
			o.Peers = src.Peers
		}
	}
	return o
}

// Bounds on the cost of the page.
const (
	every      = time.Second     // between two events
	slowEvery  = 5 * time.Second // between two reads of the slow sources
	MaxStreams = 50              // open at once; the next one gets 503
	maxPeers   = 100             // that are drawn
	// KeepRounds is how many rounds are kept of a peer.
	KeepRounds = 20
)

// Paths of the page.
const (
	Path       = "/{$}"
	PathEvents = "/-/page/events"
)

// Page serves the live page, the files that it loads, and its streams. It draws once a second for all streams, while
// there are any. All addresses are relative, so that it works below any prefix. Safe for concurrent use.
type Page struct {
	o       Options
	ctx     context.Context // done when the page is closed
	cancel  context.CancelFunc
	running sync.WaitGroup // the producer

	work    sync.Mutex // held while drawing; protects all fields up to mu
	builder *builder
	drawing *drawing
	last    *drawn
	shown   Snapshot // of last
	made    time.Time
	slow    time.Time // of the last read of the slow sources
	number  uint64    // of the drawing

	mu        sync.Mutex // protects all following fields
	streams   map[*stream]bool
	producing bool
}

// New returns the page. Nothing runs until a page is open.
func New(o Options) *Page {
	ctx, cancel := context.WithCancel(context.Background())
	return &Page{o: o, ctx: ctx, cancel: cancel, builder: newBuilder(o), drawing: newDrawing(),
		streams: map[*stream]bool{}}
}

// Register adds the page to a multiplexer.
func (p *Page) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET "+Path, p.page)
	mux.HandleFunc("GET "+PathEvents, p.events)
	for name, kind := range map[string]string{
		"page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8", "page.svg": "image/svg+xml",
	} {
		mux.HandleFunc("GET /-/"+name, func(w http.ResponseWriter, r *http.Request) {
			h := guard(w)
			h.Set("Content-Type", kind)
			h.Set("Cache-Control", "no-cache")
			if r.URL.Query().Get("v") == p.drawing.layout { // the address changes with the files
				h.Set("Cache-Control", "public, max-age=31536000, immutable")
			}
			http.ServeFileFS(w, r, files, name)
		})
	}
}

// guard sets the headers of the page: nothing from other hosts, nothing inline, no frames.
func guard(w http.ResponseWriter) http.Header {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "+
		"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	return h
}

func (p *Page) page(w http.ResponseWriter, _ *http.Request) {
	text, err := p.document()
	h := guard(w)
	h.Set("Cache-Control", "no-store")
	if err != nil {
		p.o.Logger.Error("Page failed to render", "err", err)
		http.Error(w, "page failed to render (see the log); /metrics is not affected", http.StatusInternalServerError)
		return
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	io.WriteString(w, text) //nolint:errcheck // the client is gone
}

const (
	retry      = time.Second      // after which a page that lost its stream reconnects
	writeLimit = 10 * time.Second // for one event, after which the client is dropped
)

// events serves a stream of server-sent events, until the page, the client or the server ends it.
func (p *Page) events(w http.ResponseWriter, r *http.Request) {
	h := guard(w)
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would buffer events
	if r.Method == http.MethodHead { // nobody would read the stream
		return
	}
	s := p.join()
	if s == nil {
		if p.o.Refused != nil {
			p.o.Refused(r.RemoteAddr)
		}
		h.Set("Retry-After", "30")
		http.Error(w, "too many open pages (limit "+strconv.Itoa(MaxStreams)+
			"): close one, or reload this one for current values", http.StatusServiceUnavailable)
		return
	}
	defer p.leave(s)
	control := http.NewResponseController(w)
	send := func(event []byte) bool {
		// The server's own limit is for a whole answer, and this one has no end. Writers of tests have no limits.
		_ = control.SetWriteDeadline(time.Now().Add(writeLimit))
		_, err := w.Write(event)
		return err == nil && control.Flush() == nil
	}
	ok := send([]byte("retry: " + strconv.FormatInt(retry.Milliseconds(), 10) + "\n\n"))
	for ok {
		select {
		case event, open := <-s.events:
			ok = open && send(event)
		case <-r.Context().Done():
			return
		}
	}
}
