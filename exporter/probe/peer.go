package probe

import (
	"cmp"
	"slices"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/exporter/page"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/probe"
)

// peer is what is known of one peer. Counters only grow. Figures are those of the last round that was not skipped, so
// that no old figure looks current; what only some rounds measure is kept until a round shows that it no longer holds.
type peer struct {
	name string
	rows *rows

	simulated bool // the demo
	counts    []collector.Sample
	success   time.Time
	ended     time.Time // of the last round, whatever its result

	last *probe.Result // not skipped, with what only earlier rounds measured; nil: none yet

	latency     *latency            // of all rails; nil: none yet
	railLatency map[string]*latency // by rail
	recent      []page.Round        // the last rounds, latest first, skipped ones included
	samples     []collector.Sample
}

func newPeer(name string, rows *rows) *peer {
	p := &peer{name: name, rows: rows, railLatency: map[string]*latency{}}
	for _, o := range probe.Outcomes() {
		p.add(rows.rounds, 0, string(o))
	}
	for _, m := range []*collector.Metric{rows.soloRounds, rows.verification, rows.retransmits} {
		p.add(m, 0)
	}
	p.render()
	return p
}

// add adds to a counter; labels are those after the peer.
func (p *peer) add(m *collector.Metric, n float64, labels ...string) {
	labels = slices.Concat([]string{p.name}, labels)
	i := slices.IndexFunc(p.counts, func(s collector.Sample) bool {
		return s.Metric == m && slices.Equal(s.Labels, labels)
	})
	if i < 0 {
		i, p.counts = len(p.counts), append(p.counts, collector.Sample{Metric: m, Labels: labels})
	}
	p.counts[i].Value += n
}

func (p *peer) observe(r probe.Result, found []finding.Finding) {
	p.add(p.rows.rounds, 1, string(r.Outcome))
	p.ended = r.Start.Add(r.Duration)
	for i := range p.recent {
		p.recent[i].Findings = nil
	}
	p.recent = slices.Insert(p.recent, 0, roundOf(r, found))
	p.recent[0].Transport = p.transport(r.Transport)
	p.recent = p.recent[:min(len(p.recent), page.KeepRounds)]
	if r.Outcome == probe.Skipped {
		p.add(p.rows.skipped, 1, known(r.Reason))
		p.countRails(r) // a disturbed round moved bytes and has latencies
		return
	}
	p.count(r)
	p.keep(r)
	if r.Outcome == probe.OK {
		p.success = p.ended
	}
}

// simulated is the transport of rounds in the demo that would be by RDMA elsewhere.
const simulated = "simulated"

// transport returns the label of a transport.
func (p *peer) transport(t probe.Transport) string {
	if p.simulated && t == probe.RDMA {
		return simulated
	}
	return string(t)
}

// byRDMA reports whether a round of this outcome has no reason of its own: a degraded one has those of its rails.
func byRDMA(o probe.Outcome) bool { return o == probe.OK || o == probe.Degraded }

// count adds a round that was not skipped to the counters.
func (p *peer) count(r probe.Result) {
	for _, f := range r.Failures {
		p.add(p.rows.failures, 1, known(f.Stage), known(f.Reason))
	}
	if len(r.Failures) == 0 && !byRDMA(r.Outcome) {
		p.add(p.rows.failures, 1, other, known(r.Reason))
	}
	if r.Corrupted() {
		p.add(p.rows.verification, 1)
	}
	for _, t := range r.TCP {
		p.add(p.rows.retransmits, float64(t.Retransmits))
	}
	hasSolo := func(rail probe.RailResult) bool { return rail.Solo != nil }
	if r.Transport == probe.RDMA && slices.ContainsFunc(r.Rails, hasSolo) {
		p.add(p.rows.soloRounds, 1)
	}
	p.countRails(r)
}

// countRails adds what a round moved over each rail, and its latencies.
func (p *peer) countRails(r probe.Result) {
	for _, rail := range r.Rails {
		if rail.Bytes > 0 {
			p.add(p.rows.railBytes, float64(rail.Bytes), rail.Rail)
		}
		if rail.Retransmits != nil {
			p.add(p.rows.railRetransmits, float64(*rail.Retransmits), rail.Rail)
		}
		if l := rail.Latency; l != nil && len(l.Samples) > 0 {
			if p.latency == nil {
				p.latency = newLatency(p.rows.latency, p.name, "")
			}
			if p.railLatency[rail.Rail] == nil {
				p.railLatency[rail.Rail] = newLatency(p.rows.latency, p.name, rail.Rail)
			}
			p.latency.observe(l.Samples)
			p.railLatency[rail.Rail].observe(l.Samples)
		}
	}
}

// keep makes r the last round, with what only some rounds measure from the one before: scaling, speedup and solo
// goodputs while rounds are by RDMA and the rail works, TCP figures until TCP fails, too.
func (p *peer) keep(r probe.Result) {
	last, rdma := cmp.Or(p.last, &probe.Result{}), r.Transport == probe.RDMA
	if rdma {
		r.Speedup = cmp.Or(r.Speedup, last.Speedup)
	}
	if failed := func(rail probe.RailResult) bool { return rail.Failure != nil }; rdma && !r.LacksRail() &&
		!slices.ContainsFunc(r.Rails, failed) { // else it was of other rails
		r.Scaling = cmp.Or(r.Scaling, last.Scaling)
	}
	if len(r.TCP) == 0 && r.Transport != probe.NoTransport {
		r.TCP = last.TCP
	}
	r.Rails = slices.Clone(r.Rails)
	for i := range r.Rails {
		rail := &r.Rails[i]
		rail.Latency = nil // it is in the histogram
		switch {
		case !rdma:
			rail.Solo = nil
		case rail.Solo == nil && rail.Failure == nil:
			j := slices.IndexFunc(last.Rails, func(l probe.RailResult) bool { return l.Rail == rail.Rail })
			if j >= 0 {
				rail.Solo, rail.Past = last.Rails[j].Solo, cmp.Or(rail.Past, last.Rails[j].Past)
			}
		}
	}
	p.last = &r
}
