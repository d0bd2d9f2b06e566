package connlimit

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// pipe returns a connection pair for a listener and a client, in virtual time.
func pipe() (server, client net.Conn) {
	client, inner := net.Pipe()
	return &fakePipe{inner}, client
}

type fakePipe struct{ net.Conn }

func (*fakePipe) RemoteAddr() net.Addr { return from("10.0.0.1").from }

// TestTimeouts: a deadline that passes within a request is counted once. An idle connection and one without any
// data are not counted.
func TestTimeouts(t *testing.T) {
	for _, tc := range []struct {
		name string
		send string
		want uint64
	}{
		{"nothing", "", 0},
		{"half a header", "GET / HT", 1},
		{"half a body", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf", 1},
		{"a request, then idle", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 0},
		{"a slow handler", "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var count atomic.Uint64
				l := New(Options{Connections: 2, Refused: func(reason, _ string) {
					if reason != Timeout {
						t.Error(reason)
					}
					count.Add(1)
				}})
				server, client := pipe()
				accept := &oneListener{conn: make(chan net.Conn, 1), done: make(chan struct{})}
				accept.conn <- server
				srv := &http.Server{ReadTimeout: 10 * time.Second, ReadHeaderTimeout: 10 * time.Second,
					WriteTimeout: time.Minute, IdleTimeout: 30 * time.Second, ConnState: State,
					Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if r.URL.Path == "/slow" {
							_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
							time.Sleep(40 * time.Second)
						}
					})}
				go srv.Serve(l.Listener(accept))
				go io.Copy(io.Discard, client)
				go io.WriteString(client, tc.send)
				time.Sleep(5 * time.Minute)
				srv.Close()
				synctest.Wait()
				if n := count.Load(); n != tc.want {
					t.Errorf("%d timeouts, want %d", n, tc.want)
				}
				if all, _ := l.Open(); all != 0 {
					t.Errorf("%d connections are open", all)
				}
			})
		})
	}
}

// oneListener returns the connections that are sent to it.
type oneListener struct {
	conn chan net.Conn
	done chan struct{}
}

func (l *oneListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *oneListener) Close() error   { close(l.done); return nil }
func (l *oneListener) Addr() net.Addr { return from("10.0.0.2").from }

// TestStrangerTime: no action of a stranger and no deadline of net/http keeps an unproven connection open beyond
// its time.
func TestStrangerTime(t *testing.T) {
	for name, send := range map[string]string{
		"silence": "",
		"a header at a time": "GET / HTTP/1.1\r\nHost: x\r\nX-A: 1\r\nX-B: 1\r\nX-C: 1\r\nX-D: 1\r\nX-E: 1\r\nX-F: " +
			"1\r\nX-G: 1\r\n\r\n",
		"no body":          "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n",
		"a drip of a body": "POST /read HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n~~~~~~~~~~~~~~~~~~~~",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := New(Options{Connections: 4, Strangers: 2, StrangerTime: 10 * time.Second})
				server, client := pipe()
				accept := &oneListener{conn: make(chan net.Conn, 1), done: make(chan struct{})}
				accept.conn <- server
				srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Hour)) // as handlers do
					_, _ = io.Copy(io.Discard, r.Body)
				})}
				go srv.Serve(l.Listener(accept))
				start := time.Now()
				ended := make(chan time.Duration, 1)
				go func() {
					io.Copy(io.Discard, client)
					ended <- time.Since(start)
				}()
				go func() {
					for _, b := range []byte(send) {
						if _, err := client.Write([]byte{b}); err != nil {
							return
						}
						if b == '\n' || b == '~' {
							time.Sleep(time.Second)
						}
					}
				}()
				if took := <-ended; took > 10*time.Second {
					t.Errorf("open for %v", took)
				}
				srv.Close()
				time.Sleep(time.Second) // net/http waits a moment so that the client can read the response
			})
		})
	}
}

// TestProvenTime: a proven connection lives as long as the server's own limits allow.
func TestProvenTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{Connections: 4, Strangers: 2, StrangerTime: 10 * time.Second})
		server, client := pipe()
		accept := &oneListener{conn: make(chan net.Conn, 1), done: make(chan struct{})}
		accept.conn <- server
		srv := &http.Server{IdleTimeout: time.Minute,
			Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { proveAll(l) })}
		go srv.Serve(l.Listener(accept))
		answers := bufio.NewReader(client)
		for range 3 {
			go fmt.Fprint(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			res, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			time.Sleep(50 * time.Second)
		}
		srv.Close()
	})
}

func proveAll(l *Limit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.open {
		c.leaveStrangersLocked(true)
	}
}

// TestProvenAsTimeEnds: a connection that proves itself as its time ends keeps its place: it stays open, so it
// counts.
func TestProvenAsTimeEnds(t *testing.T) {
	l := New(Options{Connections: 4, Strangers: 2, StrangerTime: time.Hour})
	peer := from("10.0.0.1")
	c := Of(l.Admit(peer))
	c.Prove()
	c.expire() // its timer had fired and waited for the lock
	if all, strangers := l.Open(); all != 1 || strangers != 0 || peer.closed.Load() {
		t.Errorf("%d open, %d unproven, closed: %t", all, strangers, peer.closed.Load())
	}
}

// TestOf: the connection is found below TLS; other connections return nil.
func TestOf(t *testing.T) {
	l := New(Options{Connections: 2})
	c := l.Admit(from("10.0.0.1"))
	if Of(c) != c || Of(tls.Server(c, nil)) != c {
		t.Error("not found")
	}
	if Of(from("10.0.0.1")) != nil {
		t.Error("found where there is none")
	}
}
