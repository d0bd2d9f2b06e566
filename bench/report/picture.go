package report

import (
	"bytes"
	"errors"
	"fmt"
	"html/template"
	"image/color"
	"io"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/railscope/railscope/internal/terminal"
)

// Formats of a picture.
const (
	PNG = "png"
	SVG = "svg"
)

// pixels is the resolution of a PNG in pixels per inch: sharp on a screen with 2 pixels per point.
const pixels = 192

// ErrNoPlot is returned when nothing that was measured can be plotted.
var ErrNoPlot = errors.New("nothing was measured that a plot could show")

// picture draws the figures below each other on a light background.
func picture(w io.Writer, format string, figures []figure) error {
	if len(figures) == 0 {
		return ErrNoPlot
	}
	height := vg.Length(0)
	for _, f := range figures {
		height += f.height
	}
	theme := light()
	theme.background = color.White
	var canvas interface {
		vg.CanvasSizer
		io.WriterTo
	}
	switch format {
	case SVG:
		canvas = vgsvg.NewWith(vgsvg.UseWH(plotWidth, height))
	case PNG:
		canvas = vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(plotWidth, height), vgimg.UseDPI(pixels))}
	default:
		return fmt.Errorf("a picture can be %s or %s, not %q", PNG, SVG, format)
	}
	all := draw.New(canvas)
	top := height
	for _, f := range figures {
		part := all
		part.Max.Y, part.Min.Y = top, top-f.height
		top -= f.height
		if err := f.on(margin(part), theme); err != nil {
			return err
		}
	}
	_, err := canvas.WriteTo(w)
	return err
}

// margin keeps the last label of an axis inside the picture.
func margin(c draw.Canvas) draw.Canvas { return draw.Crop(c, 6, -14, 4, -4) }

func (f figure) on(c draw.Canvas, t theme) error {
	p, err := f.draw(t)
	if err != nil {
		return fmt.Errorf("plot %q: %w", f.title, err)
	}
	p.Draw(c)
	return nil
}

// inline returns the figure as an element of an HTML page.
func (f figure) inline(t theme) (template.HTML, error) {
	canvas := vgsvg.NewWith(vgsvg.UseWH(plotWidth, f.height))
	if err := f.on(margin(draw.New(canvas)), t); err != nil {
		return "", err
	}
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", err
	}
	_, element, found := bytes.Cut(b.Bytes(), []byte("<svg"))
	if !found {
		return "", fmt.Errorf("plot %q has no element svg", f.title)
	}
	return template.HTML("<svg" + string(element)), nil //nolint:gosec // the library escapes its texts
}

// plain limits a text from outside to one line and a bounded length.
func plain(s string) string {
	const most = 60
	s = terminal.Plain(s)
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}
