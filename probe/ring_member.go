package probe

import (
	"context"
	"crypto/rand"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
)

// ringPart is this node's part of a ring: a round with its successor that waits before its bursts.
type ringPart struct {
	id    string
	ready chan struct{} // closed when the round waits
	begin chan struct{} // closed by the request to start
	done  chan struct{} // closed when it has ended
	stop  context.CancelFunc
	res   Result // once done
}

// joinRing begins a round with the successor, and answers when it is connected.
func (r *Responder) joinRing(w http.ResponseWriter, req *http.Request) {
	args := new(ringRequest)
	if !decode(w, req, args, (*ringRequest).check) {
		return
	}
	part, f := r.newRingPart(args)
	if f != nil {
		write(w, http.StatusConflict, f)
		return
	}
	select {
	case <-part.ready:
		write(w, http.StatusOK, ringReply{part.id})
	case <-part.done:
		part.stop() // nobody will start it
		f := failure.New(failure.StageConnect, failure.Other, "the round ended before its bursts")
		if part.res.Reason != "" {
			f = failure.New(failure.StageConnect, part.res.Reason, "%s", part.res.Detail)
		}
		write(w, http.StatusConflict, onPeer(f))
	case <-req.Context().Done():
		part.stop()
	}
}

// newRingPart starts this node's part, unless it may not take part, or does already.
func (r *Responder) newRingPart(args *ringRequest) (*ringPart, *failure.Failure) {
	switch {
	case !r.opts.AllowRing:
		return nil, deny(failure.Unauthorized, "the peer takes part in no ring: set probe.allow_ring there")
	case !slices.Contains(r.opts.Peers, args.Successor) && !r.node.asks(args.Successor):
		return nil, deny(failure.Unauthorized, "%s is not a peer of the peer: add it to probe.peers there, written alike",
			args.Successor)
	case r.node.maintenance():
		return nil, deny(failure.Draining, "the peer is in maintenance")
	}
	ctx, stop := context.WithTimeout(context.Background(), ringTimeout)
	part := &ringPart{id: rand.Text(), ready: make(chan struct{}), begin: make(chan struct{}), done: make(chan struct{}),
		stop: stop}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ring != nil || r.draining {
		stop()
		return nil, later(retryLeast, failure.Busy, "the peer is part of another ring, or shuts down")
	}
	r.ring = part
	if r.current != nil { // of the predecessor: this node sends, too
		r.current.guard.asked.Store(true)
	}
	r.leases.Go(func() { r.runRing(ctx, part, args) })
	return part, nil
}

// runRing makes the round.
func (r *Responder) runRing(ctx context.Context, part *ringPart, args *ringRequest) {
	defer part.stop()
	opts := r.opts
	opts.Timeout, opts.Burst, opts.Extras = ringTimeout, RingWindow, nil
	node := r.ringNode(args.Alone)
	defer node.Close()
	one := round{node: node, plan: plan{Options: opts, full: args.Alone, runs: 1, ring: part}, peer: args.Successor,
		byHand: true, progress: func(Progress) {}}
	part.res = one.run(ctx)
	close(part.done)
	select { // its result is for the request to start, which may be late
	case <-part.begin:
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ring = nil
}

// ringNode is this node with a worker process of its own: the node's answers the predecessor meanwhile, and has the
// node's slot then. While a member is measured alone, it takes the node's slot itself.
func (r *Responder) ringNode(alone bool) *Node {
	n := NewNode(r.node.opts)
	n.setName(r.node.name())
	n.instance, n.askBudget, n.recent, n.own = r.node.instance, r.node.askBudget, r.node.recent, r.node.own
	if n.meanTraffic = r.node.meanTraffic; alone {
		n.slot = r.node.slot
	}
	return n
}

// wait is a step of the round.
func (p *ringPart) wait(ctx context.Context) error {
	close(p.ready)
	select {
	case <-p.begin:
		return nil
	case <-ctx.Done():
		return failure.New(failure.StageStriped, failure.Timeout, "nobody started the ring")
	}
}

// ringOf returns the part that a request is about, or answers that there is none.
func (r *Responder) ringOf(w http.ResponseWriter, req *http.Request) *ringPart {
	r.mu.Lock()
	part := r.ring
	r.mu.Unlock()
	if part == nil || part.id != req.PathValue("id") {
		write(w, http.StatusGone, failure.New(failure.StageLease, failure.LeaseLost, "the peer does not know this ring: it "+
			"has ended, or the peer was restarted"))
		return nil
	}
	return part
}

// startRing starts the bursts of this node's part, and answers with what they measured.
func (r *Responder) startRing(w http.ResponseWriter, req *http.Request) {
	part := r.ringOf(w, req)
	if part == nil {
		return
	}
	r.mu.Lock()
	select {
	case <-part.begin: // twice
	default:
		close(part.begin)
	}
	r.mu.Unlock()
	select {
	case <-part.done:
	case <-req.Context().Done():
		part.stop()
		return
	}
	write(w, http.StatusOK, newRingResult(part.res))
}

// newRingResult is what a member answers of its round.
func newRingResult(res Result) ringResult {
	out := ringResult{AllRails: len(res.Rails)}
	for i := range res.Rails {
		if one := &res.Rails[i]; one.Stealing != nil && one.Failure == nil {
			out.Rails++
		} else if one.Failure != nil && out.RailFailure == nil {
			out.RailFailure = one.Failure
		}
	}
	for _, t := range res.TCP {
		out.TCP = max(out.TCP, t.BytesPerSecond)
	}
	switch {
	case res.Stealing != nil:
		out.Goodput = *res.Stealing
	case res.Reason != "":
		out.Failure = failure.New(failure.StageStriped, res.Reason, "%s", res.Detail)
	case out.RailFailure != nil:
		out.Failure = out.RailFailure
	default:
		out.Failure = failure.New(failure.StageStriped, failure.Other, "no burst over RDMA was measured")
	}
	return out
}

// endRing ends this node's part before it has started.
func (r *Responder) endRing(w http.ResponseWriter, req *http.Request) {
	if part := r.ringOf(w, req); part != nil {
		part.stop()
		write(w, http.StatusOK, struct{}{})
	}
}

// ringStep is the step of a round that waits for the start of its ring.
func (r *round) ringStep(ctx context.Context) error {
	if r.plan.ring == nil {
		return nil
	}
	if r.plan.together() {
		r.plan.BusyAbove = math.MaxFloat64 // what arrives meanwhile is the ring's
	}
	ctx, cancel := context.WithTimeout(ctx, max(r.timeLeft(ctx)-drainTime, time.Second))
	defer cancel()
	return r.plan.ring.wait(ctx)
}
