package target

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"strings"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/round"
	"github.com/railscope/railscope/probe/result"
)

// joinRing begins a round with the successor, and answers when the successor is connected.
func (r *Responder) joinRing(w http.ResponseWriter, req *http.Request) {
	args := new(protocol.RingRequest)
	if !decode(w, req, args, (*protocol.RingRequest).Check) {
		return
	}
	part, f := r.newRingMember(args)
	if f != nil {
		Write(w, http.StatusConflict, f)
		return
	}
	select {
	case <-part.Ready:
		Write(w, http.StatusOK, protocol.RingReply{ID: part.ID})
	case <-part.Done:
		part.Stop() // no request will start it
		<-part.Gone
		f := failure.New(failure.StageConnect, failure.Other, "the round ended before its bursts")
		if part.Res.Reason != "" {
			f = failure.New(failure.StageConnect, part.Res.Reason, "%s", part.Res.Detail)
		}
		Write(w, http.StatusConflict, protocol.OnPeer(f))
	case <-req.Context().Done():
		part.Stop()
	}
}

const noRings = "the peer takes part in no ring: set probe.allow_ring there"

// newRingMember starts this node's part, unless the node may not take part, or already does.
func (r *Responder) newRingMember(args *protocol.RingRequest) (*round.RingMember, *failure.Failure) {
	_, isPeer := peerSecurity(r, args.Successor)
	switch {
	case !r.Opts.AllowRing:
		return nil, protocol.Deny(failure.Unauthorized, noRings)
	case !isPeer:
		return nil, protocol.Deny(failure.Unauthorized,
			"%s is not a peer of the peer: add it to probe.peers there, written alike",
			args.Successor)
	case r.Node.Maintenance():
		return nil, protocol.Deny(failure.Draining, "the peer is in maintenance")
	}
	ctx, stop := context.WithTimeout(context.Background(), protocol.RingTimeout)
	part := &round.RingMember{ID: rand.Text(), Ready: make(chan struct{}),
		Begin: make(chan struct{}), Done: make(chan struct{}), Gone: make(chan struct{}), Stop: stop}
	if other := r.Node.Reserved.Against(protocol.ReservedByRing(args.Reservation)); other != "" {
		stop()
		return nil, protocol.Later(protocol.RetryLeast, failure.Busy, "the peer is %s", other)
	}
	r.Mu.Lock()
	defer r.Mu.Unlock()
	if r.ring != nil || r.Draining {
		stop()
		return nil, protocol.Later(protocol.RetryLeast, failure.Busy, "the peer is part of another ring, or shuts down")
	}
	r.ring = part
	for _, l := range r.Current { // lease of the predecessor: this node sends as well
		l.Guard.Asked.Store(true)
	}
	r.leases.Go(func() { r.runRing(ctx, part, args) })
	return part, nil
}

// runRing runs the round.
func (r *Responder) runRing(ctx context.Context, part *round.RingMember, args *protocol.RingRequest) {
	defer close(part.Gone)
	defer part.Stop()
	opts := r.Opts
	opts.Security, _ = peerSecurity(r, args.Successor)
	opts.Timeout, opts.Burst, opts.Extras = protocol.RingTimeout, result.RingWindow, nil
	node := r.ringNode(args.Alone)
	defer node.Close()
	one := round.Round{Pairing: round.Pairing{Node: node},
		Plan: round.Plan{Options: opts, Full: args.Alone, Interactive: true, Runs: 1, Ring: part,
			Reservation: args.Reservation},
		Peer: args.Successor, Progress: func(result.Progress) {}}
	part.Res = one.Run(ctx)
	close(part.Done)
	select { // keep the result for the request to start, which may be late
	case <-part.Begin:
	case <-ctx.Done():
	}
	r.Mu.Lock()
	defer r.Mu.Unlock()
	r.ring = nil
}

// ringNode returns this node with its own worker process: the node's worker serves the predecessor meanwhile, and
// occupies the node's slot. A member that is measured alone occupies the slot itself.
func (r *Responder) ringNode(alone bool) *node.Node {
	n := node.NewNode(r.Node.Opts)
	n.SetName(r.Node.Name())
	n.Instance, n.AskBudget, n.Recent, n.Own = r.Node.Instance, r.Node.AskBudget, r.Node.Recent, r.Node.Own
	n.MeanTraffic = r.Node.MeanTraffic
	if alone {
		n.Slot = r.Node.Slot
	}
	return n
}

// ringOf returns the part that a request names, or answers that there is none.
func (r *Responder) ringOf(w http.ResponseWriter, req *http.Request) *round.RingMember {
	r.Mu.Lock()
	part := r.ring
	r.Mu.Unlock()
	if part == nil || part.ID != req.PathValue("id") {
		Write(w, http.StatusGone, failure.New(failure.StageLease, failure.LeaseLost,
			"the peer does not know this ring: it has ended, or the peer was restarted"))
		return nil
	}
	return part
}

// startRing starts the bursts of this node's part, and answers with their result.
func (r *Responder) startRing(w http.ResponseWriter, req *http.Request) {
	part := r.ringOf(w, req)
	if part == nil {
		return
	}
	r.Mu.Lock()
	select {
	case <-part.Begin: // already started
	default:
		close(part.Begin)
	}
	r.Mu.Unlock()
	select {
	case <-part.Gone:
	case <-req.Context().Done():
		part.Stop()
		return
	}
	Write(w, http.StatusOK, NewRingResult(part.Res))
}

// NewRingResult converts the result of a round to a member's answer.
func NewRingResult(res result.Result) protocol.RingResult {
	out := protocol.RingResult{AllRails: len(res.Rails) - len(res.Unpaired())}
	for i := range res.Rails {
		if one := &res.Rails[i]; one.Striped != nil && one.Failure == nil {
			out.Rails++
		} else if one.Failure != nil && out.RailFailure == nil {
			out.RailFailure = one.Failure
		}
	}
	for _, t := range res.TCP {
		out.TCP = max(out.TCP, t.BytesPerSecond)
	}
	switch {
	case res.Striped != nil:
		out.Goodput = *res.Striped
	case res.Reason != "":
		out.Failure = failure.New(failure.StageStriped, res.Reason, "%s", res.Detail)
	case out.RailFailure != nil:
		out.Failure = out.RailFailure
	default:
		out.Failure = failure.New(failure.StageStriped, failure.Other, "no burst over RDMA was measured")
	}
	return out
}

// reserveRing reserves this node for a ring, or renews the reservation.
func (r *Responder) reserveRing(w http.ResponseWriter, req *http.Request) {
	id := req.PathValue("id")
	switch {
	case len(id) > protocol.MaxText || strings.Trim(id, protocol.Alphanumeric) != "":
		Write(w, http.StatusBadRequest, malformed(failure.StageHello, fmt.Errorf("the ID %.40q", id)))
		return
	case !r.Opts.AllowRing && !r.Opts.AllowGate:
		Write(w, http.StatusConflict, protocol.Deny(failure.Unauthorized,
			"the peer takes part in no ring and no gate: set probe.allow_ring or probe.allow_gate there"))
		return
	}
	other, ok := r.Node.Reserved.Take(protocol.ReservedByRing(id), "reserved for a ring or gate", node.RingReserved)
	if !ok {
		Write(w, http.StatusConflict, protocol.Later(protocol.RetryLeast, failure.Busy, "the peer is %s", other))
		return
	}
	Write(w, http.StatusOK, struct{}{})
}

// leaveRing ends the reservation.
func (r *Responder) leaveRing(w http.ResponseWriter, req *http.Request) {
	r.Node.Reserved.End(protocol.ReservedByRing(req.PathValue("id")))
	Write(w, http.StatusOK, struct{}{})
}

// endRing ends this node's part before it has started.
func (r *Responder) endRing(w http.ResponseWriter, req *http.Request) {
	if part := r.ringOf(w, req); part != nil {
		part.Stop()
		select {
		case <-part.Gone:
		case <-req.Context().Done():
		}
		Write(w, http.StatusOK, struct{}{})
	}
}
