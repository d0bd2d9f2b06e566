package target

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/options"
)

// busyCooldown is how long no lease is granted after traffic of others has ended one.
const busyCooldown = 5 * time.Second

// serveLease grants a lease, or answers why not. The answer lasts as long as the lease: the connection of an asker that
// dies closes, and that ends the lease at once.
func (r *Responder) serveLease(w http.ResponseWriter, req *http.Request) {
	var ask protocol.LeaseRequest
	if !decode(w, req, &ask, (*protocol.LeaseRequest).Check) {
		return
	}
	from, _ := netip.ParseAddrPort(req.RemoteAddr)
	l, denied := r.Grant(req.Context(), ask, from.Addr().Unmap())
	if denied != nil {
		Write(w, http.StatusConflict, denied)
		return
	}
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/x-ndjson")
	send := func(e protocol.LeaseEvent) {
		_ = out.SetWriteDeadline(time.Now().Add(RequestTime))
		_ = json.NewEncoder(w).Encode(e) // an error ends the request's context
		_ = out.Flush()
	}
	send(protocol.LeaseEvent{Grant: &protocol.Grant{ID: l.id, Key: l.key[:], TTL: r.ttl, Left: l.left}})
	l.report(send)
	if req.Context().Err() == nil {
		send(protocol.LeaseEvent{End: l.failure()})
	}
	<-l.Finished
}

// Grant decides, in this order: whether this node is up, whether it is reserved for another, whether it is the turn of
// others, whether the slot is free, whether it is too soon, whether the request is too large, whether budget is left,
// and whether others use all rails. A lease for [protocol.Reach] needs only the slot, one for [protocol.Gap] a place of
// its own.
func (r *Responder) Grant(ctx context.Context, ask protocol.LeaseRequest, from netip.Addr) (*Lease, *failure.Failure) {
	if ask.Instance == r.Node.Instance {
		return nil, protocol.Deny(failure.Self, "the peer is this node")
	}
	r.Mu.Lock()
	draining := r.Draining
	r.Mu.Unlock()
	if draining {
		return nil, protocol.Deny(failure.Draining, "the peer is shutting down")
	}
	if r.Node.Maintenance() {
		return nil, protocol.Deny(failure.Draining, "the peer is in maintenance") // a reason that earlier versions know
	}
	key := ask.ReservedBy(from)
	if other := r.Node.Reserved.Against(key); other != "" {
		return nil, protocol.Later(protocol.RetryLeast, failure.Busy, "the peer is %s", other)
	}
	if ask.Part == protocol.Gap {
		return grantGap(ctx, r, ask, from)
	}
	if wait := r.Node.Slot.Cooldown(from); wait > 0 && !r.Node.Reserved.Holds(key) {
		return nil, protocol.Later(wait, failure.Cooldown, "others were denied while this node held a lease; retry "+
			"in %v", wait.Round(time.Second))
	}
	holder, ok := r.Node.Slot.Acquire(ctx, 0, from, "answering "+ask.Node)
	if !ok {
		if ask.Waits && ask.Reservation == "" {
			_, _ = r.Node.Reserved.Take(key, "about to answer "+ask.Node, node.AskerReserved) // else it has to be lucky
		}
		return nil, protocol.Later(protocol.RetryLeast, failure.Busy, "the peer is %s", holder)
	}
	start := startLease
	if ask.Part == protocol.Reach {
		start = startReach
	}
	l, denied := start(ctx, r, ask, from)
	if denied != nil {
		if denied.Reason != failure.Cooldown {
			r.Node.Slot.Waive(from)
		}
		r.Node.Slot.Release()
	}
	if ask.Reservation == "" {
		r.Node.Reserved.End(key)
	}
	return l, denied
}

// startLease starts a lease for a whole round in the slot.
func startLease(ctx context.Context, r *Responder, ask protocol.LeaseRequest,
	from netip.Addr) (*Lease, *failure.Failure) {
	r.Mu.Lock()
	quiet := time.Until(r.QuietUntil)
	r.Mu.Unlock()
	if quiet > 0 {
		return nil, protocol.Later(quiet, failure.Cooldown, "other traffic has just ended a lease; retry in %v",
			quiet.Round(time.Second))
	}
	rails, _ := r.Node.Rails() // without those that cannot be read
	l, denied := reserve(ctx, r, r.Node.Place, ask, rails)
	if denied != nil {
		return nil, denied
	}
	busy := r.Node.Busy(ctx, rails, r.Opts.BusyAbove)
	for _, own := range rails {
		if f := busy[own.Name]; f != nil {
			l.left = append(l.left, *f.OnPeer())
		}
	}
	// A ring has no other rounds: each of its nodes sends over all rails.
	all := len(rails) > 0 && len(busy) == len(rails) && r.Opts.WhenBusy != options.WhenBusyBurst
	ring := ask.Reservation != "" && !ask.Partial
	if all || len(busy) > 0 && (ring || ask.Part != protocol.Measure) {
		l.stop()
		r.Node.AnswerBudget.Settle(l.time, 0)
		return nil, &l.left[0]
	}
	l.Guard.Rails = slices.DeleteFunc(slices.Clone(rails),
		func(own node.LocalRail) bool { return busy[own.Name] != nil })
	return l, begin(r, l, from)
}

// reserve returns a lease that has not begun, with time of the budget.
func reserve(ctx context.Context, r *Responder, place node.Place, ask protocol.LeaseRequest,
	rails []node.LocalRail) (*Lease, *failure.Failure) {
	rate, reserved := node.RailRate(rails), options.Seconds(ask.RailSeconds)
	r.Node.FitBudget(rate)
	if len(rails) == 0 { // nothing is charged
		reserved = 0
	} else if limit := r.Node.AnswerBudget.MaxLease(); reserved > limit {
		return nil, tooMuch(reserved, limit)
	} else if wait, ok := r.Node.AnswerBudget.Reserve(reserved); !ok {
		return nil, protocol.BudgetFailure("the peer's", reserved, wait)
	}
	g := node.Guard{Node: r.Node, Rails: rails, Above: r.Opts.BusyAbove,
		Granted: int64(math.Ceil(ask.RailSeconds*rate - 1e-3))} // less than a byte is lost in the message
	return NewLease(ctx, place, &g, rate, reserved, r.ttl, r.maxLifetime), nil
}

// startReach starts a lease for [protocol.Reach] in the slot: one per asker and half interval, whatever the load and
// the budget.
func startReach(ctx context.Context, r *Responder, ask protocol.LeaseRequest,
	from netip.Addr) (*Lease, *failure.Failure) {
	reserved := ask.Reservation != "" && r.Node.Reserved.Holds(ask.ReservedBy(from))
	if wait := r.reached.wait(from, ask.Waits, r.Opts.Interval/2); wait > 0 && !reserved {
		return nil, protocol.Later(wait, failure.Cooldown, "this node reached the peer less than %v ago; retry in %v",
			r.Opts.Interval/2, wait.Round(time.Second))
	}
	rails, _ := r.Node.Rails() // without those that cannot be read
	g := node.Guard{Node: r.Node, Rails: rails, Above: math.MaxFloat64,
		Granted: int64(len(rails)) * protocol.ReachBytes}
	l := NewLease(ctx, r.Node.Place, &g, node.RailRate(rails), 0, r.ttl, protocol.ReachTime)
	l.part = protocol.Reach
	denied := begin(r, l, from)
	if denied == nil {
		r.reached.note(from, ask.Waits)
	}
	return l, denied
}

// begin begins a lease that has its place.
func begin(r *Responder, l *Lease, from netip.Addr) *failure.Failure {
	g := l.Guard
	g.Uncounted, g.Start = r.Node.Recent.Uncounted(node.CounterDelay), r.Node.Traffic(g.Rails)
	r.Mu.Lock()
	defer r.Mu.Unlock()
	if r.Draining {
		l.stop()
		r.Node.AnswerBudget.Settle(l.time, 0)
		return protocol.Deny(failure.Draining, "the peer is shutting down")
	}
	if r.ring != nil { // this node sends to its successor as much as arrives
		g.Asked.Store(true)
	}
	r.Current[l.id] = l
	l.slot.Start(from)
	r.leases.Go(func() { r.runLease(l) })
	return nil
}

// tooMuch refuses a lease of more time than one may have, and says how to change that.
func tooMuch(need, limit time.Duration) *failure.Failure {
	return protocol.Deny(failure.Budget,
		"the round needs up to %v of the rails' time, and the peer grants at most %v to one lease, 1/8 of its hourly "+
			"budget: shorten the bursts of this node (burst), or raise budget on the peer to %.1f%%",
		need.Round(time.Microsecond), limit.Round(time.Microsecond), 100*options.BudgetFor(need))
}

// runLease watches a lease until it has ended and nothing of it is left. Only then can others have one.
func (r *Responder) runLease(l *Lease) {
	var watching sync.WaitGroup
	watching.Go(l.watchTCP)
	if f := l.Guard.Watch(l.ctx); f != nil {
		if f.Reason == failure.Busy {
			r.Mu.Lock()
			r.QuietUntil = time.Now().Add(busyCooldown)
			r.Mu.Unlock()
		}
		l.End(protocol.OnPeer(f))
	}
	l.close()
	watching.Wait()
	r.Node.Recent.Add(l.written())
	if len(l.Guard.Rails) > 0 && l.part != protocol.Reach {
		r.Node.AnswerBudget.Settle(l.time, options.RailTime(l.cost(), l.rate))
	}
	r.Mu.Lock()
	delete(r.Current, l.id)
	r.Mu.Unlock()
	if l.part == protocol.Gap {
		r.Node.Gaps.Worker.Rest()
	}
	l.slot.Release()
	close(l.Finished)
}

// release ends the lease for its holder, and answers when nothing of it is left.
func (r *Responder) release(ctx context.Context, l *Lease, args *protocol.Released) (any, error) {
	used := args.Bytes
	if used < 0 {
		used = l.Guard.Granted
	}
	l.Reported.Store(used)
	l.End(nil)
	select {
	case <-l.Finished:
	case <-ctx.Done():
	}
	return struct{}{}, nil
}
