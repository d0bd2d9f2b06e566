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

// traffic is one reading of a rail's counters, or why it failed.
type traffic struct {
	rail.Traffic
	err error
}

// traffic reads the byte counters of rails, by name. A rail that cannot be read is not in the map.
func (n *Node) traffic(rails []localRail) map[string]rail.Traffic {
	ports := map[string]*rail.Port{}
	var names []string
	for _, r := range rails {
		ports[r.Name] = r.traffic
		names = append(names, r.Name)
	}
	out := map[string]rail.Traffic{}
	for _, res := range n.trafficLanes.Run(deviceBudget, names, func(name string) traffic {
		t, err := ports[name].Traffic()
		return traffic{t, err}
	}) {
		if res.Err == nil && res.Value.err == nil {
			out[res.Key] = res.Value.Traffic
		}
	}
	return out
}

// delta is what a rail carried between two readings.
type delta struct {
	out, in     float64 // bytes
	seconds     float64
	resent      bool // packets were lost: out counts some bytes more than once
	resentToUs  bool // likewise, in
	lateCounter bool // bytes from before the first reading may be counted
}

// trafficBetween returns what a rail carried. ok is false if it was not read, or its counters went backwards.
func trafficBetween(before, after map[string]rail.Traffic, name string) (d delta, ok bool) {
	b, okB := before[name]
	a, okA := after[name]
	if !okB || !okA || a.Transmit < b.Transmit || a.Receive < b.Receive {
		return d, false
	}
	return delta{out: float64(a.Transmit - b.Transmit), in: float64(a.Receive - b.Receive),
		seconds: a.At.Sub(b.At).Seconds(), resent: a.Retransmits != b.Retransmits, resentToUs: a.Repeats != b.Repeats,
		lateCounter: b.Slow}, true
}

// deltas are what rails carried, without those of which that is not known.
func deltas(rails []localRail, before, after map[string]rail.Traffic) iter.Seq2[localRail, delta] {
	return func(yield func(localRail, delta) bool) {
		for _, r := range rails {
			if d, ok := trafficBetween(before, after, r.Name); ok && !yield(r, d) {
				return
			}
		}
	}
}

// late is how many bytes of the probe's own payload from before the first reading were counted after it at most.
func (d delta) late(payload int64) float64 {
	if !d.lateCounter {
		return 0
	}
	return maxWireRatio * float64(payload)
}

// busy watches the rails for a moment before the probe uses them, and returns a failure if one carries more than the
// part above of its capacity. A rail of unknown capacity is never busy.
func (n *Node) busy(ctx context.Context, rails []localRail, above float64) *failure.Failure {
	uncounted := n.recent.uncounted()
	before := n.traffic(rails)
	select {
	case <-time.After(busyWindow):
	case <-ctx.Done():
		return failure.New(failure.StageLease, failure.Canceled, "%v", context.Cause(ctx))
	}
	for r, d := range deltas(rails, before, n.traffic(rails)) {
		if max(d.out, d.in) > 1e3*r.capacity*d.seconds {
			continue // not a rate, but a counter that was reset
		}
		if f := r.overused(d, d.out-d.late(uncounted), d.in-d.late(uncounted), above); f != nil {
			return f
		}
	}
	return nil
}

// overused returns a failure if one of these bytes of others is more than the part above of the rail's capacity.
func (r localRail) overused(d delta, out, in, above float64) *failure.Failure {
	if r.capacity <= 0 || d.seconds <= 0 {
		return nil
	}
	direction, bytes := "out", out
	if out/d.seconds/r.capacity <= above {
		direction, bytes = "in", in
	}
	part := bytes / d.seconds / r.capacity
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

// counterDelay is how late counters may be that are updated in the background.
const counterDelay = 2 * time.Second

// recentTransfers are the probe's own in the last counterDelay, in either direction. Safe for concurrent use.
type recentTransfers struct {
	mu   sync.Mutex // protects list
	list []finishedTransfer
}

type finishedTransfer struct {
	bytes int64 // payload
	ended time.Time
}

func (t finishedTransfer) expired() bool { return time.Since(t.ended) > counterDelay }

func (m *recentTransfers) add(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list = append(slices.DeleteFunc(m.list, finishedTransfer.expired), finishedTransfer{bytes, time.Now()})
}

// uncounted is how many bytes slow counters may not have counted yet.
func (m *recentTransfers) uncounted() (sum int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.list {
		if !t.expired() {
			sum += t.bytes
		}
	}
	return sum
}
