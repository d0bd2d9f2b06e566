package history

import (
	"time"

	"github.com/railscope/railscope/internal/stats"
	"github.com/railscope/railscope/probe/result"
)

const unevenTimes = 2

const minUneven = 20 * time.Microsecond

const unevenRounds = 2

// UsualRounds is how many rounds are remembered, and needed to know the usual latency.
const UsualRounds = 8

// unevenDays is the time after which an uneven latency becomes the usual one: the path was made longer on purpose.
// goodput_degraded remembers a better day for equally long.
const unevenDays = 7 * 24 * time.Hour

// uneven reports whether a latency is longer than the usual one.
func uneven(latency, usual time.Duration) bool {
	return usual > 0 && latency > unevenTimes*usual && latency-usual > minUneven
}

// latencyMemory is what a node remembers of a rail's latency.
type latencyMemory struct {
	usual [UsualRounds]time.Duration // latencies of the last even rounds, newest first
	count int8                       // number of known latencies in usual
	high  int8                       // uneven rounds in a row
	since time.Time                  // start of the first of these rounds
	level time.Duration              // latency accepted after unevenDays, until it is even again; 0: none
}

// median returns the usual latency; 0: too few rounds.
func (m *latencyMemory) median() time.Duration {
	if m.count < UsualRounds {
		return 0
	}
	return stats.Quantile(m.usual[:], 0.5)
}

// judgeLatency finds the rails with an uneven latency, and remembers the others' latency. needed is the number of
// uneven rounds in a row. A rail that others use is skipped, because its latency includes their queue.
func (p *PastPeer) judgeLatency(res *result.Result, needed int8) {
	fastest := func(one *result.RailResult) (time.Duration, bool) {
		if one.Failure != nil || one.Busy || one.OthersSeen() != nil || one.Latency == nil ||
			len(one.Latency.Samples) == 0 {
			return 0, false
		}
		return one.Latency.Samples[0], true
	}
	for i := range res.Rails {
		rail := &res.Rails[i]
		latency, ok := fastest(rail)
		past := p.Rail(rail.Rail)
		if !ok || past == nil {
			continue
		}
		m := &past.latency
		var siblings []time.Duration
		for j := range res.Rails {
			if other, ok := fastest(&res.Rails[j]); ok && j != i && res.Rails[j].Kind == rail.Kind {
				siblings = append(siblings, other)
			}
		}
		found := result.Uneven{Latency: latency, Before: m.median()}
		usual := found.Before
		if len(siblings) > 0 {
			found.Siblings = stats.Quantile(siblings, 0.5)
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
			m.usual[0], m.count = latency, min(m.count+1, UsualRounds)
			continue
		}
		if m.high == 0 {
			m.since = res.Start
		}
		m.high = min(m.high+1, unevenRounds)
		if m.high >= needed {
			rail.Uneven = &found
		}
	}
}
