package exporter

import (
	"errors"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/collector/sampler"
	"github.com/railscope/railscope/internal/sysfs"
)

// Sampler is the source of what the sampler has. Nothing is read for it when it
// is scraped: it copies, and the numbers in it only grow, so that any number of
// servers may scrape at any interval.
type Sampler struct {
	snapshot  func(*sampler.Snapshot)
	rows      samplerRows
	histogram *utilization

	mu     sync.Mutex // protects all following fields
	snap   sampler.Snapshot
	labels samplerLabels
}

// NewSampler returns the source. snapshot copies what the sampler has into the
// memory given; it must not wait.
func NewSampler(snapshot func(*sampler.Snapshot)) *Sampler {
	s := &Sampler{snapshot: snapshot, rows: newSamplerRows()}
	s.histogram = newUtilization(s)
	return s
}

// Name implements [collector.Source].
func (s *Sampler) Name() string { return "sampler" }

// Metrics implements [collector.Source].
func (s *Sampler) Metrics() []*collector.Metric { return s.rows.all() }

// histograms implements histogramSource.
func (s *Sampler) histograms() map[*collector.Metric]prometheus.Collector {
	return map[*collector.Metric]prometheus.Collector{s.rows.utilization: s.histogram}
}

// Read implements [collector.Source].
func (s *Sampler) Read(emit func(collector.Sample)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snapshot(&s.snap)
	s.labels.follow(&s.snap)
	if len(s.snap.Rails) == 0 && len(s.snap.Bonds) == 0 && len(s.snap.GPUs) == 0 {
		return fmt.Errorf("no rail, bond or GPU to sample: %w", collector.ErrAbsent)
	}
	put := func(m *collector.Metric, labels []string, v float64) {
		emit(collector.Sample{Metric: m, Labels: labels, Value: v})
	}
	for i := range s.snap.Rails {
		s.putRail(&s.snap.Rails[i], &s.labels.rails[i], put)
	}
	s.putSets(put)
	s.putBonds(put)
	for i, g := range s.snap.GPUs {
		put(s.rows.peak, s.labels.gpus[i].start, float64(g.Start))
		put(s.rows.peak, s.labels.gpus[i].minute, float64(g.Minute))
	}
	return errors.Join(s.putDevices(put)...)
}

func (s *Sampler) putRail(r *sampler.Rail, l *railLabels, put func(*collector.Metric, []string, float64)) {
	for d := range r.Tally {
		t := &r.Tally[d]
		if t.Samples > 0 { // the capacity was known: it makes sense to say how much of it was used
			put(s.rows.busy, l.direction[d], t.Busy)
			put(s.rows.saturated, l.direction[d], t.Saturated)
		}
		if r.TCPKnown {
			put(s.rows.tcp, l.direction[d], float64(r.TCP[d]))
		}
	}
	s.putFlaps(s.rows.linkChanges, s.rows.linkLast, l.own, r.Links, put)
}

func (s *Sampler) putFlaps(changes, last *collector.Metric, labels []string, f sampler.Flaps, put func(*collector.Metric, []string, float64)) {
	put(changes, labels, float64(f.Changes))
	if !f.Last.IsZero() {
		put(last, labels, unixSeconds(f.Last))
	}
}

func (s *Sampler) putSets(put func(*collector.Metric, []string, float64)) {
	for d, set := range s.snap.Sets {
		labels := s.labels.sets[d]
		if len(s.snap.Rails) == 0 {
			break
		}
		if set.Known || set.Busy > 0 { // without a capacity nobody knows what busy is
			put(s.rows.anyBusy, labels, set.Busy)
			put(s.rows.imbalanced, labels, set.Imbalanced)
		}
		if set.Known {
			put(s.rows.active, labels, float64(set.Active))
		}
		if set.Balanced {
			put(s.rows.imbalance, labels, set.Imbalance)
		}
	}
	for i, f := range s.snap.Fallback {
		if f.Known {
			put(s.rows.fallback, s.labels.reasons[i], oneIf(f.Suspected))
		}
	}
}

func (s *Sampler) putBonds(put func(*collector.Metric, []string, float64)) {
	for i, b := range s.snap.Bonds {
		labels := s.labels.bonds[i].values
		if b.Member == "" {
			s.putFlaps(s.rows.activeChanges, s.rows.activeLast, labels, b.Active, put)
		} else {
			s.putFlaps(s.rows.memberChanges, s.rows.memberLast, labels, b.Links, put)
		}
	}
}

// putDevices emits how sampling goes, and returns what is wrong with it.
func (s *Sampler) putDevices(put func(*collector.Metric, []string, float64)) (faults []error) {
	for i, d := range s.snap.Devices {
		l := &s.labels.devices[i]
		put(s.rows.interval, l.own, d.Interval.Seconds())
		put(s.rows.samples, l.own, float64(d.Samples))
		put(s.rows.overruns, l.own, float64(d.Overruns))
		put(s.rows.reading, l.own, d.Reading.Seconds())
		if d.Stuck > 0 {
			faults = append(faults, &collector.Fault{Device: d.Name, Reason: sysfs.ReasonTimeout, Err: fmt.Errorf("a sample that began %v ago has not returned", d.Stuck)})
		} else if d.Err != nil {
			f := collector.NewFault(d.Name, d.Err)
			if errors.Is(d.Err, sampler.ErrUncounted) {
				f.Reason, f.Expected = sysfs.ReasonUnsupported, true
			}
			faults = append(faults, f)
		}
	}
	for reason, n := range s.snap.Dropped {
		put(s.rows.dropped, s.labels.dropped[reason], float64(n))
	}
	return faults
}
