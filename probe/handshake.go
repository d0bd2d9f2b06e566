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
	"strings"
	"sync"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
)

// protocolVersion is that of the control channel. Later versions of railscope add
// optional fields to its messages and keep the number.
const protocolVersion = 2

// maxChallenge bounds the one message that is read from strangers, and its
// answer: room for fields that later versions add.
const maxChallenge = 4 << 10

// How a target wants peers to prove who they are.
const (
	proofToken = "token"
	proofNone  = "none" // by the certificate, or not at all
)

// challengeRequest begins every connection. It says nothing of its sender.
type challengeRequest struct {
	Version int    `json:"version"`
	Nonce   []byte `json:"nonce"`   // 32 bytes
	Address string `json:"address"` // that was dialled; for a good error only, keys are made of what each end sees
}

// challengeReply is what anyone may know of a target.
type challengeReply struct {
	Version int    `json:"version"`
	Nonce   []byte `json:"nonce"` // 32 bytes
	Proof   string `json:"proof"` // what it wants of peers: token or none
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

// targetConn is what the target knows of one connection. All that it keeps of
// strangers is here, so it is bounded by the connections, and gone with them.
type targetConn struct {
	local netip.AddrPort // at which the asker reached this node

	mu      sync.Mutex // protects all following fields
	pending *binding   // after a challenge, until it is answered
	session *session   // once the asker has proved that it has the token
}

type targetConnKey struct{}

// withTargetConn is for [http.Server.ConnContext].
func withTargetConn(ctx context.Context, c net.Conn) context.Context {
	local, _ := netip.ParseAddrPort(c.LocalAddr().String())
	return context.WithValue(ctx, targetConnKey{}, &targetConn{local: plainAddress(local)})
}

// trackConnections lets a server remember of each connection who is at its other
// end, and keeps it at one request at a time on each.
func trackConnections(srv *http.Server) {
	before := srv.ConnContext
	srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if before != nil {
			ctx = before(ctx, c)
		}
		return withTargetConn(ctx, c)
	}
	srv.DisableGeneralOptionsHandler = true // strangers get no answer but those of this package
	srv.Protocols = new(http.Protocols)
	srv.Protocols.SetHTTP1(true)
}

// turnAway refuses a request that nobody has proved, and its connection.
func (r *Responder) reject(w http.ResponseWriter, req *http.Request, reason string, status int, f *failure.Failure) {
	if reason != alreadyCounted {
		r.node.refused.Count(reason, req.RemoteAddr)
	}
	w.Header().Set("Connection", "close") // a stranger holds none of the few connections
	writeFailure(w, status, f)
}

func unauthorized(format string, args ...any) *failure.Failure {
	return failure.New(failure.StageHello, failure.Unauthorized, format, args...)
}

// greet answers a challenge. It reads no secret and keeps one nonce for the
// connection, so it costs little however many ask.
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
		r.reject(w, req, reason, http.StatusBadRequest, failure.New(failure.StageHello, failure.Protocol,
			"the peer does not understand the request: %v", err))
		return
	}
	if ask.Version != protocolVersion {
		r.reject(w, req, refusedVersion, http.StatusBadRequest, failure.New(failure.StageHello, failure.Protocol,
			"peer speaks protocol version %d, this node %d: install the same version of railscope on both",
			protocolVersion, ask.Version))
		return
	}
	reply := challengeReply{Version: protocolVersion, Nonce: newNonce(), Proof: proofNone}
	if conn, _ := req.Context().Value(targetConnKey{}).(*targetConn); r.creds.TokenFile != "" && conn != nil {
		dialled, _ := netip.ParseAddrPort(ask.Address)
		if plainAddress(dialled) != conn.local {
			r.reject(w, req, refusedUnauthorized, http.StatusConflict, unauthorized(
				"the connection was made to %.64q and reached the peer at another address: "+
					"with a token nothing between two nodes may translate addresses or act as proxy; "+
					"probe the node's own address", ask.Address))
			return
		}
		reply.Proof = proofToken
		conn.mu.Lock()
		conn.session, conn.pending = nil, &binding{asker: ask.Nonce, target: reply.Nonce, address: conn.local}
		conn.mu.Unlock()
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	writeJSON(w, reply)
}

// admit lets a request pass if its sender has proved that it is a peer, and answers it otherwise. What the handler then
// answers to the writer that it returns is proved to the sender by finish.
func (r *Responder) authenticate(
	w http.ResponseWriter, req *http.Request,
) (signed http.ResponseWriter, finish func(), ok bool) {
	if err := r.creds.checkCertificate(req.TLS); err != nil {
		r.reject(w, req, refusedUnauthorized, http.StatusUnauthorized, unauthorized("%v", err))
		return nil, nil, false
	}
	if r.creds.TokenFile == "" {
		prove(req.Context())
		return w, func() {}, r.readBody(w, req, "")
	}
	conn, _ := req.Context().Value(targetConnKey{}).(*targetConn)
	p, err := parseProof(req.Header.Get(headerProof))
	if conn == nil || err != nil {
		r.reject(w, req, refusedUnauthorized, http.StatusUnauthorized, unauthorized(
			"the request does not prove a token: both ends need the same token_file"))
		return nil, nil, false
	}
	list, err := r.creds.tokens()
	if err != nil { // where the file lies is no business of those who have not proved the token
		r.reject(w, req, refusedUnauthorized, http.StatusUnauthorized,
			unauthorized("the peer cannot use its own token_file"))
		return nil, nil, false
	}
	s := conn.authenticate(req, p, list)
	if s == nil {
		r.reject(w, req, refusedUnauthorized, http.StatusUnauthorized,
			unauthorized("the token is not this node's: both ends need the same token_file"))
		return nil, nil, false
	}
	prove(req.Context())
	out := &signedWriter{ResponseWriter: w, session: s, method: req.Method, path: req.RequestURI, count: p.count}
	if !r.readBody(out, req, p.digest) {
		out.finish()
		return nil, nil, false
	}
	return out, out.finish, true
}

// admit returns the session of a proved request, nil if it is not. The first request on a connection chooses the token.
// A failed proof costs the challenge and the session: whoever made it has to begin anew.
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
	want := s.ofRequest(req.Method, req.RequestURI, p.count, p.digest)
	for i, mac := range p.macs {
		if (i == 0 || req.URL.Path == pathProve) && hmac.Equal(mac, want) {
			s.count++
			c.session = s
			return s
		}
	}
	return nil
}

// chosen returns the session of the token that proves the request, of those that this node has; nil if none does.
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
		want := s.ofRequest(req.Method, req.RequestURI, p.count, p.digest)
		for _, mac := range p.macs {
			if hmac.Equal(mac, want) {
				return s
			}
		}
	}
	return nil
}

// exporterLabel binds a session to the TLS connection it runs over (RFC 9266 does the same for other protocols).
const exporterLabel = "EXPORTER-railscope-probe-2"

func (t tokens) contains(token string) bool {
	found := false
	for _, other := range t {
		if hmac.Equal([]byte(other), []byte(token)) {
			found = true
		}
	}
	return found
}

// readBody reads the body of a request whose sender is known, and refuses one that is too large or not what was proved.
func (r *Responder) readBody(w http.ResponseWriter, req *http.Request, want string) bool {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	if err == nil && want != "" && digest(body) != want {
		err = fmt.Errorf("the body is not the one that was proved")
	}
	if err != nil {
		w.Header().Set("Connection", "close")
		writeFailure(w, http.StatusBadRequest, failure.New(failure.StageLease, failure.Protocol,
			"the peer does not understand the request: %v", err))
		return false
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	// From here on the server reads only to see whether the asker is still there.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	return true
}

// signedWriter keeps an answer until it is whole, and sends it with its proof.
type signedWriter struct {
	http.ResponseWriter
	session      *session
	method, path string
	count        uint64 // of the request

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

// stream lets what is written leave at once. Each line then has its own proof.
func (s *signedWriter) stream() {
	s.WriteHeader(http.StatusOK)
	s.streams = true
	s.sendHeader(digestOfStream)
}

// head sends the header.
func (s *signedWriter) sendHeader(digest string) {
	mac := s.session.ofAnswer(s.method, s.path, s.count, s.status, digest)
	s.Header().Set(headerProof, proof{s.count, digest, [][]byte{mac}}.String())
	s.ResponseWriter.WriteHeader(s.status)
}

// line returns an event as a line of the stream, with its proof.
func (s *signedWriter) line(event []byte) leaseLine {
	s.lines++
	return leaseLine{Event: event, Proof: fmt.Sprintf("%x", s.session.ofEvent(s.path, s.count, s.lines, event))}
}

// finish sends what was kept.
func (s *signedWriter) finish() {
	if s.streams {
		return
	}
	s.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(s.ResponseWriter).SetWriteDeadline(time.Now().Add(requestTime))
	s.sendHeader(digest(s.body.Bytes()))
	_, _ = s.ResponseWriter.Write(s.body.Bytes()) // the asker is gone: it will not miss the answer
}

// isV1 reports whether a path is of the protocol before this one.
func isV1(path string) bool { return path == "/v1" || strings.HasPrefix(path, "/v1/") }
