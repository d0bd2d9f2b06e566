package probe

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
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
	tokens, err := creds.tokens(creds.TokenFile)
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

// request is one request. With streams, an answer with status OK is read line by line.
type request struct {
	stage        failure.Stage
	method, path string
	body         []byte
	streams      bool
}

func (r request) fail(reason failure.Reason, format string, args ...any) *failure.Failure {
	return failure.New(r.stage, reason, format, args...)
}

func (c *client) call(ctx context.Context, stage failure.Stage, method, path string, in, out any,
	limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	body, _ := json.Marshal(in) // cannot fail: no message has a field that can
	req := request{stage: stage, method: method, path: path, body: body}
	res, err := c.send(ctx, req)
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(res.body, out); err != nil {
		return req.fail(failure.Protocol, "the answer to %s %s is not railscope's: %v", method, path, err)
	}
	return nil
}

// send sends a request and returns the answer if its status is OK.
func (c *client) send(ctx context.Context, req request) (*response, error) {
	res, err := c.roundTrip(ctx, req)
	if err != nil || res.StatusCode == http.StatusOK {
		return res, err
	}
	return nil, responseFailure(req.stage, res.Response, res.body)
}

// roundTrip sends a request and returns the answer, whatever its status. A connection that the peer has closed before
// the request is replaced.
func (c *client) roundTrip(ctx context.Context, req request) (*response, error) {
	var lastErr error
	for range maxAttempts {
		k, err := c.getConn(ctx, req.stage)
		var res *response
		if err == nil {
			res, err = k.exchange(ctx, req)
		}
		if err == nil && res.events == nil && !res.Close {
			c.mu.Lock()
			c.idle = append(c.idle, k)
			c.mu.Unlock()
		}
		if !errors.Is(err, errConnectionGone) {
			return res, err
		}
		if k != nil {
			k.http.CloseIdleConnections()
		}
		lastErr = err
	}
	if f, ok := errors.AsType[*failure.Failure](lastErr); ok { // what was answered before it closed
		return nil, f
	}
	return nil, c.connFailure(ctx, req.stage, lastErr)
}

// getConn returns an idle connection, or a new one.
func (c *client) getConn(ctx context.Context, stage failure.Stage) (*clientConn, error) {
	c.mu.Lock()
	if n := len(c.idle); n > 0 {
		defer c.mu.Unlock()
		k := c.idle[n-1]
		c.idle = c.idle[:n-1]
		return k, nil
	}
	c.mu.Unlock()
	k, err := c.dial(ctx, stage)
	if err == nil {
		c.mu.Lock()
		c.conns = append(c.conns, k)
		c.mu.Unlock()
	}
	return k, err
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
	err := c.call(ctx, failure.StageHello, http.MethodGet, pathNode, struct{}{}, &h, answerTime)
	if err == nil {
		err = checkAnswer(failure.StageHello, h.check())
	}
	return h, err
}

func (c *client) open(ctx context.Context, req openRequest) (openReply, error) {
	var reply openReply
	err := c.call(ctx, failure.StageConnect, http.MethodPost, c.lease+"/open", req, &reply,
		answerTime+2*worker.SetupTime(len(req.Rails), req.QueuePairs)) // to open and to connect
	if err == nil {
		err = checkAnswer(failure.StageConnect, reply.check(&req))
	}
	return reply, err
}

// checkAnswer makes a failure of an error in the peer's answer, and nil of nil.
func checkAnswer(stage failure.Stage, err error) error {
	if err == nil {
		return nil
	}
	return failure.New(stage, failure.Protocol, "invalid answer from the peer: %v", err)
}

func (c *client) verify(ctx context.Context, args worker.VerifyArgs) (worker.Verified, error) {
	var v worker.Verified
	err := c.call(ctx, failure.StageVerify, http.MethodPost, c.lease+"/verify", args, &v, verifyTime)
	return v, err
}
