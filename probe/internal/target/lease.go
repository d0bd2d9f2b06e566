package target

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/units"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/worker"
)

// IdleLease is the lifetime after the last incoming byte: longer than the first writes to a broken path.
const IdleLease = time.Minute

// Lease is the right of one peer to write to this node's scratch memory, until it is released, revoked or too old,
// or its holder is gone or silent. Over TCP the worker accepts exactly the grant. RDMA writes cannot be refused:
// the lease ends when port counters exceed the grant and the busy_above that others may use. A lease for reach or a gap
// lasts beside any traffic of others: it is bounded by its memory and time.
type Lease struct {
	id string
	terms
	key   [protocol.KeySize]byte
	Guard *node.Guard   // watches all rails, with the bytes that they carry in the requested time
	rate  float64       // bytes per second of all rails together
	time  time.Duration // rail time reserved from the budget

	arrived arrived

	ctx      context.Context // done when the lease has ended; its cause is the reason
	End      context.CancelCauseFunc
	Finished chan struct{} // closed when the worker holds nothing of the lease any more
	Reported atomic.Int64  // bytes that the holder reports to have written; -1: not reported
	TCPBytes atomic.Int64  // bytes received over TCP, as last reported by the worker

	IdleTimer *time.Timer
	LifeTimer *time.Timer
	ttl       time.Duration

	Mu       sync.Mutex // protects all following fields; held while the worker works for the lease
	Session  node.WorkerSession
	OverRDMA struct { // port counts while an RDMA session is open
		used  bool                    // the lease has had an RDMA session
		Start map[string]rail.Traffic // nil: none is open
		bytes [rail.Directions]int64
	}
	Flows map[string]string                  // rail of each flow in the session
	own   map[string]*[rail.Directions]int64 // payload recorded as moved, by rail
}

// terms are what a lease is for, and what it has of the node.
type terms struct {
	part protocol.Part
	slot *node.Slot        // where it has its place: the node's slot, or that of gaps
	left []failure.Failure // rails over which this node wants no burst

	watch  *node.QuietWatch        // rails of a lease for a gap; else nil
	claim  func()                  // frees the node's slot while a burst in a gap holds it; else nil
	before map[string]rail.Traffic // rails when the slot was claimed
}

// arrived is what the rails and TCP had received at the guard's last reading, and when that last changed.
type arrived struct {
	bytes int64
	since time.Time
}

// NewLease returns a lease for a whole round in a place, which g watches. It ends when parent does.
func NewLease(parent context.Context, place node.Place, g *node.Guard, rate float64,
	reserved, ttl, lifetime time.Duration) *Lease {
	l := &Lease{id: rand.Text(), Guard: g, rate: rate, time: reserved, Finished: make(chan struct{}), ttl: ttl,
		arrived: arrived{since: time.Now()}, terms: terms{slot: place.Slot}}
	g.Check, l.Session = l.Check, node.WorkerSession{Node: g.Node, Worker: place.Worker}
	_, _ = rand.Read(l.key[:]) // never fails (crypto/rand)
	l.Reported.Store(-1)
	l.ctx, l.End = context.WithCancelCause(parent)
	l.IdleTimer = time.AfterFunc(ttl, func() {
		l.End(failure.New(failure.StageLease, failure.LeaseLost, "no request from its holder for %v", ttl))
	})
	l.LifeTimer = time.AfterFunc(lifetime, func() {
		l.End(failure.New(failure.StageLease, failure.LeaseLost, "it lasted %v, the maximum of a round", lifetime))
	})
	return l
}

func (l *Lease) renew() { l.IdleTimer.Reset(l.ttl) }

// stop ends the lease before it has begun.
func (l *Lease) stop() {
	l.End(nil)
	l.IdleTimer.Stop()
	l.LifeTimer.Stop()
}

// close ends the lease and its session. When it returns, the worker holds nothing of the lease any more.
func (l *Lease) close() {
	l.stop()
	l.Mu.Lock()
	defer l.Mu.Unlock()
	l.endSessionLocked()
}

func (l *Lease) endSessionLocked() {
	l.unclaimLocked()
	_ = l.Session.End() // closed, or its worker was killed
	l.TCPBytes.Store(l.Session.Received)
	if u := &l.OverRDMA; u.Start != nil {
		now := l.Guard.Node.Traffic(l.Guard.Rails)
		for direction := range u.bytes {
			u.bytes[direction] += node.Carried(l.Guard.Rails, u.Start, now, direction)
		}
		u.Start = nil
	}
}

// written returns how many bytes the holder reports to have written, or may have written.
func (l *Lease) written() int64 {
	if reported := l.Reported.Load(); reported >= 0 {
		return min(reported, l.Guard.Granted)
	}
	return l.Guard.Granted
}

func (l *Lease) failure() *failure.Failure {
	f := failure.As(failure.StageLease, context.Cause(l.ctx))
	if f == nil || f.Reason == failure.Other {
		return failure.New(failure.StageLease, failure.LeaseLost, "the lease has ended")
	}
	return f
}

// Check examines a reading of all rails together: whether it exceeds the grant, and whether data still arrives.
func (l *Lease) Check(now map[string]rail.Traffic) *failure.Failure {
	if over := l.Guard.BeyondGrant(now); over > 0 {
		return failure.New(failure.StageLease, failure.Busy,
			"%s more arrived over the rails than the %s that were granted and what others may use: "+
				"the asker exceeds its lease, or other traffic has started", units.Mebibytes(over),
			units.Mebibytes(l.Guard.Granted))
	}
	received := node.Received(l.Guard.Rails, l.Guard.Start, now) + l.TCPBytes.Load()
	if received != l.arrived.bytes || !l.Guard.Readable(now) { // uncounted data may still arrive
		l.arrived = arrived{received, time.Now()}
	}
	if time.Since(l.arrived.since) >= IdleLease {
		return failure.New(failure.StageLease, failure.LeaseLost, "nothing arrived for the lease for %v", IdleLease)
	}
	return nil
}

// watchTCP polls the bytes received over TCP, and ends the lease when they exceed the grant. The worker has closed
// its port by then.
func (l *Lease) watchTCP() {
	tick := time.NewTicker(l.Guard.Node.GuardInterval)
	defer tick.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-tick.C:
		}
		if l.pollTCP().Exceeded {
			l.End(protocol.OnPeer(failure.New(failure.StageLease, failure.Budget,
				"the asker tried to write more over TCP than the %s that were granted",
				units.Mebibytes(l.Guard.Granted))))
			return
		}
	}
}

// pollTCP asks the worker for the bytes received over TCP, unless it is busy with the lease.
func (l *Lease) pollTCP() worker.Intake {
	if !l.Mu.TryLock() {
		return worker.Intake{}
	}
	defer l.Mu.Unlock()
	if l.Session.Current == nil || l.Session.Grant == 0 {
		return worker.Intake{}
	}
	in, err := l.Session.Current.Intake(l.ctx)
	if err == nil {
		l.TCPBytes.Store(l.Session.Received + in.Bytes)
	}
	return in
}

// cost returns the bytes that a lease that has ended costs the budget: the reported or the counted bytes, whichever
// is more. Bytes that may be the holder's cost at most the grant. Bytes that must be the holder's are charged in
// full if it had queue pairs; over TCP nothing beyond the grant is accepted.
func (l *Lease) cost() int64 {
	g := l.Guard
	end := g.Node.Traffic(g.Rails)
	l.Mu.Lock()
	overTCP, byRDMA, hadRDMA := l.Session.Received, l.OverRDMA.bytes[rail.Receive], l.OverRDMA.used
	l.Mu.Unlock()
	counted := node.Received(g.Rails, g.Start, end)
	reported := l.Reported.Load()
	switch {
	case reported < 0 && g.Exact(end): // the holder hung up: the counted bytes are its writes, headers included
		reported = max(counted, byRDMA+overTCP)
	case reported < 0:
		reported = g.Granted
	}
	cost := min(max(reported, node.Payload(counted), node.Payload(byRDMA)+overTCP), g.Granted)
	if hadRDMA {
		cost = max(cost, node.Payload(g.BeyondOthers(end)))
	}
	return cost
}

// repeats returns how many packets arrived out of sequence or twice in the RDMA session, by rail.
func (l *Lease) repeats() map[string]uint64 {
	if l.OverRDMA.Start == nil {
		return nil
	}
	events := map[string]uint64{}
	for name, now := range l.Guard.Node.Traffic(l.Guard.Rails) {
		if before, ok := l.OverRDMA.Start[name]; ok && now.CountsRepeats && now.Repeats >= before.Repeats {
			events[name] = now.Repeats - before.Repeats
		}
	}
	return events
}

// NoteOwn records what the holder reports to have moved in one direction, limited to the grant and, where the
// counter is not late, to what the rail's counter moved over RDMA: the holder may send a report twice. l.mu must be
// held.
func (l *Lease) NoteOwn(moved []worker.VerifyRail, direction int, now map[string]rail.Traffic) {
	for _, w := range moved {
		name := l.Flows[w.Rail]
		i := slices.IndexFunc(l.Guard.Rails, func(own node.LocalRail) bool { return own.Name == name })
		if i < 0 {
			continue
		}
		most := l.Guard.Granted
		if d, ok := node.TrafficBetween(l.OverRDMA.Start, now, name); ok && d.Period <= 0 {
			counted := int64(d.In)
			if direction == rail.Transmit {
				counted = int64(d.Out)
			}
			most = min(most, l.OverRDMA.bytes[direction]+counted)
		}
		var writes int64
		for _, n := range w.Writes {
			writes += n // protocol.CheckVerify limits the sum
		}
		own := l.own[name]
		if own == nil {
			own = new([rail.Directions]int64)
		}
		bytes := min(writes*w.Chunk, most-own[direction])
		if bytes <= 0 {
			continue
		}
		if l.own == nil {
			l.own = map[string]*[rail.Directions]int64{}
		}
		l.own[name], own[direction] = own, own[direction]+bytes
		l.Guard.Node.Own.Add(l.Guard.Rails[i].Rail, direction, bytes, 0, l.OverRDMA.Start == nil)
	}
}
