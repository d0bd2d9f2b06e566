package sampler

import (
	"slices"
	"time"
)

// The bounds of --sample.interval. A slow device is read at least every MaxInterval.
const (
	MinInterval     = 10 * time.Millisecond
	DefaultInterval = 100 * time.Millisecond
	MaxInterval     = 10 * time.Second
)

// share is the part of its interval, 1/10, that reading a device may take.
const share = 10

// remembered is how many reads the median is of: one that waited for the processor changes nothing, five of nine do.
const remembered = 9

// pace is how often a device is read: every stride-th tick, so that reading takes less than 1/10 of the time.
type pace struct {
	interval time.Duration // between ticks
	stride   int
	least    int                       // stride
	took     [remembered]time.Duration // by the last reads
	at       int                       // of the oldest
}

func newPace(interval time.Duration) pace { return pace{interval: interval, stride: 1, least: 1} }

func (p *pace) every() time.Duration { return p.interval * time.Duration(p.stride) }

func (p *pace) atLeast(every time.Duration) {
	p.least = max(p.least, min(p.most(), int((every+p.interval-1)/p.interval)))
	p.stride = max(p.stride, p.least)
}

func (p *pace) most() int { return max(1, int(MaxInterval/p.interval)) }

// note records how long a read took, and reports whether the pace changed.
func (p *pace) note(took time.Duration) (changed bool) {
	p.took[p.at] = took
	p.at = (p.at + 1) % remembered
	usual, was := p.usual(), p.stride
	if want := p.needed(usual); want > p.stride {
		p.stride = want
	} else if want := p.needed(usual * 3 / 2); want < p.stride { // hysteresis: each change is logged
		p.stride = want
	}
	return p.stride != was
}

// needed is the lowest stride at which a read of that duration takes at most 1/10 of the time.
func (p *pace) needed(took time.Duration) int {
	return min(p.most(), max(p.least, int((took*share+p.interval-1)/p.interval)))
}

func (p *pace) usual() time.Duration {
	sorted := p.took
	slices.Sort(sorted[:])
	return max(sorted[remembered/2], 1)
}
