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

// How long the control channel may take: to connect, and to answer what is quick. Verifying reads all of the buffer.
const (
	dialTime   = 5 * time.Second
	answerTime = 15 * time.Second
	verifyTime = 40 * time.Second
)

// client is the asker's end of the control channel, for one round. Its errors are [*failure.Failure].
type client struct {
	peer   string // host:port
	base   string // http://host:port
	tokens tokens // empty: nothing is proved by tokens
	tls    *tls.Config
	lease  string // path of the lease, once there is one

	remote atomic.Pointer[netip.Addr] // where the peer was reached last; nil: nowhere yet

	mu    sync.Mutex // protects all following fields
	idle  []*clientConn
	conns []*clientConn // all of them
}

// newClient makes the client for one round with a peer. Tokens and certificates are those of this moment.
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

// stay keeps the client from where a peer points: no railscope sends anyone elsewhere.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func (c *client) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.conns {
		k.http.CloseIdleConnections()
	}
	c.idle, c.conns = nil, nil
}

// do sends a request and decodes the answer.
func (c *client) call(ctx context.Context, stage failure.Stage, method, path string, in, out any,
	limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	res, err := c.request(ctx, stage, method, path, in, false)
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(res.body, out); err != nil {
		return failure.New(stage, failure.Protocol, "the answer to %s %s is not railscope's: %v", method, path, err)
	}
	return nil
}

// send sends a request and returns the answer if it is a good one.
func (c *client) request(ctx context.Context, stage failure.Stage, method, path string, in any, streams bool) (*response,
	error) {
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

// ask sends a request and returns the answer, whatever it is. A connection that
// the peer gave up since its last request is replaced.
func (c *client) roundTrip(ctx context.Context, stage failure.Stage, method, path string, body []byte, streams bool) (*response,
	error) {
	for try := 1; ; try++ {
		k, err := c.getConn(ctx, stage)
		if err != nil {
			return nil, err
		}
		res, err := k.exchange(ctx, c, stage, method, path, body, streams)
		if errors.Is(err, errConnectionGone) {
			k.http.CloseIdleConnections()
			if try < maxAttempts {
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

// conn returns a connection for one request.
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

// refused makes a failure of an answer that is not OK. A railscope answers with a failure of its own.
func responseFailure(stage failure.Stage, res *http.Response, text []byte) error {
	var f failure.Failure
	if json.Unmarshal(text, &f) == nil && f.Reason != "" {
		sanitize(&f, stage)
		f.Stage = stage
		return &f
	}
	said := strings.TrimSpace(string(text))
	switch {
	case res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden:
		return failure.New(stage, failure.Unauthorized, "the peer refuses: %.200q", said)
	case strings.Contains(said, "HTTP request to an HTTPS server"):
		return failure.New(stage, failure.TLS,
			"the peer wants TLS and this node has none configured: set tls in the configuration")
	}
	return failure.New(stage, failure.Protocol, "%s %s: status %d, %.200q: is that railscope's probe port?",
		res.Request.Method, res.Request.URL, res.StatusCode, said)
}

// lost makes a failure of a connection that did not come about, or broke.
func (c *client) connFailure(ctx context.Context, stage failure.Stage, err error) error {
	var record tls.RecordHeaderError
	var verify *tls.CertificateVerificationError
	var op *net.OpError
	var name *net.DNSError
	switch {
	case errors.Is(context.Cause(ctx), context.Canceled):
		return failure.New(stage, failure.Canceled, "told to stop")
	case errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return failure.New(stage, failure.TLS, "this node wants TLS and the peer does not speak it: %v", err)
	case errors.As(err, &verify):
		return failure.New(stage, failure.TLS, "%v", err)
	case errors.As(err, &op) && op.Op == "remote error": // crypto/tls says so of an alert
		return failure.New(stage, failure.TLS, "the peer does not accept this node's certificate: %v", err)
	case strings.Contains(err.Error(), "malformed HTTP"),
		strings.Contains(err.Error(), "server response headers exceeded"):
		return failure.New(stage, failure.Protocol, "%v: is that railscope's probe port?", err)
	case c.lease != "":
		return failure.New(stage, failure.PeerLost, "the peer does not answer any more: %v", err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return failure.New(stage, failure.PeerUnreachable,
			"%v: is railscope serve running there, with this port in probe.listen of its configuration?", err)
	case errors.As(err, &name):
		return failure.New(stage, failure.PeerUnreachable, "%v: are name and port of the peer right?", err)
	case closedUnanswered(err):
		return failure.New(stage, failure.PeerUnreachable,
			"the peer closed the connection without an answer: does railscope listen on that port, and does "+
				"nothing between cut the connection?")
	case errors.As(err, &op) && op.Op == "dial", errors.Is(err, context.DeadlineExceeded):
		return failure.New(stage, failure.PeerUnreachable, "%v: is the peer up, and its port open to this node?", err)
	}
	return failure.New(stage, failure.PeerUnreachable, "%v", err)
}

// closedUnanswered reports whether the peer closed the connection before it answered. net/http has a different error
// for each moment at which it notices, and does not export the one of a connection that was not used yet.
func closedUnanswered(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, errConnectionGone) || errors.Is(err,
		syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		strings.Contains(err.Error(), "server closed idle connection")
}

func (c *client) hello(ctx context.Context) (hello, error) {
	var h hello
	if err := c.call(ctx, failure.StageHello, http.MethodGet, pathNode, struct{}{}, &h, answerTime); err != nil {
		return h, err
	}
	if err := h.check(); err != nil {
		return h, failure.New(failure.StageHello, failure.Protocol, "the peer's answer makes no sense: %v", err)
	}
	return h, nil
}

// hold is a lease while it is held: the stream by which the peer says that it is over, and the renewing.
type heldLease struct {
	grant    grant
	ended    chan struct{} // closed when it is over, for whatever reason
	stop     context.CancelFunc
	renewing sync.WaitGroup
	reason   *failure.Failure // why it ended before it was released; set before ended is closed
}

// obtain asks for the lease, and keeps it until release: also after ctx is done, so that it ends in order.
func (c *client) acquireLease(ctx context.Context, ask leaseRequest) (*heldLease, error) {
	stream, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := func() { cancel(nil) }
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	patience := time.AfterFunc(answerTime, func() { cancel(fmt.Errorf("no answer within %v", answerTime)) })
	res, err := c.request(stream, failure.StageLease, http.MethodPost, pathLease, ask, true)
	if err != nil {
		stop()
		return nil, err
	}
	event, err := res.events.next()
	if !patience.Stop() || err != nil || event.Grant == nil {
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
		return nil, failure.New(failure.StageLease, failure.Protocol, "asking for a lease: %v", err)
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
			h.reason = failure.New(failure.StageLease, failure.PeerLost, "the peer ended the lease without a word: %v",
				err)
		}
	})
	h.renewing.Go(func() { c.renew(stream, h) })
	return h, nil
}

// renew keeps the lease alive while it is held.
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
			// When it fails the stream says why, or the next request does.
			_ = c.call(ctx, failure.StageLease, http.MethodPost, c.lease+"/renew", struct{}{}, nil, h.grant.TTL/3)
		}
	}
}

func notAlphanumeric(r rune) bool {
	return !(r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z')
}

func (c *client) open(ctx context.Context, req openRequest) (openReply, error) {
	var reply openReply
	if err := c.call(ctx, failure.StageConnect, http.MethodPost, c.lease+"/open", req, &reply, answerTime); err != nil {
		return reply, err
	}
	if err := reply.check(&req); err != nil {
		return reply, failure.New(failure.StageConnect, failure.Protocol, "the peer's answer makes no sense: %v", err)
	}
	return reply, nil
}

func (c *client) verify(ctx context.Context, args worker.VerifyArgs) (worker.Verified, error) {
	var v worker.Verified
	err := c.call(ctx, failure.StageVerify, http.MethodPost, c.lease+"/verify", args, &v, verifyTime)
	return v, err
}

// release gives the lease back. It is told even when the round was canceled: the peer should not have to find out.
func (c *client) release(ctx context.Context, h *heldLease, bytes int64) error {
	select {
	case <-h.ended:
		h.stop()
		h.renewing.Wait()
		return nil // there is nothing to give back
	default:
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTime)
	defer cancel()
	err := c.call(ctx, failure.StageRelease, http.MethodDelete, c.lease, released{bytes}, nil, answerTime)
	h.stop()
	h.renewing.Wait()
	return err
}
