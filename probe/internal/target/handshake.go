package target

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
)

type targetConnKey struct{}

// WithTargetConn is for [http.Server.ConnContext].
func WithTargetConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, targetConnKey{}, c)
}

func targetConnOf(req *http.Request) *Conn {
	return req.Context().Value(targetConnKey{}).(*Conn)
}

// reject answers a request of a stranger, and closes its connection, of which there are few.
func (r *Responder) reject(w http.ResponseWriter, req *http.Request, reason string, status int, f *failure.Failure) {
	if reason != node.AlreadyCounted {
		r.Node.Refused.Count(reason, req.RemoteAddr)
	}
	w.Header().Set("Connection", "close")
	Write(w, status, f)
}

func (r *Responder) unauthorized(w http.ResponseWriter, req *http.Request, format string, args ...any) {
	r.reject(w, req, node.RefusedUnauthorized, http.StatusUnauthorized,
		failure.New(failure.StageHello, failure.Unauthorized, format, args...))
}

// answerProof answers the first message of a connection.
func (r *Responder) answerProof(w http.ResponseWriter, req *http.Request) {
	var ask protocol.ProofRequest
	reason := node.RefusedMalformed
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, protocol.MaxProof))
	if err == nil {
		err = json.Unmarshal(body, &ask)
	} else if !errors.As(err, new(*http.MaxBytesError)) {
		reason = node.AlreadyCounted
	}
	if err == nil {
		err = ask.Check()
	}
	if err != nil {
		r.reject(w, req, reason, http.StatusBadRequest, malformed(failure.StageHello, err))
		return
	}
	conn := targetConnOf(req)
	state := conn.state()
	if ask.Version != protocol.ProtocolVersion || state == nil { // it skips its round
		r.Node.Refused.Count(node.RefusedVersion, req.RemoteAddr)
		w.Header().Set("Connection", "close")
		Write(w, http.StatusOK, protocol.ProofReply{Version: protocol.ProtocolVersion})
		return
	}
	if err := r.Creds.CheckCertificate(state); err != nil {
		r.unauthorized(w, req, "%v", err)
		return
	}
	reply := protocol.ProofReply{Version: protocol.ProtocolVersion, Address: protocol.PlainAddress(conn.LocalAddr())}
	if r.Creds.TokenFile != "" {
		list, err := r.Creds.Tokens(r.Creds.TokenFile)
		if err != nil { // whose path is not for those who have not proved the token
			r.unauthorized(w, req, "the peer cannot use its own token_file: both ends need the same token_file")
			return
		}
		conn.token, reply.Proof = list.Match(state, ask.Proofs)
		if conn.token == "" {
			r.unauthorized(w, req, "the token is not this node's: both ends need the same token_file")
			return
		}
	}
	conn.Prove()
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	Write(w, http.StatusOK, reply)
}

// authenticate passes a request to next if its sender has proved to be a peer, by the certificates and tokens that are
// accepted now, and refuses it otherwise.
func (r *Responder) authenticate(w http.ResponseWriter, req *http.Request, next http.Handler) {
	conn := targetConnOf(req)
	state := conn.state()
	if state == nil {
		r.unauthorized(w, req, "the peer answers only over TLS (protocol version %d)", protocol.ProtocolVersion)
		return
	}
	if err := r.Creds.CheckCertificate(state); err != nil {
		r.unauthorized(w, req, "%v", err)
		return
	}
	if r.Creds.TokenFile != "" {
		if conn.token == "" {
			r.unauthorized(w, req, "the connection does not prove a token: both ends need the same token_file")
			return
		}
		list, err := r.Creds.Tokens(r.Creds.TokenFile)
		if err != nil || !list.Contains(conn.token) {
			r.unauthorized(w, req, "the token is not this node's: both ends need the same token_file")
			return
		}
	}
	conn.Prove()
	if r.readBody(w, req) {
		next.ServeHTTP(w, req)
	}
}

// readBody reads the body of an authenticated request, and refuses one that is too large.
func (r *Responder) readBody(w http.ResponseWriter, req *http.Request) bool {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, protocol.MaxBody))
	if err != nil {
		w.Header().Set("Connection", "close")
		Write(w, http.StatusBadRequest, malformed(failure.StageLease, err))
		return false
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	// From here on the server reads only to notice that the asker is gone.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	return true
}
