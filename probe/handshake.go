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
	"slices"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/connlimit"
	"github.com/railscope/railscope/probe/internal/failure"
)

// protocolVersion is that of the control channel. Later versions of railscope add optional fields to its messages and
// keep the number.
const protocolVersion = 3

// maxChallenge is the size limit of the one message that is read from strangers, and of its answer: room for fields
// that later versions add.
const maxChallenge = 4 << 10

// What a target requires of peers.
const (
	proofToken = "token"
	proofNone  = "none" // a certificate, or nothing
)

// exporterLabel binds a session to its TLS connection (as RFC 9266 does for other protocols).
const exporterLabel = "EXPORTER-railscope-probe-3"

// challengeRequest begins every connection. It says nothing about its sender.
type challengeRequest struct {
	Version int    `json:"version"`
	Nonce   []byte `json:"nonce"`   // 32 bytes
	Address string `json:"address"` // that was dialled; for a clear error only, keys depend on what each end sees
}

// challengeReply is what a target answers to anyone, without proof.
type challengeReply struct {
	Version int    `json:"version"`
	Nonce   []byte `json:"nonce"` // 32 bytes
	Proof   string `json:"proof"` // that it requires of peers: token or none
}

func (c *challengeRequest) check() error {
	if c.Version < 1 || len(c.Nonce) != nonceSize || len(c.Address) > maxText {
		return fmt.Errorf("version %d, a nonce of %d bytes, an address of %d", c.Version, len(c.Nonce), len(c.Address))
	}
	return nil
}

func (c *challengeReply) check() error {
	if c.Version < 1 ||
		c.Version == protocolVersion && (len(c.Nonce) != nonceSize || c.Proof != proofToken && c.Proof != proofNone) {
		return fmt.Errorf("version %d, a nonce of %d bytes, proof %.40q", c.Version, len(c.Nonce), c.Proof)
	}
	return nil
}

// targetConn is what the target knows of one connection. Everything that it keeps of strangers is here: the limit of
// connections bounds it.
type targetConn struct {
	limited *connlimit.Conn
	local   netip.AddrPort // at which the asker reached this node

	mu      sync.Mutex // protects all following fields
	pending *binding   // after a challenge, until it is answered
	session *session   // after the asker has proved the token
}

type targetConnKey struct{}

// withTargetConn is for [http.Server.ConnContext].
func withTargetConn(ctx context.Context, c net.Conn) context.Context {
	local, _ := netip.ParseAddrPort(c.LocalAddr().String())
	return context.WithValue(ctx, targetConnKey{},
		&targetConn{limited: connlimit.Of(c), local: plainAddress(local)})
}

func targetConnOf(req *http.Request) *targetConn {
	return req.Context().Value(targetConnKey{}).(*targetConn)
}

// reject answers a request of a stranger, and closes its connection, of which there are few.
func (r *Responder) reject(w http.ResponseWriter, req *http.Request, reason string, status int, f *failure.Failure) {
	if reason != alreadyCounted {
		r.node.refused.Count(reason, req.RemoteAddr)
	}
	w.Header().Set("Connection", "close")
	write(w, status, f)
}

func unauthorized(format string, args ...any) *failure.Failure {
	return failure.New(failure.StageHello, failure.Unauthorized, format, args...)
}

// answerChallenge answers a challenge. It reads no secret and keeps one nonce per connection, so it costs little
// however many ask.
func (r *Responder) answerChallenge(w http.ResponseWriter, req *http.Request) {
	var ask challengeRequest
	reason := refusedMalformed
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxChallenge))
	if err == nil {
		err = json.Unmarshal(body, &ask)
	} else if !errors.As(err, new(*http.MaxBytesError)) {
		reason = alreadyCounted
	}
	if err == nil {
		err = ask.check()
	}
	if err != nil {
		r.reject(w, req, reason, http.StatusBadRequest, malformed(failure.StageHello, err))
		return
	}
	if ask.Version != protocolVersion { // it skips its round
		r.node.refused.Count(refusedVersion, req.RemoteAddr)
		w.Header().Set("Connection", "close")
		write(w, http.StatusOK, challengeReply{Version: protocolVersion})
		return
	}
	reply := challengeReply{Version: protocolVersion, Nonce: newNonce(), Proof: proofNone}
	if conn := targetConnOf(req); r.creds.TokenFile != "" {
		dialled, _ := netip.ParseAddrPort(ask.Address)
		if plainAddress(dialled) != conn.local {
			r.reject(w, req, refusedUnauthorized, http.StatusConflict, unauthorized(
				"the connection was made to %.64q and reached the peer at another address: "+
					"with a token, nothing between two nodes may translate addresses or act as a proxy; "+
					"probe the node's own address", ask.Address))
			return
		}
		reply.Proof = proofToken
		conn.mu.Lock()
		conn.session, conn.pending = nil, &binding{asker: ask.Nonce, target: reply.Nonce, address: conn.local}
		conn.mu.Unlock()
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	write(w, http.StatusOK, reply)
}

// authenticate passes a request to next if its sender has proved to be a peer, and refuses it otherwise. With a token,
// what next writes is sent with this node's proof.
func (r *Responder) authenticate(w http.ResponseWriter, req *http.Request, next http.Handler) {
	reject := func(format string, args ...any) {
		r.reject(w, req, refusedUnauthorized, http.StatusUnauthorized, unauthorized(format, args...))
	}
	if err := r.creds.checkCertificate(req.TLS); err != nil {
		reject("%v", err)
		return
	}
	conn := targetConnOf(req)
	if r.creds.TokenFile == "" {
		conn.limited.Prove()
		if r.readBody(w, req, "") {
			next.ServeHTTP(w, req)
		}
		return
	}
	p, err := parseProof(req.Header.Get(headerProof))
	if err != nil {
		reject("the request does not prove a token: both ends need the same token_file")
		return
	}
	list, err := r.creds.tokens(r.creds.TokenFile)
	if err != nil { // whose path is not for those who have not proved the token
		reject("the peer cannot use its own token_file")
		return
	}
	s := conn.authenticate(req, p, list)
	if s == nil {
		reject("the token is not this node's: both ends need the same token_file")
		return
	}
	conn.limited.Prove()
	out := &signedWriter{ResponseWriter: w, session: s, method: req.Method, path: req.RequestURI}
	if r.readBody(out, req, p.digest) {
		next.ServeHTTP(out, req)
	}
	out.finish()
}

// authenticate returns the session of a proved request, nil if it is not. The first request on a connection chooses the
// token. A failed proof costs the challenge and the session: the sender has to begin anew.
func (c *targetConn) authenticate(req *http.Request, p proof, list tokens) *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, pending := c.session, c.pending
	c.session, c.pending = nil, nil
	if pending != nil && req.URL.Path == pathProve {
		s = pending.matchToken(req, p, list)
	}
	if s == nil || len(p.macs) == 0 || !list.contains(s.token) || p.count != s.count+1 || p.digest == digestOfStream {
		return nil
	}
	macs := p.macs
	if req.URL.Path != pathProve {
		macs = macs[:1]
	}
	if !s.provesRequest(req, p, macs) {
		return nil
	}
	s.count++
	c.session = s
	return s
}

func (s *session) provesRequest(req *http.Request, p proof, macs [][]byte) bool {
	want := s.ofRequest(req.Method, req.RequestURI, p.count, p.digest)
	return slices.ContainsFunc(macs, func(mac []byte) bool { return hmac.Equal(mac, want) })
}

// matchToken returns the session of the token of this node that proves the request; nil if none does.
func (b binding) matchToken(req *http.Request, p proof, list tokens) *session {
	if req.TLS != nil {
		material, err := req.TLS.ExportKeyingMaterial(exporterLabel, nil, keySize)
		if err != nil {
			return nil
		}
		b.tls = material
	}
	for _, token := range list {
		s, err := b.session(token)
		if err != nil {
			return nil
		}
		if s.provesRequest(req, p, p.macs) {
			return s
		}
	}
	return nil
}

// contains compares all tokens in constant time.
func (t tokens) contains(token string) bool {
	found := false
	for _, other := range t {
		if hmac.Equal([]byte(other), []byte(token)) {
			found = true
		}
	}
	return found
}

// readBody reads the body of an authenticated request, and refuses one that is too large or not what was proved.
func (r *Responder) readBody(w http.ResponseWriter, req *http.Request, want string) bool {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	if err == nil && want != "" && digest(body) != want {
		err = fmt.Errorf("the body is not the one that was proved")
	}
	if err != nil {
		w.Header().Set("Connection", "close")
		write(w, http.StatusBadRequest, malformed(failure.StageLease, err))
		return false
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	// From here on the server reads only to notice that the asker is gone.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	return true
}

// signedWriter buffers an answer, and sends it with its proof.
type signedWriter struct {
	http.ResponseWriter
	session      *session
	method, path string

	status  int
	body    bytes.Buffer
	streams bool
	lines   uint64
}

// Unwrap is for [http.ResponseController].
func (s *signedWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// WriteHeader keeps the status.
func (s *signedWriter) WriteHeader(status int) {
	if s.status == 0 {
		s.status = status
	}
}

func (s *signedWriter) Write(b []byte) (int, error) {
	s.WriteHeader(http.StatusOK)
	if s.streams {
		return s.ResponseWriter.Write(b)
	}
	return s.body.Write(b)
}

// stream sends what is written at once. Each line then has its own proof.
func (s *signedWriter) stream() {
	s.WriteHeader(http.StatusOK)
	s.streams = true
	s.sendHeader(digestOfStream)
}

func (s *signedWriter) sendHeader(digest string) {
	mac := s.session.ofAnswer(s.method, s.path, s.session.count, s.status, digest)
	s.Header().Set(headerProof, proof{s.session.count, digest, [][]byte{mac}}.String())
	s.ResponseWriter.WriteHeader(s.status)
}

func (s *signedWriter) line(event []byte) leaseLine {
	s.lines++
	return leaseLine{Event: event, Proof: fmt.Sprintf("%x", s.session.ofEvent(s.path, s.session.count, s.lines, event))}
}

func (s *signedWriter) finish() {
	if s.streams {
		return
	}
	s.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(s.ResponseWriter).SetWriteDeadline(time.Now().Add(requestTime))
	s.sendHeader(digest(s.body.Bytes()))
	_, _ = s.ResponseWriter.Write(s.body.Bytes()) // on an error the asker is gone
}
