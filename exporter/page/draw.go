package page

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"strings"

	"github.com/railscope/railscope/internal/terminal"
)

//go:embed page.html page.css page.js page.svg
var files embed.FS

type drawing struct {
	layout string // hash of the page's files
	page   *template.Template
	drawn  *drawn // being drawn
}

type drawn struct {
	main  string            // <main> with all its content
	parts map[string]string // elements that change alone, by id
	order []string          // ids of the parts: a difference means that parts were added or removed
}

func newDrawing() (d *drawing, err error) {
	d = &drawing{}
	sum := sha256.New()
	for _, name := range []string{"page.html", "page.css", "page.js", "page.svg"} {
		text, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		sum.Write(text)
	}
	d.layout = hex.EncodeToString(sum.Sum(nil)[:6])
	d.page, err = template.New("page.html").Funcs(formats()).Funcs(template.FuncMap{"part": d.part}).
		ParseFS(files, "page.html")
	return d, err
}

// execute runs a template. Names from drivers, peers and configurations are cleaned here, all at once.
func (d *drawing) execute(name string, data any) (string, error) {
	var b strings.Builder
	err := d.page.ExecuteTemplate(&b, name, data)
	return strings.TrimSpace(plain(b.String())), err
}

// plain is [terminal.Plain] for HTML, which has line breaks and no-break spaces of its own.
func plain(html string) string {
	for _, c := range html {
		if !shown(c) {
			return strings.Map(func(c rune) rune {
				if shown(c) {
					return c
				}
				return ' '
			}, html)
		}
	}
	return html
}

func shown(c rune) bool {
	return ' ' <= c && c <= '~' || c == '\n' || c == '\u00a0' || terminal.Shown(c) // nearly all are the first
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

func (d *drawing) document(s *Snapshot, metrics string, last *drawn) (string, error) {
	main := template.HTML(last.main) //nolint:gosec // html/template has escaped it
	html, err := d.execute("document", map[string]any{"Layout": d.layout, "Metrics": metrics, "Shown": s, "Main": main})
	return html + "\n", err
}
