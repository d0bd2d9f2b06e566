// Package sampler is the source of the metrics that the sampler counts.
package sampler

import (
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/collector/sampler"
	"github.com/railscope/railscope/exporter/table"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// Source emits the sampler's values. Counters only increase, so that any number of servers can scrape at any
// interval.
type Source struct {
	snapshot func(*sampler.Snapshot)
	*rows
	desc *prometheus.Desc // description of the histogram

	mu   sync.Mutex // protects all following fields
	snap sampler.Snapshot
}

// NewSource returns the source. snapshot copies the sampler's state into the given memory and must not block.
func NewSource(snapshot func(*sampler.Snapshot)) *Source {
	r := newRows()
	h := r.utilization
	return &Source{snapshot: snapshot, rows: r, desc: prometheus.NewDesc(table.FullName(h), h.Help, h.Labels, nil)}
}

// Histograms implements scrape.HistogramSource.
func (s *Source) Histograms() map[*collector.Metric]table.Histograms {
	return map[*collector.Metric]table.Histograms{s.rows.utilization: s.utilization}
}

type put = func(m *collector.Metric, v float64, labels ...string)

// Read implements [collector.Source].
func (s *Source) Read(emit func(collector.Sample)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snapshot(&s.snap)
	if len(s.snap.Rails) == 0 && len(s.snap.GPUs) == 0 {
		return fmt.Errorf("no rail or GPU to sample: %w", collector.ErrAbsent)
	}
	put := func(m *collector.Metric, v float64, labels ...string) {
		emit(collector.Sample{Metric: m, Labels: labels, Value: v})
	}
	if len(s.snap.Rails) > 0 {
		s.emitRails(put)
	}
	for i, f := range s.snap.Fallback {
		if f.Known {
			put(s.fallback, collector.Bool(f.Suspected), sampler.Reason(i))
		}
	}
	for _, g := range s.snap.GPUs {
		put(s.peak, float64(g.Start), strconv.Itoa(g.Index), "start")
		put(s.peak, float64(g.Minute), strconv.Itoa(g.Index), "1m")
	}
	return errors.Join(s.emitDevices(put)...)
}

// emitRails emits the traffic of each rail and of all rails together. Values relative to a capacity require a known
// one.
func (s *Source) emitRails(put put) {
	for i := range s.snap.Rails {
		r := &s.snap.Rails[i]
		for d := range r.Tally {
			t, direction := &r.Tally[d], sampler.Direction(d)
			if t.Samples > 0 {
				put(s.busy, t.Busy, r.Name, direction)
				put(s.saturated, t.Saturated, r.Name, direction)
			}
			if r.TCPKnown {
				put(s.tcp, float64(r.TCP[d]), r.Name, direction)
			}
			if lag := r.Lag[d]; lag.Rate > 0 {
				put(s.peaks.lagging, lag.Rate, r.Name, direction, "rail")
				put(s.peaks.lagging, lag.Equals, r.Name, direction, "equals")
			}
			for w, peak := range r.Peaks[d] {
				if peak.Rate > 0 {
					put(s.peaks.highest, peak.Rate, r.Name, direction, sampler.PeakWindow(w))
					put(s.peaks.highestAt, float64(peak.At.UnixMilli())/1e3, r.Name, direction, sampler.PeakWindow(w))
				}
			}
		}
	}
	for d, set := range s.snap.Sets {
		direction := sampler.Direction(d)
		if set.Known || set.Busy > 0 {
			put(s.anyBusy, set.Busy, direction)
			put(s.imbalanced, set.Imbalanced, direction)
		}
		if set.Known {
			put(s.active, float64(set.Active), direction)
		}
		for role, imbalance := range set.Roles {
			put(s.imbalance, imbalance, direction, role)
		}
		for name, share := range set.Shares {
			put(s.share, share, name, direction)
		}
	}
}

func (s *Source) emitDevices(put put) (faults []error) {
	for _, d := range s.snap.Devices {
		put(s.cost.interval, d.Interval.Seconds(), d.Name)
		put(s.cost.samples, float64(d.Samples), d.Name)
		put(s.cost.overruns, float64(d.Overruns), d.Name)
		put(s.cost.reading, d.Reading.Seconds(), d.Name)
		if d.Stuck > 0 {
			faults = append(faults, &collector.Fault{Device: d.Name, Reason: sysfs.ReasonTimeout,
				Err: fmt.Errorf("a sample that began %v ago has not returned", d.Stuck)})
		} else if d.Err != nil {
			f := collector.NewFault(d.Name, d.Err)
			if errors.Is(d.Err, rail.ErrUncounted) {
				f.Reason, f.Expected = sysfs.ReasonUnsupported, true
			}
			faults = append(faults, f)
		}
	}
	for reason, n := range s.snap.Dropped {
		put(s.cost.dropped, float64(n), sampler.DropReason(reason))
	}
	return faults
}

// Recent appends a rail's rates of the last seconds to list, and returns its current rate, all in bytes per second.
func (s *Source) Recent(rail string, direction int, list []float64) (recent []float64, now float64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.snap.Rails {
		if r.Name == rail {
			return append(list, r.Recent[direction]...), r.Rate[direction], true
		}
	}
	return list, 0, false
}

// utilization calls each with the histogram of every rail and direction in the last snapshot.
func (s *Source) utilization(native bool, each func(*dto.Metric)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.snap.Rails {
		r := &s.snap.Rails[i]
		for d, t := range r.Tally {
			if h, ok := t.Utilization.(*histogram); ok && t.Samples > 0 {
				labels := prometheus.MakeLabelPairs(s.desc, []string{table.Label(r.Name), sampler.Direction(d)})
				each(&dto.Metric{Label: labels, Histogram: h.write(native)})
			}
		}
	}
}

// histogram has both kinds of buckets, apart so that a scrape of the classic ones does not pay for the native ones.
type histogram struct {
	mu              sync.Mutex // makes both have the same samples
	classic, native prometheus.Histogram
}

// NewHistogram returns an empty histogram for [sampler.Options]: the only one that the source exports.
func NewHistogram() sampler.Histogram {
	return &histogram{
		classic: prometheus.NewHistogram(prometheus.HistogramOpts{
			Buckets: []float64{sampler.BusyAbove, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, sampler.SaturatedAbove}}),
		native: prometheus.NewHistogram(prometheus.HistogramOpts{ // eight buckets per doubling
			NativeHistogramBucketFactor: 1.1, NativeHistogramZeroThreshold: 1. / 1024}),
	}
}

// Observe implements [sampler.Histogram].
func (h *histogram) Observe(utilization float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.classic.Observe(utilization)
	h.native.Observe(utilization)
}

func (h *histogram) write(native bool) *dto.Histogram {
	h.mu.Lock()
	defer h.mu.Unlock()
	var m dto.Metric
	_ = h.classic.Write(&m) // a histogram of numbers cannot fail
	if native {
		buckets := m.Histogram.Bucket
		_ = h.native.Write(&m)
		m.Histogram.Bucket = buckets
	}
	m.Histogram.CreatedTimestamp = nil // no other series has one
	return m.Histogram
}
