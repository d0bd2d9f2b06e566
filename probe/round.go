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

// round is one visit to one peer. It begins and ends in run; everything else is a step of it. Steps return an error
// when there is no going on: a [*failure.Failure] with stage and reason. What befalls single rails is noted with the
// rail, and the round goes on with the others.
type round struct {
	node     *Node
	opts     Options
	peer     string // host:port
	full     bool   // with solos and baselines
	progress func(Progress)

	client  *client
	remote  hello // what the peer said of itself
	rails   []localRail
	paths   []*path
	lease   *heldLease
	planned int64 // bytes taken from the budget
	session workerSession
	bursts  int // still to come, at most
	res     Result
}

// path is one of this node's rails on the way to the peer's.
type path struct {
	local  localRail
	peer   *helloRail // nil: none
	gid    rail.Choice
	end    worker.End // ours, once opened
	mtu    int        // bytes
	result *RailResult
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
	r.session.node = r.node
	ctx, cancel := context.WithTimeout(ctx, r.opts.Timeout)
	defer cancel()
	var err error
	if r.node.maintenance() {
		err = failure.New(failure.StageHello, failure.Maintenance, "this node is in maintenance")
	} else {
		err = r.exchangeHello(ctx)
	}
	if err == nil {
		if err = r.acquire(ctx); err == nil {
			err = r.transfer(ctx)
			r.release(ctx)
		}
		r.free()
	}
	r.setOutcome(err)
	r.res.Duration = time.Since(r.res.Start)
	return r.res
}

// transfer moves the bytes: by RDMA, and for comparison by TCP; or, when RDMA cannot be had, by TCP alone.
func (r *round) transfer(ctx context.Context) error {
	ctx, stop := r.watchLease(ctx)
	defer stop()
	err := r.rdma(ctx)
	switch {
	case err == nil:
		r.res.Transport = RDMA
		if r.full {
			r.baseline(ctx)
		}
	case r.fallsBack(ctx, err):
		r.addFailure(err)
		if r.fallback(ctx) == nil {
			r.res.Transport = TCP
		}
	}
	if f := cause(ctx); f != nil {
		return f // the reason, of which err is only a consequence
	}
	if f := timeUp(ctx); f != nil && err != nil && r.res.Transport == NoTransport {
		return f
	}
	return err
}

// fallsBack reports whether TCP is worth a try after err: RDMA did not work, and that is all that is wrong.
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
func (r *round) watchLease(ctx context.Context) (context.Context, context.CancelFunc) {
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
func timeUp(ctx context.Context) *failure.Failure {
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
func (r *round) exchangeHello(ctx context.Context) error {
	r.progress(Progress{Stage: failure.StageHello})
	c, err := newClient(r.peer, credentials{r.opts.Security, r.node.secrets})
	if err != nil {
		return err
	}
	r.client = c
	if r.remote, err = c.hello(ctx); err != nil {
		return err
	}
	if r.remote.Instance == r.node.instance {
		return failure.New(failure.StageHello, failure.Self, "%s is this node itself", r.peer)
	}
	r.res.PeerNode = r.remote.Node
	r.rails, err = r.node.rails()
	r.rails = r.rails[:min(len(r.rails), worker.MaxRails)]
	if err != nil && len(r.rails) == 0 {
		r.addFailure(failure.New(failure.StageOpen, failure.Other, "the rails of this node cannot be told: %v", err))
	}
	r.pair()
	r.res.Mismatches = mismatches(r.node.versions(), r.remote.Versions, r.paths)
	return nil
}

// pair makes the paths, one per own rail.
func (r *round) pair() {
	var names, peerNames []string
	var own, theirs [][]netip.Prefix
	for _, o := range r.rails {
		names, own = append(names, o.Name), append(own, o.prefixes)
	}
	for _, p := range r.remote.Rails {
		peerNames, theirs = append(peerNames, p.Name), append(theirs, p.Prefixes)
	}
	r.res.Rails = make([]RailResult, len(r.rails))
	expected := expectations(r.rails, r.opts.ExpectedRate)
	for i, m := range pairRails(names, own, peerNames, theirs) {
		p := &path{local: r.rails[i], result: &r.res.Rails[i]}
		*p.result = RailResult{Rail: p.local.Name, Device: p.local.Device, Port: p.local.Port, Netdev: p.local.Netdev,
			PCIAddress: p.local.PCIAddress, GIDIndex: -1, Capacity: positive(p.local.capacity)}
		var prefixes []netip.Prefix
		if m.peer >= 0 {
			p.peer = &r.remote.Rails[m.peer]
			p.result.PeerRail, p.result.PeerDevice = p.peer.Name, p.peer.Device
			prefixes = p.peer.Prefixes
			if p.local.capacity > 0 && p.peer.Capacity > 0 {
				p.result.Capacity = positive(min(p.local.capacity, p.peer.Capacity))
			}
		}
		switch {
		case p.peer == nil:
		case r.opts.ExpectedRate > 0:
			p.result.Expected = positive(expected[m.own])
		case !p.local.software() && !p.peer.Software:
			p.result.Expected = p.result.Capacity
		}
		p.gid = r.node.gid(p.local, prefixes)
		if p.gid.OK {
			p.result.GIDIndex, p.result.GID = p.gid.GID.Index, p.gid.GID.Addr.Unmap().String()
		}
		p.result.GIDReason = p.gid.Reason
		r.paths = append(r.paths, p)
	}
}

// known makes a figure of a number that is 0 when it is not known.
func positive(v float64) *float64 {
	if v <= 0 {
		return nil
	}
	return &v
}

// obtain gets all that allows a transfer: this node's place, bytes of the
// budget, rails that nobody else needs, and the peer's lease.
func (r *round) acquire(ctx context.Context) error {
	r.progress(Progress{Stage: failure.StageLease})
	wait, cancel := context.WithTimeout(ctx, waitForSlot)
	defer cancel()
	if holder, ok := r.node.slot.wait(wait, "asking "+r.remote.Node); !ok {
		r.node.turns.refused(netip.Addr{})
		if ctx.Err() != nil {
			return timeUp(ctx)
		}
		return failure.New(failure.StageLease, failure.Busy, "this node is %s", holder)
	}
	r.planned = 1 // the slot is taken
	r.node.turns.begin(netip.Addr{})
	plan := roundBytes(r.opts, r.full, len(r.rails))
	if wait, ok := r.node.askBudget.reserve(plan); !ok {
		return failure.New(failure.StageLease, failure.Budget,
			"this node's probe budget is used up; there will be %d bytes in %v", plan, wait.Round(time.Second))
	}
	r.planned += plan
	if f := r.node.busy(ctx, r.rails, r.opts.BusyAbove); f != nil {
		return f
	}
	r.node.loadRDMACore(ctx)
	lease, err := r.client.acquireLease(ctx, leaseRequest{Node: r.node.name(), Instance: r.node.instance, Bytes: plan})
	r.lease = lease
	return err
}

// roundBytes is the most that a round writes: both striped halves, and in a full one the solos, half as much, and two
// baselines of a quarter; or the fallback's half after as much by RDMA as came before it.
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
	r.progress(Progress{Stage: failure.StageRelease})
	if err := r.session.end(); err != nil {
		r.addFailure(err)
	}
	if err := r.client.release(ctx, r.lease, r.res.Bytes); err != nil && cause(ctx) == nil {
		if f := failure.As(failure.StageRelease, err); f.Reason != failure.LeaseLost {
			r.addFailure(f)
		}
	}
}

// giveUp gives back this node's place and the bytes that were not used.
func (r *round) free() {
	r.client.close()
	if r.planned == 0 {
		return
	}
	_ = r.session.end() // release did, if the round came to it
	r.node.askBudget.settle(r.planned-1, r.res.Bytes)
	r.node.turns.end()
	r.node.slot.free()
}

// note keeps what went wrong, once.
func (r *round) addFailure(err error) {
	f := failure.As(failure.StageOpen, err)
	if f != nil && !slices.Contains(r.res.Failures, *f) {
		r.res.Failures = append(r.res.Failures, *f)
	}
}

// conclude says in one word what the round came to. err is why it was not by RDMA, or nil.
func (r *round) setOutcome(err error) {
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
		r.addFailure(f)
	}
	r.res.Reason, r.res.Detail = f.Reason, f.Detail
	if f.Rail != "" {
		r.res.Detail = fmt.Sprintf("rail %s: %s", f.Rail, f.Detail)
	}
}
