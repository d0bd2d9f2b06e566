package result

import (
	"slices"
	"time"

	"github.com/railscope/railscope/probe/internal/failure"
)

// Pair compares what two rails carry together with the sum of each alone.
type Pair struct {
	Rail, Other string
	Ratio       float64 // 1: nothing shared; 0.5: everything shared
}

// Contended returns the pairs of rails that contention measured, each with the better of its bursts.
func Contended(list []Measured) (pairs []Pair) {
	alone := map[string]float64{}
	for _, m := range list {
		if m.Kind != Contention {
			continue
		}
		sum, ok := m.Goodput(Write)
		switch {
		case !ok:
		case len(m.Flows) == 1:
			alone[m.Flows[0].Rail] = sum
		case len(m.Flows) == 2:
			a, b := m.Flows[0].Rail, m.Flows[1].Rail
			if alone[a] == 0 || alone[b] == 0 {
				continue
			}
			p := Pair{a, b, sum / (alone[a] + alone[b])}
			i := slices.IndexFunc(pairs, func(o Pair) bool { return o.Rail == a && o.Other == b })
			if i < 0 {
				i, pairs = len(pairs), append(pairs, p)
			}
			pairs[i].Ratio = max(pairs[i].Ratio, p.Ratio)
		}
	}
	return pairs
}

// MadeAt returns the start of the round that made the extras of a kind, which may be an earlier one.
func (r *Result) MadeAt(kind Kind) time.Time {
	for _, m := range r.Extras {
		if m.Kind == kind && !m.Made.IsZero() {
			return m.Made
		}
	}
	return r.Start
}

// LoopbackOf returns what a rail carried to itself, in bytes per second; nil: not measured.
func (r *Result) LoopbackOf(rail string) *float64 {
	for _, m := range r.Extras {
		if m.Kind == Loopback && len(m.Flows) == 1 && m.Flows[0].Rail == rail && m.Flows[0].Other == rail {
			return m.Flows[0].Goodput
		}
	}
	return nil
}

// GPUOf returns what a rail carried alone from memory that its GPU uses, relative to plain host memory, and the
// first kind of memory; empty: not measured.
func (r *Result) GPUOf(rail string) (ratio float64, memory string) {
	for _, m := range r.Extras {
		if ratio, known := r.OfHostMemory(m); known && m.Kind == GPU && m.Flows[0].Rail == rail {
			return ratio, m.Memory
		}
	}
	return 0, ""
}

// OfHostMemory returns what a rail carried alone in a burst of an extra, relative to its solo burst in the round.
func (r *Result) OfHostMemory(m Measured) (ratio float64, known bool) {
	if len(m.Flows) != 1 || m.Flows[0].Goodput == nil {
		return 0, false
	}
	i := slices.IndexFunc(r.Rails, func(one RailResult) bool { return one.Rail == m.Flows[0].Rail && one.Solo != nil })
	if i < 0 {
		return 0, false
	}
	return *m.Flows[0].Goodput / r.Rails[i].Solo.BytesPerSecond(), true
}

// PathsOf returns the flows of a rail by flow label, including failed ones.
func (r *Result) PathsOf(rail string) (list []MeasuredFlow) {
	for _, m := range r.Extras {
		if m.Kind == Paths && len(m.Flows) == 1 && m.Flows[0].Rail == rail && m.Failure == nil {
			list = append(list, m.Flows[0])
		}
	}
	return list
}

// KeepBetter keeps, of several bursts over one path, the one with the least loss.
func (r *Result) KeepBetter(rail string, path int) {
	of := func(m Measured) bool {
		return m.Kind == Paths && len(m.Flows) == 1 && m.Flows[0].Rail == rail && m.Flows[0].Path == path
	}
	least := 1.0
	for _, m := range r.Extras {
		if of(m) {
			least = min(least, m.Flows[0].PathLoss())
		}
	}
	kept := false
	r.Extras = slices.DeleteFunc(r.Extras, func(m Measured) bool {
		worse := of(m) && (kept || m.Flows[0].PathLoss() > least)
		kept = kept || of(m) && !worse
		return worse
	})
}

// A path is lossy if it carries nothing, or if its loss and its number of retransmissions reach these limits and
// exceed the median path of its rail by pathLossMedian. On a direct cable, and where adapters or switches spray
// packets over all paths, every label loses alike.
const (
	pathLossEvents = 3 // least number of retransmissions
	pathLossMedian = 4 // multiple of the median path's loss
)

// LossyPaths returns the paths of a rail that lose packets while most others do not, and the number of all its
// paths.
func (r *Result) LossyPaths(rail string) (lossy []MeasuredFlow, all int) {
	list := r.PathsOf(rail)
	var rates []float64
	for _, f := range list {
		rates = append(rates, f.PathLoss())
	}
	slices.Sort(rates)
	for _, f := range list {
		rate := f.PathLoss()
		switch median := rates[(len(rates)-1)/2]; {
		case median == 1:
		case rate == 1 && f.Failure != nil:
			lossy = append(lossy, f)
		case f.Loss != nil && rate >= LossAbove &&
			float64(f.Loss.Retransmits) >= pathLossEvents+pathLossMedian*median*float64(f.Loss.Packets):
			lossy = append(lossy, f)
		}
	}
	return lossy, len(list)
}

// PathLoss returns the fraction of a flow's packets that were lost; 1 if none arrived.
func (f MeasuredFlow) PathLoss() float64 {
	switch {
	case f.Failure != nil && slices.Contains([]Reason{failure.RetryExceeded, failure.Timeout}, f.Failure.Reason):
		return 1
	case f.Failure != nil || f.Loss == nil:
		return 0
	}
	return f.Loss.Rate()
}

// WithoutSamples returns the burst without its latency samples, which need memory.
func (m Measured) WithoutSamples() Measured {
	m.Flows = slices.Clone(m.Flows)
	for i := range m.Flows {
		m.Flows[i].Latency = nil
	}
	return m
}
