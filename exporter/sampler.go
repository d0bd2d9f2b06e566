package exporter

import (
	"errors"
	"fmt"
	"strconv"
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

	mu   sync.Mutex // protects all following fields
	snap sampler.Snapshot
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
	if len(s.snap.Rails) == 0 && len(s.snap.Bonds) == 0 && len(s.snap.GPUs) == 0 {
		return fmt.Errorf("no rail, bond or GPU to sample: %w", collector.ErrAbsent)
	}
	put := func(m *collector.Metric, v float64, labels ...string) {
		emit(collector.Sample{Metric: m, Labels: labels, Value: v})
	}
	for i := range s.snap.Rails {
		s.emitRail(&s.snap.Rails[i], put)
	}
	s.emitBalance(put)
	for _, b := range s.snap.Bonds {
		if b.Member == "" {
			emitFlaps(put, s.rows.activeChanges, s.rows.activeLast, b.Active, b.Name)
		} else {
			emitFlaps(put, s.rows.memberChanges, s.rows.memberLast, b.Links, b.Name, b.Member)
		}
	}
	for _, g := range s.snap.GPUs {
		put(s.rows.peak, float64(g.Start), strconv.Itoa(g.Index), "start")
		put(s.rows.peak, float64(g.Minute), strconv.Itoa(g.Index), "1m")
	}
	return errors.Join(s.emitDevices(put)...)
}

// emitRail emits what one rail carried and how its link fared.
func (s *Sampler) emitRail(r *sampler.Rail, put put) {
	for d := range r.Tally {
		t, direction := &r.Tally[d], sampler.Direction(d)
		if t.Samples > 0 { // a share of the capacity needs a capacity
			put(s.rows.busy, t.Busy, r.Name, direction)
			put(s.rows.saturated, t.Saturated, r.Name, direction)
		}
		if r.TCPKnown {
			put(s.rows.tcp, float64(r.TCP[d]), r.Name, direction)
		}
	}
	emitFlaps(put, s.rows.linkChanges, s.rows.linkLast, r.Links, r.Name)
}

// emitFlaps emits how often a link changed, and when it last did.
func emitFlaps(put put, changes, last *collector.Metric, f sampler.Flaps, labels ...string) {
	put(changes, float64(f.Changes), labels...)
	if !f.Last.IsZero() {
		put(last, unixSeconds(f.Last), labels...)
	}
}

// emitBalance emits what concerns all rails together.
func (s *Sampler) emitBalance(put put) {
	for d, set := range s.snap.Sets {
		direction := sampler.Direction(d)
		if len(s.snap.Rails) == 0 {
			break
		}
		if set.Known || set.Busy > 0 { // busy is a share of the capacity, too
			put(s.rows.anyBusy, set.Busy, direction)
			put(s.rows.imbalanced, set.Imbalanced, direction)
		}
		if set.Known {
			put(s.rows.active, float64(set.Active), direction)
		}
		if set.Balanced {
			put(s.rows.imbalance, set.Imbalance, direction)
		}
	}
	for i, f := range s.snap.Fallback {
		if f.Known {
			put(s.rows.fallback, oneIf(f.Suspected), sampler.Reason(i))
		}
	}
}

// emitDevices emits how sampling goes, and returns the faults.
func (s *Sampler) emitDevices(put put) (faults []error) {
	for _, d := range s.snap.Devices {
		put(s.rows.interval, d.Interval.Seconds(), d.Name)
		put(s.rows.samples, float64(d.Samples), d.Name)
		put(s.rows.overruns, float64(d.Overruns), d.Name)
		put(s.rows.reading, d.Reading.Seconds(), d.Name)
		if d.Stuck > 0 {
			faults = append(faults, &collector.Fault{Device: d.Name, Reason: sysfs.ReasonTimeout,
				Err: fmt.Errorf("a sample that began %v ago has not returned", d.Stuck)})
		} else if d.Err != nil {
			f := collector.NewFault(d.Name, d.Err)
			if errors.Is(d.Err, sampler.ErrUncounted) {
				f.Reason, f.Expected = sysfs.ReasonUnsupported, true
			}
			faults = append(faults, f)
		}
	}
	for reason, n := range s.snap.Dropped {
		put(s.rows.dropped, float64(n), sampler.DropReason(reason))
	}
	return faults
}
