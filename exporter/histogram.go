package exporter

import (
	"math"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// textHistogram collects the series of a row of kind Histogram, and writes the
// text of them itself.
type textHistogram interface {
	prometheus.Collector
	// appendText appends the family, head first, or nothing when it has no series,
	// in the order in which client_golang would.
	appendText(b []byte, head string) []byte
}

// histograms are the series of a row of that kind. client_golang counts; the
// text of its classic buckets is written here, because what names a line is
// most of it, and is made once. The text format has no native histograms.
type histograms struct {
	prometheus.Collector
	gatherer prometheus.Gatherer
	name     string
	lines    map[string][]string // by label values: every line up to its value
	key      []byte              // memory for looking them up
}

func newHistograms(name string, c prometheus.Collector) (*histograms, error) {
	reg := prometheus.NewRegistry()
	return &histograms{Collector: c, gatherer: reg, name: name, lines: map[string][]string{}}, reg.Register(c)
}

// appendText appends the family, or nothing when it has no series. An error
// must not spoil the exposition, either: two collectors made the same series.
func (h *histograms) appendText(b []byte, head string) []byte {
	if h.empty() {
		return b
	}
	families, err := h.gatherer.Gather()
	if err != nil || len(families) == 0 {
		return b
	}
	b = append(b, head...)
	for _, m := range families[0].GetMetric() {
		lines, series := h.linesOf(m), m.GetHistogram()
		write := func(v float64) {
			b = append(b, lines[0]...)
			b = append(appendValue(b, v), '\n')
			lines = lines[1:]
		}
		for _, bucket := range series.GetBucket() {
			write(float64(bucket.GetCumulativeCount()))
		}
		write(float64(series.GetSampleCount())) // of the bucket +Inf
		write(series.GetSampleSum())
		write(float64(series.GetSampleCount()))
	}
	if len(h.lines) > len(families[0].GetMetric()) {
		clear(h.lines) // some went; the others are made again
	}
	return b
}

// empty reports whether there are no series. Most nodes probe nobody, and
// client_golang takes a twentieth of a scrape to find nothing.
func (h *histograms) empty() bool {
	series := make(chan prometheus.Metric)
	go func() {
		defer close(series)
		h.Collect(series)
	}()
	n := 0
	for range series {
		n++
	}
	return n == 0
}

// linesOf returns the lines of a series, buckets first, then sum and count.
func (h *histograms) linesOf(m *dto.Metric) []string {
	h.key = h.key[:0]
	for _, l := range m.GetLabel() {
		h.key = append(append(h.key, l.GetValue()...), 0xff)
	}
	if lines := h.lines[string(h.key)]; lines != nil {
		return lines
	}
	var pairs strings.Builder
	for _, l := range m.GetLabel() {
		pairs.WriteString(l.GetName() + `="` + escapeLabel.Replace(l.GetValue()) + `",`)
	}
	labels := pairs.String()
	var lines []string
	for _, bucket := range m.GetHistogram().GetBucket() {
		lines = append(lines, h.bucket(labels, bucket.GetUpperBound()))
	}
	rest := " "
	if labels != "" {
		rest = "{" + labels[:len(labels)-1] + "} "
	}
	lines = append(lines, h.bucket(labels, math.Inf(1)), h.name+"_sum"+rest, h.name+"_count"+rest)
	h.lines[string(h.key)] = lines
	return lines
}

func (h *histograms) bucket(labels string, bound float64) string {
	return bucketLine(h.name, labels, bound)
}

// bucketLine is the line of a bucket up to its value. Labels end in a comma.
func bucketLine(name, labels string, bound float64) string {
	return name + "_bucket{" + labels + `le="` + string(appendValue(nil, bound)) + `"} `
}
