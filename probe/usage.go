package probe

import (
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/worker"
)

// idleLease is how long a lease lasts while nothing arrives for it: longer than the first writes to a broken path.
const idleLease = time.Minute

// check examines a reading of all rails together: whether it exceeds the grant, and whether anything arrives.
func (l *lease) check(now map[string]rail.Traffic) *failure.Failure {
	if over := l.guard.beyondGrant(now); over > 0 {
		return failure.New(failure.StageLease, failure.Busy,
			"%s more arrived over the rails than the %s that were granted and what others may use: "+
				"the asker exceeds its lease, or other traffic has started", mib(over), mib(l.guard.granted))
	}
	received := received(l.guard.rails, l.guard.start, now) + l.tcpBytes.Load()
	if received != l.received || !l.guard.readable(now) { // what is not counted may still arrive
		l.received, l.since = received, time.Now()
	}
	if time.Since(l.since) >= idleLease {
		return failure.New(failure.StageLease, failure.LeaseLost, "nothing arrived for the lease for %v", idleLease)
	}
	return nil
}

// watchTCP polls what arrived over TCP, and ends the lease when it exceeds the grant. By then the worker has closed its
// port.
func (l *lease) watchTCP() {
	tick := time.NewTicker(l.guard.node.guardInterval)
	defer tick.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-tick.C:
		}
		if l.pollTCP().Exceeded {
			l.end(onPeer(failure.New(failure.StageLease, failure.Budget,
				"the asker tried to write more over TCP than the %s that were granted", mib(l.guard.granted))))
			return
		}
	}
}

// pollTCP asks the worker what arrived over TCP, unless it is busy with the lease.
func (l *lease) pollTCP() worker.Intake {
	if !l.mu.TryLock() {
		return worker.Intake{}
	}
	defer l.mu.Unlock()
	if l.session.current == nil || l.session.grant == 0 {
		return worker.Intake{}
	}
	in, err := l.session.current.Intake(l.ctx)
	if err == nil {
		l.tcpBytes.Store(l.session.received + in.Bytes)
	}
	return in
}

// cost is what a lease costs the budget, once it has ended: what the holder reports, or what was counted if that is
// more. Bytes that may be the holder's cost at most the grant. Bytes that must be cost all of it, if the holder had
// queue pairs: over TCP nothing beyond the grant is accepted.
func (l *lease) cost() int64 {
	g := l.guard
	end := g.node.traffic(g.rails)
	l.mu.Lock()
	overTCP, byRDMA, hadRDMA := l.session.received, l.overRDMA.bytes, l.overRDMA.used
	l.mu.Unlock()
	counted := received(g.rails, g.start, end)
	reported := l.reported.Load()
	switch {
	case reported < 0 && g.exact(end): // it hung up: what arrived is what it wrote, headers included
		reported = max(counted, byRDMA+overTCP)
	case reported < 0:
		reported = g.granted
	}
	cost := min(max(reported, payload(counted), payload(byRDMA)+overTCP), g.granted)
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
