package bench

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe/result"
)

// Bar shows the progress of rounds on one line of a terminal. Not safe for concurrent use.
type Bar struct {
	w         io.Writer
	drawn     time.Time     // zero: nothing to clear
	round, of int           // number of the round and of all rounds; 0: a single one
	began     time.Time     // start of the round
	name      string        // step of a suite; empty: none
	after     time.Duration // time of the steps that follow
}

const (
	redrawEvery = 100 * time.Millisecond
	lineWidth   = 79 // columns: a line that wraps cannot be erased
	maxGraph    = 24
	minGraph    = 8
	minName     = 6 // least columns for the name of a rail
	eraseLine   = "\r\x1b[K"
)

// NewBar returns a bar on w, which is a terminal.
func NewBar(w io.Writer) *Bar { return &Bar{w: w} }

// Round begins one of several rounds.
func (b *Bar) Round(n, of int) {
	b.began = time.Now()
	if of > 1 {
		b.round, b.of = n, of
	}
}

// Step begins a step of a suite. after is how long the steps that follow it take.
func (b *Bar) Step(name string, after time.Duration) { b.name, b.after = name, after }

// Update redraws the line, at most ten times per second, and when a burst ends.
func (b *Bar) Update(p result.Progress) {
	now := time.Now()
	if !b.drawn.IsZero() && now.Sub(b.drawn) < redrawEvery && !p.Ended {
		return
	}
	b.drawn = now
	fmt.Fprint(b.w, eraseLine+b.line(p))
}

// Clear removes the line.
func (b *Bar) Clear() {
	if !b.drawn.IsZero() {
		fmt.Fprint(b.w, eraseLine)
	}
	b.drawn = time.Time{}
}

// line returns the step, its progress and rate, and the time left.
func (b *Bar) line(p result.Progress) string {
	tail, percent := "", ""
	if p.Total > 0 {
		percent = fmt.Sprintf("  %3.0f %%", 100*part(p))
	}
	if p.Rate > 0 {
		tail += "  " + grid.Gigabits(p.Rate) + " Gb/s"
	}
	if p.Left > 0 { // later rounds are assumed to take as long as this one
		left := p.Left
		if b.of > 0 {
			left += time.Duration(b.of-b.round)*(time.Since(b.began)+p.Left) + b.after
		}
		tail += "  " + about(left) + " left"
	}
	room := lineWidth - utf8.RuneCountInString(tail)
	line := b.step(p, room)
	if n := utf8.RuneCountInString(line + percent); n <= room {
		tail, room = percent+tail, room-len(percent)
	}
	width := min(room-utf8.RuneCountInString(line)-len(" []"), maxGraph)
	if p.Total > 0 && width >= minGraph {
		full := int(part(p) * float64(width))
		line += " [" + strings.Repeat("#", full) + strings.Repeat("-", width-full) + "]"
	}
	all := []rune(line + tail)
	return string(all[:min(len(all), lineWidth)])
}

// part returns the fraction of a burst that was carried.
func part(p result.Progress) float64 { return min(max(float64(p.Done)/float64(p.Total), 0), 1) }

// step returns what is measured. If the line would be too long, the name of the rail is shortened.
func (b *Bar) step(p result.Progress, room int) string {
	before, after, rail := "", "", terminal.Plain(p.Rail)
	if b.of > 0 {
		before = fmt.Sprintf("round %d of %d, ", b.round, b.of)
		if b.name != "" {
			before = fmt.Sprintf("%s %d/%d, ", b.name, b.round, b.of)
		}
	}
	if p.Steps > 0 {
		before += fmt.Sprintf("extra %d of %d: ", p.Step, p.Steps)
		after = strings.ReplaceAll(string(p.Kind), "_", " ")
		if p.Stage != "extra" {
			after += ", " + string(p.Stage)
		}
		if rail != "" {
			before, after = before+"rail ", " "+after
		}
	} else {
		before += string(p.Stage)
		if rail != "" {
			before += ", rail "
		}
	}
	room -= utf8.RuneCountInString(before + after)
	return before + grid.Shorten(rail, max(room, minName)) + after
}

// about formats an estimated time.
func about(d time.Duration) string {
	if d < 100*time.Second {
		return fmt.Sprintf("about %d s", max(int(d.Round(time.Second).Seconds()), 1))
	}
	return fmt.Sprintf("about %d min", int(d.Round(time.Minute).Minutes()))
}
