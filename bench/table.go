// Package bench prints the result of a round: a table for people, an object for scripts, and a progress bar.
package bench

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe"
)

// maxColumns is how wide a line of the table may be.
const maxColumns = 100

// Options are what is shown beside a round, and how.
type Options struct {
	Node      []finding.Finding // about this node; those that the round has, too, are left out
	Simulated bool              // the rails are those of railscope demo
	Color     bool              // of the table
}

// WriteTable writes the result for people: a sentence, the findings, those about this node, each rail, and all of them
// together.
func WriteTable(w io.Writer, r probe.Result, o Options) error {
	p := printer{w: bufio.NewWriter(w), color: o.Color}
	if o.Simulated {
		p.line("Simulated by railscope demo: the figures say nothing about RDMA.")
	}
	text, colour, found := verdict(r)
	for _, line := range terminal.Wrap(terminal.Plain(text), maxColumns) {
		p.line(p.paint(line, colour))
	}
	for _, f := range found {
		p.item(f.Evidence)
	}
	if others := besides(r, o.Node); len(others) > 0 {
		p.line(p.paint("This node has other findings (railscope doctor prints the fixes):", terminal.Yellow))
		for _, f := range others {
			p.item(string(f.Severity) + ": " + f.Title() + ": " + f.Evidence)
		}
	}
	for _, rows := range append([][][]cell{railRows(r), totals(r)}, extraTables(r)...) {
		if len(rows) > 0 {
			p.line("")
			p.grid(rows)
		}
	}
	if failures := extraFailures(r); len(failures) > 0 {
		p.line("")
		for _, text := range failures {
			p.item(text)
		}
	}
	return p.w.Flush() // it has kept the first error
}

// besides returns the findings about this node that the round has not.
func besides(r probe.Result, node []finding.Finding) []finding.Finding {
	own := check.Round(r)
	return slices.DeleteFunc(slices.Clone(node), func(f finding.Finding) bool {
		return slices.ContainsFunc(own, func(o finding.Finding) bool { return o.Check == f.Check && o.Subject == f.Subject })
	})
}

// cell is a piece of a grid.
type cell struct {
	text   string
	right  bool
	colour string
	name   bool // may be shortened
}

func name(s string) cell { return cell{text: cmp.Or(terminal.Plain(s), "-"), name: true} }

func number(s string) cell { return cell{text: cmp.Or(s, "-"), right: true} }

func (c cell) colorIf(off bool, colour string) cell {
	if off {
		c.colour = colour
	}
	return c
}

// railRows are titles and a row per rail; none if nothing was measured.
func railRows(r probe.Result) [][]cell {
	striped := "STRIPED Gb/s"
	if r.Transport == probe.TCP {
		striped = "TCP Gb/s"
	}
	rows := [][]cell{{name("RAIL"), name("DEVICE"), name("PEER DEVICE"), number("P50 µs"), number("P99 µs"),
		number("MAX µs"), number("SOLO Gb/s"), number(striped), number("OF EXPECTED")}}
	measured := false
	for i := range r.Rails {
		one := &r.Rails[i]
		measured = measured || one.Latency != nil || one.Solo != nil || one.Stealing != nil
		slow := one.Share != nil && *one.Share < 1-check.UnevenAbove
		short := slices.ContainsFunc(r.Shortfalls(), func(s probe.Shortfall) bool { return s.Rail == one.Rail })
		rows = append(rows, railRow(one, slow, short))
	}
	if !measured {
		return nil
	}
	return rows
}

func railRow(r *probe.RailResult, slow, short bool) []cell {
	device := r.Device
	if r.Port > 1 {
		device += "/" + strconv.Itoa(r.Port)
	}
	failed := r.Failure != nil
	row := []cell{name(r.Rail).colorIf(failed, terminal.Red),
		name(cmp.Or(device, r.Netdev)).colorIf(failed, terminal.Red), name(r.PeerDevice)}
	for _, q := range []float64{0.5, 0.99, 1} {
		latency := ""
		if r.Latency != nil && len(r.Latency.Samples) > 0 {
			latency = microseconds(r.Latency.Quantile(q))
		}
		row = append(row, number(latency))
	}
	expected := ""
	if r.Stealing != nil && r.Expected != nil && *r.Expected > 0 {
		expected = terminal.Percent(r.Stealing.BytesPerSecond() / *r.Expected)
	}
	return append(row, number(flow(r.Solo)), number(flow(r.Stealing)).colorIf(slow, terminal.Yellow),
		number(expected).colorIf(slow || short, terminal.Yellow))
}

func flow(f *probe.Flow) string {
	if f == nil {
		return ""
	}
	return gigabits(f.BytesPerSecond())
}

// totals are a row per figure of all rails together.
func totals(r probe.Result) [][]cell {
	var rows [][]cell
	add := func(title, value, unit string, off bool) {
		rows = append(rows, []cell{{text: title}, number(value).colorIf(off, terminal.Yellow), {text: unit}})
	}
	addFigure := func(title string, v *float64, format func(float64) string, unit string, off func(float64) bool) {
		if finite(v) != nil {
			add(title, format(*v), unit, off != nil && off(*v))
		}
	}
	addFigure("striped", r.Stealing, gigabits, "Gb/s, each rail as much as it can", nil)
	addFigure("in equal parts", r.Static, gigabits, "Gb/s, rails × the slowest", nil)
	if best := bestTCP(r); best != nil {
		add("TCP", gigabits(best.BytesPerSecond), "Gb/s, "+terminal.Count(best.Streams, "stream")+" per rail", false)
	}
	addFigure("speed-up", r.Speedup, ratio, "RDMA ÷ TCP", func(v float64) bool { return v < check.SlowerBelow })
	if len(r.Rails) > 1 {
		addFigure("imbalance", r.Imbalance, ratio, "0 even, 1 a rail carried nothing",
			func(v float64) bool { return v > check.UnevenAbove })
		addFigure("scaling", r.Scaling, ratio, "together ÷ sum of each alone",
			func(v float64) bool { return v < check.SharedBelow })
		addFigure("finish skew", r.FinishSkew, ratio, "1 − slowest rail ÷ fastest", nil)
	}
	few := 0
	for i := range r.Rails {
		if fewWrites(&r.Rails[i]) {
			few++
		}
	}
	if few > 0 {
		add("slow rails", strconv.Itoa(few), "with fewer than 64 writes in a burst: their figures are rough", false)
	}
	if r.Class.Source != "" {
		add("traffic class", strconv.Itoa(int(r.Class.TrafficClass)),
			fmt.Sprintf("service level %d, %s", r.Class.ServiceLevel, terminal.Plain(r.Class.Source)), false)
	}
	if r.Bytes > 0 {
		unit := fmt.Sprintf("MiB moved in %.2f s", r.Duration.Seconds())
		if r.Verified {
			unit += ", verified"
		}
		add("payload", ratio(float64(r.Bytes)/(1<<20)), unit, false)
	}
	return rows
}

type printer struct {
	w     *bufio.Writer
	color bool
}

// item writes one point of a list.
func (p printer) item(text string) {
	for i, line := range terminal.Wrap(terminal.Plain(text), maxColumns-4) {
		p.line("  " + []string{"- ", "  "}[min(i, 1)] + line)
	}
}

func (p printer) line(s string) {
	p.w.WriteString(strings.TrimRight(s, " ") + "\n") //nolint:errcheck // Flush returns it
}

func (p printer) paint(s, colour string) string {
	if !p.color || colour == "" {
		return s
	}
	return colour + s + terminal.Reset
}

// grid writes rows in columns, two blanks between them. If lines would be too long, the widest names are shortened.
func (p printer) grid(rows [][]cell) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c.text))
		}
	}
	fit(widths, rows[0])
	for _, row := range rows {
		var b strings.Builder
		for i, c := range row {
			text := shorten(c.text, widths[i])
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text))
			if i > 0 {
				b.WriteString("  ")
			}
			switch text = p.paint(text, c.colour); {
			case c.right:
				b.WriteString(pad + text)
			case i < len(row)-1:
				b.WriteString(text + pad)
			default:
				b.WriteString(text)
			}
		}
		p.line(b.String())
	}
}

// fit narrows the widest columns of names until a line fits.
func fit(widths []int, titles []cell) {
	const least = 6
	for {
		total, widest := 2*(len(widths)-1), -1
		for i, width := range widths {
			total += width
			if titles[i].name && width > least && (widest < 0 || width > widths[widest]) {
				widest = i
			}
		}
		if total <= maxColumns || widest < 0 {
			return
		}
		widths[widest]--
	}
}
