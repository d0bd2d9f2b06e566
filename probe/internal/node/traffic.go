package node

import (
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe/internal/failure"
)

// Traffic reads the byte counters of rails, by rail name. Rails that cannot be read are not in the map.
func (n *Node) Traffic(rails []LocalRail) map[string]rail.Traffic {
	if len(rails) == 0 {
		return map[string]rail.Traffic{} // empty: no reading
	}
	ports := map[string]*rail.Port{}
	var names []string
	for _, r := range rails {
		ports[r.Name] = r.Traffic
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
		if res.Value != nil { // the lane has read it in time
			out[res.Key] = *res.Value
		}
	}
	return out
}

// Delta is the traffic of a rail between two readings.
type Delta struct {
	Out, In    float64 // bytes
	Seconds    float64
	Resent     bool          // packets were lost: out includes some bytes more than once
	resentToUs bool          // packets to this node were lost: in includes some bytes more than once
	Period     time.Duration // update period: traffic from up to this long before the first reading may be included
}

// TrafficBetween returns what a rail's function carried between two readings. ok is false if it was not read, or
// its counters went backwards.
func TrafficBetween(before, after map[string]rail.Traffic, name string) (d Delta, ok bool) {
	b, okB := before[name]
	a, okA := after[name]
	if !okB || !okA || a.Transmit < b.Transmit || a.Receive < b.Receive {
		return d, false
	}
	return Delta{Out: float64(a.Transmit - b.Transmit), In: float64(a.Receive - b.Receive),
		Seconds: a.At.Sub(b.At).Seconds(), Resent: a.Retransmits != b.Retransmits, resentToUs: a.Repeats != b.Repeats,
		Period: min(a.Period, b.Period)}, true
}

// PortTraffic returns what the physical port of a rail carried between two readings.
func PortTraffic(before, after map[string]rail.Traffic, name string) (d Delta, ok bool) {
	d, ok = TrafficBetween(before, after, name)
	b, a := before[name], after[name]
	if !ok || a.Physical != b.Physical || a.Generation != b.Generation ||
		a.Port[rail.Transmit] < b.Port[rail.Transmit] ||
		a.Port[rail.Receive] < b.Port[rail.Receive] {
		return d, false
	}
	d.Out = float64(a.Port[rail.Transmit] - b.Port[rail.Transmit])
	d.In = float64(a.Port[rail.Receive] - b.Port[rail.Receive])
	return d, true
}

// functionDeltas returns what the functions of rails carried. Rails without a valid reading are left out.
func functionDeltas(rails []LocalRail, before, after map[string]rail.Traffic) iter.Seq2[LocalRail, Delta] {
	return func(yield func(LocalRail, Delta) bool) {
		for _, r := range rails {
			if d, ok := TrafficBetween(before, after, r.Name); ok && !yield(r, d) {
				return
			}
		}
	}
}

// Deltas returns what physical ports carried; ports without a valid reading are left out. Each comes with the first
// of its rails, whose capacity is the port's. Without counters of the physical port, each rail counts as a port.
func Deltas(rails []LocalRail, before, after map[string]rail.Traffic) iter.Seq2[LocalRail, Delta] {
	return func(yield func(LocalRail, Delta) bool) {
		seen := map[string]bool{}
		for _, r := range rails {
			d, ok := PortTraffic(before, after, r.Name)
			if !ok {
				continue
			}
			if key := r.SharedPortKey(); after[r.Name].Physical {
				if seen[key] {
					continue
				}
				seen[key], r.Capacity = true, r.PortCapacity
				for _, other := range rails {
					if same, ok := TrafficBetween(before, after, other.Name); ok && other.SharedPortKey() == key {
						d.Resent, d.resentToUs = d.Resent || same.Resent, d.resentToUs || same.resentToUs
					}
				}
			}
			if !yield(r, d) {
				return
			}
		}
	}
}

// SettleTime is the longest wait of a round for counters that the driver updates periodically.
const SettleTime = time.Second

// SettledTraffic reads the counters when they have moved since the probe's last transfer.
func (n *Node) SettledTraffic(ctx context.Context, rails []LocalRail) map[string]rail.Traffic {
	now, since := n.Traffic(rails), n.Recent.idle()
	var wait time.Duration
	for _, t := range now {
		if t.Period <= SettleTime {
			wait = max(wait, t.Period-since)
		}
	}
	if wait <= 0 {
		return now
	}
	select {
	case <-time.After(wait):
		return n.Traffic(rails)
	case <-ctx.Done():
		return now
	}
}

// late bounds the bytes that counters report after the first reading although the probe sent them before. payload
// is the probe's own.
func (d Delta) late(payload int64) float64 {
	if d.Period <= 0 {
		return 0
	}
	return maxWireRatio * float64(payload)
}

// Busy returns the rails of which others use more than above, as a fraction of the capacity, by name: over the last
// seconds where these are known, else while the rails are watched for twice the counters' period, at most
// maxBusyWindow. A rail of unknown capacity is never busy. It returns early when ctx is done.
func (n *Node) Busy(ctx context.Context, rails []LocalRail, above float64) map[string]*failure.Failure {
	busy := map[string]*failure.Failure{}
	var unknown []LocalRail
	sum := 0.0
	for _, r := range rails {
		sum += r.Capacity
	}
	for _, r := range rails {
		mean, ok := rail.MeanTraffic{}, false
		if n.MeanTraffic != nil {
			mean, ok = n.MeanTraffic(r.Rail)
		}
		if !ok {
			unknown = append(unknown, r)
		} else if f := n.wasBusy(r, mean, above, sum); f != nil {
			busy[r.Name] = f
		}
	}
	if len(unknown) > 0 {
		watchBusy(ctx, n, unknown, above, busy)
	}
	return busy
}

// watchBusy watches rails for a moment, and adds those that are busy.
func watchBusy(ctx context.Context, n *Node, rails []LocalRail, above float64, busy map[string]*failure.Failure) {
	before := n.Traffic(rails)
	window := busyWindow
	for _, t := range before {
		window = max(window, min(2*t.Period, maxBusyWindow))
	}
	own := n.Recent.Uncounted(CounterDelay)
	select {
	case <-time.After(window):
	case <-ctx.Done():
		return
	}
	after := n.Traffic(rails)
	for r, d := range Deltas(rails, before, after) {
		if max(d.Out, d.In) > 1e3*r.Capacity*d.Seconds {
			continue // counter reset, not a rate
		}
		f := r.overused(d, d.Out-d.late(own), d.In-d.late(own), above)
		if f == nil {
			continue
		}
		for _, same := range rails {
			if same.Name == r.Name || after[r.Name].Physical && same.SharedPortKey() == r.SharedPortKey() {
				of := *f
				of.Rail = same.Name
				busy[same.Name] = &of
			}
		}
	}
}

// wasBusy returns a failure if others used more of a rail or its port in the last seconds than above, as a fraction
// of the capacity. The probe's own bytes are assumed to be spread over all rails, whose capacities add up to sum.
func (n *Node) wasBusy(r LocalRail, mean rail.MeanTraffic, above, sum float64) *failure.Failure {
	if r.Capacity <= 0 {
		return nil
	}
	total := maxWireRatio * float64(n.Recent.Uncounted(mean.Over+CounterDelay))
	d := Delta{Seconds: mean.Over.Seconds()}
	others := func(rates [rail.Directions]float64) (out, in float64) {
		own := total * r.Capacity / sum
		return rates[rail.Transmit]*d.Seconds - own, rates[rail.Receive]*d.Seconds - own
	}
	out, in := others(mean.Rate)
	f := r.overused(d, out, in, above)
	r.Capacity = r.PortCapacity
	if f == nil && mean.Physical {
		out, in = others(mean.Port)
		f = r.overused(d, out, in, above)
	}
	return f
}

// overused returns a failure if out or in, the bytes of others, exceed above, as a fraction of the rail's capacity.
func (r LocalRail) overused(d Delta, out, in, above float64) *failure.Failure {
	seconds := d.Seconds + d.Period.Seconds() // longest time in which these bytes were carried
	if r.Capacity <= 0 || d.Seconds <= 0 {
		return nil
	}
	direction, bytes := "out", out
	if out/seconds/r.Capacity <= above {
		direction, bytes = "in", in
	}
	part := bytes / seconds / r.Capacity
	if part <= above {
		return nil
	}
	f := failure.New(failure.StageLease, failure.Busy,
		"%s carries other traffic: %s of its capacity going %s, above the limit of %s", r.Rail, terminal.Percent(part),
		direction, terminal.Percent(above))
	f.Rail = r.Name
	return f
}

const (
	// maxBusyWindow is the longest time that rails are watched.
	maxBusyWindow = 2 * time.Second
	// CounterDelay exceeds the update delay of background counters.
	CounterDelay = 2 * time.Second
	// keepTransfers is how long the probe's own transfers are remembered: longer than the averaging time of
	// traffic.
	keepTransfers = 30 * time.Second
)

// RecentTransfers are the probe's transfers of the last keepTransfers, in both directions. Safe for concurrent use.
type RecentTransfers struct {
	mu   sync.Mutex // protects list
	List []finishedTransfer
}

type finishedTransfer struct {
	bytes int64 // payload
	ended time.Time
}

// Add records bytes that the probe has moved now.
func (m *RecentTransfers) Add(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.List = append(slices.DeleteFunc(m.List, func(t finishedTransfer) bool {
		return time.Since(t.ended) > keepTransfers
	}), finishedTransfer{bytes, time.Now()})
}

// idle returns the time since the last transfer.
func (m *RecentTransfers) idle() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.List) == 0 {
		return keepTransfers
	}
	return time.Since(m.List[len(m.List)-1].ended)
}

// Uncounted returns the bytes of the probe's transfers within this time: counters may include them, or may not have
// caught up with them.
func (m *RecentTransfers) Uncounted(within time.Duration) (sum int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.List {
		if time.Since(t.ended) <= within {
			sum += t.bytes
		}
	}
	return sum
}

// Payload returns the least payload that these bytes on the wire can hold.
func Payload(wire int64) int64 { return int64(float64(wire) / maxWireRatio) }

// Received returns how many bytes the rails have received between two readings.
func Received(rails []LocalRail, start, now map[string]rail.Traffic) int64 {
	return Carried(rails, start, now, rail.Receive)
}

// Carried returns how many bytes the rails have carried in one direction between two readings.
func Carried(rails []LocalRail, start, now map[string]rail.Traffic, direction int) (sum int64) {
	for _, d := range functionDeltas(rails, start, now) {
		if direction == rail.Receive {
			sum += int64(d.In)
		} else {
			sum += int64(d.Out)
		}
	}
	return sum
}

// WireBytes returns the bytes that port counters count for payload in RoCE v2 packets of this MTU: Ethernet 14,
// IPv4 20 or IPv6 40, UDP 8, BTH 12, ICRC 4 (IBTA 1.5, annex A17).
func WireBytes(payload int64, mtu int, ipv4 bool) float64 {
	header := 58.0
	if !ipv4 {
		header = 78
	}
	return float64(payload) * (1 + header/float64(mtu))
}
