package http

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/exporter-toolkit/web"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/exporter/internal/exportertest"
	"github.com/railscope/railscope/exporter/page"
)

// serving is a server on a free port of the loopback interface.
type serving struct {
	t       *testing.T
	lines   *json.Decoder // lines of its log
	address string
	stop    context.CancelFunc
	ended   chan error
}

// serve serves until stop is called or the test ends. Its log is read by end.
func serve(t *testing.T, handler *Server) *serving {
	t.Helper()
	logged, writer := io.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	s := &serving{t: t, lines: json.NewDecoder(logged), stop: stop, ended: make(chan error, 1)}
	go func() {
		s.ended <- Serve(ctx, handler, &web.FlagConfig{WebListenAddresses: &[]string{"127.0.0.1:0"},
			WebSystemdSocket: new(false), WebConfigFile: new("")}, slog.New(slog.NewJSONHandler(writer, nil)))
		writer.Close()
	}()
	t.Cleanup(func() { stop(); logged.Close() })
	s.wait("Serving")
	return s
}

// wait reads the log up to the line with a message.
func (s *serving) wait(msg string) {
	s.t.Helper()
	var line struct{ Msg, Address string }
	for !strings.HasPrefix(line.Msg, msg) {
		if err := s.lines.Decode(&line); err != nil {
			s.t.Fatalf("the log ended before %q: %v", msg, err)
		}
		if line.Address != "" {
			s.address = line.Address
		}
	}
}

// end waits until the server has ended, and reads the rest of the log.
func (s *serving) end() error {
	for s.lines.Decode(&struct{}{}) == nil {
	}
	return <-s.ended
}

// TestShutdownLetsScrapesEnd: a scrape in flight at shutdown gets its complete response; a new one gets none.
func TestShutdownLetsScrapesEnd(t *testing.T) {
	f := exportertest.NewSource("slow")
	entered, release, first := make(chan struct{}), make(chan struct{}), true
	answer := f.Reads
	f.Reads = func(emit func(collector.Sample)) error {
		if first { // the read at start
			first = false
			return answer(emit)
		}
		close(entered)
		<-release
		return answer(emit)
	}
	handler := New(exportertest.Within(t, time.Minute, f), Options{Page: page.Options{Metrics: "/metrics"}})
	s := serve(t, handler)
	url := "http://" + s.address + "/metrics"
	type reply struct {
		body string
		err  error
	}
	replies := make(chan reply, 1)
	go func() {
		resp, err := http.Get(url)
		if err != nil {
			replies <- reply{err: err}
			return
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		replies <- reply{string(body), err}
	}()
	<-entered
	s.stop()
	s.wait("Stopping")
	close(release)
	if r := <-replies; r.err != nil || !strings.Contains(r.body, `railscope_slow_value{of="x"} 1`) {
		t.Errorf("the scrape that was running got %q, %v", r.body, r.err)
	}
	if err := s.end(); err != nil {
		t.Error(err)
	}
	if resp, err := http.Get(url); err == nil {
		resp.Body.Close()
		t.Error("a scrape after the end was answered")
	}
}

// TestShutdownEndsStreams: neither an open page nor a connection that its browser opened in advance delays
// shutdown.
func TestShutdownEndsStreams(t *testing.T) {
	s := serve(t, testServer(t, "/metrics", nil))
	resp, err := http.Get("http://" + s.address + "/-/page/events")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadFull(resp.Body, make([]byte, 100)); err != nil { // the stream has begun
		t.Fatal(err)
	}
	unused, err := net.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer unused.Close()
	// this request is accepted after the earlier connection
	later, err := http.Get("http://" + s.address + "/-/healthy")
	if err != nil {
		t.Fatal(err)
	}
	later.Body.Close()
	asked := time.Now()
	s.stop()
	if err := s.end(); err != nil {
		t.Errorf("the end waited for a stream: %v", err)
	}
	if took := time.Since(asked); took > 4*time.Second { // net/http would wait 5 s
		t.Errorf("the end took %v", took)
	}
}
