package http

import (
	"bytes"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// logged is a log that is safe for concurrent writes.
type logged struct {
	mu sync.Mutex // protects b
	b  bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logged) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Split(strings.TrimSuffix(l.b.String(), "\n"), "\n")
}

// TestServerLogsOnce: each kind of line from net/http is logged once, however often clients cause it. A health
// check that only connects causes one every 10 s.
func TestServerLogsOnce(t *testing.T) {
	var log logged
	var panics atomic.Int32 // the client tries again
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/panic" {
			panics.Add(1)
			panic("ours")
		}
	})
	server := httptest.NewUnstartedServer(nil)
	server.Config = newHTTPServer(handler, slog.New(slog.NewTextHandler(&log, nil)))
	server.StartTLS()
	for range 20 {
		c, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		resp, err := server.Client().Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	if _, err := server.Client().Get(server.URL + "/panic"); err == nil {
		t.Fatal("no panic")
	}
	server.Close()
	count := map[string]int{}
	for _, line := range log.lines() {
		for _, what := range []string{"TLS handshake error", "panic serving"} {
			if strings.Contains(line, what) {
				count[what]++
			}
		}
	}
	if count["TLS handshake error"] != 1 || count["panic serving"] != int(panics.Load()) {
		t.Errorf("%v of %d panics:\n%s", count, panics.Load(), strings.Join(log.lines(), "\n"))
	}
}
