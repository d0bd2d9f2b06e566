// Package target answers the rounds of peers.
package target

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe/internal/auth"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/round"
	"github.com/railscope/railscope/probe/internal/worker"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// serveFacts answers with this node's facts, but only to authenticated peers: facts describe what runs here.
func (r *Responder) serveFacts(w http.ResponseWriter, req *http.Request) {
	switch {
	case r.Node.Facts.Gather == nil:
		Write(w, http.StatusNotFound, failure.New(failure.StageHello, failure.Protocol, "this node reports no facts"))
		return
	case r.Opts.Security.TokenFile == "" && r.Opts.Security.ClientCAFile == "":
		Write(w, http.StatusForbidden, failure.New(failure.StageHello, failure.Unauthorized,
			"the peer answers anyone (insecure: true), so it does not report what runs on it: give both ends a "+
				"token_file"))
		return
	}
	data, err := r.Node.Facts.Get(req.Context())
	if err != nil {
		Write(w, http.StatusInternalServerError, failure.New(failure.StageHello, failure.Other,
			"the peer cannot gather its facts: %v", err))
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(RequestTime))
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data) // the asker is gone on an error
}

// Responder answers the probes of peers: it says who this node is, and grants one lease at a time on scratch memory.
// Safe for concurrent use.
type Responder struct {
	Node        *node.Node
	Opts        options.Options
	Creds       auth.Credentials
	ttl         time.Duration // time to live of leases
	maxLifetime time.Duration // latest time that a lease can be renewed to
	routes      http.Handler  // requests of authenticated peers

	Mu         sync.Mutex        // protects all following fields
	Current    map[string]*Lease // leases by ID: one in the slot, one for a gap
	reached    reached
	ring       *round.RingMember // nil: none
	endVisit   func()            // ends the visit that a gate has asked for; nil: there is none
	QuietUntil time.Time         // no lease is granted before
	Draining   bool
	leases     sync.WaitGroup
}

// NewResponder returns the responder. The options' Security must require something of peers, or be Insecure.
func NewResponder(node *node.Node, opts options.Options) (*Responder, error) {
	creds := auth.Credentials{Security: opts.Security, SecretFiles: node.Secrets}
	if err := creds.Check(); err != nil {
		return nil, err
	}
	r := &Responder{Node: node, Opts: opts, Creds: creds, ttl: protocol.LeaseTTL, maxLifetime: options.MaxTimeout,
		Current: map[string]*Lease{}}
	r.routes = r.newRoutes()
	return r, nil
}

// Leases is how many leases are granted now: at most one in the slot, and one for a gap.
func (r *Responder) Leases() int {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	return len(r.Current)
}

// Run loads what hellos report. When ctx is done, it ends the lease, and returns when the worker has nothing of it any
// more.
func (r *Responder) Run(ctx context.Context) {
	r.Node.LoadRDMACore(ctx)
	<-ctx.Done()
	r.drain()
}

// drain ends the current lease, and waits until nothing is left of it. No other is granted.
func (r *Responder) drain() {
	r.Mu.Lock()
	r.Draining = true
	for _, l := range r.Current {
		l.End(failure.New(failure.StageLease, failure.Draining, "the peer is shutting down"))
	}
	if r.ring != nil {
		r.ring.Stop()
	}
	if r.endVisit != nil {
		r.endVisit()
	}
	r.Mu.Unlock()
	r.leases.Wait()
}

// ServeHTTP implements [http.Handler].
func (r *Responder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set(protocol.HeaderProtocol, strconv.Itoa(protocol.ProtocolVersion))
	// Of the request only: the answer may take longer.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(RequestTime))
	switch {
	case strings.HasPrefix(req.URL.Path+"/", "/v1/"): // its body is not read
		r.reject(w, req, node.RefusedVersion, http.StatusGone, failure.New(failure.StageHello, failure.Protocol,
			"peer speaks protocol version %d, this node 1: install the peer's version of railscope on this node",
			protocol.ProtocolVersion))
	case req.URL.Path == protocol.PathHello && req.Method == http.MethodPost:
		r.answerProof(w, req)
	default:
		r.authenticate(w, req, r.routes)
	}
}

func (r *Responder) newRoutes() http.Handler {
	empty := func(context.Context, *Lease, *struct{}) (any, error) { return struct{}{}, nil }
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+protocol.PathNode, func(w http.ResponseWriter, _ *http.Request) {
		Write(w, http.StatusOK, r.Node.Hello())
	})
	mux.HandleFunc("GET "+protocol.PathFacts, r.serveFacts)
	mux.HandleFunc("POST "+protocol.PathRing, r.joinRing)
	mux.HandleFunc("POST "+protocol.PathRing+"/{id}/start", r.startRing)
	mux.HandleFunc("DELETE "+protocol.PathRing+"/{id}", r.endRing)
	mux.HandleFunc("POST "+protocol.PathGate, r.visitForGate)
	mux.HandleFunc("PUT "+protocol.PathReserve+"/{id}", r.reserveRing)
	mux.HandleFunc("DELETE "+protocol.PathReserve+"/{id}", r.leaveRing)
	mux.HandleFunc("POST "+protocol.PathLease, r.serveLease)
	mux.HandleFunc("POST "+protocol.PathLease+"/{id}/open", withLease(r, (*protocol.OpenRequest).Check, locked(r.open)))
	mux.HandleFunc("POST "+protocol.PathLease+"/{id}/verify", withLease(r, protocol.CheckVerify, locked(r.verify)))
	mux.HandleFunc("POST "+protocol.PathLease+"/{id}/claim", withLease(r, (*protocol.Quiet).Check, locked(claim)))
	mux.HandleFunc("POST "+protocol.PathLease+"/{id}/renew", withLease(r, nil, empty))
	mux.HandleFunc("DELETE "+protocol.PathLease+"/{id}", withLease(r, nil, r.release))
	return mux
}

// leaseFunc answers a request on a lease.
type leaseFunc[T any] func(context.Context, *Lease, *T) (any, error)

// locked lets fn use the worker for the lease, unless that has ended. The context ends with the lease or the request.
func locked[T any](fn leaseFunc[T]) leaseFunc[T] {
	return func(request context.Context, l *Lease, args *T) (any, error) {
		l.Mu.Lock()
		defer l.Mu.Unlock()
		if l.ctx.Err() != nil {
			return nil, l.failure()
		}
		ctx, cancel := context.WithCancel(request)
		defer cancel()
		defer context.AfterFunc(l.ctx, cancel)()
		defer l.renew()
		return fn(ctx, l, args)
	}
}

// withLease decodes a request on a lease, refuses it if the lease has ended, and answers with the result of fn.
func withLease[T any](r *Responder, check func(*T) error, fn leaseFunc[T]) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		args := new(T)
		if !decode(w, req, args, check) {
			return
		}
		r.Mu.Lock()
		l := r.Current[req.PathValue("id")]
		r.Mu.Unlock()
		if l == nil {
			Write(w, http.StatusGone, failure.New(failure.StageLease, failure.LeaseLost,
				"the peer does not know this lease: it has ended, or the peer was restarted"))
			return
		}
		l.renew()
		result, err := fn(req.Context(), l, args)
		if err != nil {
			Write(w, http.StatusConflict, failure.As(failure.StageLease, err))
			return
		}
		Write(w, http.StatusOK, result)
	}
}

func decode[T any](w http.ResponseWriter, req *http.Request, args *T, check func(*T) error) bool {
	body, err := io.ReadAll(req.Body)
	if err == nil {
		err = json.Unmarshal(body, args)
	}
	if err == nil && check != nil {
		err = check(args)
	}
	if err != nil {
		Write(w, http.StatusBadRequest, malformed(failure.StageLease, err))
	}
	return err == nil
}

func malformed(stage failure.Stage, err error) *failure.Failure {
	return failure.New(stage, failure.Protocol, "the peer found the request malformed: %v", err)
}

// Write writes v as JSON with this status.
func Write(w http.ResponseWriter, status int, v any) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(RequestTime))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // on an error the asker is gone
}

// open opens the target's session: scratch memory, and its ends of the rails. The lease's previous session is
// closed first, even if this one fails. l.mu must be held.
func (r *Responder) open(ctx context.Context, l *Lease, req *protocol.OpenRequest) (any, error) {
	l.endSessionLocked()
	if f := l.refuses(req); f != nil {
		return nil, f
	}
	args := worker.OpenArgs{Transport: req.Transport, Target: true, Buffer: req.Buffer, Depth: req.Depth,
		QueuePairs: req.QueuePairs, PKey: req.PKey, Seed: req.Seed, Memory: req.Memory, Key: l.key[:]}
	rails, _ := r.Node.Rails() // rails that cannot be read are left out
	if req.Transport == worker.TCP {
		args.Grant = l.Guard.Granted - l.Session.Received
	}
	reply := protocol.OpenReply{Ends: make([]worker.End, len(req.Rails))}
	index := map[string]int{} // index of each flow in the request
	l.Flows = map[string]string{}
	for i, want := range req.Rails {
		arg := worker.RailArg{Name: want.Rail, NUMANode: -1}
		if req.Transport == worker.RDMA {
			var f *failure.Failure
			arg, f = r.railArg(rails, want)
			if f != nil {
				reply.Ends[i].Failure = f
				continue
			}
		}
		arg.Name, arg.Rail, arg.Op, arg.Flow = want.Name(), want.Rail, want.Op, want.Flow
		if req.Memory != "" && !r.lendsGPUs() {
			reply.Ends[i].Failure = failure.New(failure.StageOpen, failure.NoGPU, "the peer lends no memory of its "+
				"GPUs: add gpu to probe.extras in its configuration")
			reply.Ends[i].Failure.Rail = want.Rail
			continue
		}
		index[arg.Name], l.Flows[arg.Name] = i, want.Rail
		args.Rails = append(args.Rails, arg)
		if want.Op == worker.Read {
			l.Guard.Asked.Store(true)
		}
	}
	if len(args.Rails) == 0 {
		return reply, nil
	}
	if req.Transport == worker.RDMA {
		l.OverRDMA.Start, l.OverRDMA.used = r.Node.Traffic(l.Guard.Rails), true
	}
	opened, err := l.Session.Begin(ctx, args)
	if err != nil {
		return nil, protocol.OnPeer(err)
	}
	reply.TCPPort = opened.TCPPort
	connect := worker.ConnectArgs{RetryCount: round.RetryCount, TrafficClass: req.TrafficClass,
		ServiceLevel: req.ServiceLevel}
	for _, end := range opened.Ends {
		i := index[end.Name]
		reply.Ends[i] = end
		if end.Failure != nil {
			end.Failure.Stage = failure.StageOpen
		} else if remote := req.Rails[i].Remote; req.Transport == worker.RDMA {
			connect.Rails = append(connect.Rails, worker.ConnectRail{Name: end.Name, Remote: remote,
				PathMTU: node.PathMTU(end, remote), InFlight: time.Second})
		}
	}
	if len(connect.Rails) == 0 {
		return reply, nil
	}
	failures, err := l.Session.Current.Connect(ctx, connect)
	if err != nil {
		return nil, protocol.OnPeer(err)
	}
	for _, f := range failures {
		if i, ok := index[f.Rail]; ok {
			f.Stage = failure.StageConnect
			reply.Ends[i].Failure = &f
		}
	}
	return reply, nil
}

// lendsGPUs reports whether peers may write to GPU memory of this node: only if this node measures GPUs itself.
func (r *Responder) lendsGPUs() bool {
	return slices.ContainsFunc(r.Opts.Extras, func(e result.Extra) bool { return e.Kind == result.GPU })
}

// railArg returns the worker's argument for a rail that the asker wants to use, or the reason why it cannot be
// used.
func (r *Responder) railArg(rails []node.LocalRail, want protocol.OpenRail) (worker.RailArg, *failure.Failure) {
	i := slices.IndexFunc(rails, func(own node.LocalRail) bool { return own.Name == want.Rail })
	if i < 0 {
		f := failure.New(failure.StageOpen, failure.NoDevice, "the peer no longer has rail %s", want.Rail)
		f.Rail = want.Rail
		return worker.RailArg{}, f
	}
	choice := r.Node.GID(rails[i], want.Prefixes)
	return node.RDMARail(rails[i], choice), rails[i].Unusable(choice)
}

// verify verifies what the holder has written. l.mu must be held.
func (r *Responder) verify(ctx context.Context, l *Lease, args *worker.VerifyArgs) (any, error) {
	if l.Session.Current == nil {
		return nil, failure.New(failure.StageVerify, failure.Protocol, "verify before open")
	}
	v, err := l.Session.Current.Verify(ctx, *args)
	if err != nil {
		return nil, protocol.OnPeer(err)
	}
	now := r.Node.Traffic(l.Guard.Rails)
	l.NoteOwn(args.Rails, rail.Receive, now)
	l.NoteOwn(args.Read, rail.Transmit, now)
	if args.Count {
		v.Events = l.repeats()
	}
	v.Met = l.metOthers(args.Rails, now)
	return v, nil
}
