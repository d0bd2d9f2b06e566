package sampler

import (
	"time"

	"github.com/railscope/railscope/internal/rail"
)

// steadyReads is the number of consecutive moves after which a counter counts as updated at each read. Two are not
// enough: an adapter that is late once writes twice within 0.2 s.
const steadyReads = 16

// counter makes samples from the readings of one counter. If each read queries the adapter, each reading ends a
// sample. Otherwise a sample covers at least the counter's period, and ends when the counter moved.
type counter struct {
	start   mark // start of the next sample
	aligned bool // start is not in the middle of a period
	pace    rail.Pace
	read    time.Time // last reading
	moved   time.Time // last reading in which it moved

	window time.Duration // length of the shortest sample; 0: the time between two reads
}

// sample is the traffic of a counter between two moments.
type sample struct {
	grew     uint64
	took     time.Duration
	still    time.Duration // time that the counter needed for its last move; 0: the same as took
	from, to int64         // ticks
}

// add adds a reading of a counter with a known period, and returns a sample if the result is counted. every is the
// time between two reads, tick the time between two ticks.
func (c *counter) add(now mark, known, every, tick time.Duration) (s sample, what int) {
	s.from, s.to = c.start.tick, now.tick
	if known == 0 {
		s.grew, s.took, what = c.start.advance(now, longest(every))
		return s, what
	}
	most := longest(every) + 2*c.window
	located, moved := c.note(now, known, every)
	if moved {
		if !c.moved.IsZero() {
			// the counter did not stall, at least not during the whole pause
			s.still = min(now.at.Sub(c.moved), 4*known)
		}
		c.moved = now.at
	}
	age := now.at.Sub(c.start.at)
	switch fits := c.start.known && now.opens == c.start.opens && now.value >= c.start.value && age <= most; {
	case !fits:
		c.aligned = false
	case c.window == 0:
		c.aligned = true
	case moved && !c.aligned: // the start was in the middle of a period
		c.start, c.start.known, c.aligned = now, true, true
		return s, first
	case moved && (located && age >= c.window-c.window/50 || age >= 2*c.window):
	case !moved && age >= 2*c.window && now.at.Sub(c.moved) >= c.window: // bytes of the last period may be missing
		now.at, now.tick = now.at.Add(-c.window), now.tick-int64(c.window/tick)
		s.to, c.aligned = now.tick, true
	default:
		return s, first
	}
	s.grew, s.took, what = c.start.advance(now, most)
	return s, what
}

// note notes a reading and sets the window. moved reports whether the counter moved, located whether the time of
// the move is known.
func (c *counter) note(now mark, known, every time.Duration) (located, moved bool) {
	located = now.at.Sub(c.read) <= 2*every
	c.read, c.pace.Least = now.at, steadyReads
	c.window, moved = c.pace.Note(now.value, now.at, known)
	// steadyReads consecutive moves prove a period of at most 16/15 of the time between two reads
	if c.window <= every*9/8 {
		c.window = 0
	}
	return located, moved
}
