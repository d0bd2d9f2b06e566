package probe

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/railscope/railscope/probe/internal/auth"
	"github.com/railscope/railscope/probe/internal/control"
	"github.com/railscope/railscope/probe/internal/failure"
	"github.com/railscope/railscope/probe/internal/protocol"
	"github.com/railscope/railscope/probe/internal/target"
)

// TestHelloFlood: while strangers make any number of handshakes, a peer's connection continues, new peers are
// answered, and memory does not grow.
func TestHelloFlood(t *testing.T) { // not in parallel: it measures the heap
	sec := withToken(t, secretToken)
	peer := answering(t, bareNode(t, "b"), sec)
	w := dialWire(t, peer, secretToken)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var strangers sync.WaitGroup
	for i := range 16 {
		strangers.Go(func() {
			// The address differs from the peer's.
			from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(i))}}
			for range 5 {
				conn, err := tls.DialWithDialer(from, "tcp", peer, &tls.Config{InsecureSkipVerify: true})
				if err != nil { // displaced by another connection
					continue
				}
				_ = conn.SetDeadline(time.Now().Add(time.Minute))
				_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", protocol.PathHello)
				_, _ = io.Copy(io.Discard, conn)
				conn.Close()
			}
		})
	}
	if _, f := askHello(t, peer, sec); f != nil {
		t.Errorf("a peer meanwhile: %v", f)
	}
	strangers.Wait()
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 16<<20 { // other tests run in parallel
		t.Errorf("80 handshakes left %d KiB", grown>>10)
	}
	_ = w.conn.SetDeadline(time.Now().Add(20 * time.Second))
	if res, text := w.ask("GET", protocol.PathNode, ""); res.StatusCode != http.StatusOK {
		t.Errorf("the connection of before: %s, %s", res.Status, text)
	}
	if _, f := askHello(t, peer, sec); f != nil {
		t.Errorf("a peer afterwards: %v", f)
	}
	large := `{"version":4,"macs":["` + strings.Repeat("A", protocol.MaxProof) + `"]}`
	res, err := insecureHTTP(t).Post("https://"+peer+protocol.PathHello, "application/json", strings.NewReader(large))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusBadRequest || !res.Close {
		t.Errorf("a first message of %d bytes: %s", len(large), res.Status)
	}
}

// TestStrangersBodyIsNotRead: the body of a request without proof is not read.
func TestStrangersBodyIsNotRead(t *testing.T) {
	t.Parallel()
	peer := answering(t, bareNode(t, "b"), withToken(t, secretToken))
	for _, path := range []string{protocol.PathLease, protocol.PathHelloV1} {
		plain, err := net.Dial("tcp", peer)
		if err != nil {
			t.Fatal(err)
		}
		defer plain.Close()
		_ = plain.SetDeadline(time.Now().Add(20 * time.Second))
		for _, conn := range []net.Conn{plain, connectWire(t, peer).conn} {
			_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 1048576\r\n\r\n", path)
			start := time.Now()
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || res.StatusCode != http.StatusUnauthorized &&
				res.StatusCode != http.StatusGone || time.Since(start) > target.RequestTime-2*time.Second {
				t.Errorf("%s: %v after %v: %v", path, res, time.Since(start), err)
			}
		}
	}
}

// TestConnectionGone: an idle connection that closes is replaced by a new one. The request fails only if that
// happens repeatedly.
func TestConnectionGone(t *testing.T) {
	t.Parallel()
	sec := withToken(t, secretToken)
	c, err := control.NewClient(answering(t, bareNode(t, "b"), sec), auth.Credentials{Security: sec, SecretFiles: auth.NewSecretFiles()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for made := 1; made <= 3; made++ {
		if _, err := c.Hello(t.Context()); err != nil || len(c.Conns) != made {
			t.Fatalf("%d connections, want %d: %v", len(c.Conns), made, err)
		}
		for _, k := range c.Conns {
			k.HTTP.CloseIdleConnections()
		}
	}
	for range control.MaxAttempts {
		c.Idle = append(c.Idle, control.NewClientConn(c, "http://", &http.Transport{
			DialContext: func(context.Context, string, string) (net.Conn, error) {
				return nil,
					control.ErrConnectionGone
			}}))
	}
	if _, err := c.Hello(t.Context()); asFailure(t, err) == nil || asFailure(t, err).Reason != failure.PeerUnreachable {
		t.Errorf("after %d tries: %v", control.MaxAttempts, err)
	}
}
