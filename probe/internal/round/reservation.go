package round

import (
	"cmp"
	"context"
	"net/netip"
	"time"

	"github.com/railscope/railscope/probe/internal/control"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// Reservation is what a round holds of its node: the slot, bytes, and rail time of the budget.
type Reservation struct {
	HasSlot  bool
	MaxBytes int64         // bytes that the round may move
	Spare    int64         // bytes left, of MaxBytes, for repeated bursts of extras in an interactive round
	railTime time.Duration // MaxBytes as time on all rails
	Charged  time.Duration // rail time taken from the budget
	budget   *node.Budget  // budget that was charged
}

// Affords reports whether a burst fits into what the round has reserved. moved is what the round has moved so far.
func (held *Reservation) Affords(moved int64, loads []worker.Load) bool {
	return moved+loadBytes(loads) <= held.MaxBytes
}

// free returns what the round holds of a node. moved is what the round has moved.
func (held *Reservation) free(n *node.Node, moved int64, rate float64, full bool) {
	if !held.HasSlot {
		return
	}
	held.HasSlot = false
	if held.Charged > 0 {
		used := options.RailTime(moved, rate)
		budget := cmp.Or(held.budget, n.AskBudget)
		budget.Settle(held.Charged, used)
		budget.Note(full, used)
	}
	n.Slot.Release()
}

// Reserve acquires what a transfer needs on this node: its slot and time from its budget. Rails with traffic of others
// are left out of the bursts; without budget, all are.
func (r *Round) Reserve(ctx context.Context) error {
	r.whole, r.WhenBusy = r.Plan, r.Plan.WhenBusy
	wait := SlotTime
	if r.Overdue || r.Plan.Interactive {
		wait = OverdueTime
	}
	wait = min(wait, timeLeft(ctx)/2) // the rest of the round's time is for the transfer
	holder, ok := r.Node.Slot.Acquire(ctx, wait, netip.Addr{}, "asking "+r.Remote.Node)
	switch {
	case !ok && ctx.Err() != nil:
		return timeUp(ctx)
	case !ok:
		return protocol.Later(protocol.RetryLeast, failure.Busy, "this node is %s", holder)
	}
	r.Reserved = Reservation{HasSlot: true}
	if other := yields(r.Node, r.Plan); other != "" {
		return protocol.Later(protocol.RetryLeast, failure.Busy, "this node is %s", other)
	}
	r.Node.Slot.Start(netip.Addr{})
	r.leaveOut(r.Node.Busy(ctx, r.Rails, r.Plan.BusyAbove))
	if f := refusesLeftOut(r); f != nil {
		return f
	}
	if r.Plan.Visit == ReachVisit {
		r.leaveOutAll(failure.New(failure.StageLease, failure.Canceled, "no burst was asked for"))
		return nil
	}
	tcp := TCPFlows(r.Routes(), r.Flows)
	maxBytes := r.Plan.Bytes(r.Flows, tcp) + r.Plan.ExtraBytes(r.Flows, tcp, r.bonds())
	if f := r.Reserved.charge(r, maxBytes); f != nil {
		if !r.Remote.Parts || r.Plan.Ring != nil {
			return f
		}
		r.leaveOutAll(f)
	}
	r.Reserved.Spare = r.Plan.Repeats(carrying(r.Flows))
	return nil
}

// charge takes the time of what a round may move from the node's budget, or returns why it cannot.
func (held *Reservation) charge(r *Round, maxBytes int64) *failure.Failure {
	held.MaxBytes, held.railTime = maxBytes, min(options.RailTime(maxBytes, r.Plan.Rate), options.MaxTimeout)
	r.Node.FitBudget(node.RailRate(r.Rails))
	if len(r.Rails) == 0 || r.Uncharged {
		return nil
	}
	held.budget = cmp.Or(r.Budget, r.Node.AskBudget)
	if wait, ok := held.budget.Reserve(held.railTime); !ok {
		return protocol.BudgetFailure("this node's", held.railTime, wait)
	}
	held.Charged = held.railTime
	return nil
}

// acquireLease acquires the peer's lease: for a whole round, while there are rails that neither end uses and both ends
// have the budget, else to reach the peer.
func acquireLease(ctx context.Context, r *Round) (lease *control.HeldLease, err error) {
	ask := func(part protocol.Part) error {
		return r.Persist(ctx, func() (err error) {
			lease, err = r.Client.AcquireLease(ctx, r.LeaseRequest(part))
			return err
		})
	}
	whole := len(r.bursting()) > 0 || len(r.Live()) == 0 || !r.Remote.Parts || r.Plan.Ring != nil
	if whole && r.Plan.Visit != ReachVisit {
		err = ask(protocol.Measure)
		switch f := failure.As(failure.StageLease, err); {
		case f == nil:
			r.leaveOutPeers(lease.Grant.Left)
			if r.anyBusy() && r.Plan.WhenBusy == options.WhenBusyBurst {
				r.Plan = r.Plan.besideOthers()
			}
			return lease, nil
		case !r.Remote.Parts || r.Plan.Ring != nil || len(r.Live()) == 0 || !leavesOut(f):
			return nil, err
		default:
			r.leaveOutAll(f)
		}
	}
	r.Plan = r.Plan.forReach()
	if r.Reserved.Charged > 0 {
		r.Reserved.budget.Settle(r.Reserved.Charged, 0)
		r.Reserved.Charged = 0
	}
	err = ask(protocol.Reach)
	return lease, err
}

// refusesLeftOut returns why a round cannot be made because flows are left out of it: the peer grants only leases for
// whole rounds, or a ring needs all rails.
func refusesLeftOut(r *Round) *failure.Failure {
	f := r.leftOut()
	if f == nil || r.Plan.Ring == nil && (r.Remote.Parts || len(r.bursting()) > 0) {
		return nil
	}
	whole := *f
	whole.Stage = failure.StageLease
	return &whole
}

// endBursts records that others used a rail during a burst, so that no other was made. What was measured before counts.
func endBursts(r *Round, f *failure.Failure) {
	r.Res.Transport = result.RDMA
	if r.Res.Striped == nil {
		own := *f
		own.Stage = failure.StageStriped
		r.Res.StripedFailure = &own
	}
	for _, p := range r.bursting() {
		if !p.Result.Measured() {
			p.leaveOut(f, "")
		}
	}
}

// leavesOut reports whether a peer that denied a lease for f may still be reached: its rails carry other traffic, or
// its budget is used up.
func leavesOut(f *failure.Failure) bool {
	return f.Reason == failure.Busy && f.RetryAfter == 0 || f.Reason == failure.Budget
}

// Free returns what the round acquired of this node, however it ended.
func (r *Round) Free() {
	freeSlot(r)
	if r.Client != nil {
		r.Client.Close()
	}
}

// freeSlot ends the session, and returns what it needed.
func freeSlot(r *Round) {
	if r.session != nil {
		_ = r.session.worker.End() // release reported the error, unless the round ended before it
	}
	r.Reserved.free(r.Node, r.Res.Bytes, node.RailRate(r.Rails), r.Plan.Full)
}

// LeaseRequest returns the request for the lease of a part of the round.
func (r *Round) LeaseRequest(part protocol.Part) protocol.LeaseRequest {
	req := protocol.LeaseRequest{Node: r.Node.Name(), Instance: r.Node.Instance,
		RailSeconds: r.Reserved.railTime.Seconds(), Waits: r.Plan.Interactive, Part: part,
		Reservation: r.Plan.Reservation, Partial: r.Plan.Visit != NoVisit}
	if part == protocol.Reach && req.RailSeconds == 0 { // it is charged to no budget
		req.RailSeconds = protocol.ReachTime.Seconds()
	}
	return req
}

// Persist asks for a lease. An overdue or interactive round keeps this node's slot until the peer's transfer has
// ended, and asks more often than others.
func (r *Round) Persist(ctx context.Context, ask func() error) error {
	for end := time.Now().Add(min(OverdueTime, timeLeft(ctx)/2)); ; {
		err := ask()
		wait := time.Duration(0)
		if yields(r.Node, r.Plan) == "" {
			wait = patience(failure.As(failure.StageLease, err), r.Overdue, r.Plan.Interactive)
		}
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

// patience returns the delay before a round asks again for the lease that f denied, or 0 if it does not.
func patience(f *failure.Failure, overdue, interactive bool) time.Duration {
	switch {
	case f == nil:
		return 0
	// The peer is busy with a transfer, not a job.
	case (overdue || interactive) && f.Reason == failure.Busy && f.RetryAfter == protocol.RetryLeast:
		return AskEvery
	case interactive && f.Reason == failure.Cooldown:
		return max(f.RetryAfter, AskEvery)
	}
	return 0
}

// yields returns the purpose for which a node is reserved, if the round is of the schedule and must give way.
func yields(n *node.Node, p Plan) string {
	if p.Interactive {
		return ""
	}
	return n.Reserved.Against("")
}
