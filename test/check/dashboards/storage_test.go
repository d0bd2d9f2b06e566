package dashboards

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
	"github.com/prometheus/prometheus/util/teststorage"

	"github.com/railscope/railscope/test/check/catalog"
	"github.com/railscope/railscope/test/check/ruleeval"
)

// Scrapes of the storage, starting at the epoch.
const (
	every   = 15 * time.Second
	scrapes = 80
)

var end = time.Unix(0, 0).Add((scrapes - 1) * every)

// sample is one line of an exposition.
type sample struct {
	labels labels.Labels
	value  float64
	kind   model.MetricType
	family string // name of the metric to which the line belongs
	// scrape from which the value is 0 (until) or the series is missing (gone), as of a device that was removed; 0:
	// never
	until int
	gone  bool
}

// exposition reads a text that the exporter wrote or could write.
func exposition(t *testing.T, file string) []sample {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p, err := textparse.New(text, "text/plain", labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var all []sample
	kind, family := model.MetricTypeUnknown, ""
	for {
		entry, err := p.Next()
		switch {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatalf("%s: %v", file, err)
		case entry == textparse.EntryType:
			var name []byte
			name, kind = p.Type()
			family = string(name)
		case entry == textparse.EntrySeries:
			s := sample{kind: kind, family: family}
			_, _, s.value = p.Series()
			p.Labels(&s.labels)
			all = append(all, s)
		}
	}
}

// at returns the value of the series at a scrape: counters keep counting, the buckets of a histogram in step with
// each other, and other values are constant.
func (s sample) at(scrape int) float64 {
	if s.until > 0 && scrape >= s.until {
		return 0
	}
	switch n := float64(scrape); s.kind {
	case model.MetricTypeCounter:
		return s.value*(1+0.01*n) + n
	case model.MetricTypeHistogram:
		return s.value * (1 + n)
	default:
		return s.value
	}
}

// node returns the samples as a scrape of that node. Prometheus prefixes the exporter's own labels job and
// instance; a cluster label is added.
func node(samples []sample, instance string) []sample {
	samples = slices.Clone(samples)
	for i, s := range samples {
		b := labels.NewBuilder(s.labels) // an empty value removes the label
		b.Set("exported_job", s.labels.Get("job")).Set("exported_instance", s.labels.Get("instance"))
		samples[i].labels = b.Set("cluster", "a").Set("job", "railscope").Set("instance", instance).Labels()
	}
	return samples
}

// unprefixed reads a golden of a source: its series lack the prefix of the exposition, and their types.
func unprefixed(t *testing.T, file string) []sample {
	t.Helper()
	samples, known := exposition(t, file), rows(t)
	for i, s := range samples {
		name := "railscope_" + s.labels.Get(model.MetricNameLabel)
		row, ok := catalog.Find(known, name)
		if !ok {
			t.Fatalf("%s: no metric %s", file, name)
		}
		b := labels.NewBuilder(s.labels).Set(model.MetricNameLabel, name)
		samples[i].labels, samples[i].kind, samples[i].family = b.Labels(), model.MetricType(row.Kind), name
	}
	return samples
}

// fleet returns the series that Prometheus scrapes: one node for each machine in exporter/testdata, one with the GPUs
// of a machine in collector/gpu/testdata/amd, additional series from testdata, and Prometheus' own.
func fleet(t *testing.T) []sample {
	t.Helper()
	var all []sample
	for _, name := range []string{"hgx", "spark", "bonded", "one-rail-dead", "rxe-bond-trap"} {
		all = append(all, node(exposition(t, filepath.Join("..", "..", "..", "exporter", "testdata", name+".prom")),
			name+":10091")...)
	}
	all = append(all, node(unprefixed(t, filepath.Join("..", "..", "..", "collector", "gpu", "testdata", "amd",
		"mi300x-thor2.txt")), "instinct:10091")...)
	probed := exposition(t, filepath.Join("..", "..", "..", "exporter", "testdata", "probe.prom"))
	for i, s := range probed { // otherwise two peers have the same latency, and either could be the worst
		if s.labels.Get("peer") == "b:10092" && s.family == "railscope_probe_latency_seconds" {
			probed[i].value = min(s.value, 10)
		}
	}
	all = append(all, fresh(node(probed, "spark:10091"), all)...)
	all = append(all, fresh(node(exposition(t, filepath.Join("testdata", "more.prom")), "hgx:10091"), all)...)
	for _, s := range node(exposition(t, filepath.Join("..", "..", "..", "exporter", "testdata", "spark.prom")),
		"gone:10091") {
		s.until, s.gone = 40, true // the whole node
		all = append(all, s)
	}
	lose(t, all)
	return append(all, exposition(t, filepath.Join("testdata", "prometheus.prom"))...)
}

// lose makes two rails of one node fail: one goes down, the other disappears, both longer ago than the 5 minutes
// for which Prometheus keeps a value, and the 5 minutes after which a rail is missing.
func lose(t *testing.T, samples []sample) {
	t.Helper()
	found := 0
	for i, s := range samples {
		if s.labels.Get(model.MetricNameLabel) != "railscope_port_up" || s.labels.Get("instance") != "hgx:10091" {
			continue
		}
		switch s.labels.Get("rail") {
		case "6":
			samples[i].until, samples[i].gone = 20, true
		case "7":
			samples[i].until = 62
		default:
			continue
		}
		found++
	}
	if found != 2 {
		t.Fatalf("%d rails to lose, want 2", found)
	}
}

// fresh returns the samples that are not in have: each exposition has the exporter's own metrics.
func fresh(samples, have []sample) []sample {
	there := map[string]bool{}
	for _, s := range have {
		there[s.labels.String()] = true
	}
	return slices.DeleteFunc(samples, func(s sample) bool { return there[s.labels.String()] })
}

// keeps says which kinds of histograms a server stores.
type keeps struct{ classic, native bool }

// stored writes scrapes to a storage.
func stored(t *testing.T, samples []sample, k keeps) storage.Queryable {
	t.Helper()
	s := teststorage.New(t)
	for scrape := range scrapes {
		app := s.AppenderV2(context.Background())
		put := func(series labels.Labels, v float64, h *histogram.Histogram) {
			if _, err := app.Append(0, series, 0, int64(scrape)*every.Milliseconds(), v, h, nil,
				storage.AppendV2Options{}); err != nil {
				t.Fatalf("%s: %v", series, err)
			}
		}
		for _, sample := range samples {
			if sample.gone && scrape >= sample.until {
				continue
			}
			if sample.kind != model.MetricTypeHistogram || k.classic {
				put(sample.labels, sample.at(scrape), nil)
			}
			if k.native && sample.kind == model.MetricTypeHistogram &&
				strings.HasSuffix(sample.labels.Get(model.MetricNameLabel), "_count") { // one per series
				put(labels.NewBuilder(sample.labels).Set(model.MetricNameLabel, sample.family).Labels(), 0,
					tsdbutil.GenerateTestHistogram(int64(scrape)))
			}
		}
		if err := app.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	record(t, s)
	return s
}

// record evaluates the rules on the scraped data, every minute.
func record(t *testing.T, s *teststorage.TestStorage) {
	t.Helper()
	r, err := ruleeval.New(t.Context(), s, filepath.Join("..", "..", "..", "deploy", "rules"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	for now := time.Unix(0, 0); !now.After(end); now = now.Add(time.Minute) {
		if err := r.Eval(t.Context(), now, now); err != nil { // all groups
			t.Fatal(err)
		}
	}
}
