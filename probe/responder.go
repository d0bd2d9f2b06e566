package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/connlimit"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/worker"
)

// Responder answers the probes of peers: it says who this node is, and grants
// one at a time a lease on scratch memory. Safe for concurrent use.
type Responder struct {
	node  *Node
	opts  Options
	creds credentials
	ttl   time.Duration // of leases

	maxLifetime time.Duration // that a lease can be renewed to

	strangerTime time.Duration // that an unproven connection lives

	facts *facts // the node's: a reload does not make it gather anew

	mu         sync.Mutex // protects all following fields
	current    *lease
	quietUntil time.Time // no lease is granted before
	draining   bool
	leases     sync.WaitGroup
}

// Bounds on the control channel, and how long peers are kept off after traffic of others has ended a lease.
const (
	maxConnections = 64
	maxStrangers   = maxConnections / 2 // of these, that have not proven to be peers
	requestTime    = 10 * time.Second
	idleTime       = time.Minute
	lastRequest    = 200 * time.Millisecond // for requests that are on their way when it ends
	busyCooldown   = 5 * time.Second
)

// NewResponder returns the responder. The options' Security must ask something of peers, or say that it does not.
func NewResponder(node *Node, opts Options) (*Responder, error) {
	creds := credentials{opts.Security, node.secrets}
	if err := creds.check(); err != nil {
		return nil, err
	}
	return &Responder{node: node, opts: opts, creds: creds, ttl: leaseTTL, maxLifetime: MaxTimeout,
		strangerTime: requestTime, facts: node.facts}, nil
}

// Leases is how many leases are granted at this moment: 0 or 1.
func (r *Responder) Leases() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current != nil {
		return 1
	}
	return 0
}

// Serve answers on l until ctx is done; then leases end, and it returns when what belonged to them is gone.
func (r *Responder) Serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{Handler: r.handler(), TLSConfig: r.creds.serverTLS(), ReadTimeout: requestTime,
		IdleTimeout:    idleTime,
		MaxHeaderBytes: 16 << 10, ConnState: connlimit.State, ConnContext: withConn}
	r.node.opts.Server(srv)
	trackConnections(srv)
	var learning sync.WaitGroup
	defer learning.Wait()
	learning.Go(func() { r.node.loadRDMACore(ctx) })
	limit := connlimit.New(connlimit.Options{Connections: maxConnections, Strangers: maxStrangers,
		StrangerTime: r.strangerTime,
		Refused:      r.node.refused.Count})
	l = limit.Listener(l)
	done := make(chan error, 1)
	go func() {
		if srv.TLSConfig != nil {
			done <- srv.ServeTLS(l, "", "")
			return
		}
		done <- srv.Serve(l)
	}()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
	}
	r.mu.Lock()
	r.draining = true
	if r.current != nil {
		r.current.end(failure.New(failure.StageLease, failure.Draining, "the peer is shutting down"))
	}
	r.mu.Unlock()
	r.leases.Wait()
	_ = l.Close() // who comes from now on is for the next responder, if there is one
	if err == nil {
		err = <-done
	}
	for wait := lastRequest; wait > 0; wait -= lastRequest / 20 {
		if _, unread := limit.Open(); unread == 0 {
			break
		}
		time.Sleep(lastRequest / 20) // net/http answers no request that it has not read by now
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if srv.Shutdown(late) != nil {
		_ = srv.Close() // connections that are still open then have no business left
	}
	if errors.Is(err, http.ErrServerClosed) || ctx.Err() != nil && errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (r *Responder) handler() http.Handler {
	routes := r.routes()
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set(headerProtocol, strconv.Itoa(protocolVersion))
		// It must be read in a moment; to answer it may take longer.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(requestTime))
		switch {
		case isV1(req.URL.Path): // whatever it carries is not read
			r.reject(w, req, refusedVersion, http.StatusGone, failure.New(failure.StageHello, failure.Protocol,
				"peer speaks protocol version %d, this node 1: install the peer's version of railscope on this node",
				protocolVersion))
		case req.URL.Path == pathHello && req.Method == http.MethodPost:
			if err := r.creds.checkCertificate(req.TLS); err != nil {
				r.reject(w, req, refusedUnauthorized, http.StatusForbidden, unauthorized("%v", err))
				return
			}
			r.answerChallenge(w, req)
		default:
			if out, finish, ok := r.authenticate(w, req); ok {
				routes.ServeHTTP(out, req)
				finish()
			}
		}
	})
}

// routes are what peers may ask, once they have proved that they are peers.
func (r *Responder) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+pathProve, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, struct{}{}) })
	mux.HandleFunc("GET "+pathNode, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, r.node.hello()) })
	mux.HandleFunc("GET "+pathFacts, r.serveFacts)
	mux.HandleFunc("POST "+pathLease, r.serveLease)
	mux.HandleFunc("POST "+pathLease+"/{id}/open", withLease(r, (*openRequest).check, r.open))
	mux.HandleFunc("POST "+pathLease+"/{id}/verify", withLease(r, nil, r.verify))
	mux.HandleFunc("POST "+pathLease+"/{id}/renew",
		withLease(r, nil, func(context.Context, *lease, *struct{}) (any, error) { return struct{}{}, nil }))
	mux.HandleFunc("DELETE "+pathLease+"/{id}", withLease(r, nil, r.release))
	return mux
}

// withLease decodes a request on a lease, refuses it if the lease is not there
// any more, and answers with what fn returns.
func withLease[T any](r *Responder, check func(*T) error, fn func(context.Context, *lease, *T) (any,
	error)) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		args := new(T)
		if !decode(w, req, args, check) {
			return
		}
		r.mu.Lock()
		l := r.current
		r.mu.Unlock()
		if l == nil || l.id != req.PathValue("id") {
			writeFailure(w, http.StatusGone, failure.New(failure.StageLease, failure.LeaseLost,
				"the peer does not know this lease: it is over, or the peer was started anew"))
			return
		}
		l.renew()
		result, err := fn(req.Context(), l, args)
		if err != nil {
			writeFailure(w, http.StatusConflict, failure.As(failure.StageLease, err))
			return
		}
		writeJSON(w, result)
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
		writeFailure(w, http.StatusBadRequest, failure.New(failure.StageLease, failure.Protocol,
			"the peer does not understand the request: %v", err))
		return false
	}
	return true
}

func writeJSON(w http.ResponseWriter, v any) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(requestTime))
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the asker is gone: it will not miss the answer
}

func writeFailure(w http.ResponseWriter, status int, f *failure.Failure) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(requestTime))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(f)
}

// serveLease grants a lease, or says why not, and then stays: the answer lasts as long as the lease. An asker that dies
// takes its connection with it, and that ends the lease at once.
func (r *Responder) serveLease(w http.ResponseWriter, req *http.Request) {
	var ask leaseRequest
	if !decode(w, req, &ask, (*leaseRequest).check) {
		return
	}
	l, denied := r.grant(req.Context(), ask, addressOf(req))
	if denied != nil {
		writeFailure(w, http.StatusConflict, denied)
		return
	}
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/x-ndjson")
	granted := grant{ID: l.id, TTL: r.ttl}
	signed, _ := w.(*signedWriter)
	if signed != nil {
		l.setKey(signed.session.dataKey(l.id)) // the asker derives it, too
		signed.stream()
	} else {
		granted.Key = l.key[:]
	}
	say := func(e leaseEvent) {
		_ = out.SetWriteDeadline(time.Now().Add(requestTime))
		event, _ := json.Marshal(e) // cannot fail: no field of it can
		line := leaseLine{Event: event}
		if signed != nil {
			line = signed.line(event)
		}
		_ = json.NewEncoder(w).Encode(line) // when it fails the request's context ends
		_ = out.Flush()
	}
	say(leaseEvent{Grant: &granted})
	<-l.ctx.Done()
	if req.Context().Err() == nil {
		say(leaseEvent{End: l.failure()})
	}
	<-l.finished
}

// addressOf is where a request comes from; the zero address where that is not known.
func addressOf(req *http.Request) netip.Addr {
	at, _ := netip.ParseAddrPort(req.RemoteAddr)
	return at.Addr().Unmap()
}

// grant decides, in this order: is this node going, is it too much at once, is it taken, is it too soon, is it others'
// turn, are there bytes left, do others need the rails.
func (r *Responder) grant(ctx context.Context, ask leaseRequest, from netip.Addr) (*lease, *failure.Failure) {
	deny := func(reason failure.Reason, format string, args ...any) *failure.Failure {
		return failure.New(failure.StageLease, reason, format, args...)
	}
	if ask.Instance == r.node.instance {
		return nil, deny(failure.Self, "the peer is this node itself")
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
	if most := r.node.answerBudget.maxLease(); ask.Bytes > most {
		return nil, tooMuch(ask.Bytes, most)
	}
	holder, ok := r.node.slot.take("answering " + ask.Node)
	if !ok {
		r.node.turns.refused(from)
		return nil, deny(failure.Busy, "the peer is %s", holder)
	}
	taken := true
	defer func() {
		if taken {
			r.node.slot.free()
		}
	}()
	if quiet > 0 {
		return nil, deny(failure.Cooldown, "other traffic ended a lease a moment ago; ask again in %v",
			quiet.Round(time.Second))
	}
	if wait := r.node.turns.wait(from); wait > 0 {
		return nil, deny(failure.Cooldown,
			"others were turned away while this node held the last lease; ask again in %v",
			wait.Round(time.Second))
	}
	if wait, ok := r.node.answerBudget.reserve(ask.Bytes); !ok {
		return nil, deny(failure.Budget, "the peer's probe budget is used up; there will be %d bytes in %v", ask.Bytes,
			wait.Round(time.Second))
	}
	rails, _ := r.node.rails() // those that can be read are those that can be used
	if f := r.node.busy(ctx, rails, r.opts.BusyAbove); f != nil {
		r.node.answerBudget.settle(ask.Bytes, 0)
		return nil, onPeer(f)
	}
	g := guard{node: r.node, rails: rails, above: r.opts.BusyAbove, receiving: true, granted: ask.Bytes,
		uncounted: r.node.recent.uncounted(), start: r.node.traffic(rails)}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.draining {
		r.node.answerBudget.settle(ask.Bytes, 0)
		return nil, deny(failure.Draining, "the peer is shutting down")
	}
	l := newLease(ctx, r.node, ask, r.ttl, r.maxLifetime)
	r.current = l
	r.node.turns.begin(from)
	r.leases.Go(func() { r.runLease(l, &g) })
	taken = false
	return l, nil
}

// tooMuch refuses a lease of more bytes than anyone gets at once, and says what to do.
func tooMuch(bytes, most int64) *failure.Failure {
	const mib = 1 << 20
	rest := DefaultOptions()
	rest.Transfer = 0
	part, lower, raise := "an eighth of its hourly budget or one round of default size", "", bytes*leasesPerHour/mib+1
	if most < defaultRound() {
		part = "all of its hourly budget"
	}
	if bytes <= defaultRound() {
		raise = bytes/mib + 1
	}
	if transfer := (most - roundBytes(rest, true, worker.MaxRails)) / 2 / mib; transfer > 0 {
		lower = fmt.Sprintf("lower transfer on this node to %d MiB, or ", transfer)
	}
	return failure.New(failure.StageLease, failure.Budget,
		"a round of up to %.1f MiB was asked for, and the peer grants at most %.1f MiB to one lease, %s: "+
			"%sraise budget on the peer to %d MiB/h", float64(bytes)/mib, float64(most)/mib, part, lower, raise)
}

// live is the life of a lease, from the grant until nothing of it is left. Only then others can have one.
func (r *Responder) runLease(l *lease, g *guard) {
	came := newLeaseUsage(l, g)
	var watching sync.WaitGroup
	watching.Go(func() { came.watchTCP(l.ctx) })
	if f := g.watch(l.ctx); f != nil {
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
	r.node.answerBudget.settle(l.bytes, came.cost())
	r.mu.Lock()
	r.current = nil
	r.mu.Unlock()
	r.node.turns.end()
	r.node.slot.free()
	close(l.finished)
}

// onPeer says of a failure of this node to whom it is the peer's, and nil of nil.
func onPeer(err error) *failure.Failure {
	f := failure.As("", err)
	if f == nil {
		return nil
	}
	theirs := *f
	theirs.Detail = "on the peer: " + f.Detail
	return &theirs
}

// release ends the lease for its holder, and answers when all of it is gone.
func (r *Responder) release(ctx context.Context, l *lease, args *released) (any, error) {
	used := args.Bytes
	if used < 0 {
		used = l.bytes
	}
	l.reported.Store(used)
	l.end(nil)
	select {
	case <-l.finished:
	case <-ctx.Done():
	}
	return struct{}{}, nil
}
