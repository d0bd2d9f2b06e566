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
	client  *client
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
	k := &clientConn{client: c, http: &http.Client{
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
	if err := k.challenge(ctx, stage, plainAddress(dialled)); err != nil {
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
func (k *clientConn) challenge(ctx context.Context, stage failure.Stage, dialled netip.AddrPort) error {
	ask := challengeRequest{Version: protocolVersion, Nonce: newNonce(), Address: dialled.String()}
	body, _ := json.Marshal(ask) // cannot fail: no field of it can
	req := request{stage: stage, method: http.MethodPost, path: pathHello, body: body}
	res, text, cut, err := k.ask(ctx, req, maxChallenge)
	switch {
	case errors.Is(err, errConnectionGone):
		return k.client.connFailure(ctx, stage, err)
	case err != nil:
		return err
	case res.StatusCode != http.StatusOK:
		return k.challengeFailure(ctx, stage, res, text)
	case cut:
		return req.fail(failure.Protocol, "an answer of more than %d bytes to POST %s", maxChallenge, pathHello)
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
	case peer.Proof == proofToken && len(k.client.tokens) == 0:
		return req.fail(failure.Unauthorized,
			"the peer requires a token and this node has none: both ends need the same token_file")
	case peer.Proof != proofToken && len(k.client.tokens) > 0:
		return req.fail(failure.Unauthorized,
			"this node has a token and the peer has none to prove itself with: give both ends a token_file, or neither")
	case len(k.client.tokens) == 0:
		return nil
	}
	b := binding{asker: ask.Nonce, target: peer.Nonce, address: dialled}
	if res.TLS != nil {
		if b.tls, err = res.TLS.ExportKeyingMaterial(exporterLabel, nil, keySize); err != nil {
			return req.fail(failure.TLS, "%v", err)
		}
	}
	return k.proveToken(ctx, stage, b)
}

// proveToken sends a proof for each token that this node has, and uses the one with which the peer answers.
func (k *clientConn) proveToken(ctx context.Context, stage failure.Stage, b binding) error {
	sessions := make([]*session, len(k.client.tokens))
	for i, token := range k.client.tokens {
		s, err := b.session(token)
		if err != nil {
			return failure.As(stage, err)
		}
		s.count = 1
		sessions[i] = s
	}
	req := request{stage: stage, method: http.MethodPost, path: pathProve, body: []byte("{}")}
	res, text, cut, err := k.ask(ctx, req, maxChallenge, sessions...)
	if err != nil {
		return err
	}
	for _, s := range sessions {
		if !cut && res.StatusCode == http.StatusOK && s.proves(res, digest(text)) {
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
func (k *clientConn) challengeFailure(ctx context.Context, stage failure.Stage, res *http.Response, text []byte) error {
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
		old, err := k.helloV1(ctx)
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
func (k *clientConn) helloV1(ctx context.Context) (h hello, err error) {
	res, text, _, err := k.ask(ctx, request{method: http.MethodGet, path: pathHelloV1}, maxBody)
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

// ask sends a request, with a proof for each session, and reads its answer up to a limit; cut: it is longer. An answer
// that streams is left to the caller. The error is [errConnectionGone] or a failure.
func (k *clientConn) ask(ctx context.Context, r request, limit int, sessions ...*session) (res *http.Response,
	text []byte, cut bool, err error) {
	defer func() {
		if err != nil && !errors.Is(err, errConnectionGone) {
			err = k.client.connFailure(ctx, r.stage, err)
		}
	}()
	req, err := http.NewRequestWithContext(ctx, r.method, k.client.base+r.path, bytes.NewReader(r.body))
	if err != nil {
		return nil, nil, false, err
	}
	req.Header.Set("Content-Type", "application/json")
	if len(sessions) > 0 {
		p := proof{count: sessions[0].count, digest: digest(r.body)}
		for _, s := range sessions {
			p.macs = append(p.macs, s.ofRequest(r.method, req.URL.RequestURI(), p.count, p.digest))
		}
		req.Header.Set(headerProof, p.String())
	}
	if res, err = k.http.Do(req); err != nil || r.streams && res.StatusCode == http.StatusOK {
		return res, nil, false, err
	}
	defer res.Body.Close()
	text, err = io.ReadAll(io.LimitReader(res.Body, int64(limit)+1))
	return res, text[:min(len(text), limit)], len(text) > limit, err
}

// exchange sends a request and returns its answer, whatever its status.
func (k *clientConn) exchange(ctx context.Context, req request) (*response, error) {
	var sessions []*session
	if k.session != nil {
		k.session.count++
		sessions = []*session{k.session}
	}
	res, text, cut, err := k.ask(ctx, req, maxBody, sessions...)
	switch {
	case err != nil:
		return nil, err
	case req.streams && res.StatusCode == http.StatusOK:
		if k.session != nil && !k.session.proves(res, digestOfStream) {
			res.Body.Close()
			return nil, unprovenFailure(req.stage, res, nil)
		}
		return &response{Response: res, events: newEventReader(res.Body, k.session, res.Request.URL.RequestURI())}, nil
	case cut:
		return nil, req.fail(failure.Protocol, "an answer of more than %d bytes to %s %s", maxBody, req.method,
			req.path)
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
