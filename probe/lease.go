package probe

import (
	"context"
	"crypto/rand"
	"sync"
	"sync/atomic"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/worker"
)

const (
	leaseTTL  = 10 * time.Second // how long a lease outlives the last request of its holder
	idleLease = time.Minute      // and its last incoming byte: longer than the first writes to a broken path
)

// lease is the right of one peer to write to scratch memory of this node. It ends when it is released, when its holder
// is gone or silent, after the longest time that a round may take, or when it is revoked; queue pairs and memory go
// with it.
//
// Over TCP the worker accepts exactly what was granted. RDMA is one-sided and cannot be refused byte by byte: the
// ports' counters are watched, and the lease ends when they exceed the grant. Counters include traffic of others, so
// busy_above of a rail's capacity is tolerated beyond the grant.
type lease struct {
	id    string
	key   [32]byte
	guard *guard        // of all rails, with the bytes that they carry in the time that was asked for
	rate  float64       // of the rails together, in bytes per second
	time  time.Duration // of each rail, reserved of the budget

	received int64     // bytes over rails and TCP, at the guard's last reading
	since    time.Time // when that last changed

	ctx      context.Context // done when the lease has ended; its cause is why
	end      context.CancelCauseFunc
	finished chan struct{} // closed when the worker has nothing of it any more
	reported atomic.Int64  // bytes that the holder reports to have written; -1: not yet
	tcpBytes atomic.Int64  // bytes received over TCP, as last reported by the worker

	idleTimer *time.Timer
	lifeTimer *time.Timer
	ttl       time.Duration

	mu       sync.Mutex // protects all following fields; held while the worker works for this lease
	session  workerSession
	overRDMA struct { // what the ports count while an RDMA session is open
		used  bool                    // there was one
		start map[string]rail.Traffic // nil: none is open
		bytes [rail.Directions]int64
	}
	flows map[string]string                  // rail of each flow of the session
	own   map[string]*[rail.Directions]int64 // payload noted as moved, by rail
}

func newLease(parent context.Context, g *guard, rate float64, reserved, ttl, lifetime time.Duration) *lease {
	l := &lease{id: rand.Text(), guard: g, rate: rate, time: reserved, finished: make(chan struct{}), ttl: ttl,
		since: time.Now()}
	g.check, l.session.node = l.check, g.node
	_, _ = rand.Read(l.key[:]) // never fails (crypto/rand)
	l.reported.Store(-1)
	l.ctx, l.end = context.WithCancelCause(parent)
	l.idleTimer = time.AfterFunc(ttl, func() {
		l.end(failure.New(failure.StageLease, failure.LeaseLost, "no request from its holder for %v", ttl))
	})
	l.lifeTimer = time.AfterFunc(lifetime, func() {
		l.end(failure.New(failure.StageLease, failure.LeaseLost, "it lasted %v, the maximum of a round", lifetime))
	})
	return l
}

// setKey sets the key to one that the holder derives as well.
func (l *lease) setKey(key [32]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.key = key
}

func (l *lease) renew() { l.idleTimer.Reset(l.ttl) }

// close ends the lease and its session. When it returns, the worker has nothing of it any more.
func (l *lease) close() {
	l.end(nil)
	l.idleTimer.Stop()
	l.lifeTimer.Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endSessionLocked()
}

func (l *lease) endSessionLocked() {
	_ = l.session.end() // closed, or its worker was killed
	l.tcpBytes.Store(l.session.received)
	if u := &l.overRDMA; u.start != nil {
		now := l.guard.node.traffic(l.guard.rails)
		for direction := range u.bytes {
			u.bytes[direction] += carried(l.guard.rails, u.start, now, direction)
		}
		u.start = nil
	}
}

// written is how many bytes the holder has written, as it reports, or may have.
func (l *lease) written() int64 {
	if reported := l.reported.Load(); reported >= 0 {
		return min(reported, l.guard.granted)
	}
	return l.guard.granted
}

func (l *lease) failure() *failure.Failure {
	f := failure.As(failure.StageLease, context.Cause(l.ctx))
	if f == nil || f.Reason == failure.Other {
		return failure.New(failure.StageLease, failure.LeaseLost, "the lease has ended")
	}
	return f
}

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
	overTCP, byRDMA, hadRDMA := l.session.received, l.overRDMA.bytes[rail.Receive], l.overRDMA.used
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

func received(rails []localRail, start, now map[string]rail.Traffic) int64 {
	return carried(rails, start, now, rail.Receive)
}

func carried(rails []localRail, start, now map[string]rail.Traffic, direction int) (sum int64) {
	for _, d := range functionDeltas(rails, start, now) {
		if direction == rail.Receive {
			sum += int64(d.in)
		} else {
			sum += int64(d.out)
		}
	}
	return sum
}
