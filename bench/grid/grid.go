// Package grid prints what benchmarks measured: figures in the units that people read, and tables as wide as needed.
package grid

import (
	"bufio"
	"cmp"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/railscope/railscope/internal/terminal"
)

// MaxColumns is how wide a line of the table may be.
const MaxColumns = 100

// Cell is a piece of a table.
type Cell struct {
	Text   string
	Right  bool // as figures are
	Colour string
	name   bool // may be shortened
}

// Name is a cell with a name from outside: it is cleaned, and shortened where a line would be too long.
func Name(s string) Cell { return Cell{Text: cmp.Or(terminal.Plain(s), "-"), name: true} }

// Number is a cell with a figure; empty: not measured.
func Number(s string) Cell { return Cell{Text: cmp.Or(s, "-"), Right: true} }

// Rate is a cell with bytes per second in Gb/s; nil: not measured.
func Rate(bytesPerSecond *float64) Cell {
	if bytesPerSecond == nil {
		return Number("")
	}
	return Number(Gigabits(*bytesPerSecond))
}

// Titles are a row of the title of names and those of figures.
func Titles(name string, figures ...string) []Cell {
	row := []Cell{Name(name)}
	for _, f := range figures {
		row = append(row, Number(f))
	}
	return row
}

// ColorIf returns the cell in a colour if something is off.
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
	width int // of a table at most
}

// NewPrinter returns a printer on w, with colours if it is a terminal that wants them.
func NewPrinter(w io.Writer, color bool) Printer {
	return Printer{bufio.NewWriter(w), color, MaxColumns}
}

// Wide returns the printer with tables of at most so many columns; 0: as many as usual.
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

// Line writes one line, without blanks at its end.
func (p Printer) Line(s string) {
	p.w.WriteString(strings.TrimRight(s, " ") + "\n") //nolint:errcheck // Flush returns it
}

// Paint returns s in a colour, if there are colours.
func (p Printer) Paint(s, colour string) string {
	if !p.color || colour == "" {
		return s
	}
	return colour + s + terminal.Reset
}

// Table writes rows, the titles first, in columns with two blanks between them. If lines would be too long, the widest
// names are shortened.
func (p Printer) Table(rows [][]Cell) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c.Text))
		}
	}
	fit(widths, rows[0], p.width)
	for _, row := range rows {
		var b strings.Builder
		for i, c := range row {
			text := Shorten(c.Text, widths[i])
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text))
			if i > 0 {
				b.WriteString("  ")
			}
			switch text = p.Paint(text, c.Colour); {
			case c.Right:
				b.WriteString(pad + text)
			case i < len(row)-1:
				b.WriteString(text + pad)
			default:
				b.WriteString(text)
			}
		}
		p.Line(b.String())
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
