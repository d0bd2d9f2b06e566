package probe

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/certtest"
	"github.com/railscope/railscope/probe/internal/auth"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/target"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// secretToken is distinctive text that a test can search for.
const secretToken = "correct-horse-battery-staple-4711"

// wiretap is a listener that records the bytes of its connections, and may change them. Both ends see real addresses.
type wiretap struct {
	net.Listener
	mu      sync.Mutex
	answers func([]byte) []byte // changes the target's answers; nil: unchanged; protected by mu
	heard   bytes.Buffer        // bytes of both directions
	asked   bytes.Buffer        // bytes from the asker
}

type tappedConn struct {
	net.Conn
	t *wiretap
}

func (t *wiretap) Accept() (net.Conn, error) {
	c, err := t.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &tappedConn{c, t}, nil
}

func (c *tappedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	c.t.heard.Write(b[:n])
	c.t.asked.Write(b[:n])
	return n, err
}

func (c *tappedConn) Write(b []byte) (int, error) {
	c.t.mu.Lock()
	c.t.heard.Write(b)
	out := b
	if c.t.answers != nil {
		out = c.t.answers(bytes.Clone(b))
	}
	c.t.mu.Unlock()
	if _, err := c.Conn.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (t *wiretap) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.heard.String()
}

// answeringTapped starts a node's responder, and records the bytes on the wire.
func answeringTapped(t *testing.T, n *node.Node, sec options.Security) (peer string, wire *wiretap) {
	t.Helper()
	opts := options.DefaultOptions()
	opts.Security = sec
	r, err := target.NewResponder(n, opts)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	wire = &wiretap{Listener: l}
	t.Cleanup(serve(t, r, wire, target.RequestTime))
	return l.Addr().String(), wire
}

// withToken returns a Security with its own token file.
func withToken(t *testing.T, token string) options.Security {
	t.Helper()
	return options.Security{TokenFile: file(t, filepath.Join(t.TempDir(), "token"), token)}
}

// wireConn is an asker that speaks the protocol and sends arbitrary bytes.
type wireConn struct {
	t    *testing.T
	conn *tls.Conn
	in   *bufio.Reader
}

// connectWire connects without a proof.
func connectWire(t *testing.T, peer string) *wireConn {
	t.Helper()
	conn, err := tls.Dial("tcp", peer, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	return &wireConn{t: t, conn: conn, in: bufio.NewReader(conn)}
}

// dialWire connects and proves the token.
func dialWire(t *testing.T, peer, token string) *wireConn {
	t.Helper()
	w := connectWire(t, peer)
	if res, text := w.prove(w.proof(auth.RoleAsker, token)); res.StatusCode != http.StatusOK {
		t.Fatalf("proof: %s, %s", res.Status, text)
	}
	return w
}

// proof returns a proof for this connection.
func (w *wireConn) proof(role, token string) []byte {
	w.t.Helper()
	state := w.conn.ConnectionState()
	proof, err := auth.Prove(&state, role, token)
	if err != nil {
		w.t.Fatal(err)
	}
	return proof
}

// prove sends the first message.
func (w *wireConn) prove(proofs ...[]byte) (*http.Response, []byte) {
	w.t.Helper()
	body, err := json.Marshal(protocol.ProofRequest{Version: protocol.ProtocolVersion, Proofs: proofs})
	if err != nil {
		w.t.Fatal(err)
	}
	return w.ask(http.MethodPost, protocol.PathHello, string(body))
}

// ask sends a request, and returns the answer.
func (w *wireConn) ask(method, path, body string) (*http.Response, []byte) {
	w.t.Helper()
	_, err := fmt.Fprintf(w.conn, "%s %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", method, path,
		len(body), body)
	if err != nil {
		w.t.Fatal(err)
	}
	res, err := http.ReadResponse(w.in, nil)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	text, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return res, text
}

// insecureHTTP returns a client that asks as a stranger does, over TLS.
func insecureHTTP(t *testing.T) *http.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// forms returns encodings of a token that would disclose it.
func forms(token string) map[string]string {
	hash := sha256.Sum256([]byte(token))
	return map[string]string{
		"the token": token, "its beginning": token[:12],
		"its base64":          base64.RawStdEncoding.EncodeToString([]byte(token)),
		"its base64 for URLs": base64.RawURLEncoding.EncodeToString([]byte(token)),
		"its hexadecimal":     hex.EncodeToString([]byte(token)),
		"its hash":            string(hash[:]), "its hash in hexadecimal": hex.EncodeToString(hash[:]),
		"its hash in base64": base64.RawStdEncoding.EncodeToString(hash[:]),
	}
}

// TestTokenNeverTravels: in a complete round, nothing within the control channel's TLS contains the token or allows
// computing it without a key, and nothing of the round can be read outside TLS.
func TestTokenNeverTravels(t *testing.T) {
	t.Parallel()
	p := makePair(t, 0, nil)
	p.opts.Security = withToken(t, secretToken)
	var mu sync.Mutex
	var within bytes.Buffer
	record := func(b []byte) {
		mu.Lock()
		defer mu.Unlock()
		within.Write(b)
	}
	p.b.Opts.Server = func(srv *http.Server) {
		inner := srv.Handler
		srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			var head bytes.Buffer
			_ = req.Header.Write(&head)
			record([]byte(req.Method + " " + req.RequestURI + "\r\n" + head.String()))
			req.Body = io.NopCloser(io.TeeReader(req.Body, recorder(record)))
			inner.ServeHTTP(recordingWriter{w, record}, req)
		})
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	wire := &wiretap{Listener: l}
	p.serveOn(wire)
	res := p.round()
	if res.Outcome != result.Fallback || res.Transport != result.TCP || !res.Verified {
		t.Fatalf("%s by %s because of %q: %s", res.Outcome, res.Transport, res.Reason, res.Detail)
	}
	mu.Lock()
	text := within.String()
	mu.Unlock()
	for _, part := range []string{"POST " + protocol.PathHello, `"macs"`, "GET " + protocol.PathNode, "POST " + protocol.PathLease, "/open",
		"/verify", "DELETE " + protocol.PathLease, `"tcp_port"`, `"key"`} {
		if !strings.Contains(text, part) {
			t.Errorf("there is no %q in what was exchanged: not a whole round", part)
		}
		if strings.Contains(wire.text(), part) {
			t.Errorf("%q went over the wire in the clear", part)
		}
	}
	for what, never := range forms(secretToken) {
		if strings.Contains(text, never) || strings.Contains(wire.text(), never) {
			t.Errorf("%s was sent", what)
		}
	}
	if strings.Contains(text, "Authorization") {
		t.Error("a bearer was sent")
	}
}

// recorder is a function that implements io.Writer.
type recorder func([]byte)

func (r recorder) Write(b []byte) (int, error) { r(b); return len(b), nil }

// recordingWriter records an answer.
type recordingWriter struct {
	http.ResponseWriter
	record func([]byte)
}

func (w recordingWriter) Write(b []byte) (int, error) { w.record(b); return w.ResponseWriter.Write(b) }

// Unwrap is for [http.ResponseController].
func (w recordingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// TestProofs: no proof can replace another: not that of the other end, of another connection or of another token.
func TestProofs(t *testing.T) {
	t.Parallel()
	peer := answering(t, bareNode(t, "b"), withToken(t, secretToken))
	seen := map[string]string{}
	for _, connection := range []string{"one", "another"} {
		w := connectWire(t, peer)
		for _, role := range []string{auth.RoleAsker, auth.RoleTarget} {
			for _, token := range []string{secretToken, secretToken + "x"} {
				proof := string(w.proof(role, token))
				what := strings.Join([]string{connection, role, token}, ", ")
				if before, ok := seen[proof]; ok || len(proof) != protocol.ProofSize ||
					proof != string(w.proof(role, token)) {
					t.Errorf("%s: %d bytes, as those of %q", what, len(proof), before)
				}
				seen[proof] = what
			}
		}
	}
}

// TestReplay: recorded requests, complete and in order, are worthless later.
func TestReplay(t *testing.T) {
	t.Parallel()
	sec := withToken(t, secretToken)
	n := bareNode(t, "b")
	var requests atomic.Int32
	n.Opts.Server = func(srv *http.Server) {
		inner := srv.Handler
		srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			requests.Add(1)
			inner.ServeHTTP(w, req)
		})
	}
	peer, wire := answeringTapped(t, n, sec)
	if h, f := askHello(t, peer, sec); f != nil || h.Node != "b" {
		t.Fatal(f)
	}
	wire.mu.Lock()
	recorded := bytes.Clone(wire.asked.Bytes())
	wire.mu.Unlock()
	before := requests.Load()
	if before != 2 || len(recorded) < 500 {
		t.Fatalf("recorded %d bytes of %d requests", len(recorded), before)
	}
	conn, err := net.Dial("tcp", peer)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := conn.Write(recorded); err != nil {
		t.Fatal(err)
	}
	_, _ = io.ReadAll(conn) // the end may be a reset, which loses data
	if requests.Load() != before {
		t.Errorf("a replayed connection has %d requests", requests.Load()-before)
	}
}

// TestNoResumption: a connection does not continue the TLS session of another, whose peer may no longer be accepted.
func TestNoResumption(t *testing.T) {
	t.Parallel()
	for why, sec := range map[string]options.Security{"token": withToken(t, secretToken),
		"certificate": certtest.NewAuthority(t).Issue(t.TempDir(), "b")} {
		sec.ClientCAFile = ""
		sec.Insecure = sec.TokenFile == ""
		peer := answering(t, bareNode(t, "b"), sec)
		conf := &tls.Config{InsecureSkipVerify: true, ClientSessionCache: tls.NewLRUClientSessionCache(8)}
		for range 2 {
			conn, err := tls.Dial("tcp", peer, conf)
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
			_, _ = io.WriteString(conn, "GET /v2/node HTTP/1.0\r\n\r\n")
			_, _ = io.ReadAll(conn) // session tickets precede the answer
			if conn.ConnectionState().DidResume {
				t.Errorf("%s: resumed", why)
			}
			conn.Close()
		}
	}
}
