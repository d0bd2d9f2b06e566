package probe

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
)

// secretToken is one that can be searched for.
const secretToken = "correct-horse-battery-staple-4711"

// wiretap is a listener that records the bytes of its connections, and may change them. Both ends see real addresses.
type wiretap struct {
	net.Listener
	answers func([]byte) []byte // changes what the target sends; nil: nothing

	mu    sync.Mutex
	heard bytes.Buffer // everything, in both directions
	asked bytes.Buffer // what the asker sent
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
	change := c.t.answers
	c.t.mu.Unlock()
	out := b
	if change != nil {
		out = change(bytes.Clone(b))
	}
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

// answeringTapped lets a node answer, and records the bytes on the wire.
func answeringTapped(t *testing.T, n *Node, sec Security) (peer string, wire *wiretap) {
	t.Helper()
	opts := DefaultOptions()
	opts.Security = sec
	r, err := NewResponder(n, opts)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	wire = &wiretap{Listener: l}
	serve(t, r, wire)
	return l.Addr().String(), wire
}

// withToken is a Security with its own token.
func withToken(t *testing.T, token string) Security {
	t.Helper()
	return Security{TokenFile: file(t, filepath.Join(t.TempDir(), "token"), token)}
}

// wireConn is an asker that knows the protocol and sends arbitrary bytes.
type wireConn struct {
	t       *testing.T
	conn    net.Conn
	in      *bufio.Reader
	session *session
}

// dialWire connects and proves the token.
func dialWire(t *testing.T, peer, token string) *wireConn {
	t.Helper()
	conn, err := net.Dial("tcp", peer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	w := &wireConn{t: t, conn: conn, in: bufio.NewReader(conn)}
	ask := challengeRequest{Version: protocolVersion, Nonce: newNonce(), Address: peer}
	body, err := json.Marshal(ask)
	if err != nil {
		t.Fatal(err)
	}
	var there challengeReply
	if res, text := w.send(http.MethodPost, pathHello, string(body), ""); json.Unmarshal(text,
		&there) != nil || there.check() != nil {
		t.Fatalf("challenge: %s, %s", res.Status, text)
	}
	w.session = mustSession(t, binding{asker: ask.Nonce, target: there.Nonce, address: netip.MustParseAddrPort(peer)},
		token)
	if res, text := w.ask(http.MethodPost, pathProve, "{}"); res.StatusCode != http.StatusOK {
		t.Fatalf("proof: %s, %s", res.Status, text)
	}
	return w
}

// send sends a request with a proof header, and returns the answer.
func (w *wireConn) send(method, path, body, proof string) (*http.Response, []byte) {
	w.t.Helper()
	if _, err := fmt.Fprintf(w.conn, "%s %s HTTP/1.1\r\nHost: x\r\n%s: %s\r\nContent-Length: %d\r\n\r\n%s", method,
		path, headerProof, proof, len(body), body); err != nil {
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

// proofOf is the correct proof of the next request.
func (w *wireConn) proofOf(method, path, body string) proof {
	count := w.session.count + 1
	return proof{count, digest([]byte(body)), [][]byte{w.session.ofRequest(method, path, count, digest([]byte(body)))}}
}

// ask sends a correct request.
func (w *wireConn) ask(method, path, body string) (*http.Response, []byte) {
	w.t.Helper()
	p := w.proofOf(method, path, body)
	w.session.count++
	return w.send(method, path, body, p.String())
}

// TestTokenNeverTravels: in a whole round, nothing on the control channel is the token, allows computing it without a
// key, or opens the lease's TCP port.
func TestTokenNeverTravels(t *testing.T) {
	t.Parallel()
	p := makePair(t, 0, nil)
	p.opts.Security = withToken(t, secretToken)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	wire := &wiretap{Listener: l}
	p.serveOn(wire)
	res := p.round()
	if res.Outcome != Fallback || res.Transport != TCP || !res.Verified {
		t.Fatalf("%s by %s because of %q: %s", res.Outcome, res.Transport, res.Reason, res.Detail)
	}
	text := wire.text()
	for _, want := range []string{"POST " + pathHello, "POST " + pathProve, "GET " + pathNode, "POST " + pathLease,
		"/open", "/verify", "DELETE " + pathLease, `"tcp_port"`} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in what was heard: not a whole round", want)
		}
	}
	hash := sha256.Sum256([]byte(secretToken))
	for what, never := range map[string]string{
		"the token": secretToken, "its beginning": secretToken[:12],
		"its base64":          base64.RawStdEncoding.EncodeToString([]byte(secretToken)),
		"its base64 for URLs": base64.RawURLEncoding.EncodeToString([]byte(secretToken)),
		"its hexadecimal":     hex.EncodeToString([]byte(secretToken)),
		"its hash":            string(hash[:]), "its hash in hexadecimal": hex.EncodeToString(hash[:]),
		"its hash in base64": base64.RawStdEncoding.EncodeToString(hash[:]),
		"a lease's key":      `"key"`, "a bearer": "Authorization",
	} {
		if strings.Contains(text, never) {
			t.Errorf("%s went over the wire", what)
		}
	}
}

// TestTamperedRequests: a request that differs in any byte from the next one of a peer with the token is refused, has
// no effect, and ends the session.
func TestTamperedRequests(t *testing.T) {
	t.Parallel()
	n := bareNode(t, "b")
	peer, wire := answeringTapped(t, n, withToken(t, secretToken))
	other := dialWire(t, peer, secretToken)
	const lease = `{"node":"c","instance":"c","rail_seconds":1e-9}`
	for _, tc := range []struct {
		why  string
		send func(w *wireConn) (*http.Response, []byte)
	}{
		{"no proof", func(w *wireConn) (*http.Response, []byte) { return w.send("POST", pathLease, lease, "") }},
		{"no MAC", func(w *wireConn) (*http.Response, []byte) {
			return w.send("POST", pathLease, lease, "3 "+digest([]byte(lease)))
		}},
		{"another path", func(w *wireConn) (*http.Response, []byte) {
			return w.send("POST", pathLease, lease, w.proofOf("POST", pathNode, lease).String())
		}},
		{"a query", func(w *wireConn) (*http.Response, []byte) {
			return w.send("POST", pathLease+"?x", lease, w.proofOf("POST", pathLease, lease).String())
		}},
		{"another method", func(w *wireConn) (*http.Response, []byte) {
			return w.send("POST", pathLease, lease, w.proofOf("GET", pathLease, lease).String())
		}},
		{"a replay within the session", func(w *wireConn) (*http.Response, []byte) {
			w.session.count--
			return w.send("GET", pathNode, "", w.proofOf("GET", pathNode, "").String())
		}},
		{"a request that was held back", func(w *wireConn) (*http.Response, []byte) {
			w.session.count++
			return w.send("POST", pathLease, lease, w.proofOf("POST", pathLease, lease).String())
		}},
		{"another session's", func(w *wireConn) (*http.Response, []byte) {
			other.session.count = w.session.count
			return w.send("POST", pathLease, lease, other.proofOf("POST", pathLease, lease).String())
		}},
		{"the answer of the target for a request", func(w *wireConn) (*http.Response, []byte) {
			d := digest([]byte(lease))
			return w.send("POST", pathLease, lease,
				proof{3, d, [][]byte{w.session.ofAnswer("POST", pathLease, 3, 200, d)}}.String())
		}},
		{"two MACs, the second right", func(w *wireConn) (*http.Response, []byte) {
			p := w.proofOf("POST", pathLease, lease)
			p.macs = [][]byte{make([]byte, keySize), p.macs[0]}
			return w.send("POST", pathLease, lease, p.String())
		}},
		{"a stream's proof", func(w *wireConn) (*http.Response, []byte) {
			return w.send("POST", pathLease, lease,
				proof{3, digestOfStream, [][]byte{w.session.ofRequest("POST", pathLease, 3, digestOfStream)}}.String())
		}},
		{"the proof of nobody's token", func(w *wireConn) (*http.Response, []byte) {
			d := digest([]byte(lease))
			return w.send("POST", pathLease, lease,
				proof{3, d, [][]byte{mustSession(w.t, someBinding(), "").ofRequest("POST", pathLease, 3, d)}}.String())
		}},
	} {
		w := dialWire(t, peer, secretToken)
		if res, text := w.ask("GET", pathNode,
			""); res.StatusCode != http.StatusOK || !w.session.proves(withRequest(res, "GET", pathNode), digest(text)) {
			t.Fatalf("%s: before it %s, %s", tc.why, res.Status, text)
		}
		res, text := tc.send(w)
		if res.StatusCode != http.StatusUnauthorized || !res.Close || res.Header.Get(headerProof) != "" ||
			!strings.Contains(string(text), "both ends need the same token_file") {
			t.Errorf("%s: %s, close %t, %s", tc.why, res.Status, res.Close, text)
		}
	}
	w := dialWire(t, peer, secretToken)
	p := w.proofOf("POST", pathLease, lease)
	res, text := w.send("POST", pathLease, strings.Replace(lease, "1", "9", 1), p.String())
	if res.StatusCode != http.StatusBadRequest || !strings.Contains(string(text), "not the one that was proved") {
		t.Errorf("another body: %s, %s", res.Status, text)
	}
	if holder := n.slot.holder(); holder != "" || strings.Contains(wire.text(), `"grant"`) {
		t.Errorf("a lease was granted: %q", holder)
	}
}

// withRequest sets the request of an answer.
func withRequest(res *http.Response, method, path string) *http.Response {
	res.Request, _ = http.NewRequest(method, "http://x"+path, nil)
	return res
}

// TestReplay: recorded requests, complete and in order, are worthless later.
func TestReplay(t *testing.T) {
	t.Parallel()
	sec := withToken(t, secretToken)
	peer, wire := answeringTapped(t, bareNode(t, "b"), sec)
	if h, f := askHello(t, peer, sec); f != nil || h.Node != "b" {
		t.Fatal(f)
	}
	wire.mu.Lock()
	recorded := bytes.Clone(wire.asked.Bytes())
	wire.heard.Reset()
	wire.mu.Unlock()
	if !bytes.Contains(recorded, []byte("GET "+pathNode)) {
		t.Fatalf("recorded %q", recorded)
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
	said, _ := io.ReadAll(conn) // the end may be a reset: not all was read
	if !bytes.Contains(said, []byte("401 Unauthorized")) || strings.Count(wire.text(),
		"HTTP/1.1 200 OK") != 1 || bytes.Contains(said, []byte("railscope\":")) {
		t.Errorf("a replayed session is answered with %s", wire.text())
	}
}

// TestRelay: a relay that forwards everything to the peer, or back to the asker, gains nothing.
func TestRelay(t *testing.T) {
	t.Parallel()
	sec := withToken(t, secretToken)
	for _, tc := range []struct {
		why     string
		rewrite bool // of the address, so that the target has nothing to object to
		self    bool // to the asker's own responder
		says    string
	}{
		{"as it is", false, false, "nothing between two nodes may translate addresses or act as a proxy"},
		{"with the address rewritten", true, false, "the token is not this node's"},
		{"back to the asker", true, true, "the token is not this node's"},
	} {
		t.Run(tc.why, func(t *testing.T) {
			t.Parallel()
			asker, target := bareNode(t, "asker"), bareNode(t, "railnode")
			if tc.self {
				target = asker
			}
			peer, wire := answeringTapped(t, target, sec)
			var attacker string
			attacker = strangerServer(t, func(c net.Conn) {
				up, err := net.Dial("tcp", peer)
				if err != nil {
					return
				}
				defer up.Close()
				go func() {
					buf := make([]byte, 4096)
					for {
						n, err := c.Read(buf)
						b := buf[:n]
						if tc.rewrite {
							b = bytes.ReplaceAll(b, []byte(attacker), []byte(peer)) // both ports have five digits
						}
						if _, werr := up.Write(b); err != nil || werr != nil {
							return
						}
					}
				}()
				_, _ = io.Copy(c, up)
			})
			if len(attacker) != len(peer) {
				t.Skip("the two ports differ in length")
			}
			res := Bench(t.Context(), asker, optionsWith(sec), attacker, func(Progress) {})
			if res.Outcome != Failed || res.Reason != failure.Unauthorized || !strings.Contains(res.Detail, tc.says) {
				t.Errorf("%s because of %q: %s", res.Outcome, res.Reason, res.Detail)
			}
			if text := wire.text(); strings.Contains(text, "railnode") || strings.Contains(text,
				"1.2.3") || strings.Contains(text, "asker") || strings.Contains(text, `"grant"`) ||
				tc.rewrite && !strings.Contains(text, "POST "+pathProve) {
				t.Errorf("over the wire went %s", text)
			}
		})
	}
	t.Run("certificates alone", func(t *testing.T) { // a relay cannot read what it passes on
		t.Parallel()
		dir, ca := t.TempDir(), newAuthority(t)
		peer := answering(t, bareNode(t, "b"), ca.issue(dir, "b"))
		relay := strangerServer(t, func(c net.Conn) {
			up, err := net.Dial("tcp", peer)
			if err != nil {
				return
			}
			defer up.Close()
			go func() { _, _ = io.Copy(up, c) }()
			_, _ = io.Copy(c, up)
		})
		if h, f := askHello(t, relay, ca.issue(dir, "a")); f != nil || h.Node != "b" {
			t.Errorf("%v", f)
		}
	})
}

func optionsWith(sec Security) Options {
	o := DefaultOptions()
	o.Security = sec
	return o
}

// TestAttackerOnPeersPort: an attacker on a peer's address receives a nonce, the dialled address and a proof, and no
// answer of it is believed, not even the asker's own messages.
func TestAttackerOnPeersPort(t *testing.T) {
	t.Parallel()
	sec := withToken(t, secretToken)
	for _, tc := range []struct {
		why    string
		answer func(req *http.Request, nonce []byte) (status int, nonceBack []byte, proof string)
	}{
		{"it proves nothing", func(*http.Request, []byte) (int, []byte, string) { return 200, newNonce(), "" }},
		{"it sends everything back", func(req *http.Request, nonce []byte) (int, []byte, string) {
			return 200, nonce, req.Header.Get(headerProof)
		}},
		{"it has another token", func(_ *http.Request, nonce []byte) (int, []byte, string) {
			there := newNonce()
			b := binding{asker: nonce, target: there, address: netip.MustParseAddrPort("127.0.0.1:1")}
			s, _ := b.session("mustard")
			return 200, there,
				proof{1, digest([]byte("{}")),
					[][]byte{s.ofAnswer("POST", pathProve, 1, 200, digest([]byte("{}")))}}.String()
		}},
		{"it asks the asker to skip it", func(*http.Request, []byte) (int, []byte, string) {
			return 409,
				newNonce(), ""
		}},
	} {
		t.Run(tc.why, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var heard strings.Builder
			var paths []string
			peer := strangerServer(t, func(c net.Conn) {
				in := bufio.NewReader(c)
				var nonce, back []byte
				for {
					req, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					body, _ := io.ReadAll(req.Body)
					mu.Lock()
					paths = append(paths, req.Method+" "+req.RequestURI)
					_ = req.Header.Write(&heard)
					heard.Write(body)
					mu.Unlock()
					text := "{}"
					status, proof := 200, ""
					if req.URL.Path == pathHello {
						var ask challengeRequest
						_ = json.Unmarshal(body, &ask)
						nonce = ask.Nonce
						_, back, _ = tc.answer(req, nonce)
						b, _ := json.Marshal(challengeReply{Version: protocolVersion, Nonce: back, Proof: proofToken})
						text = string(b)
					} else if status, _, proof = tc.answer(req, nonce); status == 409 {
						text = `{"stage":"lease","reason":"busy","detail":"later"}`
					}
					_, _ = fmt.Fprintf(c, "HTTP/1.1 %d X\r\n%s: %s\r\nContent-Length: %d\r\n\r\n%s", status,
						headerProof, proof, len(text), text)
				}
			})
			n := bareNode(t, "asker")
			res := Bench(t.Context(), n, optionsWith(sec), peer, func(Progress) {})
			if res.Outcome != Failed || res.Reason != failure.Unauthorized || !strings.Contains(res.Detail,
				"does not prove that the peer has this node's token") {
				t.Errorf("%s because of %q: %s", res.Outcome, res.Reason, res.Detail)
			}
			if _, _, err := FetchFacts(t.Context(), peer, sec); asFailure(t, err).Reason != failure.Unauthorized {
				t.Errorf("facts: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			if got := strings.Join(paths, ", "); got != strings.Repeat("POST /v2/hello, POST /v2/prove, ",
				2)[:len(got)] || len(paths) != 4 {
				t.Errorf("it was asked %s", got)
			}
			for _, secret := range []string{"asker", n.instance, "1.2.3", secretToken, filepath.Dir(sec.TokenFile)} {
				if strings.Contains(heard.String(), secret) {
					t.Errorf("it heard %q in %s", secret, heard.String())
				}
			}
		})
	}
}

// TestReasonsOfStrangers: whoever answers a challenge in a peer's place has proved
// nothing, so it does not choose what the round came to: not that this node met
// itself, by which a peer that was found is dropped for good, and not that data
// arrived wrong.
func TestReasonsOfStrangers(t *testing.T) {
	t.Parallel()
	sec := withToken(t, secretToken)
	for _, reason := range append(failure.Reasons(), "weather") {
		t.Run(string(reason), func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set(headerProtocol, strconv.Itoa(protocolVersion))
				write(w, http.StatusBadRequest, failure.New(failure.StageVerify, reason, "because"))
			}))
			defer srv.Close()
			peer := strings.TrimPrefix(srv.URL, "http://")
			res := Bench(t.Context(), bareNode(t, "asker"), optionsWith(sec), peer, func(Progress) {})
			want := failure.Protocol
			if reason == failure.Unauthorized {
				want = reason
			}
			if res.Outcome != Failed || res.Reason != want || res.Corrupted() || len(res.Failures) != 1 ||
				res.Failures[0].Stage != failure.StageHello {
				t.Errorf("%s because of %q: %s, failures %v", res.Outcome, res.Reason, res.Detail, res.Failures)
			}
		})
	}
}

// TestTamperedAnswers: an answer that was changed on the way is not believed.
func TestTamperedAnswers(t *testing.T) {
	t.Parallel()
	sec := withToken(t, secretToken)
	for _, tc := range []struct{ why, old, new string }{
		{"the body", `"node":"railnode"`, `"node":"evilnode"`},
		{"the status", "HTTP/1.1 200 OK", "HTTP/1.1 201 OK"},
		{"the count", headerProof + ": 2", headerProof + ": 3"},
		{"the proof is left out", headerProof, "X" + headerProof[1:]},
	} {
		t.Run(tc.why, func(t *testing.T) {
			t.Parallel()
			peer, wire := answeringTapped(t, bareNode(t, "railnode"), sec)
			wire.mu.Lock()
			wire.answers = func(b []byte) []byte {
				if !bytes.Contains(b, []byte(`"proof":"token"`)) { // not the challenge, which proves nothing
					b = bytes.ReplaceAll(b, []byte(tc.old), []byte(tc.new))
				}
				return b
			}
			wire.mu.Unlock()
			if h, f := askHello(t, peer, sec); f == nil || f.Reason != failure.Unauthorized || !strings.Contains(f.Detail,
				"does not prove") {
				t.Errorf("believed %+v: %v", h, f)
			}
		})
	}
}

// TestTamperedLeaseStream: lines of a lease's stream cannot be changed, left out,
// repeated or added.
func TestTamperedLeaseStream(t *testing.T) {
	t.Parallel()
	s := mustSession(t, someBinding(), "sesame")
	s.count = 4
	out := signedWriter{session: s, path: pathLease}
	line := func(e leaseEvent) string {
		event, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(out.line(event))
		if err != nil {
			t.Fatal(err)
		}
		return string(b) + "\n"
	}
	granted := line(leaseEvent{Grant: &grant{ID: "ABC", TTL: leaseTTL}})
	end := line(leaseEvent{End: failure.New(failure.StageLease, failure.Draining, "the peer is shutting down")})
	read := func(lines string, s *session) (events []leaseEvent, err error) {
		r := newEventReader(strings.NewReader(lines), s, pathLease)
		for {
			e, err := r.next()
			if err != nil {
				return events, err
			}
			events = append(events, e)
		}
	}
	events, err := read(granted+end, s)
	key := s.dataKey("ABC")
	if !errors.Is(err, io.EOF) || len(events) != 2 || !bytes.Equal(events[0].Grant.Key,
		key[:]) || events[1].End.Reason != failure.Draining {
		t.Fatalf("as it was sent: %+v, %v", events, err)
	}
	later := *s
	later.count++
	for _, tc := range []struct {
		why, lines string
		session    *session
		good       int // events before
	}{
		{"a line is left out", end, s, 0},
		{"a line comes twice", granted + granted, s, 1},
		{"a line is changed", strings.Replace(granted, "ABC", "ABD", 1), s, 0},
		{"a line without proof", granted + `{"event":{"end":{"stage":"lease","reason":"busy"}}}` + "\n", s, 1},
		{"a proof of nothing", granted + `{"event":{"end":{"stage":"lease","reason":"busy"}},"proof":""}` + "\n", s, 1},
		{"of another request", granted, &later, 0},
		{"of another session", granted, mustSession(t, someBinding(), "mustard"), 0},
	} {
		if events, err := read(tc.lines, tc.session); err == nil || !strings.Contains(err.Error(),
			"without a valid proof") || len(events) != tc.good {
			t.Errorf("%s: %+v, %v", tc.why, events, err)
		}
	}
}

// TestHelloFlood: while strangers send any number of challenges, a peer's session continues, new peers are answered,
// and memory does not grow.
func TestHelloFlood(t *testing.T) { // not beside others: it looks at the heap
	sec := withToken(t, secretToken)
	peer := answering(t, bareNode(t, "b"), sec)
	w := dialWire(t, peer, secretToken)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var strangers sync.WaitGroup
	for range 16 {
		strangers.Go(func() {
			conn, err := net.Dial("tcp", peer)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(time.Minute))
			in := bufio.NewReader(conn)
			body := challengeFor(t, peer)
			for range 200 {
				_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", pathHello,
					len(body), body)
				res, err := http.ReadResponse(in, nil)
				if err != nil || res.StatusCode != http.StatusOK {
					t.Errorf("%v %v", res, err)
					return
				}
				_, _ = io.Copy(io.Discard, res.Body)
			}
		})
	}
	strangers.Wait()
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 16<<20 { // other tests run beside
		t.Errorf("3200 challenges left %d KiB", grown>>10)
	}
	if res, text := w.ask("GET", pathNode, ""); res.StatusCode != http.StatusOK {
		t.Errorf("the session of before: %s, %s", res.Status, text)
	}
	if _, f := askHello(t, peer, sec); f != nil {
		t.Errorf("a peer afterwards: %v", f)
	}
	large := `{"version":2,"nonce":"` + strings.Repeat("A", maxChallenge) + `"}`
	res, err := http.Post("http://"+peer+pathHello, "application/json", strings.NewReader(large))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusBadRequest || !res.Close {
		t.Errorf("a challenge of %d bytes: %s", len(large), res.Status)
	}
}

// TestStrangersBodyIsNotRead: the body of an unproven request is not read.
func TestStrangersBodyIsNotRead(t *testing.T) {
	t.Parallel()
	peer := answering(t, bareNode(t, "b"), withToken(t, secretToken))
	for _, path := range []string{pathLease, pathHelloV1} {
		conn, err := net.Dial("tcp", peer)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 1048576\r\n\r\n", path)
		start := time.Now()
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || res.StatusCode != http.StatusUnauthorized &&
			res.StatusCode != http.StatusGone || time.Since(start) > requestTime-2*time.Second {
			t.Errorf("%s: %v after %v: %v", path, res, time.Since(start), err)
		}
	}
}

// TestConnectionGone: a connection that closes while it is idle is replaced by another with its own keys; the request
// fails only if that happens repeatedly.
func TestConnectionGone(t *testing.T) {
	t.Parallel()
	sec := withToken(t, secretToken)
	c, err := newClient(answering(t, bareNode(t, "b"), sec), credentials{sec, newSecretFiles()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	for made := 1; made <= 3; made++ {
		if _, err := c.hello(t.Context()); err != nil || len(c.conns) != made {
			t.Fatalf("%d connections, want %d: %v", len(c.conns), made, err)
		}
		for _, k := range c.conns {
			k.http.CloseIdleConnections()
		}
	}
	for range maxAttempts {
		k := &clientConn{client: c, http: &http.Client{Transport: &http.Transport{
			DialContext: func(context.Context, string, string) (net.Conn, error) { return nil, errConnectionGone }}}}
		c.idle = append(c.idle, k)
	}
	if _, err := c.hello(t.Context()); asFailure(t, err) == nil || asFailure(t, err).Reason != failure.PeerUnreachable {
		t.Errorf("after %d tries: %v", maxAttempts, err)
	}
}
