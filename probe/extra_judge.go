package probe

import (
	"slices"

	"github.com/railscope/railscope/probe/internal/failure"
)

// Pair is what two rails carry together of what each carries alone.
type Pair struct {
	Rail, Other string
	Ratio       float64 // 1: they share nothing; 0.5: all
}

// Contended are the pairs of rails that contention measured, each by the better of its bursts.
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

// LoopbackOf is what a rail carried to itself, in bytes per second; nil: not measured.
func (r *Result) LoopbackOf(rail string) *float64 {
	for _, m := range r.Extras {
		if m.Kind == Loopback && len(m.Flows) == 1 && m.Flows[0].Rail == rail && m.Flows[0].Other == rail {
			return m.Flows[0].Goodput
		}
	}
	return nil
}

// GPUOf is what a rail carried alone from the memory of its GPU, relative to what it carried alone from the host's, and
// the kind of memory; empty: not measured.
func (r *Result) GPUOf(rail string) (ratio float64, memory string) {
	i := slices.IndexFunc(r.Rails, func(one RailResult) bool { return one.Rail == rail && one.Solo != nil })
	for _, m := range r.Extras {
		if i >= 0 && m.Kind == GPU && len(m.Flows) == 1 && m.Flows[0].Rail == rail && m.Flows[0].Goodput != nil {
			return *m.Flows[0].Goodput / r.Rails[i].Solo.BytesPerSecond(), m.Memory
		}
	}
	return 0, ""
}

// PathsOf are the flows of a rail by flow label, those that failed too.
func (r *Result) PathsOf(rail string) (list []MeasuredFlow) {
	for _, m := range r.Extras {
		if m.Kind == Paths && len(m.Flows) == 1 && m.Flows[0].Rail == rail {
			list = append(list, m.Flows[0])
		}
	}
	return list
}

// keepBetter keeps of several bursts over one path the one that lost least.
func (r *Result) keepBetter(rail string, path int) {
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

// When a path is lossy: it carries nothing, or loses at least so much, and so many packets more than several times what
// the median path of its rail would have lost. On a direct cable, and where adapters or switches spray packets over all
// paths, every label loses alike.
const (
	pathLossEvents = 3    // retransmissions
	pathLossRate   = 1e-4 // of its packets
	pathLossMedian = 4    // times the median
)

// LossyPaths are those paths of a rail that lose packets while most others do not, of how many.
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
		case f.Loss != nil && rate >= pathLossRate &&
			float64(f.Loss.Retransmits) >= pathLossEvents+pathLossMedian*median*float64(f.Loss.Packets):
			lossy = append(lossy, f)
		}
	}
	return lossy, len(list)
}

// PathLoss is the part of a flow's packets that were lost: 1 if none arrived.
func (f MeasuredFlow) PathLoss() float64 {
	switch {
	case f.Failure != nil && slices.Contains([]Reason{failure.RetryExceeded, failure.Timeout}, f.Failure.Reason):
		return 1
	case f.Failure != nil || f.Loss == nil:
		return 0
	}
	return f.Loss.Rate()
}

// noteExtras remembers the extras of a round, and adds those of earlier ones that it did not make: they are made in
// turn, and what they found is true until they find otherwise.
func (p *pastPeer) noteExtras(res *Result) {
	for _, kind := range Kinds() {
		of := func(m Measured) bool { return m.Kind == kind }
		made := func(m Measured) bool { return of(m) && m.Failure == nil }
		if slices.ContainsFunc(res.Extras, made) {
			p.extras = slices.DeleteFunc(p.extras, of)
			for _, m := range res.Extras {
				if of(m) {
					p.extras = append(p.extras, m.withoutSamples())
				}
			}
			continue
		}
		for _, m := range p.extras {
			if of(m) && (res.Transport == RDMA || kind == Loopback) {
				res.Extras = append(res.Extras, m)
			}
		}
	}
}

// withoutSamples is the burst without what takes memory.
func (m Measured) withoutSamples() Measured {
	m.Flows = slices.Clone(m.Flows)
	for i := range m.Flows {
		m.Flows[i].Latency = nil
	}
	return m
}
