// Package exportertest has code that the tests of the exporter's packages share.
package exportertest

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/exporter/scrape"
)

// Source is a source whose methods are function fields.
type Source struct {
	Called string
	Row    *collector.Metric
	Reads  func(emit func(collector.Sample)) error
}

// NewSource returns a source of one gauge with one series.
func NewSource(name string) *Source {
	f := &Source{Called: name, Row: &collector.Metric{Name: name + "_value", Help: "A value.", Ref: "here",
		Kind: collector.Gauge, Labels: []string{"of"}}}
	f.Reads = func(emit func(collector.Sample)) error { emit(f.Sample(1, "x")); return nil }
	return f
}

// Name implements [collector.Source].
func (f Source) Name() string { return f.Called }

// Metrics implements [collector.Source].
func (f Source) Metrics() []*collector.Metric { return []*collector.Metric{f.Row} }

// Read implements [collector.Source].
func (f Source) Read(emit func(collector.Sample)) error { return f.Reads(emit) }

// Sample returns a sample of the source.
func (f Source) Sample(v float64, l string) collector.Sample {
	return collector.Sample{Metric: f.Row, Labels: []string{l}, Value: v}
}

// Scraper returns a scraper of the sources, in a process with constant metrics.
func Scraper(t testing.TB, sources ...collector.Source) *scrape.Scraper {
	t.Helper()
	return Within(t, 3*time.Second, sources...)
}

// Within is like Scraper, with a budget.
func Within(t testing.TB, budget time.Duration, sources ...collector.Source) *scrape.Scraper {
	t.Helper()
	s := scrape.New(sources, scrape.Options{
		Budget:  budget,
		Logger:  slog.New(slog.DiscardHandler),
		Info:    scrape.Info{Version: "0.0.0", Revision: "test", GoVersion: "go"},
		Process: Process(),
	})
	return s
}

// Process returns the metrics of a process, always the same ones.
func Process() prometheus.Gatherer {
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "process_cpu_seconds_total"},
		func() float64 { return 1 }))
	for name, v := range map[string]float64{"process_open_fds": 9, "process_max_fds": 1024,
		"process_resident_memory_bytes": 1 << 20, "process_start_time_seconds": 946684800, "go_goroutines": 7} {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name}, func() float64 { return v }))
	}
	return reg
}

// Text returns the exposition in the text format.
func Text(t testing.TB, s *scrape.Scraper) []byte {
	t.Helper()
	text, err := s.Exposition(expfmt.NewFormat(expfmt.TypeTextPlain), false)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Pedantic returns client_golang's text for a collector, on a registry that checks everything.
func Pedantic(t testing.TB, c prometheus.Collector) string {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	enc := expfmt.NewEncoder(&b, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, f := range families {
		if err := enc.Encode(f); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// Lines returns the lines of an exposition that begin with one of the prefixes.
func Lines(text []byte, prefixes ...string) (found []string) {
	for line := range strings.Lines(string(text)) {
		for _, p := range prefixes {
			if strings.HasPrefix(line, p) {
				found = append(found, strings.TrimSpace(line))
			}
		}
	}
	return found
}
