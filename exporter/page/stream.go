package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/secret"
	"github.com/railscope/railscope/internal/terminal"
)

type stream struct {
	events chan []byte // closed to end the stream
	fresh  bool        // the next event must be complete; used only by the producer
}

// backlog is the number of unread events after which a stream is dropped. The page reconnects.
const backlog = 8

// Close ends all streams, and waits for the producer.
func (p *Page) Close() {
	p.cancel()
	p.mu.Lock()
	for s := range p.streams {
		p.dropLocked(s)
	}
	p.mu.Unlock()
	p.running.Wait()
}

// join opens a stream. It returns nil if there are too many, or the page is closed.
func (p *Page) join() *stream {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil || len(p.streams) >= MaxStreams {
		return nil
	}
	s := &stream{events: make(chan []byte, backlog), fresh: true}
	p.streams[s] = true
	if !p.producing {
		p.producing = true
		p.running.Go(p.produce)
	}
	return s
}

func (p *Page) leave(s *stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropLocked(s)
}

func (p *Page) dropLocked(s *stream) {
	if p.streams[s] {
		delete(p.streams, s)
		close(s.events)
	}
}

func (p *Page) produce() {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for p.wanted() {
		p.tick()
		select {
		case <-ticker.C:
		case <-p.ctx.Done():
		}
	}
}

// wanted reports whether a page is open. If not, the producer ends.
func (p *Page) wanted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.producing = len(p.streams) > 0
	return p.producing
}

func (p *Page) tick() {
	p.work.Lock()
	defer p.work.Unlock()
	before := p.last
	if err := p.makeLocked(time.Now()); err != nil {
		p.o.Logger.Error("Page failed to render", "err", err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	all := sync.OnceValue(func() []byte { return p.eventLocked(nil) })
	changed := all
	if before != nil && slices.Equal(before.order, p.last.order) {
		changed = sync.OnceValue(func() []byte { return p.eventLocked(before) })
	}
	for s := range p.streams {
		event := changed
		if s.fresh {
			event, s.fresh = all, false
		}
		select {
		case s.events <- event():
		default:
			p.dropLocked(s) // the client does not read
		}
	}
}

func (p *Page) makeLocked(now time.Time) error {
	sources := []string{"rdma", "bond", "sampler", "probe"}
	if now.Sub(p.slow) >= slowEvery { // these sources wait for firmware, or have many series
		sources = append(sources, "netdev", "pcie", "gpu", "gpudirect", "nccl")
		p.slow = now
	}
	var s Snapshot
	p.o.Read(sources, func(series Reading, failed map[string]string) {
		s = p.builder.build(series, failed, time.Now())
	})
	s.complete(p.o)
	d, err := p.drawing.draw(&s)
	if err != nil {
		return err
	}
	p.last, p.shown, p.made = d, s, now
	p.number++
	return nil
}

type message struct {
	Layout string            `json:"layout"`
	At     string            `json:"at"`
	Title  string            `json:"title"`
	Main   string            `json:"main,omitempty"`  // the whole content
	Parts  map[string]string `json:"parts,omitempty"` // the changed parts, if Main is empty
}

// eventLocked renders an event: the changes since before, or the whole content.
func (p *Page) eventLocked(before *drawn) []byte {
	m := message{Layout: p.drawing.layout, At: clock(p.shown.At),
		Title: plain(p.shown.Node + ": " + p.shown.Verdict.Text + " · railscope")}
	if before == nil {
		m.Main = p.last.main
	} else {
		m.Parts = maps.Clone(p.last.parts)
		maps.DeleteFunc(m.Parts, func(id, html string) bool { return before.parts[id] == html })
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "id: %d-%d\ndata: ", p.o.Started.Unix(), p.number)
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // the drawing is already escaped
	_ = enc.Encode(m)        // cannot fail: strings, written to memory; it ends the line
	b.WriteByte('\n')
	return b.Bytes()
}

func (p *Page) document() (string, error) {
	p.work.Lock()
	defer p.work.Unlock()
	if now := time.Now(); p.last == nil || now.Sub(p.made) >= every || now.Before(p.made) {
		if err := p.makeLocked(now); err != nil {
			return "", err
		}
	}
	main := template.HTML(p.last.main) //nolint:gosec // html/template has escaped it
	html, err := p.drawing.execute("document", map[string]any{"Layout": p.drawing.layout, "Metrics": p.o.Metrics,
		"Shown": &p.shown, "Main": main})
	return html + "\n", err
}

//go:embed page.html page.css page.js page.svg
var files embed.FS

type drawing struct {
	layout string // hash of the page's files
	page   *template.Template
	drawn  *drawn // the drawing in progress
}

type drawn struct {
	main  string            // <main> with all its content
	parts map[string]string // elements that change independently, by ID
	order []string          // IDs of the parts: a difference means that parts were added or removed
}

func newDrawing() *drawing {
	d, sum := &drawing{}, sha256.New()
	for _, name := range []string{"page.html", "page.css", "page.js", "page.svg"} {
		text, _ := files.ReadFile(name) // cannot fail: the files are embedded
		sum.Write(text)
	}
	d.layout = hex.EncodeToString(sum.Sum(nil)[:6])
	d.page = template.Must(template.New("page.html").Funcs(formats()).Funcs(template.FuncMap{"part": d.part}).
		ParseFS(files, "page.html"))
	return d
}

// execute runs a template. Names from drivers, peers and configurations are cleaned here, in one place.
func (d *drawing) execute(name string, data any) (string, error) {
	var b strings.Builder
	err := d.page.ExecuteTemplate(&b, name, data)
	return strings.TrimSpace(plain(b.String())), err
}

// plain is [terminal.Plain] for HTML, whose own line breaks and no-break spaces are kept.
func plain(html string) string {
	return secret.HideUserinfo(strings.Map(func(c rune) rune {
		// nearly all characters match the first condition
		if ' ' <= c && c <= '~' || c == '\n' || c == '\u00a0' || terminal.Shown(c) {
			return c
		}
		return ' '
	}, html), "")
}

func (d *drawing) part(name, id string, data any) (template.HTML, error) {
	html, err := d.execute(name, map[string]any{"ID": id, "X": data})
	d.drawn.parts[id], d.drawn.order = html, append(d.drawn.order, id)
	return template.HTML(html), err //nolint:gosec // html/template has escaped it
}

func (d *drawing) draw(s *Snapshot) (_ *drawn, err error) {
	d.drawn = &drawn{parts: map[string]string{}}
	d.drawn.main, err = d.execute("main", s)
	return d.drawn, err
}
