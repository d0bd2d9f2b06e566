package result

import (
	"slices"
	"time"

	"github.com/railscope/railscope/probe/internal/worker"
)

// AtEnd returns the progress at the end of a burst, with the goodput of its measured window, if there is one.
func (p Progress) AtEnd(done worker.BurstDone) Progress {
	p.Done, p.Ended = p.Total, true
	if done.Failed() || done.Disturbed() || done.Ramping() >= 0 {
		return p
	}
	for _, b := range done.Rails {
		p.Rate += b.Rate()
	}
	return p
}

// Flow is what one rail carried in one burst.
type Flow struct {
	Bytes  int64         // payload bytes between two completions, with all rails at full depth
	Active time.Duration // time between these completions, CLOCK_MONOTONIC
	Moved  int64         // payload bytes of the whole burst, repeats included
	Slow   bool          // fewer than 64 writes in 3 s, or before the other rails had completed theirs

	Counted *int64 // bytes that the port counted meanwhile, headers and other traffic included; nil: unknown
}

// BytesPerSecond returns the flow's goodput while it was active.
func (f Flow) BytesPerSecond() float64 {
	if f.Active <= 0 {
		return 0
	}
	return float64(f.Bytes) / f.Active.Seconds()
}

// Latency holds round trips of 8 B writes, one outstanding, from post to completion, CLOCK_MONOTONIC.
type Latency struct {
	Samples []time.Duration // writes one after another, ascending
	// Random has the samples of writes at random times, as traffic meets the path, ascending. Writes one after another
	// miss pauses: the one that waits through a pause is one of many. Samples during which the probe's thread did not
	// run are missing.
	Random []time.Duration

	// Adapter and Host split further writes of an interactive round: until the adapter stamped the completion
	// (adapter, wire and peer), and from then until it was polled. Ascending; nil: the adapter has no readable
	// clock.
	Adapter, Host []time.Duration
}

// Add adds the samples of a pass and, if known, the adapter's part of each. l may be nil.
func (l *Latency) Add(samples, adapter []time.Duration) *Latency {
	if len(samples) == 0 {
		return l
	}
	if l == nil {
		l = &Latency{}
	}
	l.Samples, l.Adapter = append(l.Samples, samples...), append(l.Adapter, adapter...)
	for i, d := range adapter {
		l.Host = append(l.Host, samples[i]-d)
	}
	for _, list := range [][]time.Duration{l.Samples, l.Adapter, l.Host} {
		slices.Sort(list)
	}
	return l
}

// AddRandom adds samples of writes at random times. Nil stays nil.
func (l *Latency) AddRandom(samples []time.Duration) *Latency {
	if l == nil {
		return nil
	}
	l.Random = append(l.Random, samples...)
	slices.Sort(l.Random)
	return l
}

// Met returns the samples that show what traffic meets: those at random times, else all.
func (l *Latency) Met() []time.Duration {
	if l == nil {
		return nil
	}
	if len(l.Random) > 0 {
		return l.Random
	}
	return l.Samples
}

// Quantile returns the sample below which the fraction q of all lies (nearest rank), 0 ≤ q ≤ 1.
func (l Latency) Quantile(q float64) time.Duration { return Quantile(l.Samples, q) }

// Quantile returns the same quantile of ascending times; 0: there are none.
func Quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	i := int(q*float64(len(sorted))+0.9999999) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// TCPResult is one burst over TCP.
type TCPResult struct {
	Streams        int // connections per rail
	BytesPerSecond float64
	Retransmits    uint64        // retransmitted segments of all streams (TCP_INFO tcpi_total_retrans)
	PathMTU        int           // bytes, the smallest of all streams
	RTT            time.Duration // smoothed, the largest of all streams, after the burst
	Rails          []TCPRail
	Failure        *Failure // why there is no figure
}

// TCPRail is what one rail, or one bond in an extra of kind [Bond], carried in the burst.
type TCPRail struct {
	Rail           string
	BytesPerSecond float64
	Counted        *int64 // bytes counted by the port, as in [Flow]
}

// Progress reports how far a stage of a round has come.
type Progress struct {
	Stage Stage
	Rail  string // rail in progress; empty: all
	Done  int64  // bytes
	Total int64  // bytes or writes; 0: unknown

	Rate  float64 // bytes per second since the last report, or in the window of an ended burst; 0: unknown
	Ended bool    // the burst has ended; what arrived is being verified

	Kind        Kind          // extra that is measured; empty: none
	Step, Steps int           // number of the present burst, from 1, and of all bursts of extras; 0: none
	Left        time.Duration // estimated time until all is measured; 0: unknown
}
