package table

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/railscope/railscope/collector"
)

func set(t *Table, m *collector.Metric, v float64, labels ...string) bool {
	return t.Set(collector.Sample{Metric: m, Labels: labels, Value: v})
}

// TestTable tests the contract of a table over several scrapes.
func TestTable(t *testing.T) {
	zoo := &collector.Metric{Name: "zoo_total", Help: "Animals.", Kind: collector.Counter,
		Labels: []string{"species", "cage"}}
	air := &collector.Metric{Name: "air", Help: `With a \ and
a line.`, Kind: collector.Untyped}
	table := New([]*collector.Metric{zoo, air}, nil)

	table.Begin(nil)
	for _, ok := range []bool{
		set(table, zoo, 2, "yak", "b"),
		set(table, zoo, 1, "ant", "c"),
		set(table, zoo, 1<<60, "quote\" back\\ line\n bad\xff", "a"),
		set(table, air, math.Inf(-1)),
	} {
		if !ok {
			t.Error("a good sample was refused")
		}
	}
	if set(table, zoo, 9, "yak", "b") {
		t.Error("a series was taken twice in one scrape")
	}
	if set(table, zoo, 9, "yak") || set(table, &collector.Metric{Name: "zoo_total"}, 9) {
		t.Error("a sample without its labels, or of a strange row, was taken")
	}
	table.End()
	first := "# HELP railscope_air With a \\\\ and\\na line.\n# TYPE railscope_air untyped\nrailscope_air -Inf\n" +
		"# HELP railscope_zoo_total Animals.\n# TYPE railscope_zoo_total counter\n" +
		"railscope_zoo_total{cage=\"a\",species=\"quote\\\" back\\\\ line\\n bad\uFFFD\"} 1.152921504606847e+18\n" +
		"railscope_zoo_total{cage=\"b\",species=\"yak\"} 2\n" +
		"railscope_zoo_total{cage=\"c\",species=\"ant\"} 1\n"
	if diff := cmp.Diff(first, string(table.AppendText(nil))); diff != "" {
		t.Errorf("first scrape (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(pedantic(t, table), first); diff != "" {
		t.Errorf("client_golang (-its +ours):\n%s", diff)
	}

	table.Begin(nil)
	set(table, zoo, 3, "yak", "b")
	table.End()
	second := "# HELP railscope_zoo_total Animals.\n# TYPE railscope_zoo_total counter\n" +
		"railscope_zoo_total{cage=\"b\",species=\"yak\"} 3\n"
	if diff := cmp.Diff(second, string(table.AppendText(nil))); diff != "" {
		t.Errorf("what a scrape did not set must go (-want +got):\n%s", diff)
	}

	table.Begin(nil)
	set(table, zoo, 4, "bee", "a")
	set(table, zoo, 3, "yak", "b")
	table.End()
	third := "# HELP railscope_zoo_total Animals.\n# TYPE railscope_zoo_total counter\n" +
		"railscope_zoo_total{cage=\"a\",species=\"bee\"} 4\nrailscope_zoo_total{cage=\"b\",species=\"yak\"} 3\n"
	if diff := cmp.Diff(third, string(table.AppendText(nil))); diff != "" {
		t.Errorf("what comes back must be in its place (-want +got):\n%s", diff)
	}
}

// TestTableSameMemory: sources reuse the memory of a series' labels for every scrape. A series that is missing in
// one scrape can return.
func TestTableSameMemory(t *testing.T) {
	row := &collector.Metric{Name: "v", Help: "V.", Kind: collector.Gauge, Labels: []string{"of"}}
	a, b, c := []string{"a"}, []string{"b"}, []string{"c"}
	table := New([]*collector.Metric{row}, nil)
	for _, scrape := range []struct {
		set  [][]string
		want string
	}{
		{[][]string{a, b, c}, "a0 b1 c2 "},
		{[][]string{a, b, c}, "a0 b1 c2 "},
		{[][]string{a}, "a0 "},
		{[][]string{a, b}, "a0 b1 "},
		{[][]string{c, a, b}, "a1 b2 c0 "},
		{[][]string{b, c}, "b0 c1 "},
		{nil, ""},
		{[][]string{b, a, {"b2"}}, "a1 b0 b22 "},
	} {
		table.Begin(nil)
		for i, labels := range scrape.set {
			if !set(table, row, float64(i), labels...) {
				t.Errorf("%v: %v was refused", scrape.set, labels)
			}
		}
		table.End()
		got := ""
		for line := range strings.Lines(string(table.AppendText(nil))) {
			if rest, ok := strings.CutPrefix(line, `railscope_v{of="`); ok {
				got += strings.ReplaceAll(strings.TrimSpace(rest), `"} `, "") + " "
			}
		}
		if got != scrape.want {
			t.Errorf("%v: %q, want %q", scrape.set, got, scrape.want)
		}
	}
}

// TestTableHistograms: the table writes its histograms in their place, and accepts no samples for them.
func TestTableHistograms(t *testing.T) {
	row := &collector.Metric{Name: "weight", Help: "W.", Kind: collector.Histogram, Labels: []string{"of"}}
	before, after := &collector.Metric{Name: "v", Help: "V.", Kind: collector.Gauge},
		&collector.Metric{Name: "x", Help: "X.", Kind: collector.Gauge}
	vec := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: FullName(row), Help: row.Help,
		Buckets: []float64{1, 2}}, row.Labels)
	table := New([]*collector.Metric{row, before, after}, map[*collector.Metric]Histograms{row: collected(vec)})
	vec.WithLabelValues("yak").Observe(3)
	vec.WithLabelValues("ant").Observe(1)
	table.Begin(nil)
	if set(table, row, 9, "yak") {
		t.Error("a sample was taken for a histogram")
	}
	set(table, before, 1)
	set(table, after, 2)
	table.End()
	want := `# HELP railscope_v V.
# TYPE railscope_v gauge
railscope_v 1
# HELP railscope_weight W.
# TYPE railscope_weight histogram
railscope_weight_bucket{of="ant",le="1"} 1
railscope_weight_bucket{of="ant",le="2"} 1
railscope_weight_bucket{of="ant",le="+Inf"} 1
railscope_weight_sum{of="ant"} 1
railscope_weight_count{of="ant"} 1
railscope_weight_bucket{of="yak",le="1"} 0
railscope_weight_bucket{of="yak",le="2"} 0
railscope_weight_bucket{of="yak",le="+Inf"} 1
railscope_weight_sum{of="yak"} 3
railscope_weight_count{of="yak"} 1
# HELP railscope_x X.
# TYPE railscope_x gauge
railscope_x 2
`
	if diff := cmp.Diff(want, string(table.AppendText(nil))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, pedantic(t, table)); diff != "" {
		t.Errorf("client_golang (-want +got):\n%s", diff)
	}
	alike := func() {
		t.Helper()
		for range 2 { // the second pass uses what the first has cached
			if diff := cmp.Diff(pedantic(t, table), string(table.AppendText(nil))); diff != "" {
				t.Errorf("client_golang writes it differently (-its, +ours):\n%s", diff)
			}
		}
	}
	vec.WithLabelValues("quote\" back\\ line\n").Observe(math.Inf(1))
	for range 1_000_001 {
		vec.WithLabelValues("many").Observe(0.1)
	}
	alike()
	vec.DeleteLabelValues("ant")
	alike()
	vec.Reset()
	alike()
}

// TestTableHistogramAlone: a histogram without labels.
func TestTableHistogramAlone(t *testing.T) {
	row := &collector.Metric{Name: "weight", Help: `A \ in it.`, Kind: collector.Histogram}
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: FullName(row), Help: row.Help,
		Buckets: []float64{1e-6, 0.5, 1e7}, NativeHistogramBucketFactor: 1.1})
	table := New([]*collector.Metric{row}, map[*collector.Metric]Histograms{row: collected(h)})
	h.Observe(0.25)
	if diff := cmp.Diff(pedantic(t, table), string(table.AppendText(nil))); diff != "" {
		t.Errorf("client_golang writes it differently (-its, +ours):\n%s", diff)
	}
}

// TestAppendValue compares formatted numbers with client_golang's.
func TestAppendValue(t *testing.T) {
	row := &collector.Metric{Name: "v", Help: "V.", Kind: collector.Gauge}
	for _, v := range []float64{0, math.Copysign(0, -1), 1, -1, 0.5, 1e-9, 999999, 1e6, 1000001, 123456789, 1 << 53,
		1<<53 + 2, math.MaxUint64, 1e21, -42, math.Inf(1), math.Inf(-1), math.NaN()} {
		table := New([]*collector.Metric{row}, nil)
		table.Begin(nil)
		set(table, row, v)
		table.End()
		if diff := cmp.Diff(pedantic(t, table), string(table.AppendText(nil))); diff != "" {
			t.Errorf("%v (-client_golang +ours):\n%s", v, diff)
		}
	}
}

// collected returns the series of a collector.
func collected(c prometheus.Collector) Histograms {
	return func(_ bool, each func(*dto.Metric)) {
		list := make(chan prometheus.Metric)
		go func() { defer close(list); c.Collect(list) }()
		for m := range list {
			var written dto.Metric
			if m.Write(&written) == nil {
				each(&written)
			}
		}
	}
}

// pedantic returns client_golang's text for a collector, on a registry that checks everything.
func pedantic(t *testing.T, c prometheus.Collector) string {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}
