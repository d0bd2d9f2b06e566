package table

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

var (
	escapeHelp  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	escapeLabel = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

// AppendText appends the exposition in the text format 0.0.4.
func (t *Table) AppendText(b []byte) []byte {
	for _, f := range t.families {
		if f.histograms != nil && t.only(f, nil) {
			b = appendHistograms(b, f)
		}
		head := false
		for _, s := range f.ordered {
			if !t.only(f, s.labels) {
				continue
			}
			if !head {
				b, head = append(b, f.head...), true
			}
			b = append(appendValue(append(b, s.prefix...), s.value), '\n')
		}
	}
	return b
}

// prefix renders a line except its value, labels by name.
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

// appendValue appends a number in the text format. Nearly all values are integers, which AppendInt writes faster.
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

// appendHistograms appends the classic buckets of a family of histograms, because the text format has no native
// ones. It takes half the time of expfmt.
func appendHistograms(b []byte, f *family) []byte {
	var series []*dto.Metric
	f.histograms(false, func(m *dto.Metric) { series = append(series, m) })
	if len(series) == 0 {
		return b
	}
	slices.SortFunc(series, func(a, b *dto.Metric) int { // client_golang has this order; labels are sorted by name
		return slices.CompareFunc(a.Label, b.Label, func(a, b *dto.LabelPair) int {
			return cmp.Compare(a.GetValue(), b.GetValue())
		})
	})
	b = append(b, f.head...)
	for _, m := range series {
		b = appendHistogram(b, FullName(f.row), m)
	}
	return b
}

func appendHistogram(b []byte, name string, m *dto.Metric) []byte {
	var labels string
	for _, l := range m.GetLabel() {
		labels += l.GetName() + `="` + escapeLabel.Replace(l.GetValue()) + `",`
	}
	bucket, h := name+"_bucket{"+labels+`le="`, m.GetHistogram()
	line := func(bound float64, count uint64) {
		b = append(appendValue(append(b, bucket...), bound), `"} `...)
		b = append(appendValue(b, float64(count)), '\n')
	}
	for _, c := range h.GetBucket() {
		line(c.GetUpperBound(), c.GetCumulativeCount())
	}
	line(math.Inf(1), h.GetSampleCount())
	if labels != "" {
		labels = "{" + labels[:len(labels)-1] + "}"
	}
	b = append(appendValue(append(b, name+"_sum"+labels+" "...), h.GetSampleSum()), '\n')
	return append(appendValue(append(b, name+"_count"+labels+" "...), float64(h.GetSampleCount())), '\n')
}
