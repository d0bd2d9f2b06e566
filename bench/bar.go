package bench

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe"
)

// Bar shows the progress of a round on one line of a terminal. Not safe for concurrent use.
type Bar struct {
	w     io.Writer
	stage probe.Progress // what the last update was about
	since time.Time      // when that stage began
	from  int64          // what was done by then
	drawn time.Time      // zero: there is nothing to clear
}

const (
	redrawEvery = 100 * time.Millisecond
	barWidth    = 24
	eraseLine   = "\r\x1b[K"
)

// NewBar returns a bar on w, which is a terminal.
func NewBar(w io.Writer) *Bar { return &Bar{w: w} }

// Update redraws the line, at most ten times a second.
func (b *Bar) Update(p probe.Progress) {
	now := time.Now()
	if b.since.IsZero() || p.Stage != b.stage.Stage || p.Rail != b.stage.Rail || p.Done < b.stage.Done {
		b.since, b.from = now, p.Done
	}
	b.stage = p
	if !b.drawn.IsZero() && now.Sub(b.drawn) < redrawEvery {
		return
	}
	b.drawn = now
	fmt.Fprint(b.w, eraseLine+b.line(p, now.Sub(b.since)))
}

// Clear removes the line.
func (b *Bar) Clear() {
	if !b.drawn.IsZero() {
		fmt.Fprint(b.w, eraseLine)
	}
	b.drawn, b.since = time.Time{}, time.Time{}
}

// line is at most 79 columns wide: one that wraps cannot be erased.
func (b *Bar) line(p probe.Progress, took time.Duration) string {
	what := string(p.Stage)
	if p.Rail != "" {
		what += ", rail " + p.Rail
	}
	what = grid.Shorten(terminal.Plain(what), 16)
	if p.Total <= 0 {
		return what
	}
	part := min(max(float64(p.Done)/float64(p.Total), 0), 1)
	full := int(part * barWidth)
	line := fmt.Sprintf("%-16s [%s%s] %3.0f %%  ", what, strings.Repeat("#", full), strings.Repeat("-", barWidth-full),
		part*100)
	if took > 0 && p.Done > b.from {
		return line + fmt.Sprintf("%s  %s Gb/s", grid.Mebibytes(p.Done), grid.Gigabits(float64(p.Done-b.from)/took.Seconds()))
	}
	return line + grid.Mebibytes(p.Done)
}
