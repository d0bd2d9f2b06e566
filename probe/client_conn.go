package probe

import (
	"bytes"
	"context"
	"crypto/hmac"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
)

// clientConn is one connection to a peer. It carries one request at a time, each with a proof if there is a token.
type clientConn struct {
	base    string // http://host:port
	http    *http.Client
	session *session // nil without a token
}

// errConnectionGone is that the connection was closed while it was idle: the request was not sent.
var errConnectionGone = errors.New("the connection is closed")

// response is a complete answer, proved if there is a token.
type response struct {
	*http.Response
	body   []byte
	events *eventReader // of an answer that streams; the body is then empty
}

// dial connects to the peer, and both ends prove themselves to each other.
func (c *client) dial(ctx context.Context, stage failure.Stage) (*clientConn, error) {
	raw, err := (&net.Dialer{Timeout: dialTime, KeepAlive: 5 * time.Second}).DialContext(ctx, "tcp", c.peer)
	if err != nil {
		return nil, c.connFailure(ctx, stage, err)
	}
	dialled, _ := netip.ParseAddrPort(raw.RemoteAddr().String())
	c.remote.Store(new(dialled.Addr().Unmap()))
	var unused atomic.Pointer[net.Conn]
	unused.Store(&raw)
	k := &clientConn{base: c.base, http: &http.Client{
		// No railscope redirects.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: func(context.Context, string, string) (net.Conn, error) {
				if conn := unused.Swap(nil); conn != nil {
					return *conn, nil
				}
				return nil, errConnectionGone
			},
			TLSClientConfig:        c.tls,
			TLSHandshakeTimeout:    dialTime,
			MaxIdleConns:           1,
			IdleConnTimeout:        time.Minute,
			MaxResponseHeaderBytes: 16 << 10,
			DisableCompression:     true,
		}}}
	if err := c.challenge(ctx, stage, k, plainAddress(dialled)); err != nil {
		k.http.CloseIdleConnections()
		if conn := unused.Swap(nil); conn != nil {
			_ = (*conn).Close()
		}
		return nil, err
	}
	return k, nil
}

// challenge exchanges nonces and then proofs. Before the peer has proved itself, it receives a nonce, the dialled
// address and an HMAC.
func (c *client) challenge(ctx context.Context, stage failure.Stage, k *clientConn, dialled netip.AddrPort) error {
	ask := challengeRequest{Version: protocolVersion, Nonce: newNonce(), Address: dialled.String()}
	body, _ := json.Marshal(ask) // cannot fail: no field of it can
	req := request{stage: stage, method: http.MethodPost, path: pathHello, body: body}
	res, err := k.send(ctx, req)
	if err != nil {
		return c.connFailure(ctx, stage, err)
	}
	text, err := readUpTo(res, maxChallenge)
	switch {
	case err != nil && !errors.Is(err, errTooLong):
		return c.connFailure(ctx, stage, err)
	case res.StatusCode != http.StatusOK:
		return c.challengeFailure(ctx, stage, k, res, text)
	case err != nil:
		return req.tooLong(maxChallenge)
	}
	var peer challengeReply
	if err := json.Unmarshal(text, &peer); err != nil {
		return req.fail(failure.Protocol, "the answer to POST %s is not railscope's: %v", pathHello, err)
	}
	if err := peer.check(); err != nil {
		return checkAnswer(stage, err)
	}
	switch {
	case peer.Version != protocolVersion:
		return versionFailure(stage, peer.Version, "")
	case peer.Proof == proofToken && len(c.tokens) == 0:
		return req.fail(failure.Unauthorized,
			"the peer requires a token and this node has none: both ends need the same token_file")
	case peer.Proof != proofToken && len(c.tokens) > 0:
		return req.fail(failure.Unauthorized,
			"this node has a token and the peer has none to prove itself with: give both ends a token_file, or neither")
	case len(c.tokens) == 0:
		return nil
	}
	b := binding{asker: ask.Nonce, target: peer.Nonce, address: dialled}
	if res.TLS != nil {
		if b.tls, err = res.TLS.ExportKeyingMaterial(exporterLabel, nil, keySize); err != nil {
			return req.fail(failure.TLS, "%v", err)
		}
	}
	return c.proveToken(ctx, stage, k, b)
}

func (r request) tooLong(limit int) error {
	return r.fail(failure.Protocol, "an answer of more than %d bytes to %s %s", limit, r.method, r.path)
}

// proveToken sends a proof for each token that this node has, and uses the one with which the peer answers.
func (c *client) proveToken(ctx context.Context, stage failure.Stage, k *clientConn, b binding) error {
	sessions := make([]*session, len(c.tokens))
	for i, token := range c.tokens {
		s, err := b.session(token)
		if err != nil {
			return failure.As(stage, err)
		}
		s.count = 1
		sessions[i] = s
	}
	res, err := k.send(ctx, request{method: http.MethodPost, path: pathProve, body: []byte("{}")}, sessions...)
	if errors.Is(err, errConnectionGone) {
		return err
	}
	if err != nil {
		return c.connFailure(ctx, stage, err)
	}
	text, err := readUpTo(res, maxChallenge)
	if err != nil && !errors.Is(err, errTooLong) {
		return c.connFailure(ctx, stage, err)
	}
	for _, s := range sessions {
		if err == nil && res.StatusCode == http.StatusOK && s.proves(res, digest(text)) {
			k.session = s
			return nil
		}
	}
	return unprovenFailure(stage, res, text)
}

// unprovenFailure makes a failure of an answer without the proof that it needs. Only the reason that the peer cannot
// prove itself is believed.
func unprovenFailure(stage failure.Stage, res *http.Response, text []byte) error {
	var f failure.Failure
	if res.StatusCode != http.StatusOK && json.Unmarshal(text, &f) == nil && f.Reason == failure.Unauthorized {
		return responseFailure(stage, res, text)
	}
	return failure.New(stage, failure.Unauthorized,
		"the answer to %s %s (status %d) does not prove that the peer has this node's token: "+
			"is something else on its address?", res.Request.Method, res.Request.URL.Path, res.StatusCode)
}

// challengeFailure makes a failure of a refused challenge. Anyone can send one: of its reasons only those count that a
// railscope gives before anything is proved, and of these only an earlier protocol skips the peer.
func (c *client) challengeFailure(
	ctx context.Context, stage failure.Stage, k *clientConn, res *http.Response, text []byte,
) error {
	var f failure.Failure
	isFailure := json.Unmarshal(text, &f) == nil && f.Reason != ""
	header := res.Header.Get(headerProtocol)
	version, _ := strconv.Atoi(header) // 0 if it is none
	current := header != ""
	switch {
	case version > 1 && version < protocolVersion:
		return versionFailure(stage, version, "")
	case !current && res.StatusCode == http.StatusUnauthorized && isFailure && f.Reason == failure.Unauthorized:
		return versionFailure(stage, 1, "")
	case !current && res.StatusCode == http.StatusNotFound && !isFailure:
		old, err := c.helloV1(ctx, k)
		switch {
		case err == nil:
			return versionFailure(stage, 1, old.Versions.Railscope)
		case errors.Is(err, errConnectionGone) && !res.Close:
			return fmt.Errorf("%w: %w", errConnectionGone, responseFailure(stage, res, text))
		}
	case isFailure && f.Reason != failure.Unauthorized && f.Reason != failure.Protocol:
		sanitize(&f, stage)
		return checkAnswer(stage, fmt.Errorf("%s to POST %s", f.Reason, pathHello))
	}
	return responseFailure(stage, res, text)
}

// helloV1 asks as protocol 1 did, without a token.
func (c *client) helloV1(ctx context.Context, k *clientConn) (h hello, err error) {
	res, err := k.send(ctx, request{method: http.MethodGet, path: pathHelloV1})
	if err != nil {
		return h, err
	}
	text, err := readUpTo(res, maxBody)
	if err == nil && res.StatusCode != http.StatusOK {
		err = errors.New(res.Status)
	}
	if err == nil {
		err = json.Unmarshal(text, &h)
	}
	if err == nil {
		err = h.check()
	}
	return h, err
}

func versionFailure(stage failure.Stage, version int, railscope string) error {
	if railscope != "" {
		railscope = " (railscope " + railscope + ")"
	}
	where := "the peer"
	if version > protocolVersion {
		where = "this node"
	}
	return failure.New(stage, failure.PeerVersion,
		"peer speaks protocol version %d%s, this node %d: upgrade railscope on %s",
		version, railscope, protocolVersion, where)
}

// send sends a request. With sessions, it carries a proof for each of them.
func (k *clientConn) send(ctx context.Context, r request, sessions ...*session) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, r.method, k.base+r.path, bytes.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if len(sessions) > 0 {
		p := proof{count: sessions[0].count, digest: digest(r.body)}
		for _, s := range sessions {
			p.macs = append(p.macs, s.ofRequest(r.method, req.URL.RequestURI(), p.count, p.digest))
		}
		req.Header.Set(headerProof, p.String())
	}
	return k.http.Do(req)
}

// exchange sends a request and returns its answer, whatever its status.
func (k *clientConn) exchange(ctx context.Context, c *client, req request) (*response, error) {
	var sessions []*session
	if k.session != nil {
		k.session.count++
		sessions = []*session{k.session}
	}
	res, err := k.send(ctx, req, sessions...)
	if errors.Is(err, errConnectionGone) {
		return nil, err
	}
	if err != nil {
		return nil, c.connFailure(ctx, req.stage, err)
	}
	if req.streams && res.StatusCode == http.StatusOK {
		if k.session != nil && !k.session.proves(res, digestOfStream) {
			res.Body.Close()
			return nil, unprovenFailure(req.stage, res, nil)
		}
		return &response{Response: res, events: newEventReader(res.Body, k.session, res.Request.URL.RequestURI())}, nil
	}
	text, err := readUpTo(res, maxBody)
	switch {
	case errors.Is(err, errTooLong):
		return nil, req.tooLong(maxBody)
	case err != nil:
		return nil, c.connFailure(ctx, req.stage, err)
	case k.session != nil && !k.session.proves(res, digest(text)):
		err := unprovenFailure(req.stage, res, text)
		if res.StatusCode == http.StatusUnauthorized && k.session.count > 2 { // the peer's token may have changed
			err = fmt.Errorf("%w: %w", errConnectionGone, err)
		}
		return nil, err
	}
	return &response{Response: res, body: text}, nil
}

// proves reports whether an answer proves that its sender has the token, and that it answers the last request.
func (s *session) proves(res *http.Response, digest string) bool {
	p, err := parseProof(res.Header.Get(headerProof))
	if err != nil || p.count != s.count || p.digest != digest || len(p.macs) != 1 {
		return false
	}
	return hmac.Equal(p.macs[0],
		s.ofAnswer(res.Request.Method, res.Request.URL.RequestURI(), s.count, res.StatusCode, digest))
}

var errTooLong = errors.New("too long")

// readUpTo reads a body and closes it. Of one that is too long it returns the beginning.
func readUpTo(res *http.Response, limit int) ([]byte, error) {
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, int64(limit)+1))
	if err == nil && len(text) > limit {
		return text[:limit], errTooLong
	}
	return text, err
}
