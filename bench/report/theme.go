package report

import (
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// theme has the colors of a plot.
type theme struct {
	name                    string
	background              color.Color // color behind the plot; nil: that of the page
	ink, muted, grid, alert color.Color
	rdma, tcp               color.Color
	rails                   []color.Color
}

func rgb(hex uint32) color.Color {
	return color.RGBA{R: uint8(hex >> 16), G: uint8(hex >> 8), B: uint8(hex), A: 255}
}

// light and dark return colors that people with any kind of color vision can distinguish (Okabe and Ito, 2008),
// adjusted to the page's background.
func light() theme {
	return theme{name: "light", ink: rgb(0x1f2328), muted: rgb(0x59636e), grid: rgb(0xe4e7eb), alert: rgb(0xb3261e),
		rdma: rgb(0x0072b2), tcp: rgb(0x8a9099),
		rails: []color.Color{rgb(0x0072b2), rgb(0xd55e00), rgb(0x009e73), rgb(0xcc79a7), rgb(0x56b4e9), rgb(0xe69f00),
			rgb(0x5f4b8b), rgb(0x7a7a7a)}}
}

func dark() theme {
	return theme{name: "dark", ink: rgb(0xe6edf3), muted: rgb(0x9da7b1), grid: rgb(0x30363d), alert: rgb(0xff7b72),
		rdma: rgb(0x4aa8e0), tcp: rgb(0x7d8590),
		rails: []color.Color{rgb(0x4aa8e0), rgb(0xf08a3c), rgb(0x2fc49b), rgb(0xe39bc4), rgb(0x8fd0f5), rgb(0xf2c14e),
			rgb(0xa08fd0), rgb(0xb0b0b0)}}
}

func (t theme) rail(i int) color.Color { return t.rails[i%len(t.rails)] }

const (
	labelSize = 9.5 // points
	titleSize = 11
)

// style gives a plot the theme's colors, a sans-serif font, and horizontal lines instead of frames.
func (t theme) style(p *plot.Plot) *plot.Plot {
	p.BackgroundColor = t.background
	p.Title.Padding = 6
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Color, axis.Width = t.muted, 0.6
		axis.Tick.Color, axis.Tick.Width, axis.Tick.Length = t.muted, 0.6, 3
		axis.Padding = 2
		axis.Label.Padding = 3
		axis.Tick.Label.Color, axis.Label.TextStyle.Color = t.ink, t.muted
		axis.Tick.Label.Font, axis.Label.TextStyle.Font = sans(labelSize), sans(labelSize)
	}
	p.Title.TextStyle.Color, p.Title.TextStyle.Font = t.ink, sans(titleSize)
	p.Legend.TextStyle.Color, p.Legend.TextStyle.Font = t.ink, sans(labelSize)
	p.Legend.Top, p.Legend.ThumbnailWidth, p.Legend.Padding = true, 12, 3
	return p
}

func sans(points font.Length) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: points}
}

// bar is a glyph: an upright line, as a mark on a horizontal bar.
type bar struct{ half vg.Length }

// DrawGlyph implements [draw.GlyphDrawer].
func (b bar) DrawGlyph(c *draw.Canvas, sty draw.GlyphStyle, at vg.Point) {
	c.StrokeLine2(draw.LineStyle{Color: sty.Color, Width: 1.8}, at.X, at.Y-b.half, at.X, at.Y+b.half)
}
