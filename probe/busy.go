package probe

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
)

// traffic reads the byte counters of rails, by name. A rail that cannot be read is not in the map.
func (n *Node) traffic(rails []localRail) map[string]rail.Traffic {
	if len(rails) == 0 {
		return map[string]rail.Traffic{} // a reading of nothing
	}
	ports := map[string]*rail.Port{}
	var names []string
	for _, r := range rails {
		ports[r.Name] = r.traffic
		names = append(names, r.Name)
	}
	out := map[string]rail.Traffic{}
	for _, res := range n.trafficLanes.Run(deviceBudget, names, func(name string) *rail.Traffic {
		t, err := ports[name].Traffic()
		if err != nil {
			return nil
		}
		return &t
	}) {
		if res.Value != nil { // it was read in time
			out[res.Key] = *res.Value
		}
	}
	return out
}

// delta is what a rail carried between two readings.
type delta struct {
	out, in    float64 // bytes
	seconds    float64
	resent     bool          // packets were lost: out counts some bytes more than once
	resentToUs bool          // likewise, in
	period     time.Duration // as much traffic from before the first reading may be counted
}

// trafficBetween returns what a rail's function carried. ok is false if it was not read, or its counters went
// backwards.
func trafficBetween(before, after map[string]rail.Traffic, name string) (d delta, ok bool) {
	b, okB := before[name]
	a, okA := after[name]
	if !okB || !okA || a.Transmit < b.Transmit || a.Receive < b.Receive {
		return d, false
	}
	return delta{out: float64(a.Transmit - b.Transmit), in: float64(a.Receive - b.Receive),
		seconds: a.At.Sub(b.At).Seconds(), resent: a.Retransmits != b.Retransmits, resentToUs: a.Repeats != b.Repeats,
		period: min(a.Period, b.Period)}, true
}

// portTraffic returns what the physical port of a rail carried.
func portTraffic(before, after map[string]rail.Traffic, name string) (d delta, ok bool) {
	d, ok = trafficBetween(before, after, name)
	b, a := before[name], after[name]
	if !ok || a.Physical != b.Physical || a.Generation != b.Generation || a.Port[rail.Transmit] < b.Port[rail.Transmit] ||
		a.Port[rail.Receive] < b.Port[rail.Receive] {
		return d, false
	}
	d.out = float64(a.Port[rail.Transmit] - b.Port[rail.Transmit])
	d.in = float64(a.Port[rail.Receive] - b.Port[rail.Receive])
	return d, true
}

// functionDeltas are what the functions of rails carried, without those of which that is not known.
func functionDeltas(rails []localRail, before, after map[string]rail.Traffic) iter.Seq2[localRail, delta] {
	return func(yield func(localRail, delta) bool) {
		for _, r := range rails {
			if d, ok := trafficBetween(before, after, r.Name); ok && !yield(r, d) {
				return
			}
		}
	}
}

// deltas are what physical ports carried, without those of which that is not known. Each is yielded with the first of
// its rails, whose capacity is that of the port; without counters of the physical port, each rail is one.
func deltas(rails []localRail, before, after map[string]rail.Traffic) iter.Seq2[localRail, delta] {
	return func(yield func(localRail, delta) bool) {
		seen := map[string]bool{}
		for _, r := range rails {
			d, ok := portTraffic(before, after, r.Name)
			if !ok {
				continue
			}
			if key := r.portKey(); after[r.Name].Physical {
				if seen[key] {
					continue
				}
				seen[key], r.capacity = true, r.portCapacity
				for _, other := range rails {
					if same, ok := trafficBetween(before, after, other.Name); ok && other.portKey() == key {
						d.resent, d.resentToUs = d.resent || same.resent, d.resentToUs || same.resentToUs
					}
				}
			}
			if !yield(r, d) {
				return
			}
		}
	}
}

// settleTime is how long a round waits at most for counters that move once in a while.
const settleTime = time.Second

// settledTraffic reads the counters when they have moved since the probe's last transfer.
func (n *Node) settledTraffic(ctx context.Context, rails []localRail) map[string]rail.Traffic {
	now, since := n.traffic(rails), n.recent.idle()
	var wait time.Duration
	for _, t := range now {
		if t.Period <= settleTime {
			wait = max(wait, t.Period-since)
		}
	}
	if wait <= 0 {
		return now
	}
	select {
	case <-time.After(wait):
		return n.traffic(rails)
	case <-ctx.Done():
		return now
	}
}

// late is how many bytes of the probe's own payload from before the first reading were counted after it at most.
func (d delta) late(payload int64) float64 {
	if d.period <= 0 {
		return 0
	}
	return maxWireRatio * float64(payload)
}

// busy returns a failure if a rail carries more than the part above of its capacity: over the last seconds, where these
// are known, else over a moment in which it is watched, twice the period of its counters, but at most maxBusyWindow. A
// rail of unknown capacity is never busy.
func (n *Node) busy(ctx context.Context, rails []localRail, above float64) *failure.Failure {
	var unknown []localRail
	sum := 0.0
	for _, r := range rails {
		sum += r.capacity
	}
	for _, r := range rails {
		mean, ok := rail.MeanTraffic{}, false
		if n.meanTraffic != nil {
			mean, ok = n.meanTraffic(r.Rail)
		}
		if !ok {
			unknown = append(unknown, r)
		} else if f := n.wasBusy(r, mean, above, sum); f != nil {
			return f
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	before := n.traffic(unknown)
	window := busyWindow
	for _, t := range before {
		window = max(window, min(2*t.Period, maxBusyWindow))
	}
	own := n.recent.uncounted(counterDelay)
	select {
	case <-time.After(window):
	case <-ctx.Done():
		return failure.New(failure.StageLease, failure.Canceled, "%v", context.Cause(ctx))
	}
	for r, d := range deltas(unknown, before, n.traffic(unknown)) {
		if max(d.out, d.in) > 1e3*r.capacity*d.seconds {
			continue // not a rate, but a counter that was reset
		}
		if f := r.overused(d, d.out-d.late(own), d.in-d.late(own), above); f != nil {
			return f
		}
	}
	return nil
}

// wasBusy returns a failure if others used more than the part above of a rail or of its port in the last seconds. The
// probe's own bytes are spread over all rails, whose capacities add up to sum.
func (n *Node) wasBusy(r localRail, mean rail.MeanTraffic, above, sum float64) *failure.Failure {
	if r.capacity <= 0 {
		return nil
	}
	total := maxWireRatio * float64(n.recent.uncounted(mean.Over+counterDelay))
	d := delta{seconds: mean.Over.Seconds()}
	others := func(rates [rail.Directions]float64) (out, in float64) {
		own := total * r.capacity / sum
		return rates[rail.Transmit]*d.seconds - own, rates[rail.Receive]*d.seconds - own
	}
	out, in := others(mean.Rate)
	f := r.overused(d, out, in, above)
	if r.capacity = r.portCapacity; f == nil && mean.Physical {
		out, in = others(mean.Port)
		f = r.overused(d, out, in, above)
	}
	return f
}

// overused returns a failure if one of these bytes of others is more than the part above of the rail's capacity.
func (r localRail) overused(d delta, out, in, above float64) *failure.Failure {
	seconds := d.seconds + d.period.Seconds() // in which they may have been carried
	if r.capacity <= 0 || d.seconds <= 0 {
		return nil
	}
	direction, bytes := "out", out
	if out/seconds/r.capacity <= above {
		direction, bytes = "in", in
	}
	part := bytes / seconds / r.capacity
	if part <= above {
		return nil
	}
	f := failure.New(failure.StageLease, failure.Busy,
		"%s carries other traffic: %s of its capacity going %s, above the limit of %s", r.Rail, percent(part),
		direction, percent(above))
	f.Rail = r.Name
	return f
}

func percent(part float64) string {
	if part*100 >= 10 {
		return fmt.Sprintf("%.0f %%", part*100)
	}
	return fmt.Sprintf("%.1f %%", part*100)
}

const (
	// maxBusyWindow is how long rails are watched at most.
	maxBusyWindow = 2 * time.Second
	// counterDelay is more than counters are late that are updated in the background.
	counterDelay = 2 * time.Second
	// keepTransfers is for how long the probe's own transfers are kept: longer than traffic is averaged.
	keepTransfers = 30 * time.Second
)

// recentTransfers are the probe's own in the last keepTransfers, in either direction. Safe for concurrent use.
type recentTransfers struct {
	mu   sync.Mutex // protects list
	list []finishedTransfer
}

type finishedTransfer struct {
	bytes int64 // payload
	ended time.Time
}

func (m *recentTransfers) add(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list = append(slices.DeleteFunc(m.list, func(t finishedTransfer) bool {
		return time.Since(t.ended) > keepTransfers
	}), finishedTransfer{bytes, time.Now()})
}

// idle is the time since the last transfer.
func (m *recentTransfers) idle() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.list) == 0 {
		return keepTransfers
	}
	return time.Since(m.list[len(m.list)-1].ended)
}

// uncounted is how many bytes counters may include that cover so much time, or not have counted yet if they are as
// late.
func (m *recentTransfers) uncounted(within time.Duration) (sum int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.list {
		if time.Since(t.ended) <= within {
			sum += t.bytes
		}
	}
	return sum
}
