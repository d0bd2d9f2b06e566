package fleet_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"

	"github.com/railscope/railscope/fleet"
	"github.com/railscope/railscope/fleet/fleettest"
	"github.com/railscope/railscope/fleet/prometheus"
)

var update = flag.Bool("update", false, "write the golden files anew")

// sample returns one sample of an answer.
func sample(v float64, pairs ...string) *model.Sample {
	s := &model.Sample{Metric: model.Metric{}, Value: model.SampleValue(v), Timestamp: 1}
	for i := 0; i < len(pairs); i += 2 {
		s.Metric[model.LabelName(pairs[i])] = model.LabelValue(pairs[i+1])
	}
	return s
}

// TestNames: peers are matched to nodes by host and port, with or without domain, by a label node, or by IP address,
// and never to nodes of another cluster.
func TestNames(t *testing.T) {
	a := fleet.Answers{Answers: map[string]model.Vector{"up": {
		sample(1, "instance", "node-1.example.com:10091"), sample(0, "instance", "node-2:10091"),
		sample(1, "instance", "10.0.0.3:10091", "node", "node-3"), sample(1, "cluster", "b", "instance", "node-1:10091"),
		sample(1, "instance", "[fd00::4]:10091"), sample(1, "instance", "same.a:1"), sample(1, "instance", "same.b:1"),
	}}}
	one := fleet.Node{Name: "node-1.example.com"}
	for peer, want := range map[string]string{
		"node-1:10092": "node-1.example.com", "node-1.example.com": "node-1.example.com", "NODE-2:10092": "node-2",
		"10.0.0.3:10092": "node-3", "node-3": "node-3", "[fd00::4]:10092": "fd00::4", "stranger:10092": "stranger",
		"same": "same", "same.b": "same.b", "10.0.0.9:10092": "10.0.0.9",
	} {
		a.Answers["transport"] = model.Vector{sample(1, "instance", "node-1.example.com:10091", "peer", peer, "transport",
			"rdma")}
		got := a.State(nil)
		pair := fleet.Pair{From: one, To: fleet.Node{Name: want}}
		if got.Pairs[pair] != "rdma" || len(got.Pairs) != 1 {
			t.Errorf("%s: %+v, want %s", peer, got.Pairs, want)
		}
		if len(got.Nodes) != 7 || got.Nodes[fleet.Node{Name: "node-2"}] {
			t.Errorf("nodes %+v", got.Nodes)
		}
	}
}

// TestSaved: saved answers are read back unchanged; other input is refused.
func TestSaved(t *testing.T) {
	want := fleet.Answers{Version: 1, Time: time.Unix(1000, 0).UTC(), Failed: []string{"gpu: timeout"},
		Answers: map[string]model.Vector{"up": {sample(1, "instance", "a:1")}}}
	var text bytes.Buffer
	if err := want.Write(&text); err != nil {
		t.Fatal(err)
	}
	got, err := fleet.ReadAnswers(&text)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v: %s", err, diff)
	}
	for _, bad := range []string{"", "{", "[]", `{"version": 2}`, `{"status": "success"}`, `{"version": 1, "answers": [1]}`} {
		if _, err := fleet.ReadAnswers(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
}

// FuzzAnswers: arbitrary answers do not make the judgement fail.
func FuzzAnswers(f *testing.F) {
	f.Add(`{"version":1,"answers":{"up":[null,{"metric":{"instance":""},"value":[1,"NaN"]}],"rail_up":[{"metric":{},` +
		`"value":[1,"1"]}],"goodput":[{"metric":{},"value":[1,"+Inf"]}],"transport":[{"metric":{},"value":[1,"1"]}]}}`)
	f.Fuzz(func(t *testing.T, text string) {
		a, err := fleet.ReadAnswers(strings.NewReader(text))
		if err != nil {
			return
		}
		s := fleet.NewShown(a.State(nil), a)
		for _, write := range []func(*bytes.Buffer) error{
			func(b *bytes.Buffer) error { return s.WriteTable(b, false) },
			func(b *bytes.Buffer) error { return s.WriteHTML(b) },
			func(b *bytes.Buffer) error { return s.WriteDrain(b) },
		} {
			if err := write(new(bytes.Buffer)); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestTopology(t *testing.T) {
	good, err := fleet.ReadTopology(strings.NewReader("node,rail,leaf\n# ours\nnode-1, 0, leaf-a\nb/node-1,0,\"leaf, b\"\n"))
	if err != nil || len(good) != 2 {
		t.Fatalf("%v, %v", good, err)
	}
	for text, want := range map[string]string{
		"node-1,0": "line 1", "node-1,0,leaf\nnode-2,,leaf\n": "line 2", "a,b,c\nnode-1,0,leaf,x": "line 2",
		"\"a": "line 1",
	} {
		if _, err := fleet.ReadTopology(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestPrometheus: a failed query is noted, and the others still count. Without any answer there is an error. Queries
// have a timeout.
func TestPrometheus(t *testing.T) {
	answer := func(w http.ResponseWriter, value any) {
		_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": value})
	}
	vector := map[string]any{"resultType": "vector", "result": []any{}}
	for _, tc := range []struct {
		name   string
		serve  http.HandlerFunc
		failed int // number of failed queries
		want   string
	}{
		{"all answered", func(w http.ResponseWriter, _ *http.Request) { answer(w, vector) }, 0, ""},
		{"one fails", func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.FormValue("query"), "gpu") {
				http.Error(w, "no", http.StatusBadGateway)
				return
			}
			answer(w, vector)
		}, 1, ""},
		{"a scalar", func(w http.ResponseWriter, _ *http.Request) {
			answer(w, map[string]any{"resultType": "scalar", "result": []any{1, "2"}})
		}, 19, "not a vector"},
		{"unauthorized", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }, 19, "401"},
		{"not JSON", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }, 19, "not one of Prometheus' API"},
		{"silent", func(_ http.ResponseWriter, r *http.Request) {
			_ = r.ParseForm() // without it, the server does not notice that the client disconnected
			<-r.Context().Done()
		}, 1, "context deadline exceeded"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			srv := httptest.NewServer(tc.serve)
			defer srv.Close()
			p, err := prometheus.NewClient(srv.URL, "")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			a, err := fleet.Ask(ctx, `cluster="a"`, time.Unix(1000, 0), p.Ask)
			if (tc.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.want) ||
				len(a.Failed) != tc.failed {
				t.Errorf("%v, failed %q", err, a.Failed)
			}
		})
	}
}

// TestAges: a pair's age is that of its last result, or for an earlier version of its last round. A burst has its own:
// while jobs fill the rails, rounds reach their peers and make no burst.
func TestAges(t *testing.T) {
	asked := map[string]int{}
	_, err := fleet.Ask(t.Context(), "", time.Now(), func(_ context.Context, expr string, _ time.Time) (model.Vector, error) {
		for _, word := range []string{"result", "round", "burst"} {
			if strings.Contains(expr, "railscope_probe_last_"+word+"_timestamp_seconds") {
				asked[word] = len(expr)
			}
		}
		return nil, nil
	})
	if err != nil || asked["result"] == 0 || asked["result"] != asked["round"] || asked["burst"] == asked["result"] {
		t.Errorf("%v, %v", err, asked)
	}
}

// TestPrometheusAddress: credentials are never on a command line, and --http.config.file reads promtool's format.
func TestPrometheusAddress(t *testing.T) {
	config := filepath.Join(t.TempDir(), "http.yml")
	if err := os.WriteFile(config, []byte("basic_auth: {username: u, password: secret}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var user, password string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ = r.BasicAuth()
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
	}))
	defer srv.Close()
	p, err := prometheus.NewClient(srv.URL, config)
	if err == nil {
		_, err = p.Ask(t.Context(), "up", time.Now())
	}
	if err != nil || user != "u" || password != "secret" {
		t.Errorf("%v, %q %q", err, user, password)
	}
	for _, bad := range []string{"", "prometheus:9090", "ftp://x", "http://u:secret@x", "http://[", "http://u:secret@[x"} {
		if _, err := prometheus.NewClient(bad, ""); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := prometheus.NewClient(srv.URL, "/nonexistent"); err == nil {
		t.Error("a file that does not exist is read")
	}
}

// golden compares got with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (go test ./fleet -update): %s", path, diff)
	}
}

// TestWrite compares all formats of the report of a fleet with one fault of each kind, and with hostile names.
func TestWrite(t *testing.T) {
	node := func(i int) fleet.Node { return fleet.Node{Cluster: "a", Name: fleettest.Name(i)} }
	o := fleettest.Options{Seed: 3, Clusters: []string{"a"}, Nodes: 24, Rails: 4, Fanout: 4, Loopback: true, LeafSize: 12}
	var pair fleet.Pair // pair of nodes without another fault
	for _, p := range fleettest.Pairs(o) {
		if healthy := []fleet.Node{node(7), node(8), node(9), node(10), node(11)}; slices.Contains(healthy, p.From) &&
			slices.Contains(healthy, p.To) {
			pair = p
		}
	}
	o.Faults = []fleettest.Fault{{Kind: fleet.PeerDown, Node: node(1)}, {Kind: fleet.TCPFallback, Node: node(2)},
		{Kind: fleet.RailDown, Node: node(3), Rail: "1"}, {Kind: fleet.SlowHost, Node: node(4)},
		{Kind: fleet.SlowWire, Node: node(5), Rail: "2"}, {Kind: fleet.GPUPath, Node: node(6), Rail: "3"},
		{Kind: fleet.Leaf, Node: fleet.Node{Cluster: "a"}, Leaf: "leaf-1-0"},
		{Kind: fleet.LossyPath, Node: pair.From, Peer: pair.To.Name, Rail: "3"}}
	state := fleettest.New(o)
	a := fleet.Answers{Time: time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC), Failed: []string{"gpu: <b>no</b>"}}
	s := fleet.NewShown(state, a)
	hostile := fleet.NewState()
	evil := fleet.Node{Name: "<script>alert(1)</script>\x1b[31m'; rm -rf /"}
	for i := range 4 {
		hostile.Pairs[fleet.Pair{From: node(i), To: evil}] = "none"
	}
	h := fleet.NewShown(hostile, fleet.Answers{Time: a.Time})
	for name, write := range map[string]func(*bytes.Buffer) error{
		"report.table":  func(b *bytes.Buffer) error { return s.WriteTable(b, false) },
		"report.json":   func(b *bytes.Buffer) error { return s.WriteJSON(b) },
		"report.drain":  func(b *bytes.Buffer) error { return s.WriteDrain(b) },
		"report.html":   func(b *bytes.Buffer) error { return s.WriteHTML(b) },
		"hostile.html":  func(b *bytes.Buffer) error { return h.WriteHTML(b) },
		"hostile.drain": func(b *bytes.Buffer) error { return h.WriteDrain(b) },
		"hostile.table": func(b *bytes.Buffer) error { return h.WriteTable(b, false) },
	} {
		var got bytes.Buffer
		if err := write(&got); err != nil {
			t.Fatal(err)
		}
		golden(t, name, got.Bytes())
		if html := strings.HasSuffix(name, ".html"); html && strings.Contains(got.String(), "<script") ||
			strings.Contains(got.String(), "\x1b") {
			t.Errorf("%s: a name is not cleaned", name)
		}
	}
}

// TestNothing: without rounds the result is not good, and without faults there is no blame.
func TestNothing(t *testing.T) {
	if s := fleet.NewShown(fleet.NewState(), fleet.Answers{}); s.Good() ||
		!strings.HasPrefix(s.Headline(), "No rounds") {
		t.Errorf("%q", s.Headline())
	}
	healthy := fleettest.New(fleettest.Options{Nodes: 2, Rails: 2, Fanout: 4, Noise: 0.02})
	if s := fleet.NewShown(healthy, fleet.Answers{}); !s.Good() {
		t.Errorf("%+v", s.Blames)
	}
}

// TestTwoNodes: if there are only 2 nodes, the slow one is unknown, unless loopback shows it.
func TestTwoNodes(t *testing.T) {
	o := fleettest.Options{Nodes: 2, Rails: 8, Fanout: 4, Faults: []fleettest.Fault{{Kind: fleet.SlowHost,
		Node: fleet.Node{Name: fleettest.Name(1)}, Rail: "3"}}}
	for loopback, want := range map[bool]fleet.Kind{false: fleet.SlowPath, true: fleet.SlowHost} {
		o.Loopback = loopback
		r := fleet.Judge(fleettest.New(o))
		if len(r.Blames) != 1 || r.Blames[0].Kind != want || r.Blames[0].Rail != "3" {
			t.Errorf("loopback %v: %+v", loopback, r.Blames)
		}
	}
}
