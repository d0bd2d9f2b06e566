package node

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
)

// guardInterval is the time between readings of the rails during a burst or a lease. It is longer if a reading
// takes more than 1/guardShare of it: on some adapters a reading costs firmware commands.
const (
	guardInterval = 250 * time.Millisecond
	guardShare    = 20
)

// Upper bounds of the probe's own bytes on the wire: payload in packets of 256 bytes with all headers, and its
// acknowledgements.
const (
	maxWireRatio = 1.3
	maxAckRatio  = 0.4
)

// maxRepeats is how often all bytes may arrive again when packets are lost: the packets after a lost one are sent
// again.
const maxRepeats = 8

// Guard watches rails while the probe uses them, and fails when others use them too.
type Guard struct {
	Node  *Node
	Rails []LocalRail
	Above float64 // fraction of a rail's capacity that others may use

	Burst   *BurstProgress // progress of the probe's own burst; nil: it receives
	Granted int64          // payload bytes that it may receive, or be asked to send
	Asked   atomic.Bool    // the peer also reads from this node

	Check     func(now map[string]rail.Traffic) *failure.Failure // examines each reading; optional
	Start     map[string]rail.Traffic                            // the first reading; nil: at the first tick
	Uncounted int64                                              // own payload not yet counted at start
}

// Watch returns a failure when others use more of a port than g.above, on average since the start, or nil when ctx
// is done. A burst is first read at the second tick: a short one has ended by then. A reading is judged after the
// worker's report of that time, else own bytes would count as others'.
func (g *Guard) Watch(ctx context.Context) *failure.Failure {
	var updated <-chan struct{}
	if g.Burst != nil {
		updated = g.Burst.updated
	}
	tick := time.NewTicker(g.Node.GuardInterval)
	defer tick.Stop()
	var now map[string]rail.Traffic // reading to judge; nil: none
	var when time.Time              // time after the reading
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-updated:
		case <-tick.C:
			begin := time.Now()
			switch {
			case g.Start == nil:
				g.Uncounted, g.Start = g.Node.Recent.Uncounted(CounterDelay), g.Node.Traffic(g.Rails)
			case now == nil:
				now, when = g.Node.Traffic(g.Rails), time.Now()
			}
			tick.Reset(max(guardInterval, guardShare*time.Since(begin)))
		}
		if now == nil || g.Burst != nil && !g.Burst.covers(when) {
			continue
		}
		for r, d := range Deltas(g.Rails, g.Start, now) {
			if f := g.Judge(r, d); f != nil {
				return f
			}
		}
		if g.Check != nil {
			if f := g.Check(now); f != nil {
				return f
			}
		}
		now = nil
	}
}

// Judge compares the traffic of a rail with what the probe may have caused.
func (g *Guard) Judge(r LocalRail, d Delta) *failure.Failure {
	out, in := d.Out, d.In
	if g.Burst == nil {
		// Only the asker knows its part of in: at most the grant, unless packets are lost. The packets after a lost
		// one arrive again, any number of times.
		out -= maxAckRatio * d.In
		in -= maxWireRatio * float64(g.Granted)
		if g.Asked.Load() {
			out -= maxWireRatio * float64(g.Granted)
		}
		if d.resentToUs {
			in = 0
		}
	} else {
		var own [rail.Directions]float64
		for _, of := range g.Rails {
			if of.SharedPortKey() == r.SharedPortKey() {
				moved := g.Burst.moved(of.Name)
				own[rail.Transmit] += maxWireRatio * float64(moved[rail.Transmit])
				own[rail.Receive] += maxWireRatio * float64(moved[rail.Receive])
			}
		}
		in -= own[rail.Receive] + maxAckRatio*d.Out
		out -= own[rail.Transmit]
		if own[rail.Receive] > 0 {
			out -= maxAckRatio * d.In
		}
		if d.Resent {
			out = 0
		}
		if d.resentToUs && own[rail.Receive] > 0 {
			in = 0
		}
	}
	return r.overused(d, out-d.late(g.Uncounted), in-d.late(g.Uncounted), g.Above)
}

// Readable reports whether the counters of all rails were read.
func (g *Guard) Readable(now map[string]rail.Traffic) bool {
	return !slices.ContainsFunc(g.Rails, func(r LocalRail) bool {
		_, ok := PortTraffic(g.Start, now, r.Name)
		return !ok
	})
}

// Exact reports whether the counters of all rails were read, and are updated without delay.
func (g *Guard) Exact(now map[string]rail.Traffic) bool {
	for _, d := range Deltas(g.Rails, g.Start, now) {
		if d.Period > 0 {
			return false
		}
	}
	return g.Readable(now)
}

// BeyondGrant returns the bytes that all rails carried for the asker beyond its grant and the tolerated traffic of
// others. On a rail of unknown capacity, others may use as much as was granted.
func (g *Guard) BeyondGrant(now map[string]rail.Traffic) int64 {
	granted := maxWireRatio * float64(g.Granted)
	sum, times := 0.0, 1.0
	for r, d := range Deltas(g.Rails, g.Start, now) {
		if d.resentToUs {
			times = maxRepeats
		}
		others, carried := granted, d.In
		if r.Capacity > 0 {
			others = g.Above * r.Capacity * (d.Seconds + d.Period.Seconds())
		}
		if g.Asked.Load() {
			others, carried = 2*others, d.In+d.Out
		}
		sum += max(carried-d.late(g.Uncounted)-others, 0)
	}
	return int64(max(sum-times*granted, 0))
}

// BeyondOthers returns how many of the received bytes must be the asker's: others are assumed to send as much as
// they receive, and to use at most g.above of a rail.
func (g *Guard) BeyondOthers(now map[string]rail.Traffic) int64 {
	sum, times := 0.0, 1.0
	for r, d := range functionDeltas(g.Rails, g.Start, now) {
		if r.Capacity <= 0 {
			continue
		}
		if d.resentToUs {
			times = maxRepeats
		}
		sum += max(d.In-d.Out-d.late(g.Uncounted)-
			g.Above*r.Capacity*(d.Seconds+d.Period.Seconds()), 0)
	}
	return int64(sum / times)
}
