package blame

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/teststorage"

	"github.com/railscope/railscope/fleet"
	"github.com/railscope/railscope/fleet/fleettest"
	"github.com/railscope/railscope/fleet/prometheus"
	"github.com/railscope/railscope/fleet/why"
	"github.com/railscope/railscope/test/check/fleetgen"
)

// victoria starts a VictoriaMetrics, the program that VICTORIAMETRICS names, and returns its URL.
func victoria(t *testing.T) string {
	t.Helper()
	program := os.Getenv("VICTORIAMETRICS")
	if program == "" {
		t.Skip("VICTORIAMETRICS is not set: make services")
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	_ = free.Close()
	cmd := exec.CommandContext(t.Context(), program, "-storageDataPath="+t.TempDir(), "-httpListenAddr="+address,
		"-retentionPeriod=100y", "-loggerLevel=ERROR")
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() })
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		resp, err := http.Get("http://" + address + "/health")
		if err == nil {
			_ = resp.Body.Close()
			return "http://" + address
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v: %s", err, &log)
		}
	}
}

// load copies all samples of a storage to a VictoriaMetrics, in the format of its /api/v1/import, that much later: it
// takes a time in 1970 for a year.
func load(t *testing.T, url string, from storage.Queryable, later time.Duration) {
	t.Helper()
	q, err := from.Querier(math.MinInt64, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	read, write := io.Pipe()
	go func() {
		out := json.NewEncoder(write)
		set := q.Select(t.Context(), false, nil, labels.MustNewMatcher(labels.MatchRegexp, "__name__", ".+"))
		var samples chunkenc.Iterator
		for set.Next() {
			one := struct {
				Metric     map[string]string `json:"metric"`
				Values     []float64         `json:"values"`
				Timestamps []int64           `json:"timestamps"`
			}{Metric: set.At().Labels().Map()}
			samples = set.At().Iterator(samples)
			for samples.Next() != chunkenc.ValNone {
				if at, v := samples.At(); !value.IsStaleNaN(v) {
					one.Values, one.Timestamps = append(one.Values, v), append(one.Timestamps, at+later.Milliseconds())
				}
			}
			if err := out.Encode(one); err != nil {
				_ = write.CloseWithError(err)
				return
			}
		}
		_ = write.CloseWithError(set.Err())
	}()
	for path, body := range map[string]io.Reader{"/api/v1/import": read} {
		post(t, url+path, body)
	}
	post(t, url+"/internal/force_flush", http.NoBody) // samples are searchable then
}

func post(t *testing.T, url string, body io.Reader) {
	t.Helper()
	resp, err := http.Post(url, "application/json", body)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000)); resp.StatusCode/100 != 2 {
		t.Fatalf("%s: %s %s", url, resp.Status, text)
	}
}

// TestVictoriaMetrics: a real VictoriaMetrics answers all questions of railscope fleet as Prometheus does. MetricsQL
// does not extrapolate increases.
func TestVictoriaMetrics(t *testing.T) {
	url := victoria(t)
	t.Run("blame", func(t *testing.T) {
		o := faulty()
		storage := teststorage.New(t)
		if err := fleetgen.OfState(fleettest.New(o), now()).Store(t.Context(), storage); err != nil {
			t.Fatal(err)
		}
		load(t, url, storage, 0)
		api := fleetgen.NewAPI(storage, now())
		defer api.Close()
		var reports []fleet.Report
		var states []fleet.State
		for _, ask := range []fleet.Asker{api.Ask, client(t, url)} {
			answers, err := fleet.Ask(t.Context(), "", now(), ask)
			if err != nil || len(answers.Failed) > 0 {
				t.Fatalf("%v, %q", err, answers.Failed)
			}
			s := answers.State(nil)
			for _, r := range s.Rounds {
				r.Retransmits = math.Round(r.Retransmits / 2) // increases
			}
			s.Proofs = nil // times of proofs are ages, in floating-point seconds
			states = append(states, s)
			reports = append(reports, fleet.Judge(answers.State(nil)))
		}
		near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Abs(a)+1 })
		if diff := cmp.Diff(states[0], states[1], near); diff != "" {
			t.Errorf("-Prometheus +VictoriaMetrics: %.4000s", diff)
		}
		if diff := cmp.Diff(reports[0], reports[1]); diff != "" || len(reports[0].Blames) != len(o.Faults) {
			t.Errorf("%d blames of %d, -Prometheus +VictoriaMetrics: %s", len(reports[0].Blames), len(o.Faults), diff)
		}
	})
	t.Run("drift", func(t *testing.T) {
		var series strings.Builder
		for i := range 5 {
			value, then := "5.15", ""
			if i == 3 {
				value, then = "6.8", "5.15"
			}
			add := func(value, when string) {
				fmt.Fprintf(&series, "  railscope_node_fact_info{cluster=\"drift\", instance=\"gpu-%d:10091\", subject=\"kernel\", "+
					"value=%q} %s\n", i, value, when)
			}
			if then == "" {
				add(value, "1x120")
			} else {
				add(then, "1x60 stale")
				add(value, "_x60 1x60")
			}
		}
		storage := promqltest.LoadedStorage(t, "load 1m\n"+series.String())
		defer storage.Close()
		at := time.Unix(120*60, 0)
		later := now().Sub(at)
		load(t, url, storage, later)
		api := fleetgen.NewAPI(storage, at)
		defer api.Close()
		var found []fleet.Drift
		for i, ask := range []fleet.Asker{api.Ask, client(t, url)} {
			at := at.Add(time.Duration(i) * later)
			d, err := fleet.AskDrift(t.Context(), `cluster="drift"`, at, at.Add(-90*time.Minute), ask)
			if err != nil || len(d.Deviations) != 1 || len(d.Changes) != 1 {
				t.Fatalf("%v: %+v", err, d)
			}
			found = append(found, d)
		}
		if diff := cmp.Diff(found[0].Deviations, found[1].Deviations); diff != "" {
			t.Errorf("-Prometheus +VictoriaMetrics: %s", diff)
		}
	})
	t.Run("why", func(t *testing.T) {
		storage, at := jobStorage(t)
		defer storage.Close()
		load(t, url, storage, now().Sub(at))
		job, err := why.NewJob("4711")
		if err != nil {
			t.Fatal(err)
		}
		data, err := why.Ask(t.Context(), job, `job="railscope", cluster=""`, now(), 7*24*time.Hour, client(t, url))
		if err != nil {
			t.Fatal(err)
		}
		ranAsPlanted(t, why.Judge(data))
	})
}

func client(t *testing.T, url string) fleet.Asker {
	t.Helper()
	c, err := prometheus.NewClient(url, "")
	if err != nil {
		t.Fatal(err)
	}
	return c.Ask
}
