package probe

import (
	"context"
	"crypto/rand"
	"sync"
	"sync/atomic"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
)

// leaseTTL is how long a lease outlives the last request of its holder.
const leaseTTL = 10 * time.Second

// granted is how much a lease may use.
type granted struct {
	rate  float64       // of the rails together, in bytes per second
	bytes int64         // what they carry in the time that was asked for
	time  time.Duration // of each rail, reserved of the budget
	free  bool          // there are no rails, and nothing is charged
}

// lease is the right of one peer to write to scratch memory of this node. It ends when it is released, when its holder
// is gone or silent, after the longest time that a round may take, or when it is revoked; queue pairs and memory go
// with it.
type lease struct {
	id  string
	key [32]byte
	granted

	ctx      context.Context // done when the lease has ended; its cause is why
	end      context.CancelCauseFunc
	finished chan struct{} // closed when the worker has nothing of it any more
	reported atomic.Int64  // bytes that the holder reports to have written; -1: not yet
	tcpBytes atomic.Int64  // bytes received over TCP, as last reported by the worker

	idleTimer *time.Timer
	lifeTimer *time.Timer
	ttl       time.Duration

	mu      sync.Mutex // protects all following fields; held while the worker works for this lease
	session workerSession
	rdma    rdmaUsage
}

func newLease(parent context.Context, node *Node, g granted, ttl, lifetime time.Duration) *lease {
	l := &lease{id: rand.Text(), granted: g, finished: make(chan struct{}), ttl: ttl}
	l.session.node = node
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
	l.rdma.end(l.session.node)
}

// written is how many bytes the holder has written, as it reports, or may have.
func (l *lease) written() int64 {
	if reported := l.reported.Load(); reported >= 0 {
		return min(reported, l.bytes)
	}
	return l.bytes
}

func (l *lease) failure() *failure.Failure {
	f := failure.As(failure.StageLease, context.Cause(l.ctx))
	if f == nil || f.Reason == failure.Other {
		return failure.New(failure.StageLease, failure.LeaseLost, "the lease has ended")
	}
	return f
}
