package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/railscope/railscope/test/check/catalog"
)

// TestWorld holds that the imagined fleet exposes only what railscope does, that
// no counter of it goes down, and that faults of the story are there at the end.
func TestWorld(t *testing.T) {
	known, err := catalog.Read("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{lasts: 4200}
	if err := w.fill(16, "../../../exporter/testdata"); err != nil {
		t.Fatal(err)
	}
	last := map[string]float64{}
	for _, s := range w.series {
		name := s.labels.Get(model.MetricNameLabel)
		if row, ok := catalog.Find(known, name); !ok && !strings.HasPrefix(name, "ALERTS") {
			t.Errorf("railscope has no metric %s", name)
		} else if ok {
			checkLabels(t, s, append([]string{model.MetricNameLabel, "job", "instance", "le"}, row.Labels...))
		}
		for _, at := range []float64{0, w.lasts} {
			if v := s.value(at); s.counts && v < 0 {
				t.Errorf("%s: a counter goes down by %g", s.labels, -v)
			}
		}
		if v, there := s.next(w.lasts, 30); there {
			last[s.labels.Get("instance")+" "+name+" "+s.labels.Get("rail")+s.labels.Get("transport")+
				s.labels.Get("peer")] = v
		}
	}
	for series, want := range map[string]float64{
		"node-10:10091 railscope_port_up 2":                         0,
		"node-10:10091 railscope_port_up 3":                         1,
		"node-12:10091 railscope_gid_misbound 1":                    1,
		"node-01:10091 railscope_probe_transport tcpnode-07:10092":  1,
		"node-01:10091 railscope_probe_transport nonenode-16:10092": 1,
		"node-01:10091 railscope_probe_transport rdmanode-02:10092": 1,
		"node-16:10091 up ":                                         0,
		"node-03:10091 railscope_probe_rail_up 5node-01:10092":      1,
		"node-01:10091 railscope_probe_rail_up 2node-10:10092":      0,
	} {
		if got, ok := last[series]; !ok || got != want {
			t.Errorf("%s is %g (%v), want %g", series, got, ok, want)
		}
	}
	if v, ok := last["node-16:10091 railscope_port_up 0"]; ok {
		t.Errorf("the node that is gone still says %g", v)
	}
}

func checkLabels(t *testing.T, s *series, known []string) {
	t.Helper()
	s.labels.Range(func(l labels.Label) {
		if !slices.Contains(known, l.Name) && !strings.HasPrefix(l.Name, "exported_") {
			t.Errorf("%s has no label %s", s.labels.Get(model.MetricNameLabel), l.Name)
		}
	})
}
