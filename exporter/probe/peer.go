package probe

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/exporter/page"
	"github.com/railscope/railscope/probe"
)

// peer is what is known of one peer. Counters only grow. Figures are those of the last round that was not skipped, so
// that no old figure looks current; what only some rounds measure is kept until a round shows that it no longer holds.
type peer struct {
	name    string
	rows    *rows
	counts  map[count]float64
	success time.Time
	ended   time.Time // of the last round, whatever its result

	last *probe.Result // not skipped; nil: none yet
	kept kept
	past map[string]*history // of solo goodputs, by rail

	latency map[string]prometheus.Histogram // by rail
	recent  []page.Round                    // the last rounds, latest first, skipped ones included
	samples []collector.Sample
}

// count is one counter of a peer: the row, and its labels after the peer.
type count struct {
	row    *collector.Metric
	labels [2]string
}

// kept is what only some rounds measure.
type kept struct {
	scaling, speedup *float64
	solo             map[string]solo // by rail
	tcp              []probe.TCPResult
}

type solo struct {
	goodput     float64
	degradation *float64 // nil: too few earlier figures
}

func newPeer(name string, rows *rows) *peer {
	p := &peer{name: name, rows: rows, counts: map[count]float64{}, kept: kept{solo: map[string]solo{}},
		past: map[string]*history{}, latency: map[string]prometheus.Histogram{}}
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
	key := count{row: m}
	copy(key.labels[:], labels)
	p.counts[key] += n
}

// observe records the result of a round.
func (p *peer) observe(r probe.Result) {
	p.add(p.rows.rounds, 1, string(r.Outcome))
	p.ended = r.Start.Add(r.Duration)
	p.recent = slices.Insert(p.recent, 0, roundOf(r))
	p.recent = p.recent[:min(len(p.recent), page.KeepRounds)]
	if r.Outcome == probe.Skipped {
		p.add(p.rows.skipped, 1, reason(r.Reason))
		return
	}
	p.count(r)
	p.keep(r)
	if r.Outcome == probe.OK {
		p.success = p.ended
	}
	r.Rails = slices.Clone(r.Rails)
	for i := range r.Rails {
		r.Rails[i].Latency = nil // it is in the histogram
	}
	p.last = &r
}

// byRDMA reports whether a round of this outcome has no reason of its own: a degraded one has those of its rails.
func byRDMA(o probe.Outcome) bool { return o == probe.OK || o == probe.Degraded }

// count adds a round that was not skipped to the counters.
func (p *peer) count(r probe.Result) {
	for _, f := range r.Failures {
		p.add(p.rows.failures, 1, stage(f.Stage), reason(f.Reason))
	}
	if len(r.Failures) == 0 && !byRDMA(r.Outcome) {
		p.add(p.rows.failures, 1, other, reason(r.Reason))
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
	for _, rail := range r.Rails {
		for _, f := range []*probe.Flow{rail.Solo, rail.Static, rail.Stealing} {
			if f != nil && f.Bytes >= 0 {
				p.add(p.rows.railBytes, float64(f.Bytes), rail.Rail)
			}
		}
	}
}

// keep records what only some rounds measure, and drops what no longer holds: all RDMA figures when the round was not
// by RDMA, the solo goodput of a rail that failed or is gone, the TCP figures when TCP failed, too.
func (p *peer) keep(r probe.Result) {
	k, was := &p.kept, p.kept.solo
	if r.Transport != probe.RDMA {
		k.scaling, k.speedup, was = nil, nil, nil
	}
	if r.Transport == probe.NoTransport {
		k.tcp = nil
	}
	if r.Scaling != nil {
		k.scaling = r.Scaling
	}
	if r.Speedup != nil {
		k.speedup = r.Speedup
	}
	if len(r.TCP) > 0 {
		k.tcp = r.TCP
	}
	k.solo = map[string]solo{}
	for _, rail := range r.Rails {
		if rail.Solo != nil && r.Transport == probe.RDMA {
			k.solo[rail.Rail] = p.compare(rail.Rail, r.Start, rail.Solo.BytesPerSecond())
		} else if s, ok := was[rail.Rail]; ok && rail.Failure == nil {
			k.solo[rail.Rail] = s
		}
	}
	for name, h := range p.past {
		if h.expire(r.Start.Unix()); len(h.at) == 0 {
			delete(p.past, name)
		}
	}
}

// compare compares a solo goodput with the rail's own past.
func (p *peer) compare(rail string, at time.Time, goodput float64) solo {
	h := p.past[rail]
	if h == nil {
		h = &history{}
		p.past[rail] = h
	}
	h.add(at, goodput)
	s := solo{goodput: goodput}
	if median, ok := h.median(); ok && median > 0 {
		ratio := goodput / median
		s.degradation = &ratio
	}
	return s
}
