package probe

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/connlimit"
	"github.com/railscope/railscope/probe/internal/failure"
)

// Responder answers the probes of peers: it says who this node is, and grants one lease at a time on scratch memory.
// Safe for concurrent use.
type Responder struct {
	node         *Node
	opts         Options
	creds        credentials
	ttl          time.Duration // of leases
	maxLifetime  time.Duration // that a lease can be renewed to
	strangerTime time.Duration // that an unauthenticated connection lives

	mu         sync.Mutex // protects all following fields
	current    *lease
	ring       *ringPart // nil: none
	quietUntil time.Time // no lease is granted before
	draining   bool
	leases     sync.WaitGroup
}

// Limits of the control channel.
const (
	maxConnections = 64
	maxStrangers   = maxConnections / 2 // of these, that are not authenticated
	requestTime    = 10 * time.Second
	idleTime       = time.Minute
	lastRequest    = 200 * time.Millisecond // for requests that are on their way at shutdown
)

// NewResponder returns the responder. The options' Security must require something of peers, or be Insecure.
func NewResponder(node *Node, opts Options) (*Responder, error) {
	creds := credentials{opts.Security, node.secrets}
	if err := creds.check(); err != nil {
		return nil, err
	}
	return &Responder{node: node, opts: opts, creds: creds, ttl: leaseTTL, maxLifetime: MaxTimeout,
		strangerTime: requestTime}, nil
}

// Leases is how many leases are granted now: 0 or 1.
func (r *Responder) Leases() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current != nil {
		return 1
	}
	return 0
}

// Serve answers on l until ctx is done. Then it ends the lease, and returns when the worker has nothing of it any more.
func (r *Responder) Serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{Handler: r.handler(), TLSConfig: r.creds.serverTLS(), ReadTimeout: requestTime,
		IdleTimeout: idleTime, MaxHeaderBytes: 16 << 10, ConnState: connlimit.State, ConnContext: withTargetConn,
		DisableGeneralOptionsHandler: true, // strangers get no answers but those of this package
		Protocols:                    new(http.Protocols)}
	srv.Protocols.SetHTTP1(true) // one request at a time on each connection
	r.node.opts.Server(srv)
	var loading sync.WaitGroup
	defer loading.Wait()
	loading.Go(func() { r.node.loadRDMACore(ctx) })
	limit := connlimit.New(connlimit.Options{Connections: maxConnections, Strangers: maxStrangers,
		StrangerTime: r.strangerTime, Refused: r.node.refused.Count})
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
	r.drain()
	_ = l.Close() // from now on connections are for the next responder, if there is one
	if err == nil {
		err = <-done
	}
	for wait := lastRequest; wait > 0; wait -= lastRequest / 20 {
		if _, unread := limit.Open(); unread == 0 {
			break
		}
		time.Sleep(lastRequest / 20) // net/http does not answer a request that it has not read by now
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if srv.Shutdown(late) != nil {
		_ = srv.Close() // connections that are still open need no answer
	}
	if errors.Is(err, http.ErrServerClosed) || ctx.Err() != nil && errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// drain ends the current lease, and waits until nothing is left of it. No other is granted.
func (r *Responder) drain() {
	r.mu.Lock()
	r.draining = true
	if r.current != nil {
		r.current.end(failure.New(failure.StageLease, failure.Draining, "the peer is shutting down"))
	}
	if r.ring != nil {
		r.ring.stop()
	}
	r.mu.Unlock()
	r.leases.Wait()
}

func (r *Responder) handler() http.Handler {
	routes := r.routes()
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set(headerProtocol, strconv.Itoa(protocolVersion))
		// Of the request only: the answer may take longer.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(requestTime))
		switch {
		case strings.HasPrefix(req.URL.Path+"/", "/v1/"): // its body is not read
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
			r.authenticate(w, req, routes)
		}
	})
}

func (r *Responder) routes() http.Handler {
	empty := func(context.Context, *lease, *struct{}) (any, error) { return struct{}{}, nil }
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+pathProve, func(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusOK, struct{}{}) })
	mux.HandleFunc("GET "+pathNode, func(w http.ResponseWriter, _ *http.Request) {
		write(w, http.StatusOK, r.node.hello())
	})
	mux.HandleFunc("GET "+pathFacts, r.serveFacts)
	mux.HandleFunc("POST "+pathRing, r.joinRing)
	mux.HandleFunc("POST "+pathRing+"/{id}/start", r.startRing)
	mux.HandleFunc("DELETE "+pathRing+"/{id}", r.endRing)
	mux.HandleFunc("POST "+pathLease, r.serveLease)
	mux.HandleFunc("POST "+pathLease+"/{id}/open", withLease(r, (*openRequest).check, locked(r.open)))
	mux.HandleFunc("POST "+pathLease+"/{id}/verify", withLease(r, checkVerify, locked(r.verify)))
	mux.HandleFunc("POST "+pathLease+"/{id}/renew", withLease(r, nil, empty))
	mux.HandleFunc("DELETE "+pathLease+"/{id}", withLease(r, nil, r.release))
	return mux
}

// leaseFunc answers a request on a lease.
type leaseFunc[T any] func(context.Context, *lease, *T) (any, error)

// locked lets fn use the worker for the lease, unless that has ended. The context ends with the lease or the request.
func locked[T any](fn leaseFunc[T]) leaseFunc[T] {
	return func(request context.Context, l *lease, args *T) (any, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
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
		r.mu.Lock()
		l := r.current
		r.mu.Unlock()
		if l == nil || l.id != req.PathValue("id") {
			write(w, http.StatusGone, failure.New(failure.StageLease, failure.LeaseLost,
				"the peer does not know this lease: it has ended, or the peer was restarted"))
			return
		}
		l.renew()
		result, err := fn(req.Context(), l, args)
		if err != nil {
			write(w, http.StatusConflict, failure.As(failure.StageLease, err))
			return
		}
		write(w, http.StatusOK, result)
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
		write(w, http.StatusBadRequest, malformed(failure.StageLease, err))
	}
	return err == nil
}

func malformed(stage failure.Stage, err error) *failure.Failure {
	return failure.New(stage, failure.Protocol, "the peer found the request malformed: %v", err)
}

func write(w http.ResponseWriter, status int, v any) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(requestTime))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // on an error the asker is gone
}
