package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"strings"
)

//go:embed page.html page.css page.js page.svg
var files embed.FS

// drawing draws snapshots, under the hub's lock.
type drawing struct {
	layout string // hash of the page's files
	page   *template.Template
	parts  map[string]string // of the current drawing: id of an element → the element
	order  []string          // their ids
	err    error             // of a part
}

// drawn is a snapshot as HTML. It is immutable.
type drawn struct {
	main  string            // <main> with all its content
	parts map[string]string // elements that change alone, by id
	order string            // ids of the parts: a difference means that parts were added or removed
}

func newDrawing() (*drawing, error) {
	d := &drawing{}
	funcs := formats()
	funcs["part"] = d.part
	var err error
	d.page, err = template.New("page.html").Funcs(funcs).ParseFS(files, "page.html")
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	for _, name := range []string{"page.html", "page.css", "page.js", "page.svg"} {
		text, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		sum.Write(text)
	}
	d.layout = hex.EncodeToString(sum.Sum(nil)[:6])
	return d, nil
}

// part draws an element that changes alone, and keeps it under its id.
func (d *drawing) part(name, id string, data any) template.HTML {
	var b strings.Builder
	err := d.page.ExecuteTemplate(&b, name, map[string]any{"ID": id, "X": data})
	if err != nil && d.err == nil {
		d.err = err
	}
	html := strings.TrimSpace(b.String())
	d.parts[id] = html
	d.order = append(d.order, id)
	return template.HTML(html) //nolint:gosec // html/template has escaped it
}

// draw draws a snapshot.
func (d *drawing) draw(s *Snapshot) (*drawn, error) {
	d.parts, d.order, d.err = map[string]string{}, nil, nil
	var b strings.Builder
	err := d.page.ExecuteTemplate(&b, "main", s)
	if err == nil {
		err = d.err
	}
	return &drawn{strings.TrimSpace(b.String()), d.parts, strings.Join(d.order, " ")}, err
}

// document is the whole page around a drawing.
type document struct {
	Layout, Node, Notice, Metrics, Version, Level, Verdict string
	Main                                                   template.HTML
}

func (d *drawing) document(doc document) ([]byte, error) {
	var b bytes.Buffer
	doc.Layout = d.layout
	err := d.page.ExecuteTemplate(&b, "document", doc)
	return b.Bytes(), err
}
