package round

import (
	"context"
	"net/netip"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/options"
)

// Reservation is what a round holds of its node: the slot, bytes, and rail time of the budget.
type Reservation struct {
	HasSlot  bool
	MaxBytes int64         // bytes that the round may move
	Spare    int64         // bytes left, of MaxBytes, for repeated bursts of extras in an interactive round
	railTime time.Duration // MaxBytes as time on all rails
	Charged  time.Duration // rail time taken from the node's budget
}

// Affords reports whether a burst fits into what the round has reserved. moved is what the round has moved so far.
func (h *Reservation) Affords(moved int64, loads []worker.Load) bool {
	return moved+loadBytes(loads) <= h.MaxBytes
}

// free returns what the round holds of a node. moved is what the round has moved.
func (h *Reservation) free(n *node.Node, moved int64, rate float64, full bool) {
	if !h.HasSlot {
		return
	}
	if h.Charged > 0 {
		used := options.RailTime(moved, rate)
		n.AskBudget.Settle(h.Charged, used)
		n.AskBudget.Note(full, used)
	}
	n.Slot.Release()
}

// Reserve acquires what a transfer needs on this node: its slot, time from its budget, and rails without other
// traffic.
func (r *Round) Reserve(ctx context.Context) error {
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
	held := &r.Reserved
	held.HasSlot = true
	if other := yields(r.Node, r.Plan); other != "" {
		return protocol.Later(protocol.RetryLeast, failure.Busy, "this node is %s", other)
	}
	r.Node.Slot.Start(netip.Addr{})
	tcp := TCPFlows(r.Routes(), r.Flows)
	held.MaxBytes = r.Plan.Bytes(r.Flows, tcp) + r.Plan.ExtraBytes(r.Flows, tcp, r.bonds())
	held.Spare = r.Plan.Repeats(carrying(r.Flows))
	held.railTime = min(options.RailTime(held.MaxBytes, r.Plan.Rate), options.MaxTimeout)
	r.Node.FitBudget(node.RailRate(r.Rails))
	if len(r.Rails) > 0 && !r.Uncharged {
		if wait, ok := r.Node.AskBudget.Reserve(held.railTime); !ok {
			return protocol.BudgetFailure("this node's", held.railTime, wait)
		}
		held.Charged = held.railTime
	}
	if f := r.Node.Busy(ctx, r.Rails, r.Plan.BusyAbove); f != nil {
		return f
	}
	return nil
}

// Free returns what the round acquired of this node, however it ended.
func (r *Round) Free() {
	if r.Client != nil {
		r.Client.Close()
	}
	if r.session != nil {
		_ = r.session.worker.End() // release reported the error, unless the round ended before it
	}
	r.Reserved.free(r.Node, r.Res.Bytes, node.RailRate(r.Rails), r.Plan.Full)
}

// LeaseRequest returns the request for the lease that the round needs.
func (r *Round) LeaseRequest() protocol.LeaseRequest {
	req := protocol.LeaseRequest{Node: r.Node.Name(), Instance: r.Node.Instance,
		RailSeconds: r.Reserved.railTime.Seconds(), Waits: r.Plan.Interactive}
	if r.Plan.Ring != nil {
		req.Reservation = r.Plan.Ring.Reservation
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
