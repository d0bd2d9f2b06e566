package sampler

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/railscope/railscope/collector/sampler"
	"github.com/railscope/railscope/exporter/table"
)

// utilization collects the histogram of the last snapshot. The sampler counts, in classic and in native buckets.
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
				ch <- &series{desc: u.desc, tally: t, labels: []string{table.Label(r.Name), sampler.Direction(d)}}
			}
		}
	}
}

// series is the histogram of one rail and direction.
type series struct {
	desc   *prometheus.Desc
	labels []string
	tally  sampler.Tally
}

// Desc implements [prometheus.Metric].
func (s *series) Desc() *prometheus.Desc { return s.desc }

// Write implements [prometheus.Metric] with both kinds of buckets.
func (s *series) Write(out *dto.Metric) error {
	t, native := &s.tally, map[int]int64{}
	for i, n := range t.Native {
		if n > 0 {
			native[i+sampler.NativeFirst] = int64(n)
		}
	}
	m, err := prometheus.NewConstNativeHistogram(s.desc, t.Samples, t.Sum, native, nil, t.Zero, sampler.NativeSchema,
		sampler.NativeZeroThreshold, time.Time{}, s.labels...)
	if err != nil {
		return err
	}
	if err := m.Write(out); err != nil {
		return err
	}
	h := out.Histogram
	h.CreatedTimestamp = nil // unknown
	var cumulative uint64
	for i, bound := range sampler.ClassicBounds() {
		cumulative += t.Classic[i]
		h.Bucket = append(h.Bucket, &dto.Bucket{CumulativeCount: new(cumulative), UpperBound: new(bound)})
	}
	return nil
}
