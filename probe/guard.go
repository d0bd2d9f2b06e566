package probe

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
)

// guardInterval is how often rails are read during a burst or a lease, unless a reading takes longer than 1/guardShare
// of it: on some adapters it costs firmware commands.
const (
	guardInterval = 250 * time.Millisecond
	guardShare    = 20
)

// What the probe's own traffic may be on the wire at most: payload in packets of 256 bytes with all headers, and
// acknowledgements for it.
const (
	maxWireRatio = 1.3
	maxAckRatio  = 0.4
)

// maxRepeats is how often all bytes may arrive again where packets are lost: those that follow a lost one are resent.
const maxRepeats = 8

// guard watches rails while the probe uses them, and fails when others use them as well.
type guard struct {
	node  *Node
	rails []localRail
	above float64 // of a rail's capacity, that others may use

	burst   *burstProgress // what the probe sends; nil: it receives
	granted int64          // bytes of payload that it may receive, or be asked for
	asked   atomic.Bool    // the peer reads from this node, too

	check     func(now map[string]rail.Traffic) *failure.Failure // examines each reading; optional
	start     map[string]rail.Traffic                            // the first reading; nil: at the first tick
	uncounted int64                                              // payload of the probe from before start
}

// watch returns a failure as soon as more than the part above of a port's capacity is not the probe's, on average since
// the start, or nil when ctx is done. A burst is read from its second tick on: one on a fast link has ended before, and
// costs no reading. A reading during a burst is judged when the worker has reported the bytes of that
// time: on a busy machine the report is late, and the probe's bytes would count as those of others.
func (g *guard) watch(ctx context.Context) *failure.Failure {
	var updated <-chan struct{}
	if g.burst != nil {
		updated = g.burst.updated
	}
	tick := time.NewTicker(g.node.guardInterval)
	defer tick.Stop()
	var now map[string]rail.Traffic // to be judged; nil: none
	var when time.Time              // after now was read
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-updated:
		case <-tick.C:
			begin := time.Now()
			switch {
			case g.start == nil:
				g.uncounted, g.start = g.node.recent.uncounted(counterDelay), g.node.traffic(g.rails)
			case now == nil:
				now, when = g.node.traffic(g.rails), time.Now()
			}
			tick.Reset(max(guardInterval, guardShare*time.Since(begin)))
		}
		if now == nil || g.burst != nil && !g.burst.covers(when) {
			continue
		}
		for r, d := range deltas(g.rails, g.start, now) {
			if f := g.judge(r, d); f != nil {
				return f
			}
		}
		if g.check != nil {
			if f := g.check(now); f != nil {
				return f
			}
		}
		now = nil
	}
}

// judge compares what a rail carried with what the probe may have caused.
func (g *guard) judge(r localRail, d delta) *failure.Failure {
	out, in := d.out, d.in
	if g.burst == nil {
		// How much of in is the asker's, only the asker knows: at most the grant, unless packets are lost. Then those
		// that follow a lost one arrive again, any number of times.
		out -= maxAckRatio * d.in
		in -= maxWireRatio * float64(g.granted)
		if g.asked.Load() {
			out -= maxWireRatio * float64(g.granted)
		}
		if d.resentToUs {
			in = 0
		}
	} else {
		var own [rail.Directions]float64
		for _, of := range g.rails {
			if of.portKey() == r.portKey() {
				moved := g.burst.moved(of.Name)
				own[rail.Transmit] += maxWireRatio * float64(moved[rail.Transmit])
				own[rail.Receive] += maxWireRatio * float64(moved[rail.Receive])
			}
		}
		in -= own[rail.Receive] + maxAckRatio*d.out
		if out -= own[rail.Transmit]; own[rail.Receive] > 0 {
			out -= maxAckRatio * d.in
		}
		if d.resent {
			out = 0
		}
		if d.resentToUs && own[rail.Receive] > 0 {
			in = 0
		}
	}
	return r.overused(d, out-d.late(g.uncounted), in-d.late(g.uncounted), g.above)
}

// readable reports whether the counters of all rails were read.
func (g *guard) readable(now map[string]rail.Traffic) bool {
	return !slices.ContainsFunc(g.rails, func(r localRail) bool {
		_, ok := portTraffic(g.start, now, r.Name)
		return !ok
	})
}

// exact reports whether they were read, and are not late.
func (g *guard) exact(now map[string]rail.Traffic) bool {
	for _, d := range deltas(g.rails, g.start, now) {
		if d.period > 0 {
			return false
		}
	}
	return g.readable(now)
}

// beyondGrant is how many bytes all rails carried for the asker beyond what it may move and others may use; on a rail
// of unknown capacity, others may use as much as was granted.
func (g *guard) beyondGrant(now map[string]rail.Traffic) int64 {
	granted := maxWireRatio * float64(g.granted)
	sum, times := 0.0, 1.0
	for r, d := range deltas(g.rails, g.start, now) {
		if d.resentToUs {
			times = maxRepeats
		}
		others, carried := granted, d.in
		if r.capacity > 0 {
			others = g.above * r.capacity * (d.seconds + d.period.Seconds())
		}
		if g.asked.Load() {
			others, carried = 2*others, d.in+d.out
		}
		sum += max(carried-d.late(g.uncounted)-others, 0)
	}
	return int64(max(sum-times*granted, 0))
}

// beyondOthers is how many of the received bytes must be the asker's: traffic of others goes both ways, and uses at
// most the part above of a rail.
func (g *guard) beyondOthers(now map[string]rail.Traffic) int64 {
	sum, times := 0.0, 1.0
	for r, d := range functionDeltas(g.rails, g.start, now) {
		if r.capacity <= 0 {
			continue
		}
		if d.resentToUs {
			times = maxRepeats
		}
		sum += max(d.in-d.out-d.late(g.uncounted)-
			g.above*r.capacity*(d.seconds+d.period.Seconds()), 0)
	}
	return int64(sum / times)
}
