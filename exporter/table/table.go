package table

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/text"
)

// Namespace is the prefix of every metric of ours.
const Namespace = "railscope"

// FullName returns the name under which a row is exported. The standard metrics of a process keep their names;
// process_queue_pairs and the like are about other processes.
func FullName(m *collector.Metric) string {
	switch m.Name {
	case "process_cpu_seconds_total", "process_open_fds", "process_max_fds",
		"process_resident_memory_bytes", "process_start_time_seconds", "go_goroutines":
		return m.Name
	}
	return Namespace + "_" + m.Name
}

// Table holds the series of one scrape after another. What names a series, its
// line in the exposition up to the value, is made once and kept as long as the
// series is there, so that a scrape costs a lookup and a number per series. It
// is also a [prometheus.Collector], for the formats that it does not write
// itself. Not safe for concurrent use.
type Table struct {
	families []*family // in order of name
	byRow    map[*collector.Metric]*family
	byName   map[string]*family // by the row's name
	scrape   uint64             // number of the scrape going on
	key      []byte             // memory for looking up a series
}

// family is all series of one row.
type family struct {
	row     *collector.Metric
	desc    *prometheus.Desc
	head    string // HELP and TYPE lines
	sorted  []int  // indices of the row's labels in order of name
	series  map[string]*series
	ordered []*series // in the order of the exposition
	live    int       // series set in the current scrape
	added   bool      // a series was added since ordered was sorted
	begun   bool      // the current scrape sets all series of the row
	outside []bool    // which labels are names from outside, in the row's order
	renamed bool      // a name was changed to fit a label: two names may share one line

	histograms prometheus.Collector // of a row of kind Histogram, instead of series; nil: none
}

// fromOutside are the labels whose values others choose: they are fit for a label
// whatever they are, see [text.Label]. Pods and jobs have a / between parts that
// were cleaned one by one.
var fromOutside = map[string]bool{"device": true, "netdev": true, "bond": true, "member": true, "comm": true, "container": true, "peer": true}

// series is one line of the exposition.
type series struct {
	prefix string   // name and labels, with a space after them
	labels []string // values, in the row's order
	value  float64
	scrape uint64 // number of the scrape that set it last
}

// NewTable returns a table for the rows, which must have different names.
func New(rows []*collector.Metric) *Table {
	t := &Table{byRow: make(map[*collector.Metric]*family, len(rows)), byName: make(map[string]*family, len(rows))}
	for _, m := range rows {
		f := &family{row: m, series: map[string]*series{}, sorted: make([]int, len(m.Labels)),
			desc: prometheus.NewDesc(FullName(m), m.Help, m.Labels, nil)}
		for _, l := range m.Labels {
			f.outside = append(f.outside, fromOutside[l])
		}
		f.head = "# HELP " + FullName(m) + " " + escapeHelp.Replace(m.Help) + "\n# TYPE " + FullName(m) + " " + typeNames[m.Kind] + "\n"
		for i := range f.sorted {
			f.sorted[i] = i
		}
		slices.SortFunc(f.sorted, func(a, b int) int { return strings.Compare(m.Labels[a], m.Labels[b]) })
		t.byRow[m], t.byName[m.Name] = f, f
		t.families = append(t.families, f)
	}
	slices.SortFunc(t.families, func(a, b *family) int { return strings.Compare(FullName(a.row), FullName(b.row)) })
	return t
}

// Histograms gives a row of kind Histogram what collects its series, under the
// row's full name, help and labels. They are nobody's to set in a scrape: who
// observes values keeps the histograms.
func (t *Table) Histograms(m *collector.Metric, c prometheus.Collector) error {
	f := t.byRow[m]
	if f == nil || m.Kind != collector.Histogram {
		return fmt.Errorf("metric %s: not a histogram of this table", m.Name)
	}
	f.histograms = c
	return nil
}

var (
	escapeHelp  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	escapeLabel = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
	typeNames   = map[collector.Kind]string{collector.Counter: "counter", collector.Gauge: "gauge", collector.Untyped: "untyped", collector.Histogram: "histogram"}
	valueTypes  = map[collector.Kind]prometheus.ValueType{collector.Counter: prometheus.CounterValue, collector.Gauge: prometheus.GaugeValue, collector.Untyped: prometheus.UntypedValue}
)

// TypeName is a kind of metric as the exposition and the documentation call it.
func TypeName(k collector.Kind) string { return typeNames[k] }

// Begin starts a scrape of all rows: series that it does not set are dropped at
// its end.
func (t *Table) Begin() {
	t.scrape++
	for _, f := range t.families {
		f.live, f.begun = 0, true
	}
}

// BeginSome starts a scrape of some rows. Series of the others stay, with the
// value that they had or one that is set.
func (t *Table) BeginSome(rows []*collector.Metric) {
	t.scrape++
	for _, f := range t.families {
		f.begun = false
	}
	for _, m := range rows {
		if f := t.byRow[m]; f != nil {
			f.live, f.begun = 0, true
		}
	}
}

// Set gives a series its value and reports whether that was possible: the row
// is the table's, it has as many labels as the row, and nobody has set the
// series in this scrape. One broken source must not spoil the exposition.
func (t *Table) Set(s collector.Sample) bool {
	f := t.byRow[s.Metric]
	if f == nil || len(s.Labels) != len(f.row.Labels) || f.row.Kind == collector.Histogram {
		return false
	}
	if !f.begun {
		t.lookUp(f, s.Labels).value = s.Value
		return true
	}
	entry := t.lookUp(f, s.Labels)
	if entry.scrape == t.scrape {
		return false
	}
	entry.scrape, entry.value = t.scrape, s.Value
	f.live++
	return true
}

// lookUp returns the series with these labels, making it when it is new.
func (t *Table) lookUp(f *family, labels []string) *series {
	t.key = t.key[:0]
	for _, l := range labels {
		t.key = append(append(t.key, l...), 0xff)
	}
	if s := f.series[string(t.key)]; s != nil {
		return s
	}
	s := &series{labels: make([]string, len(labels))}
	for i, l := range labels {
		s.labels[i] = strings.ToValidUTF8(l, "\ufffd")
		if f.outside[i] {
			s.labels[i] = text.Label(l)
			f.renamed = f.renamed || s.labels[i] != l
		}
	}
	s.prefix = f.prefix(s.labels)
	if f.renamed {
		if i := slices.IndexFunc(f.ordered, func(o *series) bool { return o.prefix == s.prefix }); i >= 0 {
			return f.ordered[i] // one line, which is of the first that is set; not kept under this name, which may be any
		}
	}
	f.series[string(t.key)] = s
	f.ordered, f.added = append(f.ordered, s), true
	return s
}

// prefix renders everything of a line but the value, labels in order of name.
func (f *family) prefix(labels []string) string {
	var b strings.Builder
	b.WriteString(FullName(f.row))
	for n, i := range f.sorted {
		b.WriteByte("{,"[min(n, 1)])
		b.WriteString(f.row.Labels[i] + `="`)
		b.WriteString(escapeLabel.Replace(labels[i]))
		b.WriteByte('"')
	}
	if len(f.sorted) > 0 {
		b.WriteByte('}')
	}
	b.WriteByte(' ')
	return b.String()
}

// End ends a scrape: it forgets what was not set, and puts what is new in its
// place.
func (t *Table) End() {
	for _, f := range t.families {
		if f.begun && f.live != len(f.ordered) {
			f.ordered = slices.DeleteFunc(f.ordered, func(s *series) bool { return s.scrape != t.scrape })
			for key, s := range f.series {
				if s.scrape != t.scrape {
					delete(f.series, key)
				}
			}
		}
		if f.added {
			slices.SortFunc(f.ordered, f.compare)
			f.added = false
		}
	}
}

// compare orders series as client_golang does: by label values, labels in order
// of name.
func (f *family) compare(a, b *series) int {
	for _, i := range f.sorted {
		if c := cmp.Compare(a.labels[i], b.labels[i]); c != 0 {
			return c
		}
	}
	return 0
}

// Each calls each with the series of the last scrape of a row, given by its
// name without the namespace, in the order of the exposition: the values of the
// labels asked for, and the value. It reports whether there is such a row with
// such labels. The values are another series' when each returns.
func (t *Table) Each(row string, labels []string, each func(values []string, v float64)) bool {
	f := t.byName[row]
	if f == nil {
		return false
	}
	at, values := make([]int, len(labels)), make([]string, len(labels))
	for i, l := range labels {
		if at[i] = slices.Index(f.row.Labels, l); at[i] < 0 {
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

// AppendText appends the exposition in the text format 0.0.4.
func (t *Table) AppendText(b []byte) []byte {
	for _, f := range t.families {
		if f.histograms != nil {
			b = appendHistograms(b, f)
		}
		if len(f.ordered) == 0 {
			continue
		}
		b = append(b, f.head...)
		for _, s := range f.ordered {
			b = append(b, s.prefix...)
			b = appendValue(b, s.value)
			b = append(b, '\n')
		}
	}
	return b
}

// appendValue writes a number as the text format has it. Counters are nearly
// all whole numbers, for which there is a shorter way to the same digits.
func appendValue(b []byte, v float64) []byte {
	switch {
	case v == math.Trunc(v) && math.Abs(v) < 1e6:
		return strconv.AppendInt(b, int64(v), 10)
	case math.IsInf(v, 1):
		return append(b, "+Inf"...)
	case math.IsInf(v, -1):
		return append(b, "-Inf"...)
	case math.IsNaN(v):
		return append(b, "NaN"...)
	}
	return strconv.AppendFloat(b, v, 'g', -1, 64)
}

// Describe implements [prometheus.Collector].
func (t *Table) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range t.families {
		if f.histograms != nil {
			f.histograms.Describe(ch)
		} else {
			ch <- f.desc
		}
	}
}

// Collect implements [prometheus.Collector] with the series of the last scrape.
func (t *Table) Collect(ch chan<- prometheus.Metric) {
	for _, f := range t.families {
		if f.histograms != nil {
			f.histograms.Collect(ch)
		}
		for _, s := range f.ordered {
			ch <- prometheus.MustNewConstMetric(f.desc, valueTypes[f.row.Kind], s.value, s.labels...)
		}
	}
}

// UnixSeconds is a time as metrics have it.
func UnixSeconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1e3 }

// Label is a value that client_golang takes for a label.
func Label(s string) string { return strings.ToValidUTF8(s, "\ufffd") }
