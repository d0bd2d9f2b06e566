package fleetgen_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/teststorage"

	"github.com/railscope/railscope/test/check/catalog"
	"github.com/railscope/railscope/test/check/fleetgen"
)

const rulesDir, templateFile = "../../../deploy/rules", "../../../exporter/testdata/hgx.prom"

// story returns the story of some nodes, or a part of its series.
func story(t *testing.T, nodes int, needs *fleetgen.Needs) *fleetgen.Fleet {
	t.Helper()
	template, err := fleetgen.ReadTemplate(templateFile)
	if err != nil {
		t.Fatal(err)
	}
	w := fleetgen.Story{World: fleetgen.Healthy(nodes), Nodes: nodes, Lasts: 4200}
	return &fleetgen.Fleet{World: w, Nodes: nodes, Begin: time.Unix(1.8e9, 0), To: 70 * time.Minute,
		Every: time.Minute, Template: template, Native: true, Needs: needs}
}

// TestStory: the simulated fleet has only series that railscope exports, none of its counters decreases, and the
// faults of the story exist at the end.
func TestStory(t *testing.T) {
	known, err := catalog.Read("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	f, last := story(t, 16, nil), map[string]float64{}
	err = f.Each(func(s *fleetgen.Series) error {
		name := s.Labels.Get(model.MetricNameLabel)
		row, ok := catalog.Find(known, name)
		if !ok {
			t.Errorf("railscope has no metric %s", name)
		}
		its := append([]string{model.MetricNameLabel, "cluster", "job", "instance", "le"}, row.Labels...)
		s.Labels.Range(func(l labels.Label) {
			if !slices.Contains(its, l.Name) && !strings.HasPrefix(l.Name, "exported_") {
				t.Errorf("%s has no label %s", name, l.Name)
			}
		})
		before := math.Inf(-1)
		for at, v := range s.Samples() {
			if s.Counts && v < before {
				t.Errorf("%s: a counter goes down", s.Labels)
			}
			before = v
			if at == f.Begin.Add(f.To).UnixMilli() && !value.IsStaleNaN(v) {
				last[s.Labels.Get("instance")+" "+name+" "+s.Labels.Get("rail")+s.Labels.Get("transport")+
					s.Labels.Get("peer")] = v
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for series, want := range map[string]float64{
		"node-00010:10091 railscope_port_up 2":                            0,
		"node-00010:10091 railscope_port_up 3":                            1,
		"node-00012:10091 railscope_gid_misbound 1":                       1,
		"node-00001:10091 railscope_probe_transport tcpnode-00007:10092":  1,
		"node-00001:10091 railscope_probe_transport nonenode-00016:10092": 1,
		"node-00001:10091 railscope_probe_transport rdmanode-00002:10092": 1,
		"node-00016:10091 up ":                                            0,
		"node-00003:10091 railscope_probe_rail_up 5node-00001:10092":      1,
		"node-00001:10091 railscope_probe_rail_up 2node-00010:10092":      0,
	} {
		if got, ok := last[series]; !ok || got != want {
			t.Errorf("%s is %g (%v), want %g", series, got, ok, want)
		}
	}
	if v, ok := last["node-00016:10091 railscope_port_up 0"]; ok {
		t.Errorf("the node that is gone still says %g", v)
	}
}

// TestNeeds: a generated fleet has every metric that rules read, except those of faults and of other machines, and
// no series that they do not read.
func TestNeeds(t *testing.T) {
	needs, err := fleetgen.NeedsOfRules(rulesDir)
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	f := story(t, 16, needs)
	f.Kube = true
	if err := f.Each(func(s *fleetgen.Series) error {
		there[s.Labels.Get(model.MetricNameLabel)] = true
		if s.Labels.Get("mode") == "static" {
			t.Errorf("no rule reads %s", s.Labels)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var absent []string
	for _, name := range needs.Metrics() {
		if !there[name] {
			absent = append(absent, strings.TrimPrefix(name, "railscope_"))
		}
	}
	slices.Sort(absent)
	want := []string{"bond_aggregator_ports", "bond_member_port_state", "bond_member_up", "bond_members",
		"bond_members_missing", "bond_members_up", "bond_partner_present", "gpu_ecc_volatile_errors_total",
		"gpu_memory_source_info", "gpudirect_info",
		"port_global_pause_seconds_total", "port_pause_storm_events_total", "port_retransmitted_packets_total",
		"probe_dns_lookups_total", "probe_fallback_info", "probe_gpu_ratio", "probe_latency_seconds",
		"probe_loopback_goodput_bytes_per_second", "probe_skipped_total", "process_gpu_without_rdma", "rail_excluded_info",
		"rail_missing_info"}
	if !slices.Equal(absent, want) {
		t.Errorf("not generated: %q", absent)
	}
}

// all returns the samples of a fleet, without stale markers.
func all(t *testing.T, f *fleetgen.Fleet) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	if err := f.Each(func(s *fleetgen.Series) error {
		for at, v := range s.Samples() {
			if !value.IsStaleNaN(v) {
				out[fmt.Sprint(s.Labels, at)] = v
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

func same(t *testing.T, what string, got, want map[string]float64) {
	t.Helper()
	for k, v := range want {
		if g, ok := got[k]; !ok || g != v {
			t.Fatalf("%s: %s is %g (%v), want %g", what, k, g, ok, v)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%s has %d samples, want %d", what, len(got), len(want))
	}
}

// TestFormats: Prometheus' own parsers read the generated series from each format, and a storage returns them.
func TestFormats(t *testing.T) {
	needs, err := fleetgen.NeedsOfRules(rulesDir)
	if err != nil {
		t.Fatal(err)
	}
	f := story(t, 3, needs)
	want := all(t, f)
	var text bytes.Buffer
	if err := f.OpenMetrics(&text, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	same(t, "OpenMetrics", openMetrics(t, text.Bytes()), want)
	blocks(t, text.Bytes())

	text.Reset()
	if err := f.Promtool(&text); err != nil {
		t.Fatal(err)
	}
	same(t, "promtool", promtool(t, f, text.String()), want)

	db := teststorage.New(t)
	if err := f.Store(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	q, err := db.Querier(0, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = q.Close() }()
	set := q.Select(t.Context(), false, nil, labels.MustNewMatcher(labels.MatchRegexp, model.MetricNameLabel, ".+"))
	for set.Next() {
		for it := set.At().Iterator(nil); it.Next() != 0; {
			if at, v := it.At(); !value.IsStaleNaN(v) {
				got[fmt.Sprint(set.At().Labels(), at)] = v
			}
		}
	}
	same(t, "storage", got, want)
}

func openMetrics(t *testing.T, text []byte) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	p, err := textparse.New(text, "application/openmetrics-text", labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if entry == textparse.EntrySeries {
			var l labels.Labels
			p.Labels(&l)
			_, at, v := p.Series()
			out[fmt.Sprint(l, *at)] = v
		}
	}
}

// blocks runs promtool, if it is installed (PROMTOOL), to make blocks of the text.
func blocks(t *testing.T, text []byte) {
	t.Helper()
	program := os.Getenv("PROMTOOL")
	if program == "" {
		t.Log("PROMTOOL names no promtool")
		return
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "fleet.om")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(program, "tsdb", "create-blocks-from", "openmetrics", file, filepath.Join(dir, "data")).
		CombinedOutput()
	made, _ := filepath.Glob(filepath.Join(dir, "data", "*", "index"))
	if err != nil || len(made) == 0 {
		t.Errorf("%v, %d blocks: %.500s", err, len(made), out)
	}
}

func promtool(t *testing.T, f *fleetgen.Fleet, text string) map[string]float64 {
	t.Helper()
	out, p, name := map[string]float64{}, parser.NewParser(parser.Options{}), ""
	unquote := func(line, key string) string {
		quoted := strings.TrimSuffix(strings.TrimPrefix(line, key+": '"), "'")
		return strings.ReplaceAll(quoted, "''", "'")
	}
	for line := range strings.Lines(text) {
		switch line = strings.TrimSpace(strings.TrimPrefix(line, "  - ")); {
		case strings.HasPrefix(line, "series: "):
			name = unquote(line, "series")
		case strings.HasPrefix(line, "values: "):
			l, values, err := p.ParseSeriesDesc(name + " " + unquote(line, "values"))
			if err != nil {
				t.Fatalf("%v: %.300s", err, name)
			}
			for i, v := range values {
				if !v.Omitted && !value.IsStaleNaN(v.Value) {
					out[fmt.Sprint(l, f.Begin.Add(f.From+time.Duration(i)*f.Every).UnixMilli())] = v.Value
				}
			}
		default:
			t.Fatalf("%.300s", line)
		}
	}
	return out
}
