package target

import (
	"cmp"
	"context"
	"maps"
	"math"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/units"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/worker"
)

// claimTime is how long a claim of the slot lasts without a verification: far longer than a burst in a gap.
const claimTime = 2 * time.Second

// grantGap grants a lease for [protocol.Gap], in the place of gaps.
func grantGap(ctx context.Context, r *Responder, ask protocol.LeaseRequest,
	from netip.Addr) (*Lease, *failure.Failure) {
	place := r.Node.Gaps.Place
	if holder, ok := place.Slot.Acquire(ctx, 0, from, "waiting for a gap with "+ask.Node); !ok {
		return nil, protocol.Later(protocol.RetryLeast, failure.Busy, "the peer is %s", holder)
	}
	rails, _ := r.Node.Rails() // without those that cannot be read
	l, denied := reserve(ctx, r, place, ask, rails)
	if denied == nil {
		l.part, l.Guard.Above = protocol.Gap, math.MaxFloat64
		l.watch = node.NewQuietWatch(r.Node, rails)
		for _, f := range r.Node.Gaps.Unseen(rails, r.Node.Traffic(rails)) {
			l.left = append(l.left, *f.OnPeer())
		}
		denied = begin(r, l, from)
	}
	if denied != nil {
		place.Slot.Release()
		return nil, denied
	}
	return l, nil
}

// report sends the events of a lease to its holder, until it ends.
func (l *Lease) report(send func(protocol.LeaseEvent)) {
	if l.watch == nil {
		<-l.ctx.Done()
		return
	}
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { l.watch.Run(l.ctx) })
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-l.watch.Changed:
			send(protocol.LeaseEvent{Quiet: &protocol.Quiet{Rails: l.watch.Quiet()}})
		}
	}
}

// claim takes the slot for one burst, and answers which of the rails are quiet now. The next verification frees it.
// l.Mu must be held.
func claim(_ context.Context, l *Lease, args *protocol.Quiet) (any, error) {
	n := l.Guard.Node
	if l.watch == nil {
		return nil, failure.New(failure.StageLease, failure.Protocol, "claim with a lease that waits for no gap")
	}
	if n.Maintenance() {
		return nil, protocol.Deny(failure.Draining, "the peer is in maintenance")
	}
	quiet := slices.DeleteFunc(l.watch.Quiet(), func(name string) bool { return !slices.Contains(args.Rails, name) })
	if len(quiet) == 0 || l.claim != nil {
		return &protocol.Quiet{}, nil
	}
	if !n.Slot.TryAcquire("bursting in a gap") {
		return nil, protocol.Later(protocol.RetryLeast, failure.Busy, "the peer is %s", cmp.Or(n.Slot.Holder(), "busy"))
	}
	end := time.AfterFunc(claimTime, func() {
		l.End(failure.New(failure.StageLease, failure.LeaseLost, "no verification for %v after a burst in a gap",
			claimTime))
	})
	l.claim = sync.OnceFunc(func() { end.Stop(); n.Slot.Release() })
	l.before = n.Traffic(l.Guard.Rails)
	return &protocol.Quiet{Rails: quiet}, nil
}

// unclaimLocked frees the slot if the lease has it.
func (l *Lease) unclaimLocked() {
	if l.claim != nil {
		l.claim()
		l.claim = nil
	}
}

// metOthers frees the slot after a burst in a gap, and returns the rails that carried traffic of others meanwhile. No
// such burst is made over them for a while. l.Mu must be held.
func (l *Lease) metOthers(wrote []worker.VerifyRail, now map[string]rail.Traffic) []string {
	if l.claim == nil {
		return nil
	}
	l.unclaimLocked()
	own := map[string]int64{}
	for _, w := range wrote {
		for _, n := range w.Writes {
			own[l.Flows[w.Rail]] += n * w.Chunk // protocol.CheckVerify limits the sum
		}
	}
	used := slices.DeleteFunc(slices.Clone(l.Guard.Rails), func(r node.LocalRail) bool { return own[r.Name] == 0 })
	met := node.Met(used, l.before, now, own)
	l.Guard.Node.Gaps.Collide(met...)
	return met
}

// refuses returns why the lease does not allow a session; nil: it does.
func (l *Lease) refuses(req *protocol.OpenRequest) *failure.Failure {
	switch {
	case l.part == protocol.Reach && (req.Transport != worker.RDMA || req.Memory != "" ||
		req.Buffer > int64(req.QueuePairs)*protocol.ReachMemory):
		return failure.New(failure.StageOpen, failure.Budget, "the peer granted a lease to reach it, for %d KiB of "+
			"memory of each queue pair", protocol.ReachMemory>>10)
	case req.Transport == worker.TCP && l.Guard.Granted <= l.Session.Received:
		return failure.New(failure.StageOpen, failure.Budget, "all %s that were granted have arrived over TCP",
			units.Mebibytes(l.Guard.Granted)).OnPeer()
	}
	return nil
}

// reached knows when the last leases for [protocol.Reach] began. Safe for concurrent use.
type reached struct {
	mu   sync.Mutex // protects last
	last map[reacher]time.Time
}

// reacher is who asked: rounds of the schedule, and those that somebody waits for, have a lease each.
type reacher struct {
	from  netip.Addr
	waits bool
}

// maxReachers bounds what is remembered: more peers than a node has.
const maxReachers = 4096

// wait returns how long from must wait until its next lease.
func (r *reached) wait(from netip.Addr, waits bool, every time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.last, func(_ reacher, at time.Time) bool { return time.Since(at) >= every })
	if at, ok := r.last[reacher{from, waits}]; ok {
		return every - time.Since(at)
	}
	if len(r.last) >= maxReachers {
		return protocol.RetryMost
	}
	return 0
}

// note records a lease that begins now.
func (r *reached) note(from netip.Addr, waits bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		r.last = map[reacher]time.Time{}
	}
	r.last[reacher{from, waits}] = time.Now()
}
