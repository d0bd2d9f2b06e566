package page

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// hub draws once a second for all open pages, while there are any. Safe for concurrent use.
type hub struct {
	o      Options
	exam   *exam
	ctx    context.Context // done when the page is closed
	cancel context.CancelFunc
	ending sync.WaitGroup

	work    sync.Mutex // held while drawing; protects all fields up to mu
	builder *builder
	drawing *drawing
	last    *drawn
	shown   Snapshot // of last
	made    time.Time
	slow    time.Time // of the last read of the slow sources
	number  uint64    // of the drawing

	mu      sync.Mutex // protects all following fields
	streams map[*stream]bool
	running bool // the producer
}

// stream is one page that is open.
type stream struct {
	events chan []byte // closed to end the stream
	fresh  bool        // the next event must be complete; only the producer uses it
}

// backlog is how many events a stream may be behind before it is dropped. The page reconnects.
const backlog = 8

func newHub(o Options) (*hub, error) {
	drawing, err := newDrawing()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &hub{o: o, exam: newExam(ctx, o.Doctor), ctx: ctx, cancel: cancel, builder: newBuilder(o), drawing: drawing,
		streams: map[*stream]bool{}}, nil
}

// close ends all streams and waits for the producer. Doctor is cancelled.
func (h *hub) close() {
	h.cancel()
	h.mu.Lock()
	for s := range h.streams {
		h.dropLocked(s)
	}
	h.mu.Unlock()
	h.ending.Wait()
}

// join opens a stream. It returns nil when there are too many, or the page is closed.
func (h *hub) join() *stream {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() != nil || len(h.streams) >= MaxStreams {
		return nil
	}
	s := &stream{events: make(chan []byte, backlog), fresh: true}
	h.streams[s] = true
	if !h.running {
		h.running = true
		h.ending.Go(h.produce)
	}
	return s
}

func (h *hub) leave(s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropLocked(s)
}

func (h *hub) dropLocked(s *stream) {
	if h.streams[s] {
		delete(h.streams, s)
		close(s.events)
	}
}

// produce draws once a second until no page is open.
func (h *hub) produce() {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for h.wanted() {
		h.tick()
		select {
		case <-ticker.C:
		case <-h.ctx.Done():
		}
	}
}

// wanted reports whether a page is open. If not, the producer ends.
func (h *hub) wanted() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running = len(h.streams) > 0
	return h.running
}

// tick draws and sends each stream what changed.
func (h *hub) tick() {
	h.work.Lock()
	defer h.work.Unlock()
	before := h.last
	if err := h.makeLocked(time.Now()); err != nil {
		h.o.Logger.Error("Page failed to render", "err", err)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	all := sync.OnceValue(func() []byte { return h.eventLocked(nil) })
	changed := all
	if before != nil && slices.Equal(before.order, h.last.order) {
		changed = sync.OnceValue(func() []byte { return h.eventLocked(before) })
	}
	for s := range h.streams {
		event := changed
		if s.fresh {
			event, s.fresh = all, false
		}
		select {
		case s.events <- event():
		default:
			h.dropLocked(s) // the client does not read
		}
	}
}

// makeLocked reads and draws.
func (h *hub) makeLocked(now time.Time) error {
	h.exam.start(now)
	sources := fastSources()
	if now.Sub(h.slow) >= slowEvery {
		sources = append(sources, slowSources()...)
		h.slow = now
	}
	var s Snapshot
	h.o.Read(sources, func(series Reading, failed map[string]string) {
		s = h.builder.build(series, failed, time.Now())
	})
	s.Exam = h.exam.last()
	s.judge()
	d, err := h.drawing.draw(&s)
	if err != nil {
		return err
	}
	h.last, h.shown, h.made = d, s, now
	h.number++
	return nil
}

// message is the data of an event.
type message struct {
	Layout string            `json:"layout"`
	At     string            `json:"at"`
	Title  string            `json:"title"`
	Main   string            `json:"main,omitempty"`  // all of it
	Parts  map[string]string `json:"parts,omitempty"` // or what changed
}

// eventLocked renders an event: what changed since before, or all.
func (h *hub) eventLocked(before *drawn) []byte {
	m := message{Layout: h.drawing.layout, At: clock(h.shown.At),
		Title: plain(h.shown.Node + ": " + h.shown.Verdict.Text + " · railscope")}
	if before == nil {
		m.Main = h.last.main
	} else {
		m.Parts = maps.Clone(h.last.parts)
		maps.DeleteFunc(m.Parts, func(id, html string) bool { return before.parts[id] == html })
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "id: %d-%d\ndata: ", h.o.Started.Unix(), h.number)
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // the drawing is escaped already
	_ = enc.Encode(m)        // strings only, into memory; it ends the line
	b.WriteByte('\n')
	return b.Bytes()
}

// document returns the current page, at most one second old.
func (h *hub) document() (string, error) {
	h.work.Lock()
	defer h.work.Unlock()
	if now := time.Now(); h.last == nil || now.Sub(h.made) >= every || now.Before(h.made) {
		if err := h.makeLocked(now); err != nil {
			return "", err
		}
	}
	return h.drawing.document(&h.shown, h.o.Metrics, h.last)
}
