package probe

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/exporter/page"
	"github.com/railscope/railscope/exporter/table"
	"github.com/railscope/railscope/probe"
)

// peer is what is known of one peer. Counters only grow. Figures are those
// of the last round that was not skipped, so that none is shown as of now that
// is not; but what only some rounds measure is kept from one to the next as
// long as nothing says that it is over.
type peer struct {
	name         string
	rounds       map[probe.Outcome]uint64
	soloRounds   uint64
	failures     map[stageReason]uint64
	skipped      map[string]uint64
	railBytes    map[string]int64
	verification uint64
	retransmits  uint64
	success      time.Time
	ended        time.Time // of the last round, whatever it came to

	last *probe.Result // not skipped; nil: none yet
	kept kept
	past map[string]*history // of solos, by rail

	timed map[string]bool // rails with a histogram of latencies

	recent []page.Round // the last ones, latest first, skipped ones too

	samples []collector.Sample // all of this, to be emitted
}

type stageReason struct{ stage, reason string }

// kept is what only some rounds measure.
type kept struct {
	scaling, speedup *float64
	solo             map[string]solo // by rail
	tcp              []probe.TCPResult
}

type solo struct {
	goodput     float64
	degradation *float64 // nil: no past yet
}

func newPeer(name string) *peer {
	return &peer{name: name, rounds: map[probe.Outcome]uint64{}, failures: map[stageReason]uint64{}, skipped: map[string]uint64{},
		railBytes: map[string]int64{}, kept: kept{solo: map[string]solo{}}, past: map[string]*history{}, timed: map[string]bool{}}
}

// observe takes in what a round came to.
func (p *peer) observe(r probe.Result) {
	p.rounds[r.Outcome]++
	p.ended = r.Start.Add(r.Duration)
	p.recent = slices.Insert(p.recent, 0, roundOf(r))
	p.recent = p.recent[:min(len(p.recent), page.KeepRounds)]
	if r.Outcome == probe.Skipped {
		p.skipped[reason(r.Reason)]++
		return
	}
	p.count(r)
	p.keep(r)
	if r.Outcome == probe.OK {
		p.success = r.Start.Add(r.Duration)
	}
	r.Rails = slices.Clone(r.Rails)
	for i := range r.Rails {
		r.Rails[i].Latency = nil // in the histogram; not to be held in memory
	}
	p.last = &r
}

// byRDMA reports whether a round of this outcome has no reason of its own: what
// is wrong with a degraded one is its rails'.
func byRDMA(o probe.Outcome) bool { return o == probe.OK || o == probe.Degraded }

// count adds to the counters.
func (p *peer) count(r probe.Result) {
	for _, f := range r.Failures {
		p.failures[stageReason{stage(f.Stage), reason(f.Reason)}]++
	}
	if len(r.Failures) == 0 && !byRDMA(r.Outcome) {
		p.failures[stageReason{other, reason(r.Reason)}]++
	}
	if r.Corrupted() {
		p.verification++
	}
	for _, t := range r.TCP {
		p.retransmits += t.Retransmits
	}
	if r.Transport == probe.RDMA && slices.ContainsFunc(r.Rails, func(rail probe.RailResult) bool { return rail.Solo != nil }) {
		p.soloRounds++
	}
	for _, rail := range r.Rails {
		for _, f := range []*probe.Flow{rail.Solo, rail.Static, rail.Stealing} {
			if f != nil && f.Bytes >= 0 {
				p.railBytes[rail.Rail] += f.Bytes
			}
		}
	}
}

// keep takes in what only some rounds measure, and drops what the round shows
// to be over: all that was measured by RDMA when it did not go by RDMA, the
// solo of a rail that failed or went, the TCP figures when not even TCP worked.
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
		if h.forget(r.Start.Unix()); len(h.at) == 0 {
			delete(p.past, name)
		}
	}
}

// compare holds a solo against the rail's own past.
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

// render makes the samples, once for each round.
func (p *peer) render(rows *rows) {
	p.samples = p.samples[:0]
	put := func(m *collector.Metric, v float64, labels ...string) {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			p.samples = append(p.samples, collector.Sample{Metric: m, Labels: append([]string{p.name}, labels...), Value: v})
		}
	}
	for _, o := range probe.Outcomes() {
		put(rows.rounds, float64(p.rounds[o]), string(o))
	}
	put(rows.soloRounds, float64(p.soloRounds))
	for key, n := range p.failures {
		put(rows.failures, float64(n), key.stage, key.reason)
	}
	for why, n := range p.skipped {
		put(rows.skipped, float64(n), why)
	}
	for rail, n := range p.railBytes {
		put(rows.railBytes, float64(n), rail)
	}
	put(rows.verification, float64(p.verification))
	put(rows.retransmits, float64(p.retransmits))
	if !p.ended.IsZero() {
		put(rows.lastRound, table.UnixSeconds(p.ended))
	}
	if !p.success.IsZero() {
		put(rows.success, table.UnixSeconds(p.success))
	}
	if p.last == nil {
		return
	}
	p.renderRound(rows, put)
	for i := range p.last.Rails {
		p.renderRail(rows, &p.last.Rails[i], put)
	}
}

// put emits a sample.
type put = func(m *collector.Metric, v float64, labels ...string)

// renderRound renders the figures of the last round.
func (p *peer) renderRound(rows *rows, put put) {
	r := p.last
	some := func(m *collector.Metric, v *float64, labels ...string) {
		if v != nil {
			put(m, *v, labels...)
		}
	}
	put(rows.duration, r.Duration.Seconds())
	for _, t := range probe.Transports() {
		put(rows.transport, collector.Bool(t == r.Transport), string(t))
	}
	if !byRDMA(r.Outcome) {
		put(rows.fallback, 1, reason(r.Reason))
	}
	components := map[string]bool{}
	for _, m := range r.Mismatches {
		components[component(m.Component)] = true
	}
	for c := range components {
		put(rows.mismatch, 1, c)
	}
	if r.Transport == probe.RDMA {
		some(rows.goodput, r.Stealing, "stealing")
		some(rows.goodput, r.Static, "static")
		some(rows.imbalance, r.Imbalance)
		some(rows.skew, r.FinishSkew)
	}
	some(rows.scaling, p.kept.scaling)
	some(rows.speedup, p.kept.speedup)
	byStreams, mtu := map[int]float64{}, 0
	for _, t := range p.kept.tcp {
		byStreams[t.Streams] = max(byStreams[t.Streams], t.BytesPerSecond)
		if t.PathMTU > 0 && (mtu == 0 || t.PathMTU < mtu) {
			mtu = t.PathMTU
		}
	}
	for streams, v := range byStreams {
		put(rows.tcp, v, strconv.Itoa(streams))
	}
	if mtu > 0 {
		put(rows.tcpMTU, float64(mtu))
	}
}

// renderRail renders the figures of one rail of the last round.
func (p *peer) renderRail(rows *rows, r *probe.RailResult, put put) {
	name, byRDMA := r.Rail, p.last.Transport == probe.RDMA
	put(rows.railUp, collector.Bool(byRDMA && r.Failure == nil), name)
	if r.Expected != nil {
		put(rows.railExpected, *r.Expected, name)
	}
	if r.PathMTU > 0 {
		put(rows.pathMTU, float64(r.PathMTU), name)
	}
	if r.GID != "" {
		put(rows.gid, 1, name, strconv.Itoa(r.GIDIndex), r.GID, r.GIDReason)
	}
	if byRDMA {
		if r.Stealing != nil {
			put(rows.railGoodput, r.Stealing.BytesPerSecond(), name, "stealing")
		}
		if r.Static != nil {
			put(rows.railGoodput, r.Static.BytesPerSecond(), name, "static")
		}
		if r.CounterMismatch != nil {
			put(rows.counters, *r.CounterMismatch, name)
		}
	}
	if s, ok := p.kept.solo[name]; ok {
		put(rows.railGoodput, s.goodput, name, "solo")
		if s.degradation != nil {
			put(rows.degradation, *s.degradation, name)
		}
	}
}

// other stands for what is none of our words: a label must not grow by what
// comes over the network.
const other = "other"

func stage(s probe.Stage) string {
	if s.Known() {
		return string(s)
	}
	return other
}

func reason(r probe.Reason) string {
	if r.Known() {
		return string(r)
	}
	return other
}

func component(s string) string {
	if slices.Contains(probe.Components(), s) {
		return s
	}
	return other
}
