package probe

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/auth"
	"github.com/railscope/railscope/probe/internal/control"
	"github.com/railscope/railscope/probe/internal/protocol"
)

// TestTamperedRequests: a connection whose first message does not prove the token is refused and ends. Bytes that
// were changed in transit have no effect.
func TestTamperedRequests(t *testing.T) {
	t.Parallel()
	n := bareNode(t, "b")
	peer := answering(t, n, withToken(t, secretToken))
	other := dialWire(t, peer, secretToken)
	const lease = `{"node":"c","instance":"c","rail_seconds":1e-9}`
	for _, tc := range []struct {
		why  string
		send func(w *wireConn) (*http.Response, []byte)
	}{
		{"no proof", func(w *wireConn) (*http.Response, []byte) { return w.ask("POST", protocol.PathLease, lease) }},
		{"an empty list", func(w *wireConn) (*http.Response, []byte) { return w.prove() }},
		{"an empty proof", func(w *wireConn) (*http.Response, []byte) { return w.prove(nil) }},
		{"half a proof", func(w *wireConn) (*http.Response, []byte) {
			return w.prove(w.proof(auth.RoleAsker, secretToken)[:protocol.ProofSize/2])
		}},
		{"another connection's", func(w *wireConn) (*http.Response, []byte) {
			return w.prove(other.proof(auth.RoleAsker, secretToken))
		}},
		{"the proof of the target", func(w *wireConn) (*http.Response, []byte) {
			return w.prove(w.proof(auth.RoleTarget, secretToken))
		}},
		{"another token's", func(w *wireConn) (*http.Response, []byte) {
			return w.prove(w.proof(auth.RoleAsker, "mustard"))
		}},
		{"nobody's token", func(w *wireConn) (*http.Response, []byte) { return w.prove(w.proof(auth.RoleAsker, "")) }},
	} {
		w := connectWire(t, peer)
		res, text := tc.send(w)
		if res.StatusCode != http.StatusUnauthorized || !res.Close ||
			!strings.Contains(string(text), "both ends need the same token_file") {
			t.Errorf("%s: %s, close %t, %s", tc.why, res.Status, res.Close, text)
		}
	}
	if res, text := connectWire(t, peer).prove(nil, nil, nil); res.StatusCode != http.StatusBadRequest || !res.Close {
		t.Errorf("three proofs: %s, %s", res.Status, text)
	}
	if res, text := other.ask("GET", protocol.PathNode, ""); res.StatusCode != http.StatusOK {
		t.Errorf("the peer beside them: %s, %s", res.Status, text)
	}
	for why, change := range tamperings() {
		w, relay := dialThrough(t, peer)
		if res, text := w.ask("GET", protocol.PathNode, ""); res.StatusCode != http.StatusOK {
			t.Fatalf("%s: before it: %s, %s", why, res.Status, text)
		}
		relay.Store(&change)
		_, err := fmt.Fprintf(w.conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", protocol.PathLease,
			len(lease), lease)
		if err != nil {
			t.Fatal(err)
		}
		if !within(5*time.Second, func() bool { return relay.Load() == nil }) {
			t.Fatalf("%s: it was not", why)
		}
		_, err = fmt.Fprintf(w.conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", protocol.PathNode)
		if err != nil {
			t.Fatal(err)
		}
		_ = w.conn.CloseWrite()
		said, _ := io.ReadAll(w.in) // the end is an alert, or a reset
		if bytes.Contains(said, []byte(`"railscope"`)) || why != "repeated" && bytes.Contains(said, []byte(`"grant"`)) {
			t.Errorf("%s: answered with %s", why, said)
		}
	}
	if !within(5*time.Second, func() bool { return n.Slot.Holder() == "" }) {
		t.Errorf("a lease is held: %q", n.Slot.Holder())
	}
}

// tamperings returns the possible changes of TLS records.
func tamperings() map[string]func([]byte) []byte {
	return map[string]func([]byte) []byte{
		"changed":  func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
		"repeated": func(b []byte) []byte { return append(b, b...) },
		"left out": func([]byte) []byte { return nil },
		"added": func(b []byte) []byte {
			return append([]byte("\x17\x03\x03\x00\x20"+strings.Repeat("x", 32)), b...)
		},
	}
}

// dialThrough connects through a relay and proves the token. The returned function then changes the asker's next
// bytes, once.
func dialThrough(t *testing.T, peer string) (*wireConn, *atomic.Pointer[func([]byte) []byte]) {
	t.Helper()
	var next atomic.Pointer[func([]byte) []byte]
	relay := strangerServer(t, func(c net.Conn) {
		up, err := net.Dial("tcp", peer)
		if err != nil {
			return
		}
		defer up.Close()
		go func() {
			buf := make([]byte, 4096)
			for {
				n, err := c.Read(buf)
				b := bytes.Clone(buf[:n])
				if change := next.Swap(nil); change != nil && n > 0 {
					b = (*change)(b)
				} else if change != nil {
					next.Store(change)
				}
				_, werr := up.Write(b)
				if err != nil || werr != nil {
					_ = up.(*net.TCPConn).CloseWrite()
					return
				}
			}
		}()
		_, _ = io.Copy(c, up)
	})
	return dialWire(t, relay, secretToken), &next
}

// TestTamperedAnswers: an answer that was changed in transit is rejected.
func TestTamperedAnswers(t *testing.T) {
	t.Parallel()
	sec := withToken(t, secretToken)
	for why, change := range tamperings() {
		if why == "repeated" { // the answer itself is genuine: see TestTamperedLeaseStream
			continue
		}
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			peer, wire := answeringTapped(t, bareNode(t, "railnode"), sec)
			c, err := control.NewClient(peer, auth.Credentials{Security: sec, SecretFiles: auth.NewSecretFiles()})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if h, err := c.Hello(t.Context()); err != nil || h.Node != "railnode" {
				t.Fatal(err)
			}
			wire.mu.Lock()
			wire.answers = change
			wire.mu.Unlock()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			if h, err := c.Hello(ctx); err == nil || h.Node != "" {
				t.Errorf("believed %+v", h)
			}
		})
	}
}

// TestTamperedLeaseStream: lines of a lease's stream cannot be changed, dropped, repeated or added.
func TestTamperedLeaseStream(t *testing.T) {
	t.Parallel()
	for why, change := range tamperings() {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			p := makePair(t, 1, nil)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			wire := &wiretap{Listener: l}
			p.serveOn(wire)
			h := p.holder()
			h.mustAcquire()
			wire.mu.Lock()
			// Only the next record is changed.
			wire.answers = func(b []byte) []byte { wire.answers = nil; return change(b) }
			wire.mu.Unlock()
			lapse(p.resp) // the stream reports that the lease has ended
			e, err := h.events.Next()
			if why == "repeated" { // the first copy is genuine
				if err != nil || e.End == nil {
					t.Fatalf("%+v, %v", e, err)
				}
				e, err = h.events.Next()
			}
			if err == nil {
				t.Errorf("believed %+v", e)
			}
		})
	}
}
