// Package control is the asking end of the connection to a peer.
package control

import (
	"cmp"
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

	"github.com/railscope/railscope/probe/internal/auth"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/worker"
)

// Time limits of the control channel: to connect, for an answer, and for the target to verify its whole buffer.
const (
	DialTime   = 5 * time.Second
	AnswerTime = 15 * time.Second
	verifyTime = 40 * time.Second
)

// MaxAttempts limits how often a request that was not sent is sent over another connection. net/http gives up a
// connection if it has not seen its last write end within 50 ms, as on a busy machine.
const MaxAttempts = 4

// Client is the asker's end of the control channel, for one round. Its errors are [*failure.Failure].
type Client struct {
	Peer   string      // host:port
	Tokens auth.Tokens // empty: nothing is proved by tokens
	tls    *tls.Config
	lease  string // path of the lease, once there is one

	Remote     atomic.Pointer[netip.Addr] // where the peer was last reached; nil: nowhere yet
	Translated atomic.Bool                // the peer was reached at another address than that which was dialled

	mu    sync.Mutex // protects all following fields
	Idle  []*ClientConn
	Conns []*ClientConn // all of them
}

// NewClient makes the client for one round with a peer, with the tokens and certificates of this moment.
func NewClient(peer string, creds auth.Credentials) (*Client, error) {
	tokens, err := creds.Tokens(creds.TokenFile)
	if err != nil {
		return nil, failure.New(failure.StageHello, failure.Unauthorized, "token_file: %v", err)
	}
	conf, err := creds.ClientTLS()
	if err != nil {
		return nil, failure.New(failure.StageHello, failure.TLS, "%v", err)
	}
	to, err := url.Parse("https://" + peer)
	if err != nil {
		return nil, failure.New(failure.StageHello, failure.PeerUnreachable, "%v", err)
	}
	conf.ServerName = cmp.Or(conf.ServerName, to.Hostname())
	return &Client{Peer: peer, Tokens: tokens, tls: conf}, nil
}

// Close closes the connections. The client cannot be used afterwards.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.Conns {
		k.HTTP.CloseIdleConnections()
	}
	c.Idle, c.Conns = nil, nil
}

// Request is one request. With streams, an answer with status OK is read line by line.
type Request struct {
	Stage        failure.Stage
	Method, Path string
	Body         []byte
	Streams      bool
}

func (r Request) fail(reason failure.Reason, format string, args ...any) *failure.Failure {
	return failure.New(r.Stage, reason, format, args...)
}

// Call sends a request of a stage and decodes the answer into out. Its error is a [*failure.Failure].
func (c *Client) Call(ctx context.Context, stage failure.Stage, method, path string, in, out any,
	limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	body, _ := json.Marshal(in) // cannot fail: no message has a field that can
	req := Request{Stage: stage, Method: method, Path: path, Body: body}
	res, err := c.send(ctx, req)
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(res.Content, out); err != nil {
		return req.fail(failure.Protocol, "the answer to %s %s is not railscope's: %v", method, path, err)
	}
	return nil
}

// send sends a request and returns the answer if its status is OK.
func (c *Client) send(ctx context.Context, req Request) (*Response, error) {
	res, err := c.RoundTrip(ctx, req)
	if err != nil || res.StatusCode == http.StatusOK {
		return res, err
	}
	return nil, ResponseFailure(req.Stage, res.Response, res.Content)
}

// RoundTrip sends a request and returns the answer, whatever its status. A connection that the peer has closed before
// the request is replaced.
func (c *Client) RoundTrip(ctx context.Context, req Request) (*Response, error) {
	var lastErr error
	for range MaxAttempts {
		k, err := c.getConn(ctx, req.Stage)
		var res *Response
		if err == nil {
			res, err = k.exchange(ctx, req)
		}
		if err == nil && res.Events == nil && !res.Close {
			c.mu.Lock()
			c.Idle = append(c.Idle, k)
			c.mu.Unlock()
		}
		if !errors.Is(err, ErrConnectionGone) {
			return res, err
		}
		if k != nil {
			k.HTTP.CloseIdleConnections()
		}
		lastErr = err
	}
	if f, ok := errors.AsType[*failure.Failure](lastErr); ok { // what was answered before it closed
		return nil, f
	}
	return nil, c.connFailure(ctx, req.Stage, lastErr)
}

// getConn returns an idle connection, or a new one.
func (c *Client) getConn(ctx context.Context, stage failure.Stage) (*ClientConn, error) {
	c.mu.Lock()
	if n := len(c.Idle); n > 0 {
		defer c.mu.Unlock()
		k := c.Idle[n-1]
		c.Idle = c.Idle[:n-1]
		return k, nil
	}
	c.mu.Unlock()
	k, err := c.dial(ctx, stage)
	if err == nil {
		c.mu.Lock()
		c.Conns = append(c.Conns, k)
		c.mu.Unlock()
	}
	return k, err
}

// ResponseFailure makes a failure of an answer that is not OK. A railscope answers with a failure.
func ResponseFailure(stage failure.Stage, res *http.Response, text []byte) error {
	var f failure.Failure
	if json.Unmarshal(text, &f) == nil && f.Reason != "" {
		protocol.Sanitize(&f, stage)
		f.Stage = stage
		return &f
	}
	body := strings.TrimSpace(string(text))
	if res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden {
		return failure.New(stage, failure.Unauthorized, "the peer refused the request: %.200q", body)
	}
	return failure.New(stage, failure.Protocol, "%s %s: status %d, %.200q: is that railscope's probe port?",
		res.Request.Method, res.Request.URL, res.StatusCode, body)
}

// connFailure makes a failure of a connection that could not be made, or broke.
func (c *Client) connFailure(ctx context.Context, stage failure.Stage, err error) error {
	var verify *tls.CertificateVerificationError
	var op *net.OpError
	var name *net.DNSError
	fail := func(reason failure.Reason, format string, args ...any) error {
		return failure.New(stage, reason, format, args...)
	}
	switch {
	case errors.Is(context.Cause(ctx), context.Canceled):
		return fail(failure.Canceled, "interrupted")
	case errors.As(err, &verify):
		return fail(failure.TLS,
			"%v: does the peer have probe.tls with a certificate of this node's client_ca_file?", err)
	case errors.As(err, &op) && op.Op == "remote error" && !strings.Contains(err.Error(), "certificate"): // an alert
		return fail(failure.TLS, "%v: is that railscope's probe port?", err)
	case errors.As(err, &op) && op.Op == "remote error" && len(c.tls.Certificates) == 0:
		return fail(failure.TLS,
			"the peer requires a certificate: set probe.tls in the configuration of this node: %v", err)
	case errors.As(err, &op) && op.Op == "remote error":
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
	return errors.Is(err, io.EOF) || errors.Is(err, ErrConnectionGone) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE) || strings.Contains(err.Error(), "server closed idle connection")
}

// Hello asks the peer who it is.
func (c *Client) Hello(ctx context.Context) (protocol.Hello, error) {
	var h protocol.Hello
	err := c.Call(ctx, failure.StageHello, http.MethodGet, protocol.PathNode, struct{}{}, &h, AnswerTime)
	if err == nil {
		err = checkAnswer(failure.StageHello, h.Check())
	}
	return h, err
}

// Open asks the peer to open its ends of flows, within the lease.
func (c *Client) Open(ctx context.Context, req protocol.OpenRequest) (protocol.OpenReply, error) {
	var reply protocol.OpenReply
	err := c.Call(ctx, failure.StageConnect, http.MethodPost, c.lease+"/open", req, &reply,
		AnswerTime+2*worker.SetupTime(len(req.Rails), req.QueuePairs)) // the time to open and to connect
	if err == nil {
		err = checkAnswer(failure.StageConnect, reply.Check(&req))
	}
	return reply, err
}

// Claim asks for the peer's slot, for one burst over rails that are quiet there, and returns which are.
func (c *Client) Claim(ctx context.Context, rails []string) ([]string, error) {
	var quiet protocol.Quiet
	err := c.Call(ctx, failure.StageLease, http.MethodPost, c.lease+"/claim", protocol.Quiet{Rails: rails}, &quiet,
		AnswerTime)
	if err == nil {
		err = checkAnswer(failure.StageLease, quiet.Check())
	}
	return quiet.Rails, err
}

// checkAnswer makes a failure of an error in the peer's answer, and nil of nil.
func checkAnswer(stage failure.Stage, err error) error {
	if err == nil {
		return nil
	}
	return failure.New(stage, failure.Protocol, "invalid answer from the peer: %v", err)
}

// Verify asks the peer to compare its memory with the pattern that was written.
func (c *Client) Verify(ctx context.Context, args worker.VerifyArgs) (worker.Verified, error) {
	var v worker.Verified
	err := c.Call(ctx, failure.StageVerify, http.MethodPost, c.lease+"/verify", args, &v, verifyTime)
	return v, err
}
