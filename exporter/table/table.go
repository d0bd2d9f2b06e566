// Package table keeps the series between scrapes and writes them in the text format; client_golang writes the other
// formats. It defines the exported names and the format of values.
package table

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/internal/text"
)

// FullName returns the exported name of a row. railscope's own process metrics keep their standard names.
func FullName(m *collector.Metric) string {
	switch m.Name {
	case "process_cpu_seconds_total", "process_open_fds", "process_max_fds", "process_resident_memory_bytes",
		"process_start_time_seconds", "go_goroutines":
		return m.Name
	}
	return "railscope_" + m.Name
}

// TypeName returns the name of a kind in the exposition and the documentation.
func TypeName(k collector.Kind) string {
	return [...]string{collector.Counter: "counter", collector.Gauge: "gauge", collector.Untyped: "untyped",
		collector.Histogram: "histogram"}[k]
}

// UnixSeconds returns a time as the value of a metric.
func UnixSeconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1e3 }

// Label returns a value that client_golang accepts for a label and that people can read.
func Label(s string) string { return terminal.PlainLines(s) }

// Table holds the series. The text of a series up to the value is rendered once and kept while the series exists,
// so that a scrape costs a lookup and a number per series. It is also a [prometheus.Collector]. Not safe for
// concurrent use.
type Table struct {
	Native bool // Collect makes native histograms; otherwise classic ones
	// Only reports whether a series of a row is written, by its label values; nil: all are written.
	Only func(row *collector.Metric, labels []string) bool

	families []*family // sorted by name
	byRow    map[*collector.Metric]*family
	byName   map[string]*family // keyed by the row's name
	scrape   uint64             // number of the current scrape
	key      []byte             // buffer for the lookup of a series
}

type family struct {
	row     *collector.Metric
	desc    *prometheus.Desc
	head    string // HELP and TYPE lines
	sorted  []int  // indices of the row's labels, by name
	series  map[string]*series
	ordered []*series // in the order of the exposition
	count   int       // series set in the current scrape
	added   bool      // a series was added since ordered was sorted
	begun   bool      // the current scrape sets all series of the row
	renamed bool      // a name was changed to be a valid label, so two names may share one line

	histograms Histograms // series of a row of kind Histogram, used instead of series; nil: none
}

type series struct {
	prefix string   // name and labels, with a space after them
	labels []string // values, in the row's order
	value  float64
	scrape uint64 // number of the scrape that set it last
}

// New returns a table for the rows, which must have different names. histograms has the series of the rows of kind
// Histogram.
func New(rows []*collector.Metric, histograms map[*collector.Metric]Histograms) *Table {
	t := &Table{byRow: make(map[*collector.Metric]*family, len(rows)), byName: make(map[string]*family, len(rows))}
	for _, m := range rows {
		name := FullName(m)
		f := &family{row: m, histograms: histograms[m], series: map[string]*series{},
			desc: prometheus.NewDesc(name, m.Help, m.Labels, nil),
			head: fmt.Sprintf("# HELP %s %s\n# TYPE %s %s\n", name, escapeHelp.Replace(m.Help), name, TypeName(m.Kind))}
		for i := range m.Labels {
			f.sorted = append(f.sorted, i)
		}
		slices.SortFunc(f.sorted, func(a, b int) int { return strings.Compare(m.Labels[a], m.Labels[b]) })
		t.byRow[m], t.byName[m.Name] = f, f
		t.families = append(t.families, f)
	}
	slices.SortFunc(t.families, func(a, b *family) int { return strings.Compare(FullName(a.row), FullName(b.row)) })
	return t
}

// Histograms calls each with every complete series of a histogram; native says whether the format has native
// buckets. The observer of the values keeps the series. The passed values are not modified.
type Histograms func(native bool, each func(*dto.Metric))

// Begin starts a scrape of these rows; nil: all. End drops their series that the scrape did not set. Series of
// other rows stay, and can be set.
func (t *Table) Begin(rows []*collector.Metric) {
	t.scrape++
	for _, f := range t.families {
		f.count, f.begun = 0, rows == nil
	}
	for _, m := range rows {
		if f := t.byRow[m]; f != nil {
			f.begun = true
		}
	}
}

// Set sets the value of a series. It returns false and sets nothing for an unknown row, a wrong number of labels or
// a series that this scrape has already set: one broken source must not break the exposition.
func (t *Table) Set(s collector.Sample) bool {
	f := t.byRow[s.Metric]
	if f == nil || len(s.Labels) != len(f.row.Labels) || f.row.Kind == collector.Histogram {
		return false
	}
	entry := t.find(f, s.Labels)
	if f.begun {
		if entry.scrape == t.scrape {
			return false
		}
		entry.scrape = t.scrape
		f.count++
	}
	entry.value = s.Value
	return true
}

func (t *Table) find(f *family, labels []string) *series {
	t.key = t.key[:0]
	for _, l := range labels {
		t.key = append(append(t.key, l...), 0xff)
	}
	if s := f.series[string(t.key)]; s != nil {
		return s
	}
	// Values of these labels come from outside. The parts of pod and job, which are cleaned one by one, are
	// separated by /.
	outside := []string{"device", "netdev", "bond", "member", "comm", "container", "peer"}
	s := &series{labels: make([]string, len(labels))}
	for i, l := range labels {
		s.labels[i] = Label(l)
		if slices.Contains(outside, f.row.Labels[i]) {
			s.labels[i] = text.Label(l)
		}
		f.renamed = f.renamed || s.labels[i] != l
	}
	s.prefix = f.prefix(s.labels)
	if f.renamed {
		if i := slices.IndexFunc(f.ordered, func(o *series) bool { return o.prefix == s.prefix }); i >= 0 {
			return f.ordered[i] // one line for all names that are equal after cleaning; the original name is not kept
		}
	}
	f.series[string(t.key)] = s
	f.ordered, f.added = append(f.ordered, s), true
	return s
}

// End ends a scrape: it drops series that were not set, and sorts new ones.
func (t *Table) End() {
	for _, f := range t.families {
		if f.begun && f.count != len(f.ordered) {
			f.ordered = slices.DeleteFunc(f.ordered, func(s *series) bool { return s.scrape != t.scrape })
			maps.DeleteFunc(f.series, func(_ string, s *series) bool { return s.scrape != t.scrape })
		}
		if f.added {
			slices.SortFunc(f.ordered, f.compare)
			f.added = false
		}
	}
}

// compare orders series as client_golang does: by label values, labels by name.
func (f *family) compare(a, b *series) int {
	for _, i := range f.sorted {
		if c := cmp.Compare(a.labels[i], b.labels[i]); c != 0 {
			return c
		}
	}
	return 0
}

// Each calls each with every series of a row, which is given by its name without the prefix, in the order of the
// exposition: the values of these labels, which must not be kept, and the value. It reports whether the row and the
// labels exist.
func (t *Table) Each(row string, labels []string, each func(values []string, v float64)) bool {
	f := t.byName[row]
	if f == nil {
		return false
	}
	at, values := make([]int, len(labels)), make([]string, len(labels))
	for i, l := range labels {
		at[i] = slices.Index(f.row.Labels, l)
		if at[i] < 0 {
			return false
		}
	}
	for _, s := range f.ordered {
		for i, j := range at {
			values[i] = s.labels[j]
		}
		each(values, s.value)
	}
	return true
}

// only reports whether a series is written; without labels, whether a histogram is.
func (t *Table) only(f *family, labels []string) bool { return t.Only == nil || t.Only(f.row, labels) }

// Describe implements [prometheus.Collector].
func (t *Table) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range t.families {
		ch <- f.desc
	}
}

// histogram passes a series to client_golang.
type histogram struct {
	desc *prometheus.Desc
	*dto.Metric
}

func (h histogram) Desc() *prometheus.Desc { return h.desc }

func (h histogram) Write(out *dto.Metric) error {
	out.Label, out.Histogram = h.Label, h.Histogram
	return nil
}

// Collect implements [prometheus.Collector] with the series of the last scrape.
func (t *Table) Collect(ch chan<- prometheus.Metric) {
	kinds := map[collector.Kind]prometheus.ValueType{
		collector.Counter: prometheus.CounterValue, collector.Gauge: prometheus.GaugeValue}
	for _, f := range t.families {
		if f.histograms != nil && t.only(f, nil) {
			f.histograms(t.Native, func(m *dto.Metric) { ch <- histogram{f.desc, m} })
		}
		for _, s := range f.ordered {
			if t.only(f, s.labels) {
				ch <- prometheus.MustNewConstMetric(f.desc, cmp.Or(kinds[f.row.Kind], prometheus.UntypedValue), s.value,
					s.labels...)
			}
		}
	}
}
