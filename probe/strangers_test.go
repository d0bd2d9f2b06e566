package probe

import (
	"errors"
	"io"
	"net"
	"net/http/httptrace"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/certtest"
	"github.com/railscope/railscope/probe/internal/auth"
	"github.com/railscope/railscope/probe/internal/control"
	"github.com/railscope/railscope/probe/internal/node"
	"github.com/railscope/railscope/probe/internal/target"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// halfPost is a request without proof whose body never arrives.
const halfPost = "POST /v2/hello HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"

// openConnections opens n connections, sends text on each, and returns them. They are closed when the test ends.
func openConnections(t *testing.T, address string, n int, send string) (list []net.Conn) {
	t.Helper()
	for range n {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if _, err := io.WriteString(c, send); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Fatal(err)
		}
		list = append(list, c)
	}
	return list
}

// TestStrangersLeaveRoom: strangers on all connections do not keep a peer from its round, whatever they send.
func TestStrangersLeaveRoom(t *testing.T) {
	t.Parallel()
	p := newPair(t, 1, nil)
	for name, send := range map[string]string{"half a request": halfPost, "nothing": "",
		"half a header": "POST /v2/hello HTTP/1.1\r\nX-A:"} {
		openConnections(t, p.peer, 2*target.MaxConnections, send)
		if res := p.round(); res.Outcome != result.OK {
			t.Errorf("%s: a round beside them: %s because of %q (%s)", name, res.Outcome, res.Reason, res.Detail)
		}
	}
	p.clean()
}

// TestStrangerTime: a stranger's connection ends at its time limit, at whatever point of a request it stops, also
// during the TLS handshake.
func TestStrangerTime(t *testing.T) {
	t.Parallel()
	const limit = 500 * time.Millisecond
	plain := answeringFor(t, limit, options.Security{TokenFile: file(t, t.TempDir()+"/token", "sesame sesame sesame")})
	secure := answeringFor(t, limit, certtest.NewAuthority(t).Issue(t.TempDir(), "b"))
	for name, tc := range map[string]struct{ address, send string }{
		"silence":        {plain, ""},
		"half a header":  {plain, "POST /v2/hello HTTP/1.1\r\nX-A:"},
		"half a body":    {plain, halfPost},
		"silence in TLS": {secure, ""},
		"half a TLS":     {secure, "\x16\x03\x01\x02\x00\x01"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			c := openConnections(t, tc.address, 1, tc.send)[0]
			_ = c.SetReadDeadline(start.Add(target.RequestTime - time.Second)) // limits of net/http end it later
			if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("open after %v", time.Since(start))
			}
		})
	}
}

// answeringFor answers peers with this time limit for strangers.
func answeringFor(t *testing.T, limit time.Duration, sec options.Security) (address string) {
	t.Helper()
	opts := options.DefaultOptions()
	opts.Security = sec
	r, err := target.NewResponder(bareNode(t, "a"), opts)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(serve(t, r, l, limit))
	return l.Addr().String()
}

// TestProvenStays: an authenticated connection outlives the strangers' time limit, and strangers do not displace
// it.
func TestProvenStays(t *testing.T) {
	t.Parallel()
	const limit = 1500 * time.Millisecond
	sec := options.Security{TokenFile: file(t, t.TempDir()+"/token", "sesame sesame sesame")}
	address := answeringFor(t, limit, sec)
	c, err := control.NewClient(address, auth.Credentials{Security: sec, SecretFiles: auth.NewSecretFiles()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Hello(t.Context()); err != nil {
		t.Fatal(err)
	}
	dialled := false
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		dialled = dialled || !i.Reused
	}})
	openConnections(t, address, 2*target.MaxConnections, halfPost)
	time.Sleep(limit)
	if _, err := c.Hello(ctx); err != nil || dialled {
		t.Errorf("another connection was needed: %t, %v", dialled, err)
	}
}

// TestRefusalsByReason: each refused request of a stranger is counted once, by its reason. An incomplete request is
// not counted.
func TestRefusalsByReason(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ send, reason string }{
		{"GET /v1/hello HTTP/1.0\r\n\r\n", node.RefusedVersion},
		{"POST /v2/hello HTTP/1.0\r\nContent-Length: 1\r\n\r\nx", node.RefusedMalformed},
		{"GET /v2/node HTTP/1.0\r\n\r\n", node.RefusedUnauthorized},
		{"POST /v2/hello HTTP/1.0\r\nContent-Length: 13\r\n\r\n{\"version\":3}", node.RefusedVersion},
		// A request in the clear gets the version as the reason.
		{"POST /v2/hello HTTP/1.0\r\nContent-Length: 13\r\n\r\n{\"version\":4}", node.RefusedVersion},
		{"\x16\x03\x01\x00\x05hello", node.RefusedMalformed},
		{"OPTIONS * HTTP/1.0\r\n\r\n", node.RefusedUnauthorized}, // net/http would answer it without the handler
		{"POST /v2/hello HTTP/1.0\r\nContent-Length: 100\r\n\r\nhalf", ""},
	} {
		n := bareNode(t, "a")
		peer := answering(t, n, options.Security{TokenFile: file(t, t.TempDir()+"/token", "sesame sesame sesame")})
		c := openConnections(t, peer, 1, tc.send)[0]
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, c) // wait until the answer is complete
		n.Refused.Each(func(reason string, count uint64) {
			want := uint64(0)
			if reason == tc.reason {
				want = 1
			}
			if count != want {
				t.Errorf("%q: %d refused as %s, want %d", tc.send, count, reason, want)
			}
		})
	}
}
