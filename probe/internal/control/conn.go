package control

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/railscope/railscope/probe/internal/auth"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/protocol"
)

// ClientConn is one connection to a peer, which carries one request at a time.
type ClientConn struct {
	client *Client
	base   string // https://host:port
	HTTP   *http.Client
	used   bool // a request after the proof was answered
}

// ErrConnectionGone is returned when the connection was closed while idle: the request was not sent.
var ErrConnectionGone = errors.New("the connection is closed")

// Response is a complete answer.
type Response struct {
	*http.Response
	Content []byte
	Events  *EventReader // events of an answer that streams; the body is then empty
}

// NewClientConn returns a connection that transport makes.
func NewClientConn(c *Client, scheme string, transport *http.Transport) *ClientConn {
	transport.MaxIdleConns, transport.IdleConnTimeout = 1, time.Minute
	transport.MaxResponseHeaderBytes, transport.DisableCompression = 16<<10, true
	return &ClientConn{client: c, base: scheme + c.Peer, HTTP: &http.Client{Transport: transport,
		// No railscope redirects.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// dial connects to the peer, and both ends prove themselves to each other.
func (c *Client) dial(ctx context.Context, stage failure.Stage) (*ClientConn, error) {
	dialer := &net.Dialer{Timeout: DialTime, KeepAlive: 5 * time.Second}
	raw, err := dialer.DialContext(ctx, "tcp", c.Peer)
	if err != nil {
		return nil, c.connFailure(ctx, stage, err)
	}
	dialled := protocol.PlainAddress(raw.RemoteAddr())
	c.Remote.Store(new(dialled.Addr()))
	conn := tls.Client(raw, c.tls)
	handshake, cancel := context.WithTimeout(ctx, DialTime)
	defer cancel()
	err = conn.HandshakeContext(handshake)
	if err != nil {
		_ = raw.Close() // it is of no use
		if closedUnanswered(err) || errors.As(err, new(tls.RecordHeaderError)) {
			return nil, c.askInClear(ctx, stage, dialer)
		}
		return nil, c.connFailure(ctx, stage, err)
	}
	var unused atomic.Pointer[tls.Conn]
	unused.Store(conn)
	k := NewClientConn(c, "https://", &http.Transport{
		DialTLSContext: func(context.Context, string, string) (net.Conn, error) {
			if conn := unused.Swap(nil); conn != nil {
				return conn, nil
			}
			return nil, ErrConnectionGone
		}})
	reply, err := k.proveToken(ctx, stage, conn.ConnectionState())
	if err != nil {
		k.HTTP.CloseIdleConnections()
		if conn := unused.Swap(nil); conn != nil {
			_ = conn.Close()
		}
		return nil, err
	}
	if reply.Address != dialled {
		c.Translated.Store(true)
	}
	return k, nil
}

// proveToken sends a proof for each token that this node has, and verifies that of the peer. Before the peer has proved
// itself, it receives only these.
func (k *ClientConn) proveToken(ctx context.Context, stage failure.Stage,
	state tls.ConnectionState) (*protocol.ProofReply,
	error) {
	ask := protocol.ProofRequest{Version: protocol.ProtocolVersion}
	var answers [][]byte
	for _, token := range k.client.Tokens {
		for role, list := range map[string]*[][]byte{auth.RoleAsker: &ask.Proofs, auth.RoleTarget: &answers} {
			proof, err := auth.Prove(&state, role, token)
			if err != nil {
				return nil, failure.New(stage, failure.TLS, "%v", err)
			}
			*list = append(*list, proof)
		}
	}
	peer, err := k.exchangeProof(ctx, stage, ask)
	switch {
	case err != nil:
		return nil, err
	case len(peer.Proof) > 0 && len(answers) == 0:
		return nil, failure.New(stage, failure.Unauthorized,
			"the peer requires a token and this node has none: both ends need the same token_file")
	case len(peer.Proof) == 0 && len(answers) > 0:
		return nil, failure.New(stage, failure.Unauthorized,
			"this node has a token and the peer has none to prove itself with: give both ends a token_file, or neither")
	}
	proved := len(answers) == 0
	for _, answer := range answers {
		proved = proved || hmac.Equal(answer, peer.Proof)
	}
	if !proved {
		return nil, failure.New(stage, failure.Unauthorized, "the answer to POST %s does not prove that the peer has "+
			"this node's token: is something else on its address?", protocol.PathHello)
	}
	return peer, nil
}

// exchangeProof sends the first message of a connection, and returns the answer of a peer that speaks this version.
func (k *ClientConn) exchangeProof(ctx context.Context, stage failure.Stage,
	ask protocol.ProofRequest) (*protocol.ProofReply, error) {
	body, _ := json.Marshal(ask) // cannot fail: no field of it can
	req := Request{Stage: stage, Method: http.MethodPost, Path: protocol.PathHello, Body: body}
	res, text, cut, err := k.ask(ctx, req, protocol.MaxProof)
	switch {
	case errors.Is(err, ErrConnectionGone):
		return nil, k.client.connFailure(ctx, stage, err)
	case err != nil:
		return nil, err
	case res.StatusCode != http.StatusOK:
		return nil, k.proofFailure(ctx, stage, res, text)
	case cut:
		return nil, req.fail(failure.Protocol, "an answer of more than %d bytes to POST %s", protocol.MaxProof,
			protocol.PathHello)
	}
	var peer protocol.ProofReply
	if err := json.Unmarshal(text, &peer); err != nil {
		return nil, req.fail(failure.Protocol, "the answer to POST %s is not railscope's: %v", protocol.PathHello, err)
	}
	if err := peer.Check(); err != nil {
		return nil, checkAnswer(stage, err)
	}
	if peer.Version != protocol.ProtocolVersion {
		return nil, versionFailure(stage, peer.Version, "")
	}
	return &peer, nil
}

// askInClear asks a peer that does not speak TLS for its version, as protocols 2 and 3 do, and returns the failure of
// the round. It sends nothing that depends on a secret.
func (c *Client) askInClear(ctx context.Context, stage failure.Stage, dialer *net.Dialer) error {
	k := NewClientConn(c, "http://", &http.Transport{DialContext: dialer.DialContext})
	defer k.HTTP.CloseIdleConnections()
	_, err := k.exchangeProof(ctx, stage, protocol.ProofRequest{Version: protocol.ProtocolVersion, Nonce: make([]byte,
		32)})
	if err == nil {
		return failure.New(stage, failure.Protocol,
			"the peer does not speak TLS, and names this node's protocol version: is that railscope's probe port?")
	}
	return err
}

// proofFailure makes a failure of a refused first message. Anyone can refuse it: of its reasons only those count that
// a railscope gives before anything is proved, and of these only an earlier protocol skips the peer.
func (k *ClientConn) proofFailure(ctx context.Context, stage failure.Stage, res *http.Response, text []byte) error {
	var f failure.Failure
	isFailure := json.Unmarshal(text, &f) == nil && f.Reason != ""
	header := res.Header.Get(protocol.HeaderProtocol)
	version, _ := strconv.Atoi(header) // 0 if it is none
	current := header != ""
	switch {
	case version > 1 && version < protocol.ProtocolVersion:
		return versionFailure(stage, version, "")
	case !current && res.StatusCode == http.StatusUnauthorized && isFailure && f.Reason == failure.Unauthorized:
		return versionFailure(stage, 1, "")
	case !current && res.StatusCode == http.StatusNotFound && !isFailure:
		if old, err := k.helloV1(ctx); err == nil {
			return versionFailure(stage, 1, old.Versions.Railscope)
		}
	case isFailure && f.Reason != failure.Unauthorized && f.Reason != failure.Protocol:
		protocol.Sanitize(&f, stage)
		return checkAnswer(stage, fmt.Errorf("%s to POST %s", f.Reason, protocol.PathHello))
	}
	return ResponseFailure(stage, res, text)
}

// helloV1 asks as protocol 1 did, without a token.
func (k *ClientConn) helloV1(ctx context.Context) (h protocol.Hello, err error) {
	res, text, _, err := k.ask(ctx, Request{Method: http.MethodGet, Path: protocol.PathHelloV1}, protocol.MaxBody)
	if err == nil && res.StatusCode != http.StatusOK {
		err = errors.New(res.Status)
	}
	if err == nil {
		err = json.Unmarshal(text, &h)
	}
	if err == nil {
		err = h.Check()
	}
	return h, err
}

func versionFailure(stage failure.Stage, version int, railscope string) error {
	if railscope != "" {
		railscope = " (railscope " + railscope + ")"
	}
	where := "the peer"
	if version > protocol.ProtocolVersion {
		where = "this node"
	}
	return failure.New(stage, failure.PeerVersion,
		"peer speaks protocol version %d%s, this node %d: upgrade railscope on %s",
		version, railscope, protocol.ProtocolVersion, where)
}

// ask sends a request, and reads its answer up to a limit; cut: it is longer. An answer that streams is left to the
// caller. The error is [ErrConnectionGone] or a failure.
func (k *ClientConn) ask(ctx context.Context, r Request, limit int) (res *http.Response, text []byte, cut bool,
	err error) {
	defer func() {
		if err != nil && !errors.Is(err, ErrConnectionGone) {
			err = k.client.connFailure(ctx, r.Stage, err)
		}
	}()
	req, err := http.NewRequestWithContext(ctx, r.Method, k.base+r.Path, bytes.NewReader(r.Body))
	if err != nil {
		return nil, nil, false, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err = k.HTTP.Do(req)
	if err != nil || r.Streams && res.StatusCode == http.StatusOK {
		return res, nil, false, err
	}
	defer res.Body.Close()
	text, err = io.ReadAll(io.LimitReader(res.Body, int64(limit)+1))
	return res, text[:min(len(text), limit)], len(text) > limit, err
}

// exchange sends a request and returns its answer, whatever its status.
func (k *ClientConn) exchange(ctx context.Context, req Request) (*Response, error) {
	res, text, cut, err := k.ask(ctx, req, protocol.MaxBody)
	used := k.used
	k.used = true
	switch {
	case err != nil:
		return nil, err
	case req.Streams && res.StatusCode == http.StatusOK:
		return &Response{Response: res, Events: NewEventReader(res.Body)}, nil
	case cut:
		return nil, req.fail(failure.Protocol, "an answer of more than %d bytes to %s %s", protocol.MaxBody, req.Method,
			req.Path)
	case res.StatusCode == http.StatusUnauthorized && used && len(k.client.Tokens) > 0: // the peer's token has changed
		return nil, fmt.Errorf("%w: %w", ErrConnectionGone, ResponseFailure(req.Stage, res, text))
	}
	return &Response{Response: res, Content: text}, nil
}
