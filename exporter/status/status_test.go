package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/exporter/internal/exportertest"
	"github.com/railscope/railscope/exporter/page"
	"github.com/railscope/railscope/exporter/scrape"
	"github.com/railscope/railscope/exporter/table"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/priority"
	"github.com/railscope/railscope/internal/proof"
	"github.com/railscope/railscope/internal/status"
)

// fake is a source of rows with labels; each row has one series.
type fake struct {
	rows    []*collector.Metric
	samples []collector.Sample
	read    func()
}

func (f *fake) add(name string, v float64, labels ...string) {
	m := &collector.Metric{Name: name, Help: "A value.", Kind: collector.Gauge}
	var values []string
	for pair := range slices.Chunk(labels, 2) {
		m.Labels, values = append(m.Labels, pair[0]), append(values, pair[1])
	}
	f.rows, f.samples = append(f.rows, m), append(f.samples, collector.Sample{Metric: m, Labels: values, Value: v})
}

func (f *fake) Name() string                 { return "rdma" }
func (f *fake) Metrics() []*collector.Metric { return f.rows }
func (f *fake) Read(emit func(collector.Sample)) error {
	f.read()
	for _, s := range f.samples {
		emit(s)
	}
	return nil
}

func rdma() *fake {
	f := &fake{read: func() {}}
	f.add("rail_info", 1, "rail", "3", "device", "mlx5_3", "port", "1", "netdev", "eth3", "pci_address", "0000:18:00.0",
		"numa_node", "1", "role", "compute", "gpu", "", "gpu_distance", "")
	f.add("port_up", 0, "rail", "3")
	f.add("port_state_id", 1, "rail", "3")
	f.add("port_rate_bytes_per_second", 5e10, "rail", "3")
	f.add("rail_capacity_bytes_per_second", math.NaN(), "rail", "3")
	return f
}

func scraper(src collector.Source, now *bool) *scrape.Scraper {
	return scrape.New([]collector.Source{src}, scrape.Options{Budget: time.Hour, Logger: slog.New(slog.DiscardHandler),
		Info: scrape.Info{Version: "1.2.3", Revision: "abc", GoVersion: "go1"}, Process: exportertest.Process(),
		Maintenance: func() bool { return *now }})
}

const want = `{"version":1,"node":"n1","verdict":{"level":"critical","text":"no rail is up"},` +
	`"railscope":{"version":"1.2.3","revision":"abc","go":"go1"},"simulated":false,"started":"2000-01-01T00:00:00Z",` +
	`"at":"2000-01-01T00:00:00Z","maintenance":true,"examination":{"at":"2000-01-01T00:00:00Z","seconds":0.5,` +
	`"error":null,"done":2,"unread":["a file"],"hard":null,"classes":[{"rail":"3","priority":"5",` +
	`"dscp":"40-47","lossless":true,"bytes_per_second":8,"jobs":[],"probe":true}]},"rails":[{"name":"3","device":"mlx5_3","port":"1","netdev":"eth3",` +
	`"pci_address":"0000:18:00.0","numa_node":"1","state":"down","up":false,"rate_bytes_per_second":50000000000,` +
	`"capacity_bytes_per_second":null,"expected_bytes_per_second":null,"mtu_bytes":null,` +
	`"proof":{"by":"burst","bytes_per_second":9,"at":"2000-01-01T00:00:00Z"},` +
	`"unused":false,"not_measured":false,"probe_transmit_bytes":7,"probe_receive_bytes":null,"probe_tcp_bytes":null}],` +
	`"rails_read":"2000-01-01T00:00:00Z","peers":[{"name":"new","last_round":null},{"name":"n2","last_round":` +
	`{"start":"2000-01-01T00:00:00Z","seconds":0.25,"outcome":"degraded","transport":"rdma","reason":null,` +
	`"goodput_bytes_per_second":10,"expected_bytes_per_second":null,"imbalance_ratio":0.5,"latency_p50_seconds":null,` +
	`"latency_p99_seconds":null,"findings":[{"check":"imbalance","severity":"warning","subject":"rail 3",` +
	`"evidence":"e","fix":["f"]}]}}],"peers_dropped":0,"findings":[{"check":"port_down","severity":"critical",` +
	`"subject":"rail 3","evidence":"","fix":["x"],"since":"2000-01-01T00:00:00Z",` +
	`"last_seen":"2000-01-01T00:00:00Z"}],"findings_dropped":4}` + "\n"

// TestStatus compares the whole response. Values that are not finite or not known are null.
func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		maintenance := true
		s := scraper(rdma(), &maintenance)
		s.Update(nil, 0, func(*table.Table, map[string]string) {})
		now := time.Now().UTC()
		own := func(device, port string) (transmit, receive, tcp *uint64) {
			if device == "mlx5_3" && port == "1" {
				transmit = new(uint64(7))
			}
			return transmit, nil, nil
		}
		o := page.Options{Node: "host", Name: func() string { return "n1" }, Own: own, Started: now,
			Proof: func(rail string) (*proof.Proof, float64) {
				return &proof.Proof{By: proof.ByBurst, Rate: 9, At: now}, 0.7
			}, Peers: func() ([]page.Peer, bool) {
				return []page.Peer{{Name: "new"}, {Name: "n2", Rounds: []page.Round{{Start: now, Duration: 250 * time.Millisecond,
					Outcome: "degraded", Transport: "rdma", Goodput: new(10.), Imbalance: new(0.5), P50: new(math.Inf(1)),
					Findings: []finding.Finding{{Check: "imbalance", Severity: finding.Warning, Subject: "rail 3", Evidence: "e",
						Fix: []string{"f"}}}}, {Outcome: "ok"}}}}, true
			}, Exam: func() page.Exam {
				return page.Exam{On: true, At: now, Took: time.Second / 2, Done: 2, Unread: []string{"a file"}, More: 4,
					Classes: []priority.Use{{Rail: "3", Priority: "5", DSCP: "40-47", Lossless: new(true), Sent: new(8.),
						Jobs: []string{}, Probe: true}},
					Findings: []finding.Raised{{Finding: finding.Finding{Check: "port_down", Severity: finding.Critical,
						Subject: "rail 3", Fix: []string{"x"}, Since: now, Seen: now}}}}
			}}
		w := httptest.NewRecorder()
		Handler(s, o).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		got := strings.ReplaceAll(w.Body.String(), now.Local().Format("2006-01-02T15:04:05-07:00"),
			now.Format(time.RFC3339))
		if diff := cmp.Diff(want, got); diff != "" || w.Header().Get("Content-Length") != fmt.Sprint(w.Body.Len()) {
			t.Error(diff)
		}
		if s, err := status.Parse(w.Body.Bytes()); err != nil || !s.Examined() || s.Peers[1].Last.Findings == nil {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

// TestStatusVerdict: before two examinations, a good state is not known.
func TestStatusVerdict(t *testing.T) {
	good, idle := page.Note{Level: page.Good, Text: "8 rails up"}, page.Note{Level: page.Idle, Text: "no rail"}
	for _, tt := range []struct {
		note  page.Note
		exams int
		want  status.Verdict
	}{
		{good, 2, status.Verdict{Level: "ok", Text: "8 rails up"}},
		{good, 1, status.Verdict{Level: "unknown", Text: "8 rails up, not examined yet"}},
		{idle, 2, status.Verdict{Level: "unknown", Text: "no rail"}},
		{page.Note{Level: page.Warn, Text: "a"}, 0, status.Verdict{Level: "warning", Text: "a"}},
		{page.Note{Level: page.Bad, Text: "b"}, 0, status.Verdict{Level: "critical", Text: "b"}},
	} {
		if got := verdict(page.Snapshot{Verdict: tt.note, Exam: page.Exam{Done: tt.exams}}); got != tt.want {
			t.Errorf("%+v after %d: %+v", tt.note, tt.exams, got)
		}
	}
}

// TestStatusWaitsForNothing: a source that hangs in a scrape does not delay the response, which has earlier
// results.
func TestStatusWaitsForNothing(t *testing.T) {
	src, maintenance := rdma(), false
	s := scraper(src, &maintenance)
	s.Update(nil, 0, func(*table.Table, map[string]string) {})
	hangs, release := make(chan bool), make(chan bool)
	src.read = func() { close(hangs); <-release }
	scraped := make(chan error)
	go func() {
		_, err := s.Exposition("text/plain; version=0.0.4; charset=utf-8", false)
		scraped <- err
	}()
	<-hangs
	answered := make(chan *httptest.ResponseRecorder)
	go func() {
		w := httptest.NewRecorder()
		Handler(s, page.Options{}).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		answered <- w
	}()
	select {
	case w := <-answered:
		var got status.Status
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || len(got.Rails) != 1 || got.Rails[0].Name != "3" {
			t.Errorf("%v, %s", err, w.Body)
		}
	case <-time.After(20 * time.Second):
		t.Error("it waits for the scrape")
	}
	close(release)
	if err := <-scraped; err != nil {
		t.Error(err)
	}
}

// TestStatusBounds: peers beyond the limit are counted.
func TestStatusBounds(t *testing.T) {
	maintenance := false
	o := page.Options{Peers: func() ([]page.Peer, bool) { return make([]page.Peer, status.MaxPeers+7), true }}
	s := take(scraper(rdma(), &maintenance), o, time.Now(), nil)
	if len(s.Peers) != status.MaxPeers || s.PeersDropped != 7 || s.Simulated || s.RailsRead != nil {
		t.Errorf("%d peers, %d dropped, %v", len(s.Peers), s.PeersDropped, s.RailsRead)
	}
	if _, err := status.Parse([]byte(`{"version":2}`)); err == nil || errors.Unwrap(err) != nil {
		t.Errorf("another version: %v", err)
	}
}

// TestStatusNow: ports that were read now replace those of the last scrape: one that is up again, one that is gone,
// and one that no scrape has. If they cannot be read, the last scrape is used.
func TestStatusNow(t *testing.T) {
	maintenance := false
	src := rdma()
	for i, row := range src.rows[:3] { // a second rail, which is up
		src.samples = append(src.samples, collector.Sample{Metric: row, Value: []float64{1, 1, 4}[i],
			Labels: append([]string{"4"}, src.samples[i].Labels[1:]...)})
	}
	s := scraper(src, &maintenance)
	s.Update(nil, 0, func(*table.Table, map[string]string) {})
	for _, tc := range []struct {
		name  string
		ports []page.Port
		read  bool
		want  string
	}{
		{"not read", nil, false, "3 false down, 4 true active"},
		{"as they were", []page.Port{{Rail: "3", State: 1}, {Rail: "4", State: 4}}, true, "3 false down, 4 true active"},
		{"the other way round", []page.Port{{Rail: "4", State: 1}, {Rail: "3", State: 4}}, true, "3 true active, 4 false down"},
		{"one is gone, one is new", []page.Port{{Rail: "10", State: 4}, {Rail: "3", State: 4}}, true, "3 true active, 10 true active"},
		{"one does not answer", []page.Port{{Rail: "3"}, {Rail: "4", State: 4}}, true, "3 null null, 4 true active"},
		{"all are gone", nil, true, ""},
	} {
		o := page.Options{Now: func(context.Context) ([]page.Port, bool) { return tc.ports, tc.read }}
		w := httptest.NewRecorder()
		Handler(s, o).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		got, err := status.Parse(w.Body.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		for _, r := range got.Rails {
			up, _ := json.Marshal(r.Up)
			state := "null"
			if r.State != nil {
				state = *r.State
			}
			list = append(list, fmt.Sprintf("%s %s %s", r.Name, up, state))
		}
		if text := strings.Join(list, ", "); text != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, text, tc.want)
		}
	}
}
