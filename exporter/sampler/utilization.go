package sampler

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/railscope/railscope/collector/sampler"
	"github.com/railscope/railscope/exporter/table"
)

// utilization is the histogram of what the sampler saw. The sampler counts, in
// classic and in native buckets; here the counts become either format. It is of
// the snapshot that the last scrape took.
type utilization struct {
	source *Source
	desc   *prometheus.Desc
}

func newUtilization(s *Source) *utilization {
	row := s.rows.utilization
	return &utilization{source: s, desc: prometheus.NewDesc(table.FullName(row), row.Help, row.Labels, nil)}
}

// Describe implements [prometheus.Collector].
func (u *utilization) Describe(ch chan<- *prometheus.Desc) { ch <- u.desc }

// Collect implements [prometheus.Collector].
func (u *utilization) Collect(ch chan<- prometheus.Metric) {
	u.source.mu.Lock()
	defer u.source.mu.Unlock()
	for _, r := range u.source.snap.Rails {
		for d, t := range r.Tally {
			if t.Samples > 0 {
				ch <- &utilizationSeries{desc: u.desc, tally: t, labels: []string{table.Label(r.Name), sampler.Direction(d)}}
			}
		}
	}
}

// utilizationSeries is one series of it.
type utilizationSeries struct {
	desc   *prometheus.Desc
	labels []string
	tally  sampler.Tally
}

// Desc implements [prometheus.Metric].
func (s *utilizationSeries) Desc() *prometheus.Desc { return s.desc }

// Write implements [prometheus.Metric] with both kinds of buckets.
func (s *utilizationSeries) Write(out *dto.Metric) error {
	t := &s.tally
	h := &dto.Histogram{SampleCount: new(t.Samples), SampleSum: new(t.Sum),
		Schema: new(int32(sampler.NativeSchema)), ZeroThreshold: new(sampler.NativeZeroThreshold), ZeroCount: new(t.Zero)}
	var cumulative uint64
	for i, bound := range sampler.ClassicBounds() {
		cumulative += t.Classic[i]
		h.Bucket = append(h.Bucket, &dto.Bucket{CumulativeCount: new(cumulative), UpperBound: new(bound)})
	}
	h.PositiveSpan, h.PositiveDelta = nativeBuckets(t.Native[:])
	out.Histogram = h
	out.Label = prometheus.MakeLabelPairs(s.desc, s.labels)
	return nil
}

// nativeBuckets encodes counts as spans of buckets without wide gaps and the
// differences between neighbours.
func nativeBuckets(counts []uint64) (spans []*dto.BucketSpan, deltas []int64) {
	const wide = 2 // a gap up to this is cheaper as empty buckets
	next, last := 0, int64(0)
	push := func(n int64) {
		*spans[len(spans)-1].Length++
		deltas = append(deltas, n-last)
		last = n
	}
	for i, n := range counts {
		if n == 0 {
			continue
		}
		index := i + sampler.NativeFirst
		if spans == nil || index-next > wide {
			spans = append(spans, &dto.BucketSpan{Offset: new(int32(index - next)), Length: new(uint32(0))})
		} else {
			for range index - next {
				push(0)
			}
		}
		push(int64(n))
		next = index + 1
	}
	return spans, deltas
}
