package http

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railscope/railscope/exporter/internal/exportertest"
	"github.com/railscope/railscope/internal/connlimit"
)

// halfPost is a request whose body never arrives.
const halfPost = "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"

// serveUntilEnd serves until the test ends, and returns the address.
func serveUntilEnd(t *testing.T, opts Options) (address string) {
	t.Helper()
	opts.Page.Metrics = "/metrics"
	handler := New(exportertest.Scraper(t, exportertest.NewSource("a")), opts)
	t.Cleanup(handler.Close)
	s := serve(t, handler)
	ended := make(chan error, 1)
	go func() { ended <- s.end() }()
	t.Cleanup(func() {
		s.stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s.address
}

// from returns a client with this source address.
func from(host string) *http.Client {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
	return &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true},
		Timeout: 20 * time.Second}
}

// TestManyHalfRequests: 2,000 requests whose bodies never arrive hold no more connections and memory than one
// address may, and do not delay other clients.
func TestManyHalfRequests(t *testing.T) {
	address := serveUntilEnd(t, Options{})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	ended := make(chan bool, 2000)
	for range cap(ended) {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = io.WriteString(c, halfPost) // it may be refused already
		go func() {
			_, _ = io.Copy(io.Discard, c)
			ended <- true
		}()
	}
	for range cap(ended) - DefaultMaxConnections/2 { // connections above half of the limit are refused at once
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Fatal("connections beyond the limit stay open")
		}
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapInuse+after.StackInuse) - int64(before.HeapInuse+before.StackInuse); grown > 64<<20 {
		t.Errorf("%d bytes of memory", grown)
	}
	resp, err := from("127.0.0.2").Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(body), "railscope_a_value") {
		t.Fatalf("%v %.200s", err, body)
	}
	want := fmt.Sprintf("railscope_web_refused_total{reason=%q} %d\n", connlimit.Address,
		cap(ended)-DefaultMaxConnections/2)
	if !strings.Contains(string(body), want) {
		t.Errorf("want %s in\n%s", want, grep(string(body), "web_refused"))
	}
}

func grep(text, part string) (found string) {
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			found += line
		}
	}
	return found
}

// TestMaxConnections: connections beyond the limit are closed at once; a connection that ends makes room.
func TestMaxConnections(t *testing.T) {
	address := serveUntilEnd(t, Options{MaxConnections: 4})
	var held []net.Conn
	for i := range 4 {
		c, err := net.DialTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(i+1))}, tcpAddr(t, address))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		held = append(held, c)
	}
	other := from("127.0.0.9")
	if resp, err := other.Get("http://" + address + "/-/healthy"); err == nil {
		resp.Body.Close()
		t.Error("a fifth connection was answered")
	}
	held[0].Close()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		resp, err := other.Get("http://" + address + "/-/healthy")
		if err == nil {
			resp.Body.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func tcpAddr(t *testing.T, address string) *net.TCPAddr {
	t.Helper()
	a, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestWebTimes: the timeouts of each part of a request, in virtual time.
func TestWebTimes(t *testing.T) {
	for _, tc := range []struct {
		name   string
		send   string
		reads  bool // the client reads its responses
		within time.Duration
		after  time.Duration // 0: it is not closed by a deadline
	}{
		{"silence", "", true, requestTime, requestTime},
		{"half a header", "GET /metrics HTTP/1.1\r\nX-A", true, requestTime, requestTime},
		{"half a body", halfPost, true, requestTime + time.Second, requestTime},
		{"a drip of a body", "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n" + strings.Repeat("~",
			100), true, requestTime + time.Second, requestTime},
		{"an answer that is not read", "GET /big HTTP/1.1\r\nHost: x\r\n\r\n", false, answerTime + time.Second,
			answerTime},
		{"idle", "GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n", true, idleTime + time.Second, idleTime},
		{"a stream", "GET /-/page/events HTTP/1.1\r\nHost: x\r\n\r\n", true, 0, 0},
		{"a stream that is not read", "GET /-/page/events HTTP/1.1\r\nHost: x\r\n\r\n", false, 2 * time.Minute, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				handler := testServer(t, "/metrics", nil)
				handler.mux.HandleFunc("GET /big", func(w http.ResponseWriter, _ *http.Request) {
					w.Write(make([]byte, 1<<20))
				})
				srv := newHTTPServer(handler, slog.New(slog.DiscardHandler))
				client, server := net.Pipe()
				pipes := &onePipe{conn: make(chan net.Conn, 1), done: make(chan struct{})}
				pipes.conn <- server
				go srv.Serve(pipes)
				start := time.Now()
				go func() {
					for _, b := range []byte(tc.send) {
						if _, err := client.Write([]byte{b}); err != nil {
							return
						}
						if b == '~' {
							time.Sleep(time.Second)
						}
					}
				}()
				if !tc.reads {
					time.Sleep(tc.within)
				}
				ended := make(chan time.Duration, 1)
				go func() {
					_, _ = io.Copy(io.Discard, client)
					ended <- time.Since(start)
				}()
				select {
				case took := <-ended:
					if tc.within == 0 || took > tc.within || took < tc.after {
						t.Errorf("closed after %v, want from %v to %v", took, tc.after, tc.within)
					}
				case <-time.After(10 * time.Minute):
					if tc.within > 0 {
						t.Error("open after 10 minutes")
					}
				}
				client.Close()
				handler.Close()
				srv.Close()
				time.Sleep(time.Minute) // net/http still waits for some time
			})
		})
	}
}

// onePipe is a listener that returns the connections that are sent to it.
type onePipe struct {
	conn  chan net.Conn
	done  chan struct{}
	close sync.Once
}

func (l *onePipe) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *onePipe) Close() error   { l.close.Do(func() { close(l.done) }); return nil }
func (l *onePipe) Addr() net.Addr { return &net.TCPAddr{} }

// TestBodies: a large request body is refused unread, since no request needs a body.
func TestBodies(t *testing.T) {
	s := testServer(t, "/metrics", func() error { return nil })
	for size, want := range map[int]int{0: 200, 1000: 200, maxBody: 200, maxBody + 1: 413, 1 << 30: 413} {
		r := httptest.NewRequest("POST", "/-/reload", neverRead{t})
		r.ContentLength = int64(size)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%d bytes: %d, want %d", size, w.Code, want)
		}
	}
}

type neverRead struct{ t *testing.T }

func (n neverRead) Read([]byte) (int, error) {
	n.t.Error("the body was read")
	return 0, io.EOF
}

// TestSlowReaders: the number of responses that wait for their clients is limited; for the next one, the oldest is
// ended.
func TestSlowReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handler := testServer(t, "/metrics", nil)
		var began int
		var mu sync.Mutex
		handler.mux.HandleFunc("GET /big", func(w http.ResponseWriter, _ *http.Request) {
			mu.Lock()
			began++
			mu.Unlock()
			w.Write(make([]byte, 1<<20))
			mu.Lock()
			began--
			mu.Unlock()
		})
		srv := newHTTPServer(handler, slog.New(slog.DiscardHandler))
		pipes := &onePipe{conn: make(chan net.Conn), done: make(chan struct{})}
		go srv.Serve(pipes)
		for range 3 * maxSlow {
			client, server := net.Pipe()
			defer client.Close()
			pipes.conn <- server
			fmt.Fprint(client, "GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		if began != maxSlow {
			t.Errorf("%d answers wait", began)
		}
		client, server := net.Pipe()
		pipes.conn <- server
		go fmt.Fprint(client, "GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(client), nil)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, resp.Body); n != 1<<20 || err != nil {
			t.Errorf("who reads gets %d bytes, %v", n, err)
		}
		client.Close()
		srv.Close()
		time.Sleep(time.Minute)
	})
}
