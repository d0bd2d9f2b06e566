// Package round makes one round with one peer, or one ring.
package round

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/auth"
	"github.com/railscope/railscope/probe/internal/control"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/history"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/result"
)

// Round is one visit to one peer. It starts and ends in Run; all other methods are steps, whose sizes and times are
// those of the [Plan]. A step returns an error, a [*failure.Failure], when the round cannot continue. The failure of a
// rail is recorded with the rail, and the other rails continue.
type Round struct {
	Pairing
	Plan      Plan
	whole     Plan         // Plan before load or budget changed it
	Peer      string       // host:port
	Overdue   bool         // rounds were denied for half a cycle: this one waits longer
	Uncharged bool         // a benchmark: the node's budget covers only its own schedule
	Budget    *node.Budget // budget that is charged; nil: that of the node's rounds
	Progress  func(result.Progress)

	Reserved Reservation
	Tally    Tally
	session  *Session                // the session of all rails, once the peer has granted the lease
	counted  map[string]rail.Traffic // last reading of the rails' counters
	reached  bool                    // all that precedes the bursts was done
	loopback int64                   // bytes that did not leave this node, included in Res.Bytes
	Res      result.Result
}

// Run runs the round, from hello to release, and returns its result.
func (r *Round) Run(ctx context.Context) result.Result {
	r.Res = result.Result{Peer: r.Peer, Node: r.Node.Name(), Start: time.Now(), Transport: result.NoTransport,
		MinOfExpected: r.Plan.MinOfExpected}
	show := r.Progress
	r.Progress = func(p result.Progress) { show(r.Tally.Add(p)) }
	err := visit(ctx, r)
	freeSlot(r)
	if err == nil && waitsForGap(r) {
		waitForGaps(ctx, r)
	}
	r.Free()
	noteSkipped(&r.Res)
	if r.Past != nil {
		r.Past.Note(&r.Res, r.Plan.Runs > 1)
		if !r.Plan.Interactive { // an interactive round shows only its own extras
			r.Past.NoteExtras(&r.Res)
		}
		<-r.Past.Turn
	}
	SetOutcome(&r.Res, err)
	r.Res.Duration = time.Since(r.Res.Start)
	return r.Res
}

// visit makes the part of the round that needs the slot.
func visit(ctx context.Context, r *Round) error {
	ctx, cancel := context.WithTimeout(ctx, r.Plan.Timeout)
	defer cancel()
	err := r.exchangeHello(ctx)
	if err == nil {
		err = r.acquire(ctx)
	}
	if err == nil {
		err = r.transfer(ctx)
		r.release(ctx)
	}
	return err
}

// exchangeHello asks the peer for its identity and rails, and pairs the rails.
func (r *Round) exchangeHello(ctx context.Context) error {
	if r.Node.Maintenance() {
		return failure.New(failure.StageHello, failure.Maintenance, "this node is in maintenance")
	}
	r.Progress(result.Progress{Stage: failure.StageHello})
	c, err := control.NewClient(r.Peer, auth.Credentials{Security: r.Plan.Security, SecretFiles: r.Node.Secrets})
	if err != nil {
		return err
	}
	r.Client = c
	r.Remote, err = c.Hello(ctx)
	if err != nil {
		return err
	}
	// An attacker may have redirected the connection.
	if r.Remote.Instance == r.Node.Instance && len(c.Tokens) > 0 && c.Translated.Load() {
		return failure.New(failure.StageHello, failure.Unauthorized,
			"connections to %s are led back to this node: remove that address from the peers, or find what leads them",
			r.Peer)
	}
	if r.Remote.Instance == r.Node.Instance {
		return failure.New(failure.StageHello, failure.Self, "%s is this node", r.Peer)
	}
	r.Res.PeerNode = r.Remote.Node
	r.Rails, err = r.Node.Rails()
	r.Rails = r.Rails[:min(len(r.Rails), worker.MaxRails)]
	r.Plan.Rails, r.Plan.Rate = len(r.Rails), min(node.RailRate(r.Rails), PeerRate(r.Remote.Rails))
	if err != nil && len(r.Rails) == 0 {
		addFailure(&r.Res, failure.New(failure.StageOpen, failure.Other, "cannot list the rails of this node: %v", err))
	}
	r.Res.Rails = r.Pair()
	r.Res.Places = sharedHardware(r.Flows)
	r.Plan.software = r.Node.Emulated || slices.ContainsFunc(r.Flows, (*Flow).software)
	r.Res.PeerRails = len(r.Remote.Rails)
	if err := r.remember(ctx); err != nil {
		return err
	}
	r.Res.Missing = r.FindMissing()
	r.FindUnpaired()
	r.Plan.QueuePairs = QueuePairs(r.Plan.QueuePairs, r.Flows)
	if len(r.Rails) > 0 {
		r.Res.Class = r.Node.Class(ctx, r.Plan.Options)
	}
	r.Res.Burst, r.Res.Depth = r.Plan.Burst, r.Plan.Depth
	r.Res.QueuePairs, r.Res.Versions = r.Plan.QueuePairs, allVersions(r.Node.Versions(), r.Remote.Versions, r.Flows)
	r.Res.Mismatches = Mismatches(r.Node.Versions(), r.Remote.Versions, r.Flows)
	return nil
}

// remember finds the memory of earlier rounds with the peer, which only one round uses at a time. An interactive
// round waits for it.
func (r *Round) remember(ctx context.Context) error {
	past := r.Node.Past.Of(r.Peer, r.Remote.Node)
	if r.Plan.Visit != NoVisit { // its peer need not be one that this node asks otherwise
		past = history.NewPeer(r.Remote.Node)
	}
	select {
	case past.Turn <- struct{}{}:
		r.Past = past
		return nil
	default:
	}
	if !r.Plan.Interactive {
		return protocol.Later(protocol.RetryLeast, failure.Busy, "this node is asking %s by hand", r.Remote.Node)
	}
	select {
	case past.Turn <- struct{}{}:
		r.Past = past
		return nil
	case <-ctx.Done():
		return timeUp(ctx)
	}
}

// acquire acquires what a transfer needs: this node's resources, and the peer's lease.
func (r *Round) acquire(ctx context.Context) error {
	r.Progress(result.Progress{Stage: failure.StageLease})
	if err := r.Reserve(ctx); err != nil {
		return err
	}
	r.Node.LoadRDMACore(ctx)
	lease, err := acquireLease(ctx, r)
	if err == nil {
		r.session = newSession(r, lease, r.Node.Worker, r.Flows)
	}
	return err
}

// transfer moves the data by RDMA, and over TCP for comparison; or, if RDMA fails, over TCP alone.
func (r *Round) transfer(ctx context.Context) error {
	ctx, stop := whileHeld(ctx, r.session.lease)
	defer stop()
	var rails []string
	for _, p := range r.Live() {
		rails = append(rails, p.Local.Name)
	}
	r.Tally.Begin(ctx, r.Plan, rails)
	err := r.rdma(ctx)
	if f := cmp.Or(cause(ctx), failure.As("", err)); r.reached && r.Plan.Ring == nil && f != nil &&
		f.Reason == failure.Busy {
		endBursts(r, f)
		r.extras(ctx)
		return nil
	}
	switch {
	case err == nil:
		r.Res.Transport = result.RDMA
		if r.Plan.Full && r.leftOut() == nil && r.Plan.Visit == NoVisit {
			r.baseline(ctx)
		}
	case FallsBack(ctx, r.Plan, err):
		addFailure(&r.Res, err)
		// Beside the traffic of others nothing is transferred: the control channel shows that TCP works.
		if r.Plan.onlyReach || r.Plan.Visit != NoVisit || r.anyBusy() || r.fallback(ctx) == nil {
			r.Res.Transport = result.TCP
		}
	}
	if f := cause(ctx); f != nil {
		return f // err is a consequence
	}
	if f := timeUp(ctx); f != nil && err != nil && r.Res.Transport == result.NoTransport {
		return f
	}
	splitLatency(ctx, r)
	r.extras(ctx)
	return err
}

// FallsBack reports whether TCP is worth an attempt after err: only RDMA failed. A ring is measured by RDMA only.
func FallsBack(ctx context.Context, p Plan, err error) bool {
	if p.Ring != nil {
		return false
	}
	switch f := failure.As("", err); f.Reason {
	case failure.PeerLost, failure.PeerUnreachable, failure.LeaseLost, failure.Protocol, failure.Unauthorized,
		failure.TLS, failure.DataMismatch:
		return false
	default:
		return !f.Reason.Skips() && ctx.Err() == nil
	}
}

// whileHeld returns a context that ends when the lease does.
func whileHeld(ctx context.Context, lease *control.HeldLease) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(lease.Ctx, func() { cancel(context.Cause(lease.Ctx)) })
	return ctx, func() { stop(); cancel(nil) }
}

// cause returns the failure that ended ctx, or nil.
func cause(ctx context.Context) *failure.Failure {
	f, _ := errors.AsType[*failure.Failure](context.Cause(ctx))
	return f
}

// timeUp returns why the round's context is done, or nil while it is not.
func timeUp(ctx context.Context) *failure.Failure {
	f := cause(ctx)
	switch {
	case ctx.Err() == nil || f != nil:
		return f
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return failure.New(failure.StageRelease, failure.Timeout, "the round did not finish within its timeout")
	}
	return failure.New(failure.StageRelease, failure.Canceled, "interrupted")
}

// release closes the session, and releases the lease.
func (r *Round) release(ctx context.Context) {
	r.Progress(result.Progress{Stage: failure.StageRelease})
	if err := r.session.worker.End(); err != nil {
		addFailure(&r.Res, err)
	}
	if err := r.Client.Release(ctx, r.session.lease, r.Res.Bytes-r.loopback); err != nil && cause(ctx) == nil {
		if f := failure.As(failure.StageRelease, err); f.Reason != failure.LeaseLost {
			addFailure(&r.Res, f)
		}
	}
}
