package probe

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/worker"
)

// round is one visit to one peer. It begins and ends in run; everything else is
// a step of it. Steps return an error when there is no going on: a
// [*failure.Failure] with stage and reason. What befalls single rails is noted
// with the rail, and the round goes on with the others.
type round struct {
	node *Node
	opts Options
	peer string // host:port
	full bool   // with solos and baselines
	tell func(Progress)

	client  *client
	there   hello // what the peer said of itself
	rails   []ownRail
	paths   []*path
	lease   *hold
	planned int64 // bytes taken from the budget
	own     ownSession
	bursts  int // still to come, at most
	res     Result
}

// path is one of this node's rails on the way to the peer's.
type path struct {
	own    ownRail
	peer   *helloRail // nil: none
	choice rail.Choice
	end    worker.End // ours, once opened
	mtu    int        // bytes
	res    *RailResult
}

// waitForSlot is how long a round waits while this node answers a peer, and
// releaseTime what is kept of the round's time to end it in order.
const (
	waitForSlot = 2 * time.Second
	releaseTime = time.Second
)

// run makes the round, from hello to release, and returns what it came to.
func (r *round) run(ctx context.Context) Result {
	r.res = Result{Peer: r.peer, Start: time.Now(), Transport: NoTransport, MinOfExpected: r.opts.MinOfExpected}
	r.own.node = r.node
	ctx, cancel := context.WithTimeout(ctx, r.opts.Timeout)
	defer cancel()
	var err error
	if r.node.maintenance() {
		err = failure.New(failure.StageHello, failure.Maintenance, "this node is in maintenance")
	} else {
		err = r.hello(ctx)
	}
	if err == nil {
		if err = r.obtain(ctx); err == nil {
			err = r.transfer(ctx)
			r.release(ctx)
		}
		r.giveUp()
	}
	r.conclude(err)
	r.res.Duration = time.Since(r.res.Start)
	return r.res
}

// transfer moves the bytes: by RDMA, and for comparison by TCP; or, when RDMA
// cannot be had, by TCP alone.
func (r *round) transfer(ctx context.Context) error {
	ctx, stop := r.watch(ctx)
	defer stop()
	err := r.rdma(ctx)
	switch {
	case err == nil:
		r.res.Transport = RDMA
		if r.full {
			r.baseline(ctx)
		}
	case r.fallsBack(ctx, err):
		r.note(err)
		if r.fallback(ctx) == nil {
			r.res.Transport = TCP
		}
	}
	if f := cause(ctx); f != nil {
		return f // the reason, of which err is only a consequence
	}
	if f := over(ctx); f != nil && err != nil && r.res.Transport == NoTransport {
		return f
	}
	return err
}

// fallsBack reports whether TCP is worth a try after err: RDMA did not work, and
// that is all that is wrong.
func (r *round) fallsBack(ctx context.Context, err error) bool {
	switch f := failure.As("", err); f.Reason {
	case failure.PeerLost, failure.PeerUnreachable, failure.LeaseLost, failure.Protocol, failure.Unauthorized,
		failure.TLS, failure.DataMismatch:
		return false
	default:
		return !f.Reason.Skips() && ctx.Err() == nil
	}
}

// watch returns a context that ends when the lease does.
func (r *round) watch(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := make(chan struct{})
	go func() {
		select {
		case <-r.lease.ended:
			if r.lease.reason != nil {
				cancel(r.lease.reason)
			}
		case <-stop:
		}
	}()
	return ctx, func() { close(stop); cancel(nil) }
}

// cause returns the failure that ended ctx, or nil.
func cause(ctx context.Context) *failure.Failure {
	f, _ := errors.AsType[*failure.Failure](context.Cause(ctx))
	return f
}

// over says why the round's context is done, or nil while it is not.
func over(ctx context.Context) *failure.Failure {
	f := cause(ctx)
	switch {
	case ctx.Err() == nil || f != nil:
		return f
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return failure.New(failure.StageRelease, failure.Timeout, "the round's time was over before it was done")
	}
	return failure.New(failure.StageRelease, failure.Canceled, "told to stop")
}

// hello asks the peer who it is, and pairs the rails.
func (r *round) hello(ctx context.Context) error {
	r.tell(Progress{Stage: failure.StageHello})
	c, err := newClient(r.peer, credentials{r.opts.Security, r.node.secrets})
	if err != nil {
		return err
	}
	r.client = c
	if r.there, err = c.hello(ctx); err != nil {
		return err
	}
	if r.there.Instance == r.node.instance {
		return failure.New(failure.StageHello, failure.Self, "%s is this node itself", r.peer)
	}
	r.res.PeerNode = r.there.Node
	r.rails, err = r.node.rails()
	r.rails = r.rails[:min(len(r.rails), worker.MaxRails)]
	if err != nil && len(r.rails) == 0 {
		r.note(failure.New(failure.StageOpen, failure.Other, "the rails of this node cannot be told: %v", err))
	}
	r.pair()
	r.res.Mismatches = mismatches(r.node.versions(), r.there.Versions, r.paths)
	return nil
}

// pair makes the paths, one per own rail.
func (r *round) pair() {
	var names, peerNames []string
	var own, theirs [][]netip.Prefix
	for _, o := range r.rails {
		names, own = append(names, o.Name), append(own, o.prefixes)
	}
	for _, p := range r.there.Rails {
		peerNames, theirs = append(peerNames, p.Name), append(theirs, p.Prefixes)
	}
	r.res.Rails = make([]RailResult, len(r.rails))
	expected := expectations(r.rails, r.opts.ExpectedRate)
	for i, m := range pairRails(names, own, peerNames, theirs) {
		p := &path{own: r.rails[i], res: &r.res.Rails[i]}
		*p.res = RailResult{Rail: p.own.Name, Device: p.own.Device, Port: p.own.Port, Netdev: p.own.Netdev,
			PCIAddress: p.own.PCIAddress, GIDIndex: -1, Capacity: known(p.own.capacity)}
		var prefixes []netip.Prefix
		if m.peer >= 0 {
			p.peer = &r.there.Rails[m.peer]
			p.res.PeerRail, p.res.PeerDevice = p.peer.Name, p.peer.Device
			prefixes = p.peer.Prefixes
			if p.own.capacity > 0 && p.peer.Capacity > 0 {
				p.res.Capacity = known(min(p.own.capacity, p.peer.Capacity))
			}
		}
		switch {
		case p.peer == nil:
		case r.opts.ExpectedRate > 0:
			p.res.Expected = known(expected[m.own])
		case !p.own.software() && !p.peer.Software:
			p.res.Expected = p.res.Capacity
		}
		p.choice = r.node.gid(p.own, prefixes)
		if p.choice.OK {
			p.res.GIDIndex, p.res.GID = p.choice.GID.Index, p.choice.GID.Addr.Unmap().String()
		}
		p.res.GIDReason = p.choice.Reason
		r.paths = append(r.paths, p)
	}
}

// known makes a figure of a number that is 0 when it is not known.
func known(v float64) *float64 {
	if v <= 0 {
		return nil
	}
	return &v
}

// obtain gets all that allows a transfer: this node's place, bytes of the
// budget, rails that nobody else needs, and the peer's lease.
func (r *round) obtain(ctx context.Context) error {
	r.tell(Progress{Stage: failure.StageLease})
	wait, cancel := context.WithTimeout(ctx, waitForSlot)
	defer cancel()
	if holder, ok := r.node.slot.wait(wait, "asking "+r.there.Node); !ok {
		r.node.turns.refused(netip.Addr{})
		if ctx.Err() != nil {
			return over(ctx)
		}
		return failure.New(failure.StageLease, failure.Busy, "this node is %s", holder)
	}
	r.planned = 1 // the slot is taken
	r.node.turns.begin(netip.Addr{})
	plan := roundBytes(r.opts, r.full, len(r.rails))
	if wait, ok := r.node.asked.take(plan); !ok {
		return failure.New(failure.StageLease, failure.Budget,
			"this node's probe budget is used up; there will be %d bytes in %v", plan, wait.Round(time.Second))
	}
	r.planned += plan
	if f := r.node.busy(ctx, r.rails, r.opts.BusyAbove); f != nil {
		return f
	}
	r.node.learn(ctx)
	lease, err := r.client.obtain(ctx, leaseRequest{Node: r.node.name(), Instance: r.node.instance, Bytes: plan})
	r.lease = lease
	return err
}

// roundBytes is the most that a round writes: both striped halves, and in a full
// one the solos, half as much, and two baselines of a quarter; or the fallback's
// half after as much by RDMA as came before it.
func roundBytes(o Options, full bool, rails int) int64 {
	small := int64(rails+1) *
		(fullPackets*4096 + 8*int64(o.LatencySamples) + 4096) // first writes, latencies, what is rounded up
	if full {
		return 2*o.Transfer + small
	}
	return o.Transfer + o.Transfer/2 + small
}

// release ends what this node holds open, and gives the lease back.
func (r *round) release(ctx context.Context) {
	r.tell(Progress{Stage: failure.StageRelease})
	if err := r.own.end(); err != nil {
		r.note(err)
	}
	if err := r.client.release(ctx, r.lease, r.res.Bytes); err != nil && cause(ctx) == nil {
		if f := failure.As(failure.StageRelease, err); f.Reason != failure.LeaseLost {
			r.note(f)
		}
	}
}

// giveUp gives back this node's place and the bytes that were not used.
func (r *round) giveUp() {
	r.client.close()
	if r.planned == 0 {
		return
	}
	_ = r.own.end() // release did, if the round came to it
	r.node.asked.settle(r.planned-1, r.res.Bytes)
	r.node.turns.end()
	r.node.slot.free()
}

// note keeps what went wrong, once.
func (r *round) note(err error) {
	f := failure.As(failure.StageOpen, err)
	if f != nil && !slices.Contains(r.res.Failures, *f) {
		r.res.Failures = append(r.res.Failures, *f)
	}
}

// conclude says in one word what the round came to. err is why it was not by
// RDMA, or nil.
func (r *round) conclude(err error) {
	f := failure.As(failure.StageOpen, err)
	switch {
	case f == nil && r.res.Degraded():
		r.res.Outcome = Degraded
		return
	case f == nil:
		r.res.Outcome = OK
		return
	case f.Reason.Skips():
		r.res.Outcome, r.res.Transport = Skipped, NoTransport
	case r.res.Transport == TCP:
		r.res.Outcome = Fallback
	default:
		r.res.Outcome, r.res.Transport = Failed, NoTransport
		r.note(f)
	}
	r.res.Reason, r.res.Detail = f.Reason, f.Detail
	if f.Rail != "" {
		r.res.Detail = fmt.Sprintf("rail %s: %s", f.Rail, f.Detail)
	}
}
