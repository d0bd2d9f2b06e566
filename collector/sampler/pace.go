package sampler

import (
	"slices"
	"time"
)

// The bounds of --sample.interval. A device that is slow is read every
// MaxInterval at the least.
const (
	MinInterval     = 10 * time.Millisecond
	DefaultInterval = 100 * time.Millisecond
	MaxInterval     = 10 * time.Second
)

// share is the part of its interval that reading a device may take.
const share = 10

// remembered is how many reads the usual one is the median of: one that had to
// wait for the processor changes nothing, five of nine do.
const remembered = 9

// pace is how often a device is read: every stride-th tick, so that what it
// takes stays below a tenth of the time.
type pace struct {
	interval time.Duration // between ticks
	stride   int
	least    int                       // stride
	took     [remembered]time.Duration // by the last reads
	at       int                       // of the oldest
	slow     int                       // reads in took of more than a tenth of the interval
}

func newPace(interval time.Duration) pace { return pace{interval: interval, stride: 1, least: 1} }

// every is the time between two reads.
func (p *pace) every() time.Duration { return p.interval * time.Duration(p.stride) }

// atLeast makes reads at least so far apart.
func (p *pace) atLeast(every time.Duration) {
	p.least = max(p.least, min(p.most(), int((every+p.interval-1)/p.interval)))
	p.stride = max(p.stride, p.least)
}

func (p *pace) most() int { return max(1, int(MaxInterval/p.interval)) }

// note records how long a read took, and reports whether the pace changed.
func (p *pace) note(took time.Duration) (changed bool) {
	limit := p.interval / share
	if p.took[p.at] > limit {
		p.slow--
	}
	if took > limit {
		p.slow++
	}
	p.took[p.at] = took
	p.at = (p.at + 1) % remembered
	if p.slow <= remembered/2 && p.stride == p.least {
		return false // the usual case costs no more than this
	}
	usual := p.usual()
	if want := p.needed(usual); want > p.stride {
		p.stride = want
		return true
	}
	if want := p.needed(usual * 3 / 2); want < p.stride { // with hysteresis: each change is a line in the log
		p.stride = want
		return true
	}
	return false
}

// needed is the least stride at which a read that takes so long takes a tenth
// at most.
func (p *pace) needed(took time.Duration) int {
	return min(p.most(), max(p.least, int((took*share+p.interval-1)/p.interval)))
}

// usual is the median of the last reads.
func (p *pace) usual() time.Duration {
	sorted := p.took
	slices.Sort(sorted[:])
	return max(sorted[remembered/2], 1)
}
