package rules

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"

	"github.com/railscope/railscope/deploy/rules"
)

// TestLatencyOfBothKinds: the recorded latency is computed from classic buckets, from native histograms, and only
// once if a server has both. Debian's promtool cannot write native ones.
func TestLatencyOfBothKinds(t *testing.T) {
	storage := promqltest.LoadedStorage(t, `
load 15m
  railscope_probe_latency_seconds_bucket{load="idle",instance="classic",peer="a",rail="0",le="8e-06"}  0+100x8
  railscope_probe_latency_seconds_bucket{load="idle",instance="classic",peer="a",rail="0",le="1.6e-05"} 0+200x8
  railscope_probe_latency_seconds_bucket{load="idle",instance="classic",peer="a",rail="0",le="+Inf"} 0+200x8
  railscope_probe_latency_seconds{load="idle",instance="native",peer="a",rail="0"} {{schema:0 count:0 sum:0}}+{{schema:0 count:200 sum:0.002 offset:-17 buckets:[100 100]}}x8
  railscope_probe_latency_seconds{load="idle",instance="both",peer="a",rail="0"} {{schema:0 count:0 sum:0}}+{{schema:0 count:200 sum:0.002 offset:-17 buckets:[100 100]}}x8
  railscope_probe_latency_seconds_bucket{load="idle",instance="both",peer="a",rail="0",le="8e-06"}  0+100x8
  railscope_probe_latency_seconds_bucket{load="idle",instance="both",peer="a",rail="0",le="1.6e-05"} 0+200x8
  railscope_probe_latency_seconds_bucket{load="idle",instance="both",peer="a",rail="0",le="+Inf"} 0+200x8
  railscope_probe_latency_seconds_bucket{load="idle",instance="idle",peer="a",rail="0",le="8e-06"}  7x8
  railscope_probe_latency_seconds_bucket{load="idle",instance="idle",peer="a",rail="0",le="+Inf"} 7x8
`)
	all, err := rules.Load(source)
	if err != nil {
		t.Fatal(err)
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e5, Timeout: time.Minute,
		Parser: parser.NewParser(parser.Options{})})
	defer engine.Close()
	var got map[string]float64
	for _, r := range all {
		if !strings.HasSuffix(r.Record, ":p99_20m") {
			continue
		}
		q, err := engine.NewInstantQuery(context.Background(), storage, nil, r.Expr, time.Unix(0, 0).Add(2*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		vector, err := q.Exec(context.Background()).Vector()
		if err != nil {
			t.Fatal(err)
		}
		got = map[string]float64{}
		for _, s := range vector {
			if _, twice := got[s.Metric.Get("instance")]; twice || s.Metric.Get("rail") != "0" || s.Metric.Has("peer") {
				t.Errorf("%s", s.Metric)
			}
			got[s.Metric.Get("instance")] = s.F
		}
	}
	// 99 % of 200 are in the upper bucket, 2 % below its end.
	for _, instance := range []string{"classic", "native", "both"} {
		if v := got[instance]; v < 15e-6 || v > 16e-6 {
			t.Errorf("%s: %g s", instance, v)
		}
	}
	if got["both"] != got["native"] || len(got) != 3 {
		t.Errorf("%v: where there are both it is the native one; and nothing where nothing was measured", got)
	}
}
