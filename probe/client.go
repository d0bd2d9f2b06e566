package probe

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/worker"
)

// Time limits of the control channel: to connect, for an answer, and for the target to verify its whole buffer.
const (
	dialTime   = 5 * time.Second
	answerTime = 15 * time.Second
	verifyTime = 40 * time.Second
)

// maxAttempts limits how often a request that was not sent is sent over another connection. net/http gives up a
// connection if it has not seen its last write end within 50 ms, as on a busy machine.
const maxAttempts = 4

// client is the asker's end of the control channel, for one round. Its errors are [*failure.Failure].
type client struct {
	peer   string // host:port
	base   string // http://host:port
	tokens tokens // empty: nothing is proved by tokens
	tls    *tls.Config
	lease  string // path of the lease, once there is one

	remote atomic.Pointer[netip.Addr] // where the peer was last reached; nil: nowhere yet

	mu    sync.Mutex // protects all following fields
	idle  []*clientConn
	conns []*clientConn // all of them
}

// newClient makes the client for one round with a peer, with the tokens and certificates of this moment.
func newClient(peer string, creds credentials) (*client, error) {
	tokens, err := creds.tokens()
	if err != nil {
		return nil, failure.New(failure.StageHello, failure.Unauthorized, "token_file: %v", err)
	}
	conf, err := creds.clientTLS()
	if err != nil {
		return nil, failure.New(failure.StageHello, failure.TLS, "%v", err)
	}
	base := "http://" + peer
	if conf != nil {
		base = "https://" + peer
	}
	if _, err := url.Parse(base); err != nil {
		return nil, failure.New(failure.StageHello, failure.PeerUnreachable, "%v", err)
	}
	return &client{peer: peer, base: base, tokens: tokens, tls: conf}, nil
}

func (c *client) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.conns {
		k.http.CloseIdleConnections()
	}
	c.idle, c.conns = nil, nil
}

// call sends a request and decodes the answer.
func (c *client) call(ctx context.Context, stage failure.Stage, method, path string, in, out any,
	limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	res, err := c.request(ctx, stage, method, path, in, false)
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(res.body, out); err != nil {
		return notRailscope(stage, method, path, err)
	}
	return nil
}

func notRailscope(stage failure.Stage, method, path string, err error) error {
	return failure.New(stage, failure.Protocol, "the answer to %s %s is not railscope's: %v", method, path, err)
}

func invalidAnswer(stage failure.Stage, err error) error {
	return failure.New(stage, failure.Protocol, "invalid answer from the peer: %v", err)
}

// request sends a request and returns the answer if its status is OK.
func (c *client) request(ctx context.Context, stage failure.Stage, method, path string, in any,
	streams bool) (*response, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, failure.As(stage, err)
	}
	res, err := c.roundTrip(ctx, stage, method, path, body, streams)
	if err != nil || res.StatusCode == http.StatusOK {
		return res, err
	}
	return nil, responseFailure(stage, res.Response, res.body)
}

// roundTrip sends a request and returns the answer, whatever its status. A connection that the peer has closed since
// its last request is replaced.
func (c *client) roundTrip(ctx context.Context, stage failure.Stage, method, path string, body []byte,
	streams bool) (*response, error) {
	for attempt := 1; ; attempt++ {
		k, err := c.getConn(ctx, stage)
		if err != nil {
			return nil, err
		}
		res, err := k.exchange(ctx, c, stage, method, path, body, streams)
		if errors.Is(err, errConnectionGone) {
			k.http.CloseIdleConnections()
			if attempt < maxAttempts {
				continue
			}
			return nil, c.connFailure(ctx, stage, err)
		}
		if err == nil && res.events == nil && !res.Close {
			c.mu.Lock()
			c.idle = append(c.idle, k)
			c.mu.Unlock()
		}
		return res, err
	}
}

// getConn returns a connection for one request.
func (c *client) getConn(ctx context.Context, stage failure.Stage) (k *clientConn, err error) {
	c.mu.Lock()
	if n := len(c.idle); n > 0 {
		k, c.idle = c.idle[n-1], c.idle[:n-1]
	}
	c.mu.Unlock()
	if k != nil {
		return k, nil
	}
	if k, err = c.dial(ctx, stage); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns = append(c.conns, k)
	return k, nil
}

// responseFailure makes a failure of an answer that is not OK. A railscope answers with a failure.
func responseFailure(stage failure.Stage, res *http.Response, text []byte) error {
	var f failure.Failure
	if json.Unmarshal(text, &f) == nil && f.Reason != "" {
		sanitize(&f, stage)
		f.Stage = stage
		return &f
	}
	body := strings.TrimSpace(string(text))
	switch {
	case res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden:
		return failure.New(stage, failure.Unauthorized, "the peer refused the request: %.200q", body)
	case strings.Contains(body, "HTTP request to an HTTPS server"):
		return failure.New(stage, failure.TLS, "the peer requires TLS: set probe.tls in the configuration of this node")
	}
	return failure.New(stage, failure.Protocol, "%s %s: status %d, %.200q: is that railscope's probe port?",
		res.Request.Method, res.Request.URL, res.StatusCode, body)
}

// connFailure makes a failure of a connection that could not be made, or broke.
func (c *client) connFailure(ctx context.Context, stage failure.Stage, err error) error {
	var record tls.RecordHeaderError
	var verify *tls.CertificateVerificationError
	var op *net.OpError
	var name *net.DNSError
	fail := func(reason failure.Reason, format string, args ...any) error {
		return failure.New(stage, reason, format, args...)
	}
	switch {
	case errors.Is(context.Cause(ctx), context.Canceled):
		return fail(failure.Canceled, "interrupted")
	case errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return fail(failure.TLS, "this node uses TLS and the peer does not: %v", err)
	case errors.As(err, &verify):
		return fail(failure.TLS, "%v", err)
	case errors.As(err, &op) && op.Op == "remote error": // crypto/tls, of an alert
		return fail(failure.TLS, "the peer does not accept this node's certificate: %v", err)
	case strings.Contains(err.Error(), "malformed HTTP"),
		strings.Contains(err.Error(), "server response headers exceeded"):
		return fail(failure.Protocol, "%v: is that railscope's probe port?", err)
	case c.lease != "":
		return fail(failure.PeerLost, "the peer stopped answering: %v", err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fail(failure.PeerUnreachable,
			"%v: is railscope serve running there, with this port in probe.listen of its configuration?", err)
	case errors.As(err, &name):
		return fail(failure.PeerUnreachable, "%v: check the name and port of the peer", err)
	case closedUnanswered(err):
		return fail(failure.PeerUnreachable, "the peer closed the connection without an answer: does railscope "+
			"listen on that port, and does nothing between cut the connection?")
	case errors.As(err, &op) && op.Op == "dial", errors.Is(err, context.DeadlineExceeded):
		return fail(failure.PeerUnreachable, "%v: is the peer up, and its port open to this node?", err)
	}
	return fail(failure.PeerUnreachable, "%v", err)
}

// closedUnanswered reports whether the peer closed the connection before it answered. net/http has a different error
// for each moment at which it notices, and does not export the one of a connection that was not used yet.
func closedUnanswered(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, errConnectionGone) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE) || strings.Contains(err.Error(), "server closed idle connection")
}

func (c *client) hello(ctx context.Context) (hello, error) {
	var h hello
	if err := c.call(ctx, failure.StageHello, http.MethodGet, pathNode, struct{}{}, &h, answerTime); err != nil {
		return h, err
	}
	if err := h.check(); err != nil {
		return h, invalidAnswer(failure.StageHello, err)
	}
	return h, nil
}

func (c *client) open(ctx context.Context, req openRequest) (openReply, error) {
	var reply openReply
	if err := c.call(ctx, failure.StageConnect, http.MethodPost, c.lease+"/open", req, &reply, answerTime); err != nil {
		return reply, err
	}
	if err := reply.check(&req); err != nil {
		return reply, invalidAnswer(failure.StageConnect, err)
	}
	return reply, nil
}

func (c *client) verify(ctx context.Context, args worker.VerifyArgs) (worker.Verified, error) {
	var v worker.Verified
	err := c.call(ctx, failure.StageVerify, http.MethodPost, c.lease+"/verify", args, &v, verifyTime)
	return v, err
}

// heldLease is a lease while this node holds it. The peer reports on a stream that it has ended.
type heldLease struct {
	grant    grant
	ended    chan struct{} // closed when it has ended, for whatever reason
	stop     context.CancelFunc
	renewing sync.WaitGroup
	reason   *failure.Failure // why it ended before it was released; set before ended is closed
}

// acquireLease asks for the lease and holds it until release, also after ctx is done, so that it ends in order.
func (c *client) acquireLease(ctx context.Context, ask leaseRequest) (*heldLease, error) {
	stream, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := func() { cancel(nil) }
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	timeout := time.AfterFunc(answerTime, func() { cancel(fmt.Errorf("no answer within %v", answerTime)) })
	res, err := c.request(stream, failure.StageLease, http.MethodPost, pathLease, ask, true)
	if err != nil {
		stop()
		return nil, err
	}
	event, err := res.events.next()
	if !timeout.Stop() || err != nil || event.Grant == nil {
		defer stop()
		res.Body.Close()
		switch {
		case err == nil && event.End != nil:
			return nil, event.End
		case stream.Err() != nil:
			return nil, c.connFailure(stream, failure.StageLease, context.Cause(stream))
		case err == nil:
			err = errors.New("neither a grant nor a reason")
		}
		return nil, failure.New(failure.StageLease, failure.Protocol, "request a lease: %v", err)
	}
	h := &heldLease{grant: *event.Grant, ended: make(chan struct{}), stop: stop}
	c.lease = pathLease + "/" + h.grant.ID
	h.renewing.Go(func() {
		defer close(h.ended)
		defer res.Body.Close()
		event, err := res.events.next()
		switch {
		case stream.Err() != nil: // it was released, or the round is over
		case err == nil && event.End != nil:
			h.reason = event.End
		default:
			h.reason = failure.New(failure.StageLease, failure.PeerLost,
				"the peer ended the lease without a reason: %v", err)
		}
	})
	h.renewing.Go(func() { c.renew(stream, h) })
	return h, nil
}

// renew renews the lease while it is held.
func (c *client) renew(ctx context.Context, h *heldLease) {
	tick := time.NewTicker(h.grant.TTL / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.ended:
			return
		case <-tick.C:
			// After a failure the stream has the reason, or the next request.
			_ = c.call(ctx, failure.StageLease, http.MethodPost, c.lease+"/renew", struct{}{}, nil, h.grant.TTL/3)
		}
	}
}

// release releases the lease, also when the round was canceled.
func (c *client) release(ctx context.Context, h *heldLease, bytes int64) (err error) {
	select {
	case <-h.ended:
	default:
		err = c.call(context.WithoutCancel(ctx), failure.StageRelease, http.MethodDelete, c.lease, released{bytes}, nil,
			answerTime)
	}
	h.stop()
	h.renewing.Wait()
	return err
}
