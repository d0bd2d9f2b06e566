// Package page is the live page: it shows the current state of a node's rails.
//
// The server renders the page as HTML and SVG, so that it is complete without JavaScript. With JavaScript it keeps
// a stream of events open and receives the changed parts once a second: see docs/architecture.md.
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

	"github.com/railscope/railscope/internal/proof"
)

// Reading is the series of the last scrape.
type Reading interface {
	// Each calls each with every series of a row, which is given by its name without the namespace: the values of
	// these labels, which must not be kept, and the value. It reports whether the row and the labels exist.
	Each(row string, labels []string, each func(values []string, v float64)) bool
}

// Options provide the data of the page. Parts whose field is nil are not shown.
type Options struct {
	Node    string        // name of the node; if empty, the host's name
	Name    func() string // returns the name of the node if it can change; nil: use Node
	Notice  string        // shown at the top; empty: none
	Metrics string        // path of the metrics, from /
	Version string
	Started time.Time
	Logger  *slog.Logger

	// Read reads the sources with these names in bounded time, and calls view with the series and the reasons of
	// failed sources.
	Read func(sources []string, view func(series Reading, failed map[string]string))
	// Recent appends a rail's bytes per second in each of the last seconds, and returns the current rate; NaN is
	// unknown.
	Recent func(rail string, direction int, to []float64) (recent []float64, now float64, ok bool)
	// Peers returns the configured peers with their last rounds. probing is false without a probe.
	Peers func() (peers []Peer, probing bool)
	// Refused is called with the address of a client that gets no stream because the limit is reached.
	Refused func(address string)
	// Proof returns the proof of a rail by the last burst, or nil, and the part of what is expected of a rail that
	// makes traffic a proof. If nil, no proof is shown.
	Proof func(rail string) (burst *proof.Proof, part float64)
	// Own returns the bytes that the probe's own transfers moved over a rail, as in the status; nil: there is no
	// probe.
	Own func(device, port string) (transmit, receive, tcp *uint64)
	// Exam returns the active findings and the result of the last examination of the node. It must not wait.
	Exam func() Exam
	// Now reads hard facts in bounded time, for Exam, and returns the rails' ports. read is false if that failed.
	// Only the status calls it; the page has fresh series. If nil, nothing is read.
	Now func(context.Context) (ports []Port, read bool)
}

// Port is the state of a rail's port.
type Port struct {
	Rail, Device, Netdev string

	Number int
	State  int // enum ib_port_state; 0 if not known
	Unused bool
}

// WithSources adds the data that sources provide for the page besides series, and the host's name if no name is
// set.
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
		case interface {
			Peers() ([]Peer, bool)
			Proof(rail string) (*proof.Proof, float64)
		}:
			o.Peers, o.Proof = src.Peers, src.Proof
		}
	}
	return o
}

// Limits of the cost of the page.
const (
	every      = time.Second     // interval of events
	slowEvery  = 5 * time.Second // interval of reads of the slow sources
	MaxStreams = 50              // limit of open streams; the next one gets 503
	maxPeers   = 100             // limit of peers that are shown
	// KeepRounds is the number of rounds that are kept per peer.
	KeepRounds = 20
)

// Paths of the page.
const (
	Path       = "/{$}"
	PathEvents = "/-/page/events"
)

// Page serves the live page, the files that it loads, and its streams. It renders once a second for all streams,
// while there are any. All addresses are relative, so that it works below any prefix. Safe for concurrent use.
type Page struct {
	o       Options
	ctx     context.Context // done when the page is closed
	cancel  context.CancelFunc
	running sync.WaitGroup // the producer

	work    sync.Mutex // held while drawing; protects all fields up to mu
	builder *builder
	drawing *drawing
	last    *drawn
	shown   Snapshot // time of last
	made    time.Time
	slow    time.Time // time of the last read of the slow sources
	number  uint64    // number of the last drawing

	mu        sync.Mutex // protects all following fields
	streams   map[*stream]bool
	producing bool
}

// New returns the page. It starts nothing until a page is open.
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

// guard sets the headers of the page: no content from other hosts, no inline scripts or styles, no frames.
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
	retry      = time.Second      // time after which a page that lost its stream reconnects
	writeLimit = 10 * time.Second // time for writing one event, after which the client is dropped
)

// events serves a stream of server-sent events until the page, the client or the server ends it.
func (p *Page) events(w http.ResponseWriter, r *http.Request) {
	h := guard(w)
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // otherwise nginx buffers events
	if r.Method == http.MethodHead { // the response has no body
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
		// The server's own limit applies to a whole response, and this one does not end. Test writers do not
		// support deadlines.
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
