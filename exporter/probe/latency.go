package probe

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/exporter/table"
)

// latency is the histogram of a peer and rail, with classic and native buckets.
type latency struct {
	prometheus.Histogram
	written *dto.Metric // as of the last round: a scrape is more frequent
}

func newLatency(row *collector.Metric, peer, rail string) *latency {
	return &latency{Histogram: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: table.FullName(row), Help: row.Help,
		Buckets:                     prometheus.ExponentialBuckets(1e-6, 2, 18), // 1 µs to 131.072 ms
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
	}, row.Labels).WithLabelValues(table.Label(peer), table.Label(rail)).(prometheus.Histogram)}
}

// observe adds the samples of a round.
func (l *latency) observe(samples []time.Duration) {
	for _, d := range samples {
		l.Observe(d.Seconds())
	}
	l.written = &dto.Metric{}
	_ = l.Write(l.written) // a histogram of numbers cannot fail
}

// WriteClassic implements [table.ClassicMetric].
func (l *latency) WriteClassic(out *dto.Metric) {
	out.Label, out.Histogram = l.written.Label, l.written.Histogram
}
