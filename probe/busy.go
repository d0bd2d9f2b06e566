package probe

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
)

// How long a rail is watched to say whether it is busy, and how often it is looked at while a round goes on. Each look
// costs a firmware command on some adapters.
const (
	busyWindow    = 100 * time.Millisecond
	guardInterval = 250 * time.Millisecond
)

// traffic is one reading, or why there is none.
type traffic struct {
	rail.Traffic
	err error
}

// traffic reads the byte counters of rails, by name. A rail that does not answer is not in the map.
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

// busy watches the rails for a moment, before anything of the probe's is on them, and returns a failure if one carries
// more than the part above of its capacity. A rail of unknown capacity is busy at no rate: there is no saying.
func (n *Node) busy(ctx context.Context, rails []localRail, above float64) *failure.Failure {
	late := n.recent.uncounted()
	before := n.traffic(rails)
	select {
	case <-time.After(busyWindow):
	case <-ctx.Done():
		return failure.New(failure.StageLease, failure.Canceled, "%v", context.Cause(ctx))
	}
	after := n.traffic(rails)
	for _, r := range rails {
		b, a, ok := trafficBetween(before, after, r.Name)
		seconds := a.At.Sub(b.At).Seconds()
		if !ok || r.capacity <= 0 || seconds <= 0 {
			continue
		}
		for direction, bytes := range map[string]uint64{"out": a.Transmit - b.Transmit, "in": a.Receive - b.Receive} {
			if part := (float64(bytes) - wasLate(b, late)) / seconds / r.capacity; part > above && part < 1e3 {
				return busyFailure(r, direction, part, above)
			}
		}
	}
	return nil
}

func busyFailure(r localRail, direction string, part, above float64) *failure.Failure {
	f := failure.New(failure.StageLease, failure.Busy,
		"%s carries other traffic: %s of its capacity going %s, and the probe keeps away above %s",
		r.Rail, percent(part), direction, percent(above))
	f.Rail = r.Name
	return f
}

func percent(part float64) string {
	p := fmt.Sprintf("%.1f %%", part*100)
	if part*100 >= 10 {
		p = fmt.Sprintf("%.0f %%", part*100)
	}
	return p
}

func trafficBetween(before, after map[string]rail.Traffic, name string) (b, a rail.Traffic, ok bool) {
	b, okB := before[name]
	a, okA := after[name]
	return b, a, okA && okB && a.Transmit >= b.Transmit && a.Receive >= b.Receive
}

// guard watches rails while the probe itself uses them, and tells when others want them.
type guard struct {
	node  *Node
	rails []localRail
	above float64
	// own returns the payload that the probe has sent over a rail and the most
	// that may be under way, since the guard began; nil when receiving.
	sent func(rail string) (sent, underway int64)
	// knows reports whether own tells all up to a moment, and news holds a token when that may have changed. What was
	// counted is judged only then: on a busy machine word from the worker takes long, and the bytes of that time would
	// seem to be others'.
	covers  func(when time.Time) bool
	updated <-chan struct{}
	// receiving says that the probe's traffic comes in rather than goes out, and
	// granted how many bytes of payload that may be.
	receiving bool
	granted   int64

	// also, if not nil, is told of every reading, and may end the watch.
	check func(now map[string]rail.Traffic) *failure.Failure

	start     map[string]rail.Traffic // what is compared with; nil: as it is when the watch begins
	uncounted int64                   // payload of the probe's that start may not have counted
}

// What the probe's own traffic may look like on the wire at most: payload in
// packets of 256 bytes, with all headers; and what comes back for it.
const (
	maxWireRatio = 1.3
	maxAckRatio  = 0.4
)

// watch returns a failure as soon as more than the part above of a rail's capacity is not the probe's, on average since
// it began, or nil when ctx is done.
func (g *guard) watch(ctx context.Context) *failure.Failure {
	if g.start == nil {
		g.uncounted, g.start = g.node.recent.uncounted(), g.node.traffic(g.rails)
	}
	tick := time.NewTicker(guardInterval)
	defer tick.Stop()
	var now map[string]rail.Traffic // that is to be judged; nil: none
	var when time.Time              // that it is older than
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-g.updated:
		case <-tick.C:
			if now == nil {
				now, when = g.node.traffic(g.rails), time.Now()
			}
		}
		if now == nil || !g.receiving && !g.covers(when) {
			continue
		}
		for _, r := range g.rails {
			if f := g.judge(r, g.start, now); f != nil {
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
func (g *guard) judge(r localRail, start, now map[string]rail.Traffic) *failure.Failure {
	b, a, ok := trafficBetween(start, now, r.Name)
	seconds := a.At.Sub(b.At).Seconds()
	if !ok || r.capacity <= 0 || seconds <= 0 {
		return nil
	}
	out, in := float64(a.Transmit-b.Transmit), float64(a.Receive-b.Receive)
	var foreignOut, foreignIn float64
	if g.receiving {
		// How much of what came in was the asker's, it knows and not we: but not more than it may write, or it is
		// others', or it breaks its word; unless packets are lost on the way. Then all that follow a lost one come once
		// more, and how often that is nobody can say.
		foreignOut = out - maxAckRatio*in
		if a.Repeats == b.Repeats {
			foreignIn = in - maxWireRatio*float64(g.granted)
		}
	} else {
		sent, underway := g.sent(r.Name)
		foreignIn = in - maxAckRatio*out
		if a.Retransmits == b.Retransmits { // otherwise it may be our own bytes once more
			foreignOut = out - maxWireRatio*float64(sent+underway)
		}
	}
	late := wasLate(b, g.uncounted)
	if part := (foreignOut - late) / seconds / r.capacity; part > g.above {
		return busyFailure(r, "out", part, g.above)
	}
	if part := (foreignIn - late) / seconds / r.capacity; part > g.above {
		return busyFailure(r, "in", part, g.above)
	}
	return nil
}

// wasLate is how many bytes of the probe's own from before a reading come to be counted only after it, at most.
func wasLate(before rail.Traffic, payload int64) float64 {
	if !before.Slow {
		return 0
	}
	return maxWireRatio * float64(payload)
}

// countersLate is how late counters may be that are.
const counterDelay = 2 * time.Second

// moved is what the probe moved a moment ago, either way. Safe for concurrent use.
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
	m.list = append(slices.DeleteFunc(m.list, finishedTransfer.expired), finishedTransfer{bytes, time.Now()})
}

// late is how many bytes may not be counted yet.
func (m *recentTransfers) uncounted() (sum int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range m.list {
		if !b.expired() {
			sum += b.bytes
		}
	}
	return sum
}

func (b finishedTransfer) expired() bool { return time.Since(b.ended) > counterDelay }
