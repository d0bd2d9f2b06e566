package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// registry returns a registry with a series of each kind.
func registry(t *testing.T) prometheus.Gatherer {
	t.Helper()
	reg := prometheus.NewRegistry()
	counter := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "c_bytes_total", Help: "A counter."},
		[]string{"rail", "empty"})
	counter.WithLabelValues("0", "").Add(1 << 53)
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "g_ratio", Help: "A gauge."})
	gauge.Set(-0.5)
	histogram := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "h_seconds", Help: "A histogram.",
		Buckets: []float64{1, 2}})
	for _, v := range []float64{0.5, 0.75, 1.5, 3} {
		histogram.Observe(v)
	}
	reg.MustRegister(counter, gauge, histogram, prometheus.NewUntypedFunc(prometheus.UntypedOpts{Name: "u",
		Help: "Untyped."}, func() float64 { return math.Inf(1) }))
	return reg
}

// TestRequest compares the whole request.
func TestRequest(t *testing.T) {
	families, err := registry(t).Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := request(map[string]string{"service.name": "railscope", "service.instance.id": "n1", "host.name": "n1",
		"service.version": "1"}, "1", families, time.Unix(1, 5))
	const want = `{"resourceMetrics": [{
	"resource": {"attributes": [
		{"key": "service.name", "value": {"stringValue": "railscope"}},
		{"key": "service.instance.id", "value": {"stringValue": "n1"}},
		{"key": "service.version", "value": {"stringValue": "1"}},
		{"key": "host.name", "value": {"stringValue": "n1"}}]},
	"scopeMetrics": [{"scope": {"name": "railscope", "version": "1"}, "metrics": [
		{"name": "c_bytes_total", "description": "A counter.", "sum": {
			"aggregationTemporality": "AGGREGATION_TEMPORALITY_CUMULATIVE", "isMonotonic": true, "dataPoints": [
			{"attributes": [{"key": "rail", "value": {"stringValue": "0"}}],
				"timeUnixNano": "1000000005", "asDouble": 9007199254740992}]}},
		{"name": "g_ratio", "description": "A gauge.", "gauge": {"dataPoints": [
			{"timeUnixNano": "1000000005", "asDouble": -0.5}]}},
		{"name": "h_seconds", "description": "A histogram.", "histogram": {
			"aggregationTemporality": "AGGREGATION_TEMPORALITY_CUMULATIVE", "dataPoints": [
			{"timeUnixNano": "1000000005", "count": "4", "sum": 5.75,
				"explicitBounds": [1, 2], "bucketCounts": ["2", "1", "1"]}]}},
		{"name": "u", "description": "Untyped.", "gauge": {"dataPoints": [
			{"timeUnixNano": "1000000005", "asDouble": "Infinity"}]}}]}]}]}`
	var wanted metricspb.MetricsData
	if err := protojson.Unmarshal([]byte(want), &wanted); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(got, &wanted) {
		t.Error(cmp.Diff(protojson.Format(&wanted), protojson.Format(got)))
	}
}

// answer returns an ExportMetricsServiceResponse with points refused.
func answer(points uint64, why string) string {
	of := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), points)
	of = protowire.AppendString(protowire.AppendTag(of, 2, protowire.BytesType), why)
	return string(protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), of))
}

func pusher(t *testing.T, endpoint string, log io.Writer) *Pusher {
	t.Helper()
	p, err := New(Options{Endpoint: endpoint, Interval: time.Second, Node: "n1", Version: "1",
		Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPush: the request, and the result of each response.
func TestPush(t *testing.T) {
	for _, tt := range []struct {
		name, path, answer, want string
		status                   int
	}{
		{name: "taken", status: 200},
		{name: "accepted, with a path", path: "/api/v1/otlp", status: 202},
		{name: "the whole path", path: "/otlp/v1/metrics", status: 200},
		{name: "a warning", status: 200, answer: answer(0, "deprecated")},
		{name: "another form", status: 200, answer: "{}"},
		{name: "a part refused", status: 200, answer: answer(3, "out of\norder"),
			want: "the receiver refused 3 series: out of order"},
		{name: "refused", status: 404, answer: "otlp write receiver is off\n\x1b[31m" + strings.Repeat("x", 400),
			want: `post "URL/v1/metrics": 404 Not Found: otlp write receiver is off [31m` + strings.Repeat("x", 269)},
		{name: "too long", status: 200, answer: strings.Repeat("x", maxAnswer+1),
			want: `Post "URL/v1/metrics": read the answer: http: request body too large`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var sent metricspb.MetricsData
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := gzip.NewReader(r.Body)
				if err != nil || r.Header.Get("Content-Encoding") != "gzip" || r.Method != http.MethodPost ||
					r.Header.Get("Content-Type") != "application/x-protobuf" {
					t.Errorf("%s %v: %v", r.Method, r.Header, err)
					return
				}
				raw, err := io.ReadAll(body)
				if err := errors.Join(err, proto.Unmarshal(raw, &sent)); err != nil {
					t.Error(err)
				}
				if want := strings.TrimSuffix(tt.path, path) + path; r.URL.Path != want {
					t.Errorf("path %s, want %s", r.URL.Path, want)
				}
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.answer)
			}))
			defer server.Close()
			err := pusher(t, server.URL+tt.path, io.Discard).push(t.Context(), registry(t))
			got := ""
			if err != nil {
				got = strings.ReplaceAll(err.Error(), server.URL, "URL")
			}
			if got != tt.want {
				t.Errorf("error %q, want %q", got, tt.want)
			}
			if n := len(sent.GetResourceMetrics()[0].GetScopeMetrics()[0].GetMetrics()); n != 4 {
				t.Errorf("%d metrics sent", n)
			}
		})
	}
}

// TestPushHangs: if a receiver does not respond, a push ends after the interval.
func TestPushHangs(t *testing.T) {
	stop := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-stop
	}))
	defer server.Close()
	defer close(stop)
	if err := pusher(t, server.URL, io.Discard).push(t.Context(), registry(t)); !errors.Is(err,
		context.DeadlineExceeded) {
		t.Error(err)
	}
}

// transport returns a response without a network.
type transport func() (int, error)

func (f transport) RoundTrip(*http.Request) (*http.Response, error) {
	status, err := f()
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Body: http.NoBody}, nil
}

// TestRun pushes once per interval. Failures are counted, and logged once until a push succeeds.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		p := pusher(t, "http://collector:4318", &log)
		var times []time.Time
		p.client.Transport = transport(func() (int, error) {
			times = append(times, time.Now())
			switch n := len(times); {
			case n < 3:
				return 200, nil
			case n < 6:
				return 503, nil
			case n < 8:
				return 0, errors.New("reset by peer")
			}
			return 200, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		start := time.Now()
		go func() { defer close(ended); p.Run(ctx, registry(t)) }()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		cancel()
		<-ended
		if first := times[0].Sub(start); first >= time.Second || len(times) != 10 {
			t.Errorf("%d pushes, the first after %v", len(times), first)
		}
		for i, at := range times[1:] {
			if d := at.Sub(times[i]); d != time.Second {
				t.Errorf("push %d after %v", i+1, d)
			}
		}
		got := map[string]float64{}
		if err := p.Read(func(s collector.Sample) { got[s.Labels[0]] = s.Value }); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]float64{"success": 5, "partial": 0, "failure": 5}, got); diff != "" {
			t.Error(diff)
		}
		if n := strings.Count(log.String(), "\n"); n != 2 || !strings.Contains(log.String(), "Service Unavailable") ||
			!strings.Contains(log.String(), "succeeded again") {
			t.Errorf("log: %s", log.String())
		}
	})
}

// TestGatherFails: a failure to gather series counts as a failed push, and nothing is sent.
func TestGatherFails(t *testing.T) {
	p := pusher(t, "http://collector:4318", io.Discard)
	p.client.Transport = transport(func() (int, error) { t.Error("sent"); return 200, nil })
	broken := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return nil, io.ErrUnexpectedEOF })
	if err := p.push(t.Context(), broken); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
}

// TestNew: invalid options, and the error of each.
func TestNew(t *testing.T) {
	file := filepath.Join(t.TempDir(), "http.yml")
	if err := os.WriteFile(file, []byte("basic: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		Options
		want string
	}{
		{Options{Endpoint: "http://c:4318"}, "--otlp.interval must be 1s or more, such as 15s, not 0s"},
		{Options{Endpoint: "collector:4318", Interval: time.Second},
			"--otlp.endpoint: want a URL such as http://collector:4318"},
		{Options{Endpoint: "http://user:secret@c", Interval: time.Second}, "--otlp.endpoint: credentials in a URL are " +
			"visible in process lists: put them into the file of --otlp.http.config.file (basic_auth, authorization)"},
		{Options{Endpoint: "http://c\x00:secret@c", Interval: time.Second},
			"--otlp.endpoint: want a URL such as http://collector:4318"},
		{Options{Endpoint: "http://c", Interval: time.Second, ConfigFile: file}, "--otlp.http.config.file: yaml: " +
			"unmarshal errors:\n  line 1: field basic not found in type config.plain"},
	} {
		if _, err := New(tt.Options); err == nil || err.Error() != tt.want {
			t.Errorf("%q: %v, want %s", tt.Endpoint, err, tt.want)
		}
	}
}

// FuzzRefused: no response makes it panic.
func FuzzRefused(f *testing.F) {
	f.Add([]byte(answer(3, "why")))
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := refused(b); err != nil && len(err.Error()) > maxWhy+100 {
			t.Errorf("%d bytes", len(err.Error()))
		}
	})
}
