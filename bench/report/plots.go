package report

import (
	"cmp"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/railscope/railscope/bench/grid"
)

// figure is a plot that is drawn once for each theme.
type figure struct {
	title, caption string
	height         vg.Length
	draw           func(theme) (*plot.Plot, error)
}

const (
	plotWidth  = 620 // points
	lineHeight = 20  // points of a bar with its name
	axisHeight = 62  // points of title, axis and axis label
	plotHeight = 240 // points of a plot without bars
	legendRoom = 1.2 // extends a plot of lines upwards to make room for its legend
	maxLines   = 200 // lines in one plot
	farthest   = 10  // a line rate above this multiple of the results is not shown, because it would hide them
)

// byName returns a plot with a line for each name, the first at the top.
func byName(t theme, title, unit string, names []string) *plot.Plot {
	p := t.style(plot.New())
	p.Title.Text, p.X.Label.Text = title, unit
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Width = t.grid, 0
	p.Add(grid)
	reversed := slices.Clone(names)
	slices.Reverse(reversed)
	for i, name := range reversed {
		reversed[i] = plain(name)
	}
	p.NominalY(reversed...)
	p.Y.Tick.Length, p.Y.Width, p.Y.Padding = 0, 0, 6
	p.Y.Min, p.Y.Max = -0.6, float64(len(names))-0.4
	return p
}

func named(title, caption string, n int, draw func(theme) (*plot.Plot, error)) figure {
	return figure{title, caption, vg.Length(n*lineHeight + axisHeight), draw}
}

// shown are as many lines as a plot may have, and its title, which says so.
func shown[T any](title string, list []T) (string, []T) {
	if len(list) > maxLines {
		title = fmt.Sprintf("%s: the first %d of %d", title, maxLines, len(list))
	}
	return title, list[:min(len(list), maxLines)]
}

// rate is a bar: what was measured, and what is possible, in the unit of the plot; 0: not known.
type rate struct {
	name        string
	tcp         bool
	value, line float64
}

// gigabits converts bytes per second to Gb/s.
func gigabits(bytesPerSecond float64) float64 { return bytesPerSecond * 8 / 1e9 }

// rates are bars with a mark at the line rate.
func rates(title, caption, unit string, list []rate) figure {
	title, list = shown(title, list)
	return named(title, caption, len(list), func(t theme) (*plot.Plot, error) {
		names, rdma, tcp, marks := []string{}, plotter.Values{}, plotter.Values{}, plotter.XYs{}
		best := 0.0
		for _, r := range list {
			best = max(best, r.value)
		}
		for i, r := range list {
			names = append(names, r.name)
			at := float64(len(list) - 1 - i)
			if r.line > 0 && r.line <= farthest*best {
				marks = append(marks, plotter.XY{X: r.line, Y: at})
			}
		}
		for _, r := range slices.Backward(list) {
			one, other := r.value, 0.0
			if r.tcp {
				one, other = other, one
			}
			rdma, tcp = append(rdma, one), append(tcp, other)
		}
		p := byName(t, title, unit, names)
		for i, values := range []plotter.Values{rdma, tcp} {
			bars, err := plotter.NewBarChart(values, lineHeight*0.62)
			if err != nil {
				return nil, err
			}
			bars.Horizontal, bars.LineStyle.Width = true, 0
			bars.Color = []color.Color{t.rdma, t.tcp}[i]
			p.Add(bars)
		}
		if len(marks) > 0 {
			scatter, err := plotter.NewScatter(marks)
			if err != nil {
				return nil, err
			}
			scatter.GlyphStyle = draw.GlyphStyle{Color: t.alert, Radius: lineHeight / 2, Shape: bar{lineHeight * 0.42}}
			p.Add(scatter)
		}
		p.X.Min, p.X.Max = 0, cmp.Or(p.X.Max*1.03, 1)
		return p, nil
	})
}

// span is the range of a time from its median to its 99th percentile, in seconds.
type span struct {
	name     string
	p50, p99 float64
}

// spans draws ranges of times, on a logarithmic scale.
func spans(title, caption string, list []span) figure {
	title, list = shown(title, list)
	return named(title, caption, len(list), func(t theme) (*plot.Plot, error) {
		names, points, widths := []string{}, plotter.XYs{}, plotter.XErrors{}
		for i, s := range list {
			names = append(names, s.name)
			points = append(points, plotter.XY{X: s.p50 * 1e6, Y: float64(len(list) - 1 - i)})
			widths = append(widths, struct{ Low, High float64 }{0, max(s.p99-s.p50, 0) * 1e6})
		}
		p := byName(t, title, "µs, logarithmic: P50 (dot) to P99", names)
		ranges, err := plotter.NewXErrorBars(struct {
			plotter.XYs
			plotter.XErrors
		}{points, widths})
		if err != nil {
			return nil, err
		}
		ranges.LineStyle = draw.LineStyle{Color: t.rdma, Width: 2}
		ranges.CapWidth = 6
		dots, err := plotter.NewScatter(points)
		if err != nil {
			return nil, err
		}
		dots.GlyphStyle = draw.GlyphStyle{Color: t.rdma, Radius: 4, Shape: draw.CircleGlyph{}}
		p.Add(ranges, dots)
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.TickerFunc(decades)
		p.X.Min, p.X.Max = p.X.Min/1.15, p.X.Max*1.15
		return p, nil
	})
}

// decades returns ticks at 1, 2 and 5 of each power of ten.
func decades(least, most float64) (list []plot.Tick) {
	for power := math.Floor(math.Log10(least)); power <= math.Ceil(math.Log10(most)); power++ {
		for _, n := range []float64{1, 2, 5} {
			v := n * math.Pow(10, power)
			list = append(list, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'g', 6, 64)})
		}
	}
	return list
}

// curve is a line through points.
type curve struct {
	name   string
	points plotter.XYs
	gaps   []int // points before which it is interrupted, ascending
	dashed bool
}

// parts are the points between gaps.
func (c curve) parts() (list []plotter.XYs) {
	from := 0
	for _, to := range append(slices.Clone(c.gaps), len(c.points)) {
		list, from = append(list, c.points[from:to]), to
	}
	return list
}

// sizes is goodput in Gb/s against the size of messages in bytes.
func sizes(title, caption, unit string, list []curve) figure {
	return figure{title, caption, plotHeight, func(t theme) (*plot.Plot, error) {
		p, err := curves(t, title, list, true)
		if err != nil {
			return nil, err
		}
		p.X.Scale, p.X.Label.Text, p.Y.Label.Text = plot.LogScale{}, unit, "Gb/s"
		p.X.Tick.Marker = plot.TickerFunc(powers)
		p.Y.Min, p.Y.Max = 0, cmp.Or(p.Y.Max*legendRoom, 1)
		return p, nil
	}}
}

// powers returns ticks at powers of two, at most ten.
func powers(least, most float64) (list []plot.Tick) {
	from, to := math.Floor(math.Log2(least)), math.Ceil(math.Log2(most))
	step := max(math.Ceil((to-from)/10), 1)
	for power := from; power <= to; power += step {
		v := math.Exp2(power)
		list = append(list, plot.Tick{Value: v, Label: grid.Size(int64(v))})
	}
	return list
}

// times plots rates in Gb/s against seconds.
func times(title, caption string, list []curve) figure {
	return figure{title, caption, plotHeight, func(t theme) (*plot.Plot, error) {
		p, err := curves(t, title, list, false)
		if err != nil {
			return nil, err
		}
		p.X.Label.Text, p.Y.Label.Text = "seconds", "Gb/s"
		p.X.Min, p.Y.Min = 0, 0
		p.Y.Max = cmp.Or(p.Y.Max*legendRoom, 1)
		return p, nil
	}}
}

func curves(t theme, title string, list []curve, dots bool) (*plot.Plot, error) {
	p := t.style(plot.New())
	p.Title.Text = title
	lines := plotter.NewGrid()
	lines.Vertical.Color, lines.Horizontal.Color = t.grid, t.grid
	p.Add(lines)
	for i, c := range list {
		for k, part := range c.parts() {
			line, points, err := plotter.NewLinePoints(part)
			if err != nil {
				return nil, err
			}
			line.LineStyle = draw.LineStyle{Color: t.rail(i), Width: 1.6}
			if c.dashed {
				line.LineStyle = draw.LineStyle{Color: t.alert, Width: 1, Dashes: []vg.Length{5, 3}}
			}
			p.Add(line)
			if dots && !c.dashed {
				points.GlyphStyle = draw.GlyphStyle{Color: t.rail(i), Radius: 2.6, Shape: draw.CircleGlyph{}}
				p.Add(points)
			}
			if k == 0 {
				p.Legend.Add(plain(c.name)+" ", line)
			}
		}
	}
	return p, nil
}

// share is a bar with a part for each rail, in any unit; 0 for a rail that carried nothing.
type share struct {
	name  string
	parts []float64
}

// shares draws bars of 100 %, split by what the rails carried.
func shares(title, caption string, rails []string, list []share) figure {
	title, list = shown(title, list)
	return named(title, caption, len(list)+1, func(t theme) (*plot.Plot, error) {
		var names []string
		for _, s := range list {
			names = append(names, s.name)
		}
		p := byName(t, title, "% of the bytes", names)
		var below *plotter.BarChart
		for i, rail := range rails {
			var values plotter.Values
			for _, s := range slices.Backward(list) {
				total := 0.0
				for _, v := range s.parts {
					total += v
				}
				if total == 0 || i >= len(s.parts) {
					values = append(values, 0)
					continue
				}
				values = append(values, 100*s.parts[i]/total)
			}
			bars, err := plotter.NewBarChart(values, lineHeight*0.62)
			if err != nil {
				return nil, err
			}
			bars.Horizontal, bars.LineStyle.Width, bars.Color = true, 0, t.rail(i)
			if below != nil {
				bars.StackOn(below)
			}
			below = bars
			p.Add(bars)
			p.Legend.Add(plain(rail)+" ", bars)
		}
		p.X.Min, p.X.Max = 0, 100
		p.Y.Max++ // room for the legend
		p.Legend.XOffs = -4
		return p, nil
	})
}
