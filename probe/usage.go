package probe

import (
	"context"
	"slices"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/worker"
)

// What may come in for a lease. Over TCP the worker takes in what was granted and not a byte more. RDMA is one-sided
// and cannot be refused byte by byte: the ports' counters are watched, and the lease is ended when they pass the grant.
// Counters count others' traffic, too, so that busy_above of a rail's capacity is tolerated beyond the grant.

// idleLease is how long a lease may last while nothing comes in for it: longer
// than the first writes to a path that is broken.
const idleLease = time.Minute

// mostRepeats is how often all bytes may come in once more where packets are
// lost: all that follow a lost one are sent again.
const maxRepeats = 8

// intake is what comes in for one lease.
type leaseUsage struct {
	lease *lease
	guard *guard

	moved int64     // bytes over rails and TCP, as last seen
	since time.Time // when that last changed
}

// newIntake watches by the guard's readings.
func newLeaseUsage(l *lease, g *guard) *leaseUsage {
	i := &leaseUsage{lease: l, guard: g, since: time.Now()}
	g.check = i.check
	return i
}

// look judges a reading of all rails together, and whether anything comes at all.
func (i *leaseUsage) check(now map[string]rail.Traffic) *failure.Failure {
	if over := i.guard.beyondGrant(now); over > 0 {
		return failure.New(failure.StageLease, failure.Busy,
			"%d bytes came in over the rails beyond the %d that were granted and what others may use: "+
				"the asker writes more than it asked for, or other traffic has begun", over, i.guard.granted)
	}
	moved := received(i.guard.rails, i.guard.start, now) + i.lease.tcpBytes.Load()
	if moved != i.moved || !i.guard.readable(now) { // of what is not counted there is no saying
		i.moved, i.since = moved, time.Now()
	}
	if time.Since(i.since) >= idleLease {
		return failure.New(failure.StageLease, failure.LeaseLost, "nothing has come in for it for %v", idleLease)
	}
	return nil
}

// watchTCP asks the worker what came in over TCP, and ends the lease when somebody
// wants to write more than was granted. By then the worker has closed its port.
func (i *leaseUsage) watchTCP(ctx context.Context) {
	tick := time.NewTicker(guardInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if in := i.lease.pollTCP(ctx); in.Exceeded {
			i.lease.end(onPeer(failure.New(failure.StageLease, failure.Budget,
				"the asker tried to write more over TCP than the %d bytes that were granted", i.lease.bytes)))
			return
		}
	}
}

// askIntake asks the worker what came in over TCP, unless it works for the lease at this moment.
func (l *lease) pollTCP(ctx context.Context) worker.Intake {
	if !l.mu.TryLock() {
		return worker.Intake{}
	}
	defer l.mu.Unlock()
	if l.session.current == nil || l.session.grant == 0 {
		return worker.Intake{}
	}
	in, err := l.session.current.Intake(ctx)
	if err == nil {
		l.tcpBytes.Store(l.session.received + in.Bytes)
	}
	return in
}

// cost is what the lease costs the budget, once it is over: what the holder says it has written, or what was seen, if
// that is more. What only may have been its own costs no more than was granted; what must have been, all of it: not
// before it had queue pairs, since over TCP no more is taken in than was granted.
func (i *leaseUsage) cost() int64 {
	l, g := i.lease, i.guard
	end := g.node.traffic(g.rails)
	l.mu.Lock()
	overTCP, byRDMA, had := l.session.received, l.rdma.bytes, l.rdma.had
	l.mu.Unlock()
	came := received(g.rails, g.start, end)
	seen := max(payload(came), payload(byRDMA)+overTCP)
	said := l.reported.Load()
	switch {
	case said < 0 && g.exact(end): // it hung up: what came in is what it wrote, headers and all
		said = max(came, byRDMA+overTCP)
	case said < 0:
		said = l.bytes
	}
	cost := min(max(said, seen), l.bytes)
	if had {
		cost = max(cost, payload(g.beyondOthers(end)))
	}
	return cost
}

// payload is how many bytes of payload so many on the wire are at least.
func payload(wire int64) int64 { return int64(float64(wire) / maxWireRatio) }

// received is how many bytes came in over all rails.
func received(rails []localRail, start, now map[string]rail.Traffic) (sum int64) {
	for _, r := range rails {
		if b, a, ok := trafficBetween(start, now, r.Name); ok {
			sum += int64(a.Receive - b.Receive)
		}
	}
	return sum
}

// readable reports whether the counters of all rails were read.
func (g *guard) readable(now map[string]rail.Traffic) bool {
	return !slices.ContainsFunc(g.rails, func(r localRail) bool {
		_, _, ok := trafficBetween(g.start, now, r.Name)
		return !ok
	})
}

// exact reports whether they are up to date, too.
func (g *guard) exact(now map[string]rail.Traffic) bool {
	return g.readable(now) && !slices.ContainsFunc(g.rails, func(r localRail) bool { return g.start[r.Name].Slow })
}

// beyondGrant is by how many bytes more came in over all rails than the asker may write and others may use; of a rail
// of unknown capacity, as much again as was granted.
func (g *guard) beyondGrant(now map[string]rail.Traffic) int64 {
	granted := maxWireRatio * float64(g.granted)
	sum, times := 0.0, 1.0
	for _, r := range g.rails {
		b, a, ok := trafficBetween(g.start, now, r.Name)
		if !ok {
			continue
		}
		if a.Repeats != b.Repeats {
			times = maxRepeats
		}
		others := granted
		if r.capacity > 0 {
			others = g.above * r.capacity * a.At.Sub(b.At).Seconds()
		}
		sum += max(float64(a.Receive-b.Receive)-wasLate(b, g.uncounted)-others, 0)
	}
	return int64(max(sum-times*granted, 0))
}

// beyondOthers is how many of the bytes that came in must have been the asker's:
// others' traffic goes both ways, and does not exceed busy_above of a rail.
func (g *guard) beyondOthers(now map[string]rail.Traffic) int64 {
	sum, times := 0.0, 1.0
	for _, r := range g.rails {
		b, a, ok := trafficBetween(g.start, now, r.Name)
		if !ok || r.capacity <= 0 {
			continue
		}
		if a.Repeats != b.Repeats {
			times = maxRepeats
		}
		in, out := float64(a.Receive-b.Receive), float64(a.Transmit-b.Transmit)
		sum += max(in-out-wasLate(b, g.uncounted)-g.above*r.capacity*a.At.Sub(b.At).Seconds(), 0)
	}
	return int64(sum / times)
}

// rdmaIntake is what the ports count while a lease has a session by RDMA. Not safe for concurrent use.
type rdmaUsage struct {
	bytes int64
	rails []localRail
	start map[string]rail.Traffic // nil: there is no such session
	had   bool                    // there was one
}

func (i *rdmaUsage) begin(n *Node, rails []localRail) {
	i.rails, i.start, i.had = rails, n.traffic(rails), true
}

func (i *rdmaUsage) end(n *Node) {
	if i.start == nil {
		return
	}
	i.bytes += received(i.rails, i.start, n.traffic(i.rails))
	i.start = nil
}
