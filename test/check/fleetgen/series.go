package fleetgen

import (
	"iter"
	"math"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
)

// Series is a series with its function: a counter increases by the function's result per second; any other value is
// the result itself.
type Series struct {
	Labels labels.Labels
	Counts bool
	fleet  *Fleet
	back   time.Duration // it begins this long before the last scrape
	value  func(t float64) float64
	there  func(t float64) bool // times at which it exists; nil: always
	change Change               // modification; nil: none
}

// begun is how long a counter has been increasing at its first scrape.
const begun = 86400 * time.Second

// Samples returns the samples of all scrapes, with Unix times in milliseconds. Where the series disappears, a stale
// marker (value.StaleNaN) follows its last sample, as Prometheus writes it.
func (s *Series) Samples() iter.Seq2[int64, float64] {
	f := s.fleet
	return func(yield func(int64, float64) bool) {
		counted, gone := math.NaN(), true
		for since := max(f.From, f.To-s.back); since <= f.To; since += f.Every {
			if f.Off != nil && f.Off(since) {
				continue
			}
			v, kept := s.at(since, &counted)
			if !kept && gone {
				continue
			}
			gone = !kept
			if gone {
				v = math.Float64frombits(value.StaleNaN)
			}
			if !yield(f.Begin.Add(since).UnixMilli(), v) {
				return
			}
		}
	}
}

// at returns the scraped value; false: the series is missing.
func (s *Series) at(since time.Duration, counted *float64) (float64, bool) {
	t := since.Seconds()
	if s.there != nil && !s.there(t) {
		return 0, false
	}
	v := s.value(t)
	switch {
	case !s.Counts:
	case math.IsNaN(*counted):
		v *= begun.Seconds()
		*counted = v
	default:
		v = *counted + v*s.fleet.Every.Seconds()
		*counted = v
	}
	if s.change != nil {
		return s.change(since, v)
	}
	return v, true
}

// node makes the series of one node.
type node struct {
	*Fleet
	w      World
	n      int
	series []*Series
	named  map[uint64]bool // series that already exist
}

func (n *node) add(counts bool, metric string, value func(float64) float64, pairs ...string) *Series {
	if n.Skip != nil && n.Skip(metric) || n.Needs != nil && !n.Needs.has(metric) {
		return &Series{}
	}
	b := labels.NewScratchBuilder(4 + len(pairs)/2)
	own := map[string]bool{}
	for i := 0; i+1 < len(pairs); i += 2 {
		own[pairs[i]] = true
		if pairs[i+1] != "" { // Prometheus drops empty labels
			b.Add(pairs[i], pairs[i+1])
		}
	}
	b.Add(model.MetricNameLabel, metric)
	for name, v := range map[string]string{"job": "railscope", "instance": n.Instance(n.n), "cluster": n.cluster()} {
		if !own[name] && v != "" {
			b.Add(name, v)
		}
	}
	b.Sort()
	s := &Series{Labels: b.Labels(), Counts: counts, fleet: n.Fleet, back: math.MaxInt64, value: value}
	if n.Needs != nil {
		var wanted bool
		s.back, wanted = n.Needs.of(s.Labels)
		if !wanted {
			return s
		}
		s.back = (s.back + n.Warm).Truncate(n.Every)
	}
	if key := s.Labels.Hash(); !n.named[key] {
		n.named[key] = true
		n.series = append(n.series, s)
	}
	if metric != "up" {
		s.only(func(t float64) bool { return !n.w.Gone(n.n, t) })
	}
	if n.Change != nil {
		s.change = n.Change(n.n, s.Labels)
	}
	return s
}

func (n *node) cluster() string {
	if n.Cluster != nil {
		return n.Cluster(n.n)
	}
	return "a"
}

func (n *node) gauge(metric string, value func(float64) float64, pairs ...string) *Series {
	return n.add(false, "railscope_"+metric, value, pairs...)
}

func (n *node) counter(metric string, perSecond func(float64) float64, pairs ...string) *Series {
	return n.add(true, "railscope_"+metric, perSecond, pairs...)
}

// only makes a series exist for a part of the time.
func (s *Series) only(when func(float64) bool) {
	before := s.there
	s.there = func(t float64) bool { return (before == nil || before(t)) && when(t) }
}

func is(v float64) func(float64) float64 { return func(float64) float64 { return v } }

// on returns 1 while a condition is true.
func on(when func(t float64) bool) func(float64) float64 {
	return func(t float64) float64 { return flag01(when(t)) }
}
