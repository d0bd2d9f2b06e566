package round

import (
	"context"
	"net/netip"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/options"
)

// Reserve acquires what a transfer needs on this node: its slot, time from its budget, and rails without other
// traffic.
func (r *Round) Reserve(ctx context.Context) error {
	wait := SlotTime
	if r.Overdue || r.ByHand {
		wait = OverdueTime
	}
	wait = min(wait, r.timeLeft(ctx)/2) // the rest of the round's time is for the transfer
	holder, ok := r.Node.Slot.Acquire(ctx, wait, netip.Addr{}, "asking "+r.Remote.Node)
	switch {
	case !ok && ctx.Err() != nil:
		return timeUp(ctx)
	case !ok:
		return protocol.Later(protocol.RetryLeast, failure.Busy, "this node is %s", holder)
	}
	r.HasSlot = true
	if other := r.yields(); other != "" {
		return protocol.Later(protocol.RetryLeast, failure.Busy, "this node is %s", other)
	}
	r.Node.Slot.Start(netip.Addr{})
	tcp := r.TCPPaths(r.Lanes())
	r.Most = r.Plan.Bytes(r.Paths, tcp) + r.Plan.ExtraBytes(r.Paths, tcp, r.bondLanes())
	r.Spare = r.Plan.Repeats(carrying(r.Paths))
	r.cost = min(options.RailTime(r.Most, r.Plan.Rate), options.MaxTimeout)
	r.Node.FitBudget(node.RailRate(r.Rails))
	if len(r.Rails) > 0 && !r.Uncharged {
		if wait, ok := r.Node.AskBudget.Reserve(r.cost); !ok {
			return protocol.BudgetFailure("this node's", r.cost, wait)
		}
		r.Reserved = r.cost
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
	if !r.HasSlot {
		return
	}
	_ = r.Session.End() // release reported the error, unless the round ended before it
	if r.Reserved > 0 {
		used := options.RailTime(r.Res.Bytes, node.RailRate(r.Rails))
		r.Node.AskBudget.Settle(r.Reserved, used)
		r.Node.AskBudget.Note(r.Plan.Full, used)
	}
	r.Node.Slot.Release()
}
