package probe

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
)

// busyCooldown is how long no lease is granted after traffic of others has ended one.
const busyCooldown = 5 * time.Second

// serveLease grants a lease, or answers why not. The answer lasts as long as the lease: the connection of an asker that
// dies closes, and that ends the lease at once.
func (r *Responder) serveLease(w http.ResponseWriter, req *http.Request) {
	var ask leaseRequest
	if !decode(w, req, &ask, (*leaseRequest).check) {
		return
	}
	from, _ := netip.ParseAddrPort(req.RemoteAddr)
	l, denied := r.grant(req.Context(), ask, from.Addr().Unmap())
	if denied != nil {
		write(w, http.StatusConflict, denied)
		return
	}
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/x-ndjson")
	granted := grant{ID: l.id, TTL: r.ttl}
	signed, _ := w.(*signedWriter)
	if signed != nil {
		l.setKey(signed.session.dataKey(l.id)) // the asker derives it as well
		signed.stream()
	} else {
		granted.Key = l.key[:]
	}
	send := func(e leaseEvent) {
		_ = out.SetWriteDeadline(time.Now().Add(requestTime))
		event, _ := json.Marshal(e) // cannot fail: no field of it can
		line := leaseLine{Event: event}
		if signed != nil {
			line = signed.line(event)
		}
		_ = json.NewEncoder(w).Encode(line) // an error ends the request's context
		_ = out.Flush()
	}
	send(leaseEvent{Grant: &granted})
	<-l.ctx.Done()
	if req.Context().Err() == nil {
		send(leaseEvent{End: l.failure()})
	}
	<-l.finished
}

func deny(reason failure.Reason, format string, args ...any) *failure.Failure {
	return failure.New(failure.StageLease, reason, format, args...)
}

// later is deny of what may be granted after a while.
func later(wait time.Duration, reason failure.Reason, format string, args ...any) *failure.Failure {
	f := deny(reason, format, args...)
	f.RetryAfter = wait
	return f
}

// grant decides, in this order: whether this node is up, whether the slot is free, whether it is too soon or the turn
// of others, whether the request is too large, whether budget is left, and whether others use the rails.
func (r *Responder) grant(ctx context.Context, ask leaseRequest, from netip.Addr) (*lease, *failure.Failure) {
	if ask.Instance == r.node.instance {
		return nil, deny(failure.Self, "the peer is this node")
	}
	r.mu.Lock()
	draining, quiet := r.draining, time.Until(r.quietUntil)
	r.mu.Unlock()
	if draining {
		return nil, deny(failure.Draining, "the peer is shutting down")
	}
	if r.node.maintenance() {
		return nil, deny(failure.Draining, "the peer is in maintenance") // a reason that earlier versions know
	}
	holder, ok := r.node.slot.acquire(ctx, 0, from, "answering "+ask.Node)
	if !ok {
		return nil, later(retryLeast, failure.Busy, "the peer is %s", holder)
	}
	l, denied := r.startLease(ctx, ask, from, quiet)
	if denied != nil {
		r.node.slot.release()
	}
	return l, denied
}

// startLease starts a lease in the slot. quiet is how long none is granted yet.
func (r *Responder) startLease(ctx context.Context, ask leaseRequest, from netip.Addr,
	quiet time.Duration) (*lease, *failure.Failure) {
	if quiet > 0 {
		return nil, later(quiet, failure.Cooldown, "other traffic has just ended a lease; retry in %v",
			quiet.Round(time.Second))
	}
	if wait := r.node.slot.cooldown(from); wait > 0 {
		return nil, later(wait, failure.Cooldown, "others were denied while this node held the last lease; retry in %v",
			wait.Round(time.Second))
	}
	rails, _ := r.node.rails() // without those that cannot be read
	rate, reserved := railRate(rails), seconds(ask.RailSeconds)
	r.node.fitBudget(rate)
	if len(rails) == 0 { // nothing is charged
		reserved = 0
	} else if limit := r.node.answerBudget.maxLease(); reserved > limit {
		return nil, tooMuch(reserved, limit)
	} else if wait, ok := r.node.answerBudget.reserve(reserved); !ok {
		return nil, budgetFailure("the peer's", reserved, wait)
	}
	if f := r.node.busy(ctx, rails, r.opts.BusyAbove); f != nil {
		r.node.answerBudget.settle(reserved, 0)
		return nil, onPeer(f)
	}
	g := guard{node: r.node, rails: rails, above: r.opts.BusyAbove,
		granted:   int64(math.Ceil(ask.RailSeconds*rate - 1e-3)), // less than a byte is lost in the message
		uncounted: r.node.recent.uncounted(counterDelay), start: r.node.traffic(rails)}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.draining {
		r.node.answerBudget.settle(reserved, 0)
		return nil, deny(failure.Draining, "the peer is shutting down")
	}
	if r.ring != nil { // this node sends to its successor as much as arrives
		g.asked.Store(true)
	}
	l := newLease(ctx, &g, rate, reserved, r.ttl, r.maxLifetime)
	r.current = l
	r.node.slot.start(from)
	r.leases.Go(func() { r.runLease(l) })
	return l, nil
}

// budgetFailure is that a budget does not hold so much time yet.
func budgetFailure(whose string, need, wait time.Duration) *failure.Failure {
	return later(wait, failure.Budget, "%s probe budget is used up: %v of the rails' time will be available in %v", whose,
		need.Round(time.Microsecond), wait.Round(time.Second))
}

func mib(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

// tooMuch refuses a lease of more time than one may have, and says how to change that.
func tooMuch(need, limit time.Duration) *failure.Failure {
	share := math.Ceil(1000*need.Seconds()*leasesPerHour/time.Hour.Seconds()) / 1000
	return deny(failure.Budget, "the round needs up to %v of the rails' time, and the peer grants at most %v to one "+
		"lease, 1/8 of its hourly budget: shorten the bursts of this node (burst), or raise budget on the peer to %.1f%%",
		need.Round(time.Microsecond), limit.Round(time.Microsecond), 100*share)
}

// runLease watches a lease until it has ended and nothing of it is left. Only then can others have one.
func (r *Responder) runLease(l *lease) {
	var watching sync.WaitGroup
	watching.Go(l.watchTCP)
	if f := l.guard.watch(l.ctx); f != nil {
		if f.Reason == failure.Busy {
			r.mu.Lock()
			r.quietUntil = time.Now().Add(busyCooldown)
			r.mu.Unlock()
		}
		l.end(onPeer(f))
	}
	l.close()
	watching.Wait()
	r.node.recent.add(l.written())
	if len(l.guard.rails) > 0 {
		r.node.answerBudget.settle(l.time, railTime(l.cost(), l.rate))
	}
	r.mu.Lock()
	r.current = nil
	r.mu.Unlock()
	r.node.slot.release()
	close(l.finished)
}

// onPeer is a failure of this node as the asker sees it; nil of nil.
func onPeer(err error) *failure.Failure {
	f := failure.As("", err)
	if f == nil {
		return nil
	}
	return f.OnPeer()
}

// release ends the lease for its holder, and answers when nothing of it is left.
func (r *Responder) release(ctx context.Context, l *lease, args *released) (any, error) {
	used := args.Bytes
	if used < 0 {
		used = l.guard.granted
	}
	l.reported.Store(used)
	l.end(nil)
	select {
	case <-l.finished:
	case <-ctx.Done():
	}
	return struct{}{}, nil
}
