// Package round makes one round with one peer, or one ring.
package round

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/stats"
	"github.com/railscope/railscope/probe/internal/auth"
	"github.com/railscope/railscope/probe/internal/control"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/history"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/result"
)

// Round is one visit to one peer. It starts and ends in run; all other methods are steps, whose order, sizes and
// times are in plan.go. A step returns an error, a [*failure.Failure], when the round cannot continue. The failure
// of a rail is recorded with the rail, and the other rails continue.
type Round struct {
	Node      *node.Node
	Plan      Plan
	Peer      string // host:port
	Overdue   bool   // rounds were denied for half a cycle: this one waits longer
	ByHand    bool   // interactive: waits like an overdue round, and retries after a cooldown
	Uncharged bool   // a benchmark: the node's budget covers only its own schedule
	Ring      string // reservation ID by which the peer knows the ring; empty: none
	Progress  func(result.Progress)

	Client    *control.Client
	Remote    protocol.Hello
	Past      *history.PastPeer // earlier rounds with the peer
	Rails     []node.LocalRail
	Paths     []*Path
	lease     *control.HeldLease
	HasSlot   bool
	Most      int64         // bytes that the round may move
	Spare     int64         // bytes left, of most, for repeated bursts of extras in an interactive round
	Tally     *Tally        // counts the round's bursts
	cost      time.Duration // most as time on all rails
	Reserved  time.Duration // rail time reserved from the node's budget
	Session   *node.WorkerSession
	seed      uint64                  // seed of the source's pattern
	buffer    int64                   // bytes of each rail's memory at the target
	size      int64                   // bytes of each message, transfer or page of an extra
	memory    string                  // kind of GPU memory; empty: host memory
	disturbed *failure.Failure        // reason why the striped burst has no figure
	counted   map[string]rail.Traffic // last reading of the rails' counters
	after     map[string]rail.Traffic // reading right after the last striped burst
	atHome    int64                   // loopback bytes, included in res.Bytes
	EvenAlone bool                    // the rails are even in solo bursts, and the striped burst found a bottleneck
	Res       result.Result
}

// Run runs the round, from hello to release, and returns its result.
func (r *Round) Run(ctx context.Context) result.Result {
	r.Res = result.Result{Peer: r.Peer, Node: r.Node.Name(), Start: time.Now(), Transport: result.NoTransport,
		MinOfExpected: r.Plan.MinOfExpected}
	r.Session, r.Tally = &node.WorkerSession{Node: r.Node}, &Tally{}
	show := r.Progress
	r.Progress = func(p result.Progress) { show(r.Tally.Add(p)) }
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
	r.Free()
	if r.Past != nil {
		r.Past.Note(&r.Res, r.EvenAlone, r.Plan.Runs > 1)
		if !r.ByHand { // an interactive round shows only its own extras
			r.Past.NoteExtras(&r.Res)
		}
		<-r.Past.Turn
	}
	r.SetOutcome(err)
	r.Res.Duration = time.Since(r.Res.Start)
	return r.Res
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
		r.addFailure(failure.New(failure.StageOpen, failure.Other, "cannot list the rails of this node: %v", err))
	}
	r.MakePaths()
	r.Res.PeerRails = len(r.Remote.Rails)
	if err := r.remember(ctx); err != nil {
		return err
	}
	r.Res.Missing = r.FindMissing()
	r.FindUnpaired()
	r.Plan.QueuePairs = QueuePairs(r.Plan.QueuePairs, r.Paths)
	if len(r.Rails) > 0 {
		r.Res.Class = r.Node.Class(ctx, r.Plan.Options)
	}
	r.Res.Burst, r.Res.Depth = r.Plan.Burst, r.Plan.Depth
	r.Res.QueuePairs, r.Res.Versions = r.Plan.QueuePairs, allVersions(r.Node.Versions(), r.Remote.Versions, r.Paths)
	r.Res.Mismatches = Mismatches(r.Node.Versions(), r.Remote.Versions, r.Paths)
	return nil
}

// remember finds the memory of earlier rounds with the peer, which only one round uses at a time. An interactive
// round waits for it.
func (r *Round) remember(ctx context.Context) error {
	past := r.Node.Past.Of(r.Peer, r.Remote.Node)
	select {
	case past.Turn <- struct{}{}:
		r.Past = past
		return nil
	default:
	}
	if !r.ByHand {
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

// MakePaths pairs the rails of this node with those of the peer.
func (r *Round) MakePaths() {
	r.Res.Rails = make([]result.RailResult, len(r.Rails))
	for i, j := range PairRails(r.Rails, r.Remote.Rails) {
		p := &Path{Local: r.Rails[i], Result: &r.Res.Rails[i]}
		*p.Result = result.RailResult{Rail: p.Local.Name, Device: p.Local.Device, Port: p.Local.Port, Netdev: p.Local.Netdev,
			PCIAddress: p.Local.PCIAddress, Soldered: p.Local.Soldered(), GIDIndex: -1,
			Capacity: stats.Positive(p.Local.Capacity)}
		var prefixes []netip.Prefix
		if j >= 0 {
			p.Peer = &r.Remote.Rails[j]
			p.Result.PeerRail, p.Result.PeerDevice = p.Peer.Name, p.Peer.Device
			prefixes = p.Peer.Prefixes
			if p.Local.Capacity > 0 && p.Peer.Capacity > 0 {
				p.Result.Capacity = stats.Positive(min(p.Local.Capacity, p.Peer.Capacity))
			}
			p.Result.Expected = p.Expectation()
		}
		p.Result.Kind = result.RailKind{Group: p.group(), Software: p.software()}
		r.Plan.software = r.Plan.software || p.software() || r.Node.Emulated
		p.GID = r.Node.GID(p.Local, prefixes)
		if p.GID.OK() {
			p.Result.GIDIndex, p.Result.GID = p.GID.GID.Index, p.GID.GID.Addr.Unmap().String()
		}
		p.Result.GIDReason = p.GID.Reason
		r.Paths = append(r.Paths, p)
	}
	r.Res.Places = places(r.Paths)
}

// software reports whether a device of either end is not an adapter.
func (p *Path) software() bool { return p.Local.IsSoftware() || p.Peer != nil && p.Peer.Software }

// acquire acquires what a transfer needs: this node's resources, and the peer's lease.
func (r *Round) acquire(ctx context.Context) error {
	r.Progress(result.Progress{Stage: failure.StageLease})
	if err := r.Reserve(ctx); err != nil {
		return err
	}
	r.Node.LoadRDMACore(ctx)
	return r.Persist(ctx, func() (err error) {
		r.lease, err = r.Client.AcquireLease(ctx, r.LeaseRequest())
		return err
	})
}

// Persist asks for a lease. An overdue or interactive round keeps this node's slot until the peer's transfer has
// ended, and asks more often than others.
func (r *Round) Persist(ctx context.Context, ask func() error) error {
	for end := time.Now().Add(min(OverdueTime, r.timeLeft(ctx)/2)); ; {
		err := ask()
		wait := r.patience(failure.As(failure.StageLease, err))
		if wait == 0 || !time.Now().Add(wait).Before(end.Add(AskEvery)) {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return err
		}
	}
}

// patience returns the delay before the round asks again for the lease that f denied, or 0 if it does not.
func (r *Round) patience(f *failure.Failure) time.Duration {
	switch {
	case f == nil, r.yields() != "":
		return 0
	// The peer is busy with a transfer, not a job.
	case (r.Overdue || r.ByHand) && f.Reason == failure.Busy && f.RetryAfter == protocol.RetryLeast:
		return AskEvery
	case r.ByHand && f.Reason == failure.Cooldown:
		return max(f.RetryAfter, AskEvery)
	}
	return 0
}

// LeaseRequest returns the request for the lease that the round needs.
func (r *Round) LeaseRequest() protocol.LeaseRequest {
	return protocol.LeaseRequest{Node: r.Node.Name(), Instance: r.Node.Instance, RailSeconds: r.cost.Seconds(),
		Waits:       r.ByHand,
		Reservation: r.Ring}
}

// yields returns the purpose for which this node is reserved, if the round is of the schedule and must give way.
func (r *Round) yields() string {
	if r.ByHand {
		return ""
	}
	return r.Node.Reserved.Against("")
}

// transfer moves the data by RDMA, and over TCP for comparison; or, if RDMA fails, over TCP alone.
func (r *Round) transfer(ctx context.Context) error {
	ctx, stop := r.watchLease(ctx)
	defer stop()
	var rails []string
	for _, p := range r.LivePaths() {
		rails = append(rails, p.Local.Name)
	}
	r.Tally.Begin(ctx, r.Plan, rails)
	err := r.rdma(ctx)
	switch {
	case err == nil:
		r.Res.Transport = result.RDMA
		if r.Plan.Full {
			r.baseline(ctx)
		}
	case r.FallsBack(ctx, err):
		r.addFailure(err)
		if r.fallback(ctx) == nil {
			r.Res.Transport = result.TCP
		}
	}
	if f := cause(ctx); f != nil {
		return f // err is a consequence
	}
	if f := timeUp(ctx); f != nil && err != nil && r.Res.Transport == result.NoTransport {
		return f
	}
	r.splitLatency(ctx)
	r.extras(ctx)
	return err
}

// FallsBack reports whether TCP is worth an attempt after err: only RDMA failed. A ring is measured by RDMA only.
func (r *Round) FallsBack(ctx context.Context, err error) bool {
	if r.Plan.Ring != nil {
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

// watchLease returns a context that ends when the lease does.
func (r *Round) watchLease(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(r.lease.Ctx, func() { cancel(context.Cause(r.lease.Ctx)) })
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
	if err := r.Session.End(); err != nil {
		r.addFailure(err)
	}
	if err := r.Client.Release(ctx, r.lease, r.Res.Bytes-r.atHome); err != nil && cause(ctx) == nil {
		if f := failure.As(failure.StageRelease, err); f.Reason != failure.LeaseLost {
			r.addFailure(f)
		}
	}
}

// alike returns "rail 1 and 2 more" for the rails with the failure of f.
func (r *Round) alike(f *failure.Failure) string {
	n := 0
	for _, other := range r.Res.Failures {
		if other.Rail != "" && other.Stage == f.Stage && other.Reason == f.Reason {
			n++
		}
	}
	if n < 2 {
		return "rail " + f.Rail
	}
	return fmt.Sprintf("rail %s and %d more", f.Rail, n-1)
}

func (r *Round) addFailure(err error) {
	f := failure.As(failure.StageOpen, err)
	if f != nil && !slices.Contains(r.Res.Failures, *f) {
		r.Res.Failures = append(r.Res.Failures, *f)
	}
}

// SetOutcome sets the outcome. err is why RDMA was not used, or nil.
func (r *Round) SetOutcome(err error) {
	f := failure.As(failure.StageOpen, err)
	r.Res.StripedFailure = r.disturbed
	if f == nil && r.disturbed != nil && !r.Res.Degraded() {
		f = r.disturbed
	}
	switch {
	case f == nil && r.Res.Degraded():
		r.Res.Outcome = result.Degraded
		return
	case f == nil:
		r.Res.Outcome = result.OK
		return
	case f.Reason.Skips():
		r.Res.Outcome, r.Res.Transport, r.Res.RetryAfter = result.Skipped, result.NoTransport, f.RetryAfter
	case r.Res.Transport == result.TCP:
		r.Res.Outcome = result.Fallback
	default:
		r.Res.Outcome, r.Res.Transport = result.Failed, result.NoTransport
		r.addFailure(f)
	}
	r.Res.Reason, r.Res.Detail = f.Reason, f.Detail
	if f.Rail != "" {
		r.Res.Detail = fmt.Sprintf("%s: %s", r.alike(f), f.Detail)
	}
}
