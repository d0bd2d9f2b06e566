package sampler

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/railscope/railscope/collector/sampler"
	"github.com/railscope/railscope/exporter/table"
)

// utilization calls each with the histogram, classic and native, of every rail and direction in the last snapshot.
func (s *Source) utilization(_ bool, each func(prometheus.Metric)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.snap.Rails {
		r := &s.snap.Rails[i]
		for d := range r.Tally {
			if t := &r.Tally[d]; t.Samples > 0 {
				each(&series{desc: s.desc, tally: *t, labels: []string{table.Label(r.Name), sampler.Direction(d)}})
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
	out.Histogram.CreatedTimestamp = nil // unknown
	out.Histogram.Bucket = s.classic()
	return nil
}

func (s *series) WriteClassic(out *dto.Metric) {
	out.Label = prometheus.MakeLabelPairs(s.desc, s.labels)
	out.Histogram = &dto.Histogram{SampleCount: &s.tally.Samples, SampleSum: &s.tally.Sum, Bucket: s.classic()}
}

func (s *series) classic() []*dto.Bucket {
	bounds := sampler.ClassicBounds()
	list, buckets := make([]*dto.Bucket, len(bounds)), make([]dto.Bucket, len(bounds)) // three allocations in all
	counts := make([]uint64, len(bounds))
	var cumulative uint64
	for i := range bounds {
		cumulative += s.tally.Classic[i]
		counts[i] = cumulative
		list[i] = &buckets[i]
		buckets[i].CumulativeCount, buckets[i].UpperBound = &counts[i], &bounds[i]
	}
	return list
}
