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

// round is one visit to one peer. It starts and ends in run; every other method is a step of it, and plan.go has the
// order, sizes and times of the steps. A step returns an error, a [*failure.Failure], when the round cannot go on. The
// failure of one rail is recorded with the rail, and the round goes on with the others.
type round struct {
	node     *Node
	plan     plan
	peer     string // host:port
	overdue  bool   // earlier ones were denied for half a cycle: this one waits for longer
	byHand   bool   // somebody waits for it: it is as patient, and waits for its turn, too
	progress func(Progress)

	client    *client
	remote    hello
	past      *pastPeer // earlier rounds with the peer
	rails     []localRail
	paths     []*path
	lease     *heldLease
	hasSlot   bool
	most      int64         // that the round may move, in bytes
	cost      time.Duration // the same, of all rails
	reserved  time.Duration // of it, of the node's budget
	session   *workerSession
	seed      uint64                  // of the source
	buffer    int64                   // bytes of each rail's memory at the target
	size      int64                   // of an extra: what is measured
	memory    string                  // kind of it, of the GPUs; empty: of the hosts
	disturbed *failure.Failure        // why the striped burst has no figure
	counted   map[string]rail.Traffic // the last reading of the rails' counters
	after     map[string]rail.Traffic // the one right after the last striped burst
	atHome    int64                   // of res.Bytes, those that did not leave this node
	evenAlone bool                    // the rails are even in solo bursts, where the striped one found a bottleneck
	res       Result
}

// path is one of this node's rails with the peer's rail that it is paired with; or, in an extra, one flow over it.
type path struct {
	op   worker.Op // empty: it writes
	flow int       // number of its first flow label
	lane bool      // it is a path of TCP
	home bool      // both ends are of this node, and the peer's rail is not used: see loopback

	stamps bool // the adapter stamps completions: for latencies alone

	local  localRail
	peer   *helloRail // nil: none
	gid    rail.Choice
	own    []helloGID // our GIDs, when last examined
	end    worker.End // ours, once opened
	theirs netip.Addr // the GID of the peer's end, once opened
	gone   bool       // the peer has no longer this rail

	slowerSolo float64 // of two solo bursts, in bytes per second; 0: there was one
	counted    *int64  // by the port during the last burst, in a round by hand; nil: not known
	sent       uint64  // by the rail while loss was counted, in bytes
	connected  bool    // and not stopped at the target
	result     *RailResult
}

// run makes the round, from hello to release, and returns its result.
func (r *round) run(ctx context.Context) Result {
	r.res = Result{Peer: r.peer, Node: r.node.name(), Start: time.Now(), Transport: NoTransport,
		MinOfExpected: r.plan.MinOfExpected}
	r.session = &workerSession{node: r.node}
	ctx, cancel := context.WithTimeout(ctx, r.plan.Timeout)
	defer cancel()
	err := r.exchangeHello(ctx)
	if err == nil {
		err = r.acquire(ctx)
	}
	if err == nil {
		err = r.transfer(ctx)
		r.release(ctx)
	}
	r.free()
	if r.past != nil {
		r.past.note(&r.res, r.evenAlone, r.plan.runs > 1)
	}
	if r.past != nil {
		r.past.noteExtras(&r.res)
	}
	r.setOutcome(err)
	r.res.Duration = time.Since(r.res.Start)
	return r.res
}

// exchangeHello asks the peer who it is, and pairs the rails.
func (r *round) exchangeHello(ctx context.Context) error {
	if r.node.maintenance() {
		return failure.New(failure.StageHello, failure.Maintenance, "this node is in maintenance")
	}
	r.progress(Progress{Stage: failure.StageHello})
	c, err := newClient(r.peer, credentials{r.plan.Security, r.node.secrets})
	if err != nil {
		return err
	}
	r.client = c
	if r.remote, err = c.hello(ctx); err != nil {
		return err
	}
	if r.remote.Instance == r.node.instance {
		return failure.New(failure.StageHello, failure.Self, "%s is this node", r.peer)
	}
	r.res.PeerNode = r.remote.Node
	r.rails, err = r.node.rails()
	r.rails = r.rails[:min(len(r.rails), worker.MaxRails)]
	r.plan.rails, r.plan.rate = len(r.rails), min(railRate(r.rails), peerRate(r.remote.Rails))
	if err != nil && len(r.rails) == 0 {
		r.addFailure(failure.New(failure.StageOpen, failure.Other, "cannot list the rails of this node: %v", err))
	}
	r.makePaths()
	r.past = r.node.past.of(r.peer, r.remote.Node)
	r.res.Missing = r.findMissing()
	r.plan.QueuePairs = queuePairs(r.plan.QueuePairs, r.paths)
	if len(r.rails) > 0 {
		r.res.Class = r.node.class(ctx, r.plan.Options)
	}
	r.res.QueuePairs, r.res.Versions = r.plan.QueuePairs, allVersions(r.node.versions(), r.remote.Versions, r.paths)
	r.res.Mismatches = mismatches(r.node.versions(), r.remote.Versions, r.paths)
	return nil
}

func (r *round) makePaths() {
	r.res.Rails = make([]RailResult, len(r.rails))
	for i, j := range pairRails(r.rails, r.remote.Rails) {
		p := &path{local: r.rails[i], result: &r.res.Rails[i]}
		*p.result = RailResult{Rail: p.local.Name, Device: p.local.Device, Port: p.local.Port, Netdev: p.local.Netdev,
			PCIAddress: p.local.PCIAddress, GIDIndex: -1, Capacity: positive(p.local.capacity)}
		var prefixes []netip.Prefix
		if j >= 0 {
			p.peer = &r.remote.Rails[j]
			p.result.PeerRail, p.result.PeerDevice = p.peer.Name, p.peer.Device
			prefixes = p.peer.Prefixes
			if p.local.capacity > 0 && p.peer.Capacity > 0 {
				p.result.Capacity = positive(min(p.local.capacity, p.peer.Capacity))
			}
			p.result.Expected = p.expectation()
		}
		p.result.kind = railKind{p.group(), p.software()}
		r.plan.software = r.plan.software || p.software()
		p.gid = r.node.gid(p.local, prefixes)
		if p.gid.OK() {
			p.result.GIDIndex, p.result.GID = p.gid.GID.Index, p.gid.GID.Addr.Unmap().String()
		}
		p.result.GIDReason = p.gid.Reason
		r.paths = append(r.paths, p)
	}
	r.res.places = places(r.paths)
}

// software reports whether a device of either end is not an adapter.
func (p *path) software() bool { return p.local.software() || p.peer != nil && p.peer.Software }

// positive returns a pointer to v, or nil for 0, which stands for unknown.
func positive(v float64) *float64 {
	if v <= 0 {
		return nil
	}
	return &v
}

// acquire acquires what a transfer needs: what this node grants, and the peer's lease.
func (r *round) acquire(ctx context.Context) error {
	r.progress(Progress{Stage: failure.StageLease})
	if err := r.reserve(ctx); err != nil {
		return err
	}
	r.node.loadRDMACore(ctx)
	return r.persist(ctx, func() (err error) {
		r.lease, err = r.client.acquireLease(ctx, r.leaseRequest())
		return err
	})
}

// persist asks for a lease. An overdue round keeps this node's slot until the peer's transfer has ended, and asks more
// often than others.
func (r *round) persist(ctx context.Context, ask func() error) error {
	for end := time.Now().Add(overdueTime); ; {
		err := ask()
		wait := r.patience(failure.As(failure.StageLease, err))
		if wait == 0 || !time.Now().Add(wait).Before(end.Add(askEvery)) {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return err
		}
	}
}

// patience returns after how long the round asks again for the lease that f denied, or 0 if it does not.
func (r *round) patience(f *failure.Failure) time.Duration {
	switch {
	case f == nil:
		return 0
	case (r.overdue || r.byHand) && f.Reason == failure.Busy && f.RetryAfter == retryLeast: // a transfer, not a job
		return askEvery
	case r.byHand && f.Reason == failure.Cooldown:
		return max(f.RetryAfter, askEvery)
	}
	return 0
}

func (r *round) leaseRequest() leaseRequest {
	return leaseRequest{Node: r.node.name(), Instance: r.node.instance, RailSeconds: r.cost.Seconds()}
}

// reserve acquires what a transfer needs of this node: its slot, bytes of its budget, and rails without other traffic.
func (r *round) reserve(ctx context.Context) error {
	wait := slotTime
	if r.overdue || r.byHand {
		wait = overdueTime
	}
	holder, ok := r.node.slot.acquire(ctx, wait, netip.Addr{}, "asking "+r.remote.Node)
	switch {
	case !ok && ctx.Err() != nil:
		return timeUp(ctx)
	case !ok:
		return later(retryLeast, failure.Busy, "this node is %s", holder)
	}
	r.hasSlot = true
	r.node.slot.start(netip.Addr{})
	tcp := r.tcpPaths(r.lanes())
	r.most = r.plan.bytes(r.paths, tcp) + r.plan.extraBytes(r.paths, tcp, r.bondLanes())
	r.cost = min(railTime(r.most, r.plan.rate), MaxTimeout)
	if r.node.fitBudget(railRate(r.rails)); len(r.rails) > 0 {
		if wait, ok := r.node.askBudget.reserve(r.cost); !ok {
			return budgetFailure("this node's", r.cost, wait)
		}
		r.reserved = r.cost
	}
	if f := r.node.busy(ctx, r.rails, r.plan.BusyAbove); f != nil {
		return f
	}
	return nil
}

// transfer moves the bytes: by RDMA, and for comparison over TCP; or, if RDMA fails, over TCP alone.
func (r *round) transfer(ctx context.Context) error {
	ctx, stop := r.watchLease(ctx)
	defer stop()
	err := r.rdma(ctx)
	switch {
	case err == nil:
		r.res.Transport = RDMA
		if r.plan.full {
			r.baseline(ctx)
		}
	case r.fallsBack(ctx, err):
		r.addFailure(err)
		if r.fallback(ctx) == nil {
			r.res.Transport = TCP
		}
	}
	if f := cause(ctx); f != nil {
		return f // err is only a consequence
	}
	if f := timeUp(ctx); f != nil && err != nil && r.res.Transport == NoTransport {
		return f
	}
	r.splitLatency(ctx)
	r.extras(ctx)
	return err
}

// fallsBack reports whether TCP is worth an attempt after err: only RDMA failed. A ring is measured over RDMA or not.
func (r *round) fallsBack(ctx context.Context, err error) bool {
	if r.plan.ring != nil {
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
func (r *round) watchLease(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(r.lease.ctx, func() { cancel(context.Cause(r.lease.ctx)) })
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
func (r *round) release(ctx context.Context) {
	r.progress(Progress{Stage: failure.StageRelease})
	if err := r.session.end(); err != nil {
		r.addFailure(err)
	}
	if err := r.client.release(ctx, r.lease, r.res.Bytes-r.atHome); err != nil && cause(ctx) == nil {
		if f := failure.As(failure.StageRelease, err); f.Reason != failure.LeaseLost {
			r.addFailure(f)
		}
	}
}

// free returns what the round acquired of this node, however it ended.
func (r *round) free() {
	if r.client != nil {
		r.client.close()
	}
	if !r.hasSlot {
		return
	}
	_ = r.session.end() // release reported the error, unless the round did not come to it
	if r.reserved > 0 {
		used := railTime(r.res.Bytes, railRate(r.rails))
		r.node.askBudget.settle(r.reserved, used)
		r.node.askBudget.note(r.plan.full, used)
	}
	r.node.slot.release()
}

// alike names the rails that failed as f's did.
func (r *round) alike(f *failure.Failure) string {
	n := 0
	for _, other := range r.res.Failures {
		if other.Rail != "" && other.Stage == f.Stage && other.Reason == f.Reason {
			n++
		}
	}
	if n < 2 {
		return "rail " + f.Rail
	}
	return fmt.Sprintf("rail %s and %d more", f.Rail, n-1)
}

func (r *round) addFailure(err error) {
	f := failure.As(failure.StageOpen, err)
	if f != nil && !slices.Contains(r.res.Failures, *f) {
		r.res.Failures = append(r.res.Failures, *f)
	}
}

// setOutcome sets the outcome. err is why the round was not by RDMA, or nil.
func (r *round) setOutcome(err error) {
	f := failure.As(failure.StageOpen, err)
	if f == nil && r.disturbed != nil && !r.res.Degraded() {
		f = r.disturbed
	}
	switch {
	case f == nil && r.res.Degraded():
		r.res.Outcome = Degraded
		return
	case f == nil:
		r.res.Outcome = OK
		return
	case f.Reason.Skips():
		r.res.Outcome, r.res.Transport, r.res.RetryAfter = Skipped, NoTransport, f.RetryAfter
	case r.res.Transport == TCP:
		r.res.Outcome = Fallback
	default:
		r.res.Outcome, r.res.Transport = Failed, NoTransport
		r.addFailure(f)
	}
	r.res.Reason, r.res.Detail = f.Reason, f.Detail
	if f.Rail != "" {
		r.res.Detail = fmt.Sprintf("%s: %s", r.alike(f), f.Detail)
	}
}
