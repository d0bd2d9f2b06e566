package probe

import (
	"context"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/worker"
)

// idleLease is how long a lease lasts while nothing arrives for it: longer than the first writes to a broken path.
const idleLease = time.Minute

// leaseUsage enforces the grant of one lease. Over TCP the worker accepts exactly what was granted. RDMA is one-sided
// and cannot be refused byte by byte: the ports' counters are watched, and the lease ends when they exceed the grant.
// Counters include traffic of others, so busy_above of a rail's capacity is tolerated beyond the grant.
type leaseUsage struct {
	lease *lease
	guard *guard

	received int64     // bytes over rails and TCP, at the last reading
	since    time.Time // when that last changed
}

func newLeaseUsage(l *lease, g *guard) *leaseUsage {
	u := &leaseUsage{lease: l, guard: g, since: time.Now()}
	g.check = u.check
	return u
}

// check examines a reading of all rails together: whether it exceeds the grant, and whether anything arrives.
func (u *leaseUsage) check(now map[string]rail.Traffic) *failure.Failure {
	if over := u.guard.beyondGrant(now); over > 0 {
		return failure.New(failure.StageLease, failure.Busy,
			"%s more arrived over the rails than the %s that were granted and what others may use: "+
				"the asker exceeds its lease, or other traffic has started", mib(over), mib(u.guard.granted))
	}
	received := received(u.guard.rails, u.guard.start, now) + u.lease.tcpBytes.Load()
	if received != u.received || !u.guard.readable(now) { // what is not counted may still arrive
		u.received, u.since = received, time.Now()
	}
	if time.Since(u.since) >= idleLease {
		return failure.New(failure.StageLease, failure.LeaseLost, "nothing arrived for the lease for %v", idleLease)
	}
	return nil
}

// watchTCP polls what arrived over TCP, and ends the lease when it exceeds the grant. By then the worker has closed its
// port.
func (u *leaseUsage) watchTCP(ctx context.Context) {
	tick := time.NewTicker(u.guard.node.guardInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if u.lease.pollTCP(ctx).Exceeded {
			u.lease.end(onPeer(failure.New(failure.StageLease, failure.Budget,
				"the asker tried to write more over TCP than the %s that were granted", mib(u.lease.bytes))))
			return
		}
	}
}

// pollTCP asks the worker what arrived over TCP, unless it is busy with the lease.
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

// cost is what the lease costs the budget, once it has ended: what the holder reports, or what was counted if that is
// more. Bytes that may be the holder's cost at most the grant. Bytes that must be cost all of it, if the holder had
// queue pairs: over TCP nothing beyond the grant is accepted.
func (u *leaseUsage) cost() int64 {
	l, g := u.lease, u.guard
	end := g.node.traffic(g.rails)
	l.mu.Lock()
	overTCP, byRDMA, hadRDMA := l.session.received, l.rdma.bytes, l.rdma.used
	l.mu.Unlock()
	counted := received(g.rails, g.start, end)
	reported := l.reported.Load()
	switch {
	case reported < 0 && g.exact(end): // it hung up: what arrived is what it wrote, headers included
		reported = max(counted, byRDMA+overTCP)
	case reported < 0:
		reported = l.bytes
	}
	cost := min(max(reported, payload(counted), payload(byRDMA)+overTCP), l.bytes)
	if hadRDMA {
		cost = max(cost, payload(g.beyondOthers(end)))
	}
	return cost
}

// payload is the least payload of so many bytes on the wire.
func payload(wire int64) int64 { return int64(float64(wire) / maxWireRatio) }

func received(rails []localRail, start, now map[string]rail.Traffic) (sum int64) {
	for _, d := range functionDeltas(rails, start, now) {
		sum += int64(d.in)
	}
	return sum
}

// rdmaUsage is what the ports count while a lease has RDMA sessions. Not safe for concurrent use.
type rdmaUsage struct {
	bytes int64
	rails []localRail
	start map[string]rail.Traffic // nil: no such session is open
	used  bool                    // there was one
}

func (u *rdmaUsage) begin(n *Node, rails []localRail) {
	u.rails, u.start, u.used = rails, n.traffic(rails), true
}

func (u *rdmaUsage) end(n *Node) {
	if u.start == nil {
		return
	}
	u.bytes += received(u.rails, u.start, n.traffic(u.rails))
	u.start = nil
}
