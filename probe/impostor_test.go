package probe

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/railscope/railscope/probe/certtest"
	"github.com/railscope/railscope/probe/internal/auth"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/target"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// TestRelay: a relay that forwards all bytes reads nothing and can do no more than a router. A relay that
// terminates TLS, or leads back to the asker, gains nothing.
func TestRelay(t *testing.T) {
	t.Parallel()
	sec := withToken(t, secretToken)
	for _, tc := range []struct {
		why  string
		ends bool // the relay terminates TLS on both sides
		self bool // the relay leads to the asker's own responder
		says string
	}{
		{"as it is", false, false, ""},
		{"that ends TLS", true, false, "the token is not this node's"},
		{"back to the asker", false, true, "are led back to this node"},
		{"that ends TLS, back to the asker", true, true, "the token is not this node's"},
	} {
		t.Run(tc.why, func(t *testing.T) {
			t.Parallel()
			asker, target := bareNode(t, "asker"), bareNode(t, "railnode")
			if tc.self {
				target = asker
			}
			peer, wire := answeringTapped(t, target, sec)
			own, err := auth.NewCertificate()
			if err != nil {
				t.Fatal(err)
			}
			var heard bytes.Buffer
			var mu sync.Mutex
			attacker := strangerServer(t, func(c net.Conn) {
				up, err := net.Dial("tcp", peer)
				if err != nil {
					return
				}
				defer up.Close()
				if tc.ends {
					c = tls.Server(c, &tls.Config{Certificates: []tls.Certificate{*own}})
					up = tls.Client(up, &tls.Config{InsecureSkipVerify: true})
				}
				tap := recorder(func(b []byte) {
					mu.Lock()
					defer mu.Unlock()
					heard.Write(b)
				})
				go func() { _, _ = io.Copy(up, io.TeeReader(c, tap)) }()
				_, _ = io.Copy(c, io.TeeReader(up, tap))
			})
			h, f := askHello(t, attacker, sec)
			if tc.says == "" && (f != nil || h.Node != "railnode") ||
				tc.ends && (f == nil || f.Reason != failure.Unauthorized) {
				t.Errorf("%+v, %v", h, f)
			}
			res := Bench(t.Context(), asker, optionsWith(sec), attacker, func(result.Progress) {})
			if tc.says != "" && (res.Outcome != result.Failed || res.Reason != failure.Unauthorized ||
				!strings.Contains(res.Detail, tc.says)) {
				t.Errorf("%s because of %q: %s", res.Outcome, res.Reason, res.Detail)
			}
			mu.Lock()
			defer mu.Unlock()
			if tc.ends != strings.Contains(heard.String(), "POST "+protocol.PathHello) {
				t.Errorf("the relay heard %.200q", heard.String())
			}
			for _, secret := range []string{"railnode", "1.2.3", "asker", `"grant"`, secretToken} {
				if strings.Contains(heard.String(), secret) || strings.Contains(wire.text(), secret) {
					t.Errorf("%q went over the wire", secret)
				}
			}
		})
	}
	t.Run("certificates alone", func(t *testing.T) { // a relay cannot read what it forwards
		t.Parallel()
		dir, ca := t.TempDir(), certtest.NewAuthority(t)
		peer := answering(t, bareNode(t, "b"), ca.Issue(dir, "b"))
		relay := strangerServer(t, func(c net.Conn) {
			up, err := net.Dial("tcp", peer)
			if err != nil {
				return
			}
			defer up.Close()
			go func() { _, _ = io.Copy(up, c) }()
			_, _ = io.Copy(c, up)
		})
		if h, f := askHello(t, relay, ca.Issue(dir, "a")); f != nil || h.Node != "b" {
			t.Errorf("%v", f)
		}
	})
}

func optionsWith(sec options.Security) options.Options {
	o := options.DefaultOptions()
	o.Security = sec
	return o
}

// strangerTLS starts a server that is not a railscope: it calls serve for every connection, after its handshake.
func strangerTLS(t *testing.T, serve func(*tls.Conn)) string {
	t.Helper()
	own, err := auth.NewCertificate()
	if err != nil {
		t.Fatal(err)
	}
	return strangerServer(t, func(c net.Conn) {
		conn := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{*own}})
		if conn.Handshake() == nil {
			serve(conn)
			_ = conn.CloseWrite()
		}
	})
}

// TestAttackerOnPeersPort: an attacker on a peer's address receives a useless proof. None of its answers is
// accepted, not even the asker's own proof.
func TestAttackerOnPeersPort(t *testing.T) {
	t.Parallel()
	sec := withToken(t, secretToken)
	for _, tc := range []struct {
		why    string
		answer func(state *tls.ConnectionState, ask protocol.ProofRequest) (status int, proof []byte)
		says   string
	}{
		{"it proves nothing", func(*tls.ConnectionState, protocol.ProofRequest) (int, []byte) { return 200, nil },
			"the peer has none to prove itself with"},
		{"it proves something", func(*tls.ConnectionState, protocol.ProofRequest) (int, []byte) {
			return 200, make([]byte, protocol.ProofSize)
		}, "does not prove that the peer has this node's token"},
		{"it sends everything back", func(_ *tls.ConnectionState, ask protocol.ProofRequest) (int, []byte) {
			return 200, slices.Concat(ask.Proofs...)
		}, "does not prove that the peer has this node's token"},
		{"it has another token", func(state *tls.ConnectionState, _ protocol.ProofRequest) (int, []byte) {
			proof, _ := auth.Prove(state, auth.RoleTarget, "mustard")
			return 200, proof
		}, "does not prove that the peer has this node's token"},
		{"it asks the asker to skip it", func(*tls.ConnectionState, protocol.ProofRequest) (int, []byte) { return 409, nil },
			"invalid answer from the peer"},
	} {
		t.Run(tc.why, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var heard strings.Builder
			var paths []string
			peer := strangerTLS(t, func(c *tls.Conn) {
				in := bufio.NewReader(c)
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
					var ask protocol.ProofRequest
					_ = json.Unmarshal(body, &ask)
					state := c.ConnectionState()
					status, proof := tc.answer(&state, ask)
					text, _ := json.Marshal(protocol.ProofReply{Version: protocol.ProtocolVersion, Proof: proof})
					if status == 409 {
						text = []byte(`{"stage":"lease","reason":"busy","detail":"later"}`)
					}
					_, _ = fmt.Fprintf(c, "HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s", status, len(text), text)
				}
			})
			n := bareNode(t, "asker")
			res := Bench(t.Context(), n, optionsWith(sec), peer, func(result.Progress) {})
			want := failure.Unauthorized
			if tc.says == "invalid answer from the peer" {
				want = failure.Protocol
			}
			if res.Outcome != result.Failed || res.Reason != want || !strings.Contains(res.Detail, tc.says) {
				t.Errorf("%s because of %q: %s", res.Outcome, res.Reason, res.Detail)
			}
			if _, _, err := FetchFacts(t.Context(), peer, sec); asFailure(t, err).Reason != want {
				t.Errorf("facts: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			if got := strings.Join(paths, ", "); got != "POST /v2/hello, POST /v2/hello" {
				t.Errorf("it was asked %s", got)
			}
			for _, secret := range []string{"asker", n.Instance, "1.2.3", secretToken, filepath.Dir(sec.TokenFile)} {
				if strings.Contains(heard.String(), secret) {
					t.Errorf("it heard %q in %s", secret, heard.String())
				}
			}
		})
	}
}

// TestDowngrade: a peer that does not speak TLS 1.3, or whose TLS an attacker prevents, gets no data that depends
// on the token, and no round.
func TestDowngrade(t *testing.T) {
	t.Parallel()
	sec := withToken(t, secretToken)
	own, err := auth.NewCertificate()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		why   string
		reply string // answer to a request in the clear; empty: TLS 1.2
		want  failure.Reason
	}{
		{"protocol 3", `{"version":3}`, failure.PeerVersion},
		{"protocol 3 with a challenge",
			`{"version":3,"nonce":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","proof":"token"}`, failure.PeerVersion},
		{"this protocol", `{"version":4}`, failure.Protocol},
		{"TLS 1.2", "", failure.TLS},
	} {
		t.Run(tc.why, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var heard []string
			peer := strangerServer(t, func(c net.Conn) {
				if tc.reply == "" {
					conf := &tls.Config{Certificates: []tls.Certificate{*own}, MaxVersion: tls.VersionTLS12}
					_ = tls.Server(c, conf).Handshake()
					return
				}
				buf := make([]byte, 4096)
				n, _ := c.Read(buf)
				mu.Lock()
				heard = append(heard, string(buf[:n]))
				mu.Unlock()
				if buf[0] == target.RecordHandshake {
					_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n400 Bad Request")
					return
				}
				_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(tc.reply), tc.reply)
			})
			res := Bench(t.Context(), bareNode(t, "asker"), optionsWith(sec), peer, func(result.Progress) {})
			if res.Reason != tc.want || res.Transport != result.NoTransport ||
				(res.Outcome == result.Skipped) != (tc.want == failure.PeerVersion) {
				t.Errorf("%s because of %q: %s", res.Outcome, res.Reason, res.Detail)
			}
			mu.Lock()
			defer mu.Unlock()
			if tc.reply != "" && len(heard) != 2 || len(heard) == 2 && !strings.HasSuffix(heard[1],
				`{"version":4,"nonce":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}`) {
				t.Errorf("it heard %q", heard)
			}
		})
	}
	peer := answering(t, bareNode(t, "b"), sec)
	_, err = tls.Dial("tcp", peer, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12})
	if err == nil || !strings.Contains(err.Error(), "protocol version not supported") {
		t.Errorf("an asker with TLS 1.2: %v", err)
	}
}

// TestReasonsOfStrangers: an end that answers the first message in place of a peer has proved nothing. It can
// report neither Self, which would drop a found peer for good, nor corrupt data.
func TestReasonsOfStrangers(t *testing.T) {
	t.Parallel()
	sec := withToken(t, secretToken)
	for _, reason := range append(failure.Reasons(), "weather") {
		for _, start := range []func(http.Handler) *httptest.Server{httptest.NewServer, httptest.NewTLSServer} {
			t.Run(string(reason), func(t *testing.T) {
				t.Parallel()
				srv := start(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set(protocol.HeaderProtocol, strconv.Itoa(protocol.ProtocolVersion))
					target.Write(w, http.StatusBadRequest, failure.New(failure.StageVerify, reason, "because"))
				}))
				srv.Config.ErrorLog = log.New(io.Discard, "", 0)
				defer srv.Close()
				_, peer, _ := strings.Cut(srv.URL, "://")
				res := Bench(t.Context(), bareNode(t, "asker"), optionsWith(sec), peer, func(result.Progress) {})
				want := failure.Protocol
				if reason == failure.Unauthorized {
					want = reason
				}
				if res.Outcome != result.Failed || res.Reason != want || res.Corrupted() || len(res.Failures) != 1 ||
					res.Failures[0].Stage != failure.StageHello {
					t.Errorf("%s because of %q: %s, failures %v", res.Outcome, res.Reason, res.Detail, res.Failures)
				}
			})
		}
	}
}
