package page

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func serve(t *testing.T, o Options) (*Page, *httptest.Server) {
	t.Helper()
	page, _ := open(t, o, captured(t, "hgx"))
	mux := http.NewServeMux()
	page.Register(mux)
	server := httptest.NewServer(mux)
	t.Cleanup(func() { page.Close(); server.Close() })
	return page, server
}

func get(t *testing.T, url string) *http.Response {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// TestHeaders: no content from other hosts, nothing inline, no frames, and correct caching.
func TestHeaders(t *testing.T) {
	page, server := serve(t, options("n"))
	const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	const forever = "public, max-age=31536000, immutable"
	own := "?v=" + page.drawing.layout
	for path, want := range map[string][2]string{
		"/":                  {"text/html; charset=utf-8", "no-store"},
		"/-/page.css" + own:  {"text/css; charset=utf-8", forever},
		"/-/page.js" + own:   {"text/javascript; charset=utf-8", forever},
		"/-/page.svg" + own:  {"image/svg+xml", forever},
		"/-/page.css":        {"text/css; charset=utf-8", "no-cache"},
		"/-/page.js?v=older": {"text/javascript; charset=utf-8", "no-cache"}, // requested by a page of another version
		"/-/page/events":     {"text/event-stream; charset=utf-8", "no-store"},
	} {
		resp := get(t, server.URL+path)
		h := resp.Header
		if got := [2]string{h.Get("Content-Type"), h.Get("Cache-Control")}; got != want || resp.StatusCode != 200 {
			t.Errorf("%s: %d %q, want %q", path, resp.StatusCode, got, want)
		}
		if h.Get("Content-Security-Policy") != policy || h.Get("X-Content-Type-Options") != "nosniff" ||
			h.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: %v", path, h)
		}
		if path == "/" {
			text, _ := io.ReadAll(resp.Body)
			for _, bad := range []string{" style=", "<style", "onclick", `src="/`, `href="/`, "src=\"http"} {
				if strings.Contains(string(text), bad) {
					t.Errorf("the page has %s in it: its own policy, or a prefix, forbids that", bad)
				}
			}
			if !strings.Contains(string(text), `"./-/page.js?v=`+page.drawing.layout+`"`) {
				t.Error("what it loads is not of this version")
			}
		}
	}
	if resp := get(t, server.URL+"/nothing"); resp.StatusCode != 404 {
		t.Error("the page is at paths that are not its own")
	}
}

// TestStream: a stream has a retry time and a complete first event. It outlives the server's write timeout and ends
// with the page.
func TestStream(t *testing.T) {
	page, _ := open(t, options("n"), captured(t, "hgx"))
	mux := http.NewServeMux()
	page.Register(mux)
	server := httptest.NewUnstartedServer(mux)
	server.Config.WriteTimeout = time.Second
	server.Config.RegisterOnShutdown(page.Close)
	server.Start()
	defer server.Close()
	resp := get(t, server.URL+PathEvents)
	lines := bufio.NewReader(resp.Body)
	var events []message
	if first, err := lines.ReadString('\n'); err != nil || first != "retry: 1000\n" {
		t.Fatalf("%q %v", first, err)
	}
	id := ""
	for len(events) < 4 { // three seconds
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("after %d events: %v", len(events), err)
		}
		if strings.HasPrefix(line, "id: ") {
			if line == id {
				t.Errorf("%s twice", line)
			}
			id = line
		}
		if strings.HasPrefix(line, "data: ") {
			events = append(events, decode(t, []byte(id+line+"\n")))
		}
	}
	if events[0].Main == "" || events[3].Main != "" || events[3].Parts["head"] == "" {
		t.Errorf("%+v", events)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := server.Config.Shutdown(ctx); err != nil {
		t.Errorf("the end of the server waits for streams: %v", err)
	}
}

// TestTooManyStreams: a client beyond the limit of streams gets 503 and a text that says what to do.
func TestTooManyStreams(t *testing.T) {
	page, server := serve(t, options("n"))
	for range MaxStreams {
		follow(page.join())
	}
	resp := get(t, server.URL+PathEvents)
	text, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") != "30" ||
		!strings.Contains(string(text), "50") {
		t.Errorf("%d %v %s", resp.StatusCode, resp.Header, text)
	}
	if resp := get(t, server.URL+"/"); resp.StatusCode != 200 {
		t.Error("the page without a stream is refused, too")
	}
}

// TestHeadOfEvents: a HEAD request opens no stream.
func TestHeadOfEvents(t *testing.T) {
	page, _ := open(t, options("n"), captured(t, "hgx"))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	page.events(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "HEAD", PathEvents, nil))
	if ctx.Err() != nil {
		t.Error("it held one until the client was gone")
	}
}

// TestDeadClient: a client that accepts no data is dropped.
func TestDeadClient(t *testing.T) {
	page, _ := open(t, options("n"), captured(t, "hgx"))
	handler := http.HandlerFunc(page.events)
	ended := make(chan struct{})
	w := &deadWriter{header: http.Header{}}
	go func() {
		defer close(ended)
		handler.ServeHTTP(w, httptest.NewRequest("GET", PathEvents, nil))
	}()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("it is still held")
	}
	if w.limits < 2 {
		t.Errorf("%d limits were set for 2 writes", w.limits)
	}
	page.mu.Lock()
	defer page.mu.Unlock()
	if len(page.streams) != 0 {
		t.Error("its stream is still open")
	}
}

// deadWriter accepts the first write; the next exceeds its deadline.
type deadWriter struct {
	header         http.Header
	writes, limits int
}

func (w *deadWriter) Header() http.Header { return w.header }
func (w *deadWriter) WriteHeader(int)     {}
func (w *deadWriter) FlushError() error   { return nil }
func (w *deadWriter) SetWriteDeadline(at time.Time) error {
	if left := time.Until(at); left > 0 && left <= writeLimit {
		w.limits++
	}
	return nil
}

func (w *deadWriter) Write(b []byte) (int, error) {
	w.writes++
	if w.writes > 1 {
		return 0, context.DeadlineExceeded
	}
	return len(b), nil
}
