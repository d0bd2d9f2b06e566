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

// closeTime bounds the end of a lease: what the worker does not close in that time it loses with its life.
const closeTime = 15 * time.Second

// lease is the right of one peer to write to scratch memory of ours. It ends when it is released, when its holder is
// gone or silent, when it has lasted as long as any round may, or when it is revoked; with it go the queue pairs and
// the memory.
type lease struct {
	id    string
	asker string // node, for people
	key   [32]byte
	bytes int64 // that were granted

	ctx      context.Context // done when the lease is over; its cause says why
	end      context.CancelCauseFunc
	finished chan struct{} // closed when nothing of it is left
	reported atomic.Int64  // bytes that the holder says it has written; -1 until it does
	tcpBytes atomic.Int64  // bytes that came in over TCP, as last heard of the worker

	idleTimer *time.Timer
	lifeTimer *time.Timer // nothing puts it off
	ttl       time.Duration

	mu      sync.Mutex // protects all following fields; held while the worker works for this lease
	session workerSession
	rdma    rdmaUsage
}

func newLease(parent context.Context, node *Node, ask leaseRequest, ttl, longest time.Duration) *lease {
	l := &lease{id: rand.Text(), asker: ask.Node, bytes: ask.Bytes, finished: make(chan struct{}), ttl: ttl}
	l.session.node = node
	_, _ = rand.Read(l.key[:]) // never fails (crypto/rand)
	l.reported.Store(-1)
	l.ctx, l.end = context.WithCancelCause(parent)
	l.idleTimer = time.AfterFunc(ttl, func() {
		l.end(failure.New(failure.StageLease, failure.LeaseLost, "nothing was heard of its holder for %v", ttl))
	})
	l.lifeTimer = time.AfterFunc(longest, func() {
		l.end(failure.New(failure.StageLease, failure.LeaseLost, "it has lasted %v, and no round takes longer",
			longest))
	})
	return l
}

// setKey makes the key one that the holder derives, too.
func (l *lease) setKey(key [32]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.key = key
}

// renew puts off the end.
func (l *lease) renew() { l.idleTimer.Reset(l.ttl) }

// over reports whether the lease has ended.
func (l *lease) ended() bool { return l.ctx.Err() != nil }

// close ends the lease, and its session. It returns when the worker has nothing of it any more.
func (l *lease) close() {
	l.end(nil)
	l.idleTimer.Stop()
	l.lifeTimer.Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endSessionLocked()
}

// endSessionLocked ends the session that is open, if there is one. Of what cannot
// be closed the process is killed, which closes it.
func (l *lease) endSessionLocked() {
	_ = l.session.end()
	l.tcpBytes.Store(l.session.received)
	l.rdma.end(l.session.node)
}

// written is how many bytes the holder has written, as far as it has said, or may have.
func (l *lease) written() int64 {
	if used := l.reported.Load(); used >= 0 {
		return min(used, l.bytes)
	}
	return l.bytes
}

// ask runs fn, which works for the lease, unless that is over. The context ends
// with the lease or the request, whichever is first.
func (l *lease) do(request context.Context, fn func(ctx context.Context) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended() {
		return l.failure()
	}
	ctx, cancel := context.WithCancel(request)
	defer cancel()
	stop := context.AfterFunc(l.ctx, cancel)
	defer stop()
	err := fn(ctx)
	l.renew()
	return err
}

// why says why the lease is over.
func (l *lease) failure() *failure.Failure {
	f := failure.As(failure.StageLease, context.Cause(l.ctx))
	if f == nil || f.Reason == failure.Other {
		return failure.New(failure.StageLease, failure.LeaseLost, "the lease is over")
	}
	return f
}
