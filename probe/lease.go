package probe

import (
	"context"
	"crypto/rand"
	"sync"
	"sync/atomic"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
)

// leaseTTL is how long a lease outlives the last request of its holder.
const leaseTTL = 10 * time.Second

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
		bytes int64
	}
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
		u.bytes += received(l.guard.rails, u.start, l.guard.node.traffic(l.guard.rails))
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
