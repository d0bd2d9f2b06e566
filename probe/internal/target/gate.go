package target

import (
	"context"
	"net/http"
	"slices"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/round"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

const noGates = "the peer takes part in no gate: set probe.allow_gate there"

// visitForGate tries this node's rails with one of its peers, and answers with what that came to. The visit ends with
// the request: a gate that was killed leaves nothing.
func (r *Responder) visitForGate(w http.ResponseWriter, req *http.Request) {
	args := new(protocol.GateRequest)
	if !decode(w, req, args, (*protocol.GateRequest).Check) {
		return
	}
	ctx, stop := context.WithTimeout(req.Context(), protocol.GateTimeout)
	defer stop()
	one, f := newVisit(r, args)
	if f == nil {
		f = startVisit(ctx, r, one, stop)
	}
	if f != nil {
		Write(w, http.StatusConflict, f)
		return
	}
	<-one.done
	v := result.NewVisit(one.round.Res, args.Burst)
	leaves := map[string]string{}
	for _, own := range one.round.Rails {
		leaves[own.Name] = own.Leaf
	}
	for i := range v.Rails {
		v.Rails[i].Leaf = leaves[v.Rails[i].Rail]
	}
	Write(w, http.StatusOK, v)
}

// visit is a round that a gate has asked for.
type visit struct {
	round round.Round
	done  chan struct{} // closed when the round has ended
}

// startVisit starts a visit, unless there is another one. Shutting down ends it by stop.
func startVisit(ctx context.Context, r *Responder, one *visit, stop context.CancelFunc) *failure.Failure {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	switch {
	case r.Draining:
		return protocol.Deny(failure.Draining, "the peer is shutting down")
	case r.endVisit != nil:
		return protocol.Later(protocol.RetryLeast, failure.Busy, "the peer makes another visit")
	}
	r.endVisit = stop
	r.leases.Go(func() {
		defer close(one.done)
		one.round.Run(ctx)
		r.Mu.Lock()
		defer r.Mu.Unlock()
		r.endVisit = nil
	})
	return nil
}

// newVisit returns a visit, or why this node makes none.
func newVisit(r *Responder, args *protocol.GateRequest) (*visit, *failure.Failure) {
	if !r.Opts.AllowGate {
		return nil, protocol.Deny(failure.Unauthorized, noGates)
	}
	if r.Node.Maintenance() {
		return nil, protocol.Deny(failure.Draining, "the peer is in maintenance")
	}
	if !r.Node.Reserved.Holds(protocol.ReservedByRing(args.Reservation)) {
		return nil, protocol.Later(protocol.RetryLeast, failure.Busy, "the peer is not reserved for this gate")
	}
	opts, peer := r.Opts, ""
	for _, address := range args.Peers {
		if security, ok := peerSecurity(r, address); ok {
			opts.Security, peer = security, address
			break
		}
	}
	if peer == "" {
		return nil, protocol.Deny(failure.Unauthorized,
			"%s is not among the peers of the node that was asked: add it to probe.peers there, written alike",
			args.Peers[0])
	}
	opts.Timeout, opts.Extras = protocol.GateTimeout, nil
	plan := round.Plan{Options: opts, Interactive: true, Runs: 1, Visit: round.ReachVisit,
		Reservation: args.Reservation}
	if args.Burst {
		plan.Full, plan.Visit = true, round.BurstVisit
	}
	one := round.Round{Pairing: round.Pairing{Node: r.Node}, Plan: plan, Peer: peer, Budget: r.Node.GateBudget,
		Progress: func(result.Progress) {}}
	return &visit{one, make(chan struct{})}, nil
}

// peerSecurity returns the security of rounds with the peer at an address. ok is false if this node has no such peer.
func peerSecurity(r *Responder, address string) (s options.Security, ok bool) {
	s = r.Opts.Security
	name, known := r.Node.Peer(address)
	if name != "" {
		s.Name = name
	}
	return s, known || slices.Contains(r.Opts.Peers, address)
}
