package probe

import (
	"slices"
	"time"

	"github.com/railscope/railscope/internal/rail"
)

// When the latency of a rail is uneven: its fastest write takes so many times as long as that of its siblings, and
// longer by so much, in so many rounds in a row, or in a single round by hand. Only a longer path delays the fastest
// one: on a starved virtual machine, medians and 5 % quantiles of healthy rails differed by a factor of 2 to 4, minima
// by 1.7. On adapters medians differ by 2 to 4 µs. Without siblings, a rail is compared with earlier rounds.
const (
	unevenTimes   = 2
	unevenLeast   = 20 * time.Microsecond
	unevenRounds  = 2
	latencyPasses = 2
	usualRounds   = 8 // that are remembered, and needed to know what is usual
)

// unevenDays is after how long an uneven latency is the usual one: a path that was made longer on purpose. It is as
// long as goodput_degraded remembers a better day.
const unevenDays = 7 * 24 * time.Hour

// railKind is what rails have in common whose latencies are compared.
type railKind struct {
	group    rail.Group
	software bool // at either end
}

// uneven reports whether a latency is longer than the usual one.
func uneven(latency, usual time.Duration) bool {
	return usual > 0 && latency > unevenTimes*usual && latency-usual > unevenLeast
}

// Uneven is the latency of a rail that is longer than it should be, all by the fastest write of a round.
type Uneven struct {
	Latency  time.Duration
	Siblings time.Duration // of the other rails; 0: there are none
	Before   time.Duration // of the same rail in earlier rounds; 0: not known
}

// latencyMemory is what a node remembers of a rail's latency.
type latencyMemory struct {
	usual [usualRounds]time.Duration // of the last rounds that were not uneven, latest first
	count int8                       // of them that are known
	high  int8                       // rounds in a row that were
	since time.Time                  // the first of these
	level time.Duration              // accepted after unevenDays, until it is even again; 0: none
}

// median is the usual latency; 0: too few rounds.
func (m *latencyMemory) median() time.Duration {
	if m.count < usualRounds {
		return 0
	}
	return medianOf(m.usual[:])
}

func medianOf(list []time.Duration) time.Duration {
	sorted := slices.Clone(list)
	slices.Sort(sorted)
	return sorted[(len(sorted)-1)/2]
}

// judgeLatency finds the rails with an uneven latency, and remembers that of the others. needed is in how many rounds
// in a row.
func (p *pastPeer) judgeLatency(res *Result, needed int8) {
	fastest := func(one *RailResult) (time.Duration, bool) {
		if one.Failure != nil || one.Latency == nil || len(one.Latency.Samples) == 0 {
			return 0, false
		}
		return one.Latency.Samples[0], true
	}
	for i := range res.Rails {
		one := &res.Rails[i]
		latency, ok := fastest(one)
		past := p.rail(one.Rail)
		if !ok || past == nil {
			continue
		}
		m := &past.latency
		var siblings []time.Duration
		for j := range res.Rails {
			if other, ok := fastest(&res.Rails[j]); ok && j != i && res.Rails[j].kind == one.kind {
				siblings = append(siblings, other)
			}
		}
		found := Uneven{Latency: latency, Before: m.median()}
		usual := found.Before
		if len(siblings) > 0 {
			found.Siblings = medianOf(siblings)
			usual = found.Siblings
		}
		long := uneven(latency, usual)
		if !long {
			m.level = 0
		}
		if long && m.high > 0 && res.Start.Sub(m.since) >= unevenDays {
			m.level = latency
		}
		if !long || m.level > 0 && !uneven(latency, m.level) {
			m.high = 0
			copy(m.usual[1:], m.usual[:])
			m.usual[0], m.count = latency, min(m.count+1, usualRounds)
			continue
		}
		if m.high == 0 {
			m.since = res.Start
		}
		if m.high = min(m.high+1, unevenRounds); m.high >= needed {
			one.Uneven = &found
		}
	}
}
