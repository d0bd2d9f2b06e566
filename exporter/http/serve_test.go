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
)

// TestShutdownLetsScrapesEnd: a scrape that is running when the process is told
// to stop gets its whole answer; a new one gets none.
func TestShutdownLetsScrapesEnd(t *testing.T) {
	f := exportertest.NewSource("slow")
	entered, release, first := make(chan struct{}), make(chan struct{}), true
	answer := f.Reads
	f.Reads = func(emit func(collector.Sample)) error {
		if first { // the one at start
			first = false
			return answer(emit)
		}
		close(entered)
		<-release
		return answer(emit)
	}
	handler, err := New(exportertest.Within(t, time.Minute, f), Options{TelemetryPath: "/metrics"})
	if err != nil {
		t.Fatal(err)
	}
	logged, writer := io.Pipe()
	addresses, off, none := []string{"127.0.0.1:0"}, false, ""
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(ctx, handler, &web.FlagConfig{WebListenAddresses: &addresses, WebSystemdSocket: &off,
			WebConfigFile: &none},
			slog.New(slog.NewJSONHandler(writer, nil)))
		writer.Close()
	}()
	lines := json.NewDecoder(logged)
	wait := func(msg string) (address string) {
		t.Helper()
		for {
			var line struct{ Msg, Address string }
			if err := lines.Decode(&line); err != nil {
				t.Fatalf("the log ended before %q: %v", msg, err)
			}
			if line.Address != "" {
				address = line.Address
			}
			if strings.HasPrefix(line.Msg, msg) {
				return address
			}
		}
	}
	url := "http://" + wait("Serving") + "/metrics"
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
	stop()
	wait("Stopping")
	close(release)
	if r := <-replies; r.err != nil || !strings.Contains(r.body, `railscope_slow_value{of="x"} 1`) {
		t.Errorf("the scrape that was running got %q, %v", r.body, r.err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if resp, err := http.Get(url); err == nil {
		resp.Body.Close()
		t.Error("a scrape after the end was answered")
	}
}

// TestShutdownEndsStreams: a page that is open does not hold up the end, nor does
// a connection that its browser has opened for later.
func TestShutdownEndsStreams(t *testing.T) {
	handler := testServer(t, "/metrics", nil)
	logged, writer := io.Pipe()
	addresses, off, none := []string{"127.0.0.1:0"}, false, ""
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(ctx, handler, &web.FlagConfig{WebListenAddresses: &addresses, WebSystemdSocket: &off,
			WebConfigFile: &none},
			slog.New(slog.NewJSONHandler(writer, nil)))
		writer.Close()
	}()
	var line struct{ Msg, Address string }
	for lines := json.NewDecoder(logged); line.Msg != "Serving"; {
		if err := lines.Decode(&line); err != nil {
			t.Fatal(err)
		}
	}
	go io.Copy(io.Discard, logged)
	resp, err := http.Get("http://" + line.Address + "/-/page/events")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadFull(resp.Body, make([]byte, 100)); err != nil { // it is going on
		t.Fatal(err)
	}
	spare, err := net.Dial("tcp", line.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer spare.Close()
	later, err := http.Get("http://" + line.Address + "/-/healthy") // the one before it has been accepted, then
	if err != nil {
		t.Fatal(err)
	}
	later.Body.Close()
	asked := time.Now()
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the end waited for a stream: %v", err)
	}
	if took := time.Since(asked); took > 4*time.Second { // net/http's patience is 5 s
		t.Errorf("the end took %v", took)
	}
}
