// Package grid prints results of benchmarks: figures in units for people, and tables.
package grid

import (
	"bufio"
	"cmp"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/railscope/railscope/internal/terminal"
)

// MaxColumns is the maximum width of a line of a table.
const MaxColumns = 100

// Cell is a cell of a table.
type Cell struct {
	Text   string
	Right  bool // right-aligned, as figures are
	Colour string
	name   bool // may be shortened
}

// Name returns a cell with a name, which is shortened if a line would be too long.
func Name(s string) Cell { return Cell{Text: cmp.Or(s, "-"), name: true} }

// Number returns a cell with a figure; empty: not measured.
func Number(s string) Cell { return Cell{Text: cmp.Or(s, "-"), Right: true} }

// Rate returns a cell with bytes per second as Gb/s; nil: not measured.
func Rate(bytesPerSecond *float64) Cell {
	if bytesPerSecond == nil {
		return Number("")
	}
	return Number(Gigabits(*bytesPerSecond))
}

// Titles returns a row of titles: one for the names, and those of the figures.
func Titles(name string, figures ...string) []Cell {
	row := []Cell{Name(name)}
	for _, f := range figures {
		row = append(row, Number(f))
	}
	return row
}

// ColorIf returns the cell in a colour if off is true.
func (c Cell) ColorIf(off bool, colour string) Cell {
	if off {
		c.Colour = colour
	}
	return c
}

// Printer writes lines, lists and tables. Not safe for concurrent use.
type Printer struct {
	w     *bufio.Writer
	color bool
	width int // maximum width of a table
}

// NewPrinter returns a printer on w, with colours if it is a terminal that wants them.
func NewPrinter(w io.Writer, color bool) Printer {
	return Printer{bufio.NewWriter(w), color, MaxColumns}
}

// Wide returns the printer with tables of at most this many columns; 0: [MaxColumns].
func (p Printer) Wide(columns int) Printer {
	p.width = cmp.Or(columns, MaxColumns)
	return p
}

// Flush writes what is buffered, and returns the first error of all writes.
func (p Printer) Flush() error { return p.w.Flush() }

// Item writes one point of a list.
func (p Printer) Item(text string) {
	for i, line := range terminal.Wrap(terminal.Plain(text), MaxColumns-4) {
		p.Line("  " + []string{"- ", "  "}[min(i, 1)] + line)
	}
}

// Line writes one line, cleaned.
func (p Printer) Line(s string) { p.line(terminal.Plain(s)) }

// Painted writes one line, cleaned and in a colour.
func (p Printer) Painted(s, colour string) { p.line(p.paint(terminal.Plain(s), colour)) }

// line writes one line without trailing blanks.
func (p Printer) line(s string) {
	p.w.WriteString(strings.TrimRight(s, " ") + "\n") //nolint:errcheck // Flush returns it
}

// paint returns s in a colour if colours are enabled.
func (p Printer) paint(s, colour string) string {
	if !p.color || colour == "" {
		return s
	}
	return colour + s + terminal.Reset
}

// Table writes rows, the titles first, cleaned, in columns separated by two blanks. If lines are too long, the
// widest names are shortened.
func (p Printer) Table(rows [][]Cell) {
	widths, texts := make([]int, len(rows[0])), make([][]string, len(rows))
	for n, row := range rows {
		for i, c := range row {
			text := terminal.Plain(c.Text)
			texts[n] = append(texts[n], text)
			widths[i] = max(widths[i], utf8.RuneCountInString(text))
		}
	}
	fit(widths, rows[0], p.width)
	for n, row := range rows {
		var b strings.Builder
		for i, c := range row {
			text := Shorten(texts[n][i], widths[i])
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text))
			if i > 0 {
				b.WriteString("  ")
			}
			switch text = p.paint(text, c.Colour); {
			case c.Right:
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
func fit(widths []int, titles []Cell, most int) {
	const least = 6
	for {
		total, widest := 2*(len(widths)-1), -1
		for i, width := range widths {
			total += width
			if titles[i].name && width > least && (widest < 0 || width > widths[widest]) {
				widest = i
			}
		}
		if total <= most || widest < 0 {
			return
		}
		widths[widest]--
	}
}
