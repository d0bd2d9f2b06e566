package http

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/railscope/railscope/exporter/internal/exportertest"
	"github.com/railscope/railscope/exporter/page"
)

func testServer(t *testing.T, path string, reload func() error) *Server {
	t.Helper()
	s := New(exportertest.Scraper(t, exportertest.NewSource("a")),
		Options{Page: page.Options{Metrics: path}, Reload: reload, Lifecycle: true})
	t.Cleanup(s.Close)
	return s
}

// TestEndpoints: the response of each path.
func TestEndpoints(t *testing.T) {
	var reloadErr error
	s := testServer(t, "/metrics", func() error { return reloadErr })
	for _, tc := range []struct {
		method, path string
		before       func()
		code         int
		body         string // part of the body
	}{
		{"GET", "/metrics", nil, 200, "railscope_a_value{of=\"x\"} 1\n"},
		{"HEAD", "/metrics", nil, 200, ""},
		{"GET", "/metrics?collect[]=a", nil, 200, "railscope_a_value{of=\"x\"} 1\n"},
		{"GET", "/metrics?collect[]=a&collect[]=none", nil, 400,
			"collect[]: unknown or disabled source \"none\"; the sources are a\n"},
		{"GET", "/-/status", nil, 200, `"version":1`},
		{"POST", "/-/status", nil, 405, ""},
		{"POST", "/metrics", nil, 405, ""},
		{"GET", "/", nil, 200, `href="./metrics"`},
		{"GET", "/nothing", nil, 404, ""},
		{"GET", "/-/healthy", nil, 200, "railscope is up"},
		{"GET", "/-/ready", nil, 503, "not ready"},
		{"GET", "/-/ready", func() { s.ready.Store(true) }, 200, "ready"},
		{"GET", "/-/reload", nil, 405, "POST"},
		{"POST", "/-/reload", nil, 200, "reloaded"},
		{"PUT", "/-/reload", nil, 200, "reloaded"},
		{"POST", "/-/reload", func() { reloadErr = errors.New("config.yml:3: no") }, 500, "config.yml:3: no"},
		{"GET", "/-/healthy", nil, 200, "railscope is up"},
	} {
		if tc.before != nil {
			tc.before()
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(tc.method, tc.path, nil))
		if w.Code != tc.code || !strings.Contains(w.Body.String(), tc.body) {
			t.Errorf("%s %s: %d %q, want %d and %q in it", tc.method, tc.path, w.Code, w.Body, tc.code, tc.body)
		}
	}
}

// TestReloadByHTTP: a reload by HTTP needs --web.enable-lifecycle, POST or PUT, and must not come from another
// site.
func TestReloadByHTTP(t *testing.T) {
	for _, tc := range []struct {
		name      string
		lifecycle bool
		method    string
		header    map[string]string
		code      int
		body      string // part of the body
	}{
		{"off", false, "POST", nil, 403, "--web.enable-lifecycle"},
		{"off, and a GET", false, "GET", nil, 403, "SIGHUP"},
		{"curl", true, "POST", nil, 200, "reloaded"},
		{"PUT", true, "PUT", nil, 200, "reloaded"},
		{"GET", true, "GET", nil, 405, "POST"},
		{"DELETE", true, "DELETE", nil, 405, "POST"},
		{"a page of this site", true, "POST", map[string]string{"Sec-Fetch-Site": "same-origin",
			"Origin": "http://example.com"}, 200, "reloaded"},
		{"a page of another site", true, "POST", map[string]string{"Sec-Fetch-Site": "cross-site",
			"Origin": "http://evil.example"}, 403, "cross-origin"},
		{"a page of a neighbour", true, "POST", map[string]string{"Sec-Fetch-Site": "same-site",
			"Origin": "http://a.example.com"}, 403, "cross-origin"},
		{"another site, an old browser", true, "POST", map[string]string{"Origin": "http://evil.example"}, 403,
			"cross-origin"},
		{"a file", true, "PUT", map[string]string{"Origin": "null"}, 403, "cross-origin"},
	} {
		reloads := 0
		s := New(exportertest.Scraper(t, exportertest.NewSource("a")),
			Options{Page: page.Options{Metrics: "/metrics"}, Lifecycle: tc.lifecycle,
				Reload: func() error { reloads++; return nil }})
		t.Cleanup(s.Close)
		r := httptest.NewRequest(tc.method, "http://example.com/-/reload", nil)
		for key, value := range tc.header {
			r.Header.Set(key, value)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != tc.code || !strings.Contains(w.Body.String(), tc.body) || (reloads == 1) != (tc.code == 200) {
			t.Errorf("%s: %d %q and %d reloads, want %d and %q in it", tc.name, w.Code, w.Body, reloads, tc.code,
				tc.body)
		}
	}
}

// TestTelemetryAtRoot: the metrics can replace the page at /.
func TestTelemetryAtRoot(t *testing.T) {
	w := httptest.NewRecorder()
	testServer(t, "/", nil).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if !strings.Contains(w.Body.String(), "railscope_a_value") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestNegotiation: format and encoding are what the client accepts.
func TestNegotiation(t *testing.T) {
	server := httptest.NewServer(testServer(t, "/metrics", nil))
	defer server.Close()
	get := func(accept, coding string) *http.Response {
		req, err := http.NewRequest("GET", server.URL+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", accept)
		req.Header.Set("Accept-Encoding", coding)
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	const series = "railscope_a_value"
	for _, coding := range []string{"identity", "gzip;q=0", "br", "gzip", "br, gzip;q=0.5"} {
		resp := get("text/plain;version=0.0.4", coding)
		var body io.Reader = resp.Body
		if zipped := resp.Header.Get("Content-Encoding") == "gzip"; zipped !=
			(coding == "gzip" || coding == "br, gzip;q=0.5") {
			t.Errorf("Accept-Encoding %q: gzip is %v", coding, zipped)
		} else if zipped {
			var err error
			body, err = gzip.NewReader(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
		}
		if text, err := io.ReadAll(body); err != nil || !strings.Contains(string(text), series) {
			t.Errorf("Accept-Encoding %q: %q %v", coding, text, err)
		}
	}
	// Request of Prometheus 3 when it scrapes native histograms.
	resp := get("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,text/plain;version=0.0.4;q=0.2",
		"identity")
	dec, found := expfmt.NewDecoder(resp.Body, expfmt.ResponseFormat(resp.Header)), false
	for {
		var family dto.MetricFamily
		if err := dec.Decode(&family); err != nil {
			if !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			break
		}
		found = found || family.GetName() == series
	}
	if !found {
		t.Error("protobuf: the series is not there")
	}
}

// TestWaitFor: Prometheus sends its timeout. Implausible values are ignored.
func TestWaitFor(t *testing.T) {
	for header, want := range map[string]time.Duration{"": 0, "10": 9500 * time.Millisecond, "0.6": 300 * time.Millisecond,
		"2.5": 2 * time.Second, "0": 0, "-1": 0, "NaN": 0, "1e300": 0, "soon": 0} {
		h := http.Header{}
		h.Set("X-Prometheus-Scrape-Timeout-Seconds", header)
		if got := waitFor(h); got != want {
			t.Errorf("%q: %v, want %v", header, got, want)
		}
	}
}
