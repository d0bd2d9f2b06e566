package probe

import (
	"cmp"
	"slices"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/exporter/page"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/proof"
	"github.com/railscope/railscope/probe/result"
)

// peer holds the results of one peer. Counters only increase. Gauges are from the last round that was not skipped.
// Values that only some rounds measure, such as those of bursts, are kept until a round shows that they no longer
// hold, or until they are too old: an old value must not look current.
type peer struct {
	name string
	rows *rows

	simulated bool // this is the demo
	counts    []collector.Sample
	ended     time.Time // end of the last round, whatever its result
	burst     time.Time // end of the last round with a figure of a burst

	judged time.Time               // end of the last round that was not skipped
	proofs map[string]*proof.Proof // last burst of each rail, of any age

	last  *result.Result // last round that was not skipped, with kept values of earlier rounds; nil: none yet
	dates dates          // when the kept values were measured

	latency     map[railLoad]*latency // latency of all rails, by load
	railLatency map[railLoad]*latency // latency of each rail
	recent      []page.Round          // last rounds, latest first, including skipped ones
	samples     []dated
}

// dates are the times at which kept values were measured.
type dates struct {
	striped, full, tcp time.Time              // all rails together, the same beside solo bursts or TCP, and TCP alone
	rails              map[railMode]time.Time // each rail
}

// railMode is a rail in bursts of a kind.
type railMode struct{ rail, mode string }

// Modes of bursts, as values of the label mode.
const (
	stealing = "stealing"
	static   = "static"
	solo     = "solo"
)

// dated is a sample that is no longer exported from a time on; zero: it is always.
type dated struct {
	collector.Sample
	measured time.Time
}

func newPeer(name string, rows *rows) *peer {
	p := &peer{name: name, rows: rows, latency: map[railLoad]*latency{},
		railLatency: map[railLoad]*latency{}, proofs: map[string]*proof.Proof{}}
	for _, o := range result.Outcomes() {
		p.add(rows.rounds, 0, string(o))
	}
	for _, m := range []*collector.Metric{rows.soloRounds, rows.verification, rows.retransmits} {
		p.add(m, 0)
	}
	p.render()
	return p
}

// add adds to a counter; labels follow the peer.
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

func (p *peer) observe(r result.Result, found []finding.Finding) {
	p.add(p.rows.rounds, 1, string(r.Outcome))
	p.ended = r.Start.Add(r.Duration)
	for i := range p.recent {
		p.recent[i].Findings = nil
	}
	p.recent = slices.Insert(p.recent, 0, roundOf(r, found))
	p.recent[0].Transport = p.transport(r.Transport)
	p.recent = p.recent[:min(len(p.recent), page.KeepRounds)]
	if r.Outcome == result.Skipped {
		p.add(p.rows.skipped, 1, known(r.Reason))
		p.countRails(r) // a disturbed round also moved bytes and has latencies
		return
	}
	p.judged = p.ended
	if r.Measured() {
		p.burst = p.ended
	}
	p.prove(r)
	if f := r.BurstSkipped; f != nil {
		p.add(p.rows.burstsSkipped, 1, known(f.Reason))
	}
	p.count(r)
	p.keep(r)
}

// prove notes how much the bursts of a round showed that each rail can carry.
func (p *peer) prove(r result.Result) {
	if r.Corrupted() {
		return
	}
	for i := range r.Rails {
		rail := &r.Rails[i]
		if rate, known := rail.Goodput(); known && !rail.BesideOthers(&r) {
			p.proofs[rail.Rail] = &proof.Proof{By: proof.ByBurst, Rate: rate, At: p.ended}
		}
	}
}

// transport returns the label of a transport.
func (p *peer) transport(t result.Transport) string {
	if p.simulated && t == result.RDMA {
		return string(result.Simulated)
	}
	return string(t)
}

// byRDMA reports whether a round of this outcome ran by RDMA, so that it has no failure of its own; a degraded
// round has those of its rails.
func byRDMA(o result.Outcome) bool {
	return o == result.OK || o == result.Degraded || o == result.Reached
}

// count adds a round that was not skipped to the counters.
func (p *peer) count(r result.Result) {
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
	hasSolo := func(rail result.RailResult) bool { return rail.Solo != nil }
	if r.Transport == result.RDMA && slices.ContainsFunc(r.Rails, hasSolo) {
		p.add(p.rows.soloRounds, 1)
	}
	p.countRails(r)
}

// countRails adds the bytes of a round on each rail, and its latencies.
func (p *peer) countRails(r result.Result) {
	for _, rail := range r.Rails {
		if rail.Bytes > 0 {
			p.add(p.rows.railBytes, float64(rail.Bytes), rail.Rail)
		}
		if rail.Retransmits != nil {
			p.add(p.rows.railRetransmits, float64(*rail.Retransmits), rail.Rail)
		}
		if met := rail.Latency.Met(); len(met) > 0 {
			load := idle
			if rail.Busy {
				load = busy
			}
			p.observeLatency(p.latency, railLoad{"", load}, met)
			p.observeLatency(p.railLatency, railLoad{rail.Rail, load}, met)
		}
	}
}

func (p *peer) observeLatency(list map[railLoad]*latency, of railLoad, samples []time.Duration) {
	if list[of] == nil {
		list[of] = newLatency(p.rows.latency, p.name, of)
	}
	list[of].observe(samples)
}

// keep makes r the last round. It keeps values that only some rounds measure from the previous one: those of bursts
// while rounds use RDMA over the same rails and make none, solo goodputs while the rail works, TCP values until TCP
// fails, too.
func (p *peer) keep(r result.Result) {
	last, rdma := cmp.Or(p.last, &result.Result{}), r.Transport == result.RDMA
	same := rdma && slices.Equal(connections(r), connections(*last))
	failed := func(rail result.RailResult) bool { return rail.Failure != nil }
	whole := same && !r.LacksRail() && !slices.ContainsFunc(r.Rails, failed)
	now := p.ended
	p.dates.note(&r, now)
	if same {
		r.Speedup = cmp.Or(r.Speedup, last.Speedup)
	}
	if whole {
		r.Scaling = cmp.Or(r.Scaling, last.Scaling)
	}
	if whole && r.Striped == nil && r.BurstSkipped != nil {
		r.Striped, r.Static, r.Imbalance = last.Striped, last.Static, last.Imbalance
	}
	if len(r.TCP) == 0 && r.Transport != result.NoTransport {
		r.TCP = last.TCP
	}
	r.Rails = slices.Clone(r.Rails)
	for i := range r.Rails {
		keepRail(&r.Rails[i], last, rdma)
	}
	p.last = &r
}

// note records what a round measured.
func (d *dates) note(r *result.Result, now time.Time) {
	if r.Striped != nil {
		d.striped = now
	}
	if r.Scaling != nil || r.Speedup != nil {
		d.full = now
	}
	if len(r.TCP) > 0 {
		d.tcp = now
	}
	if d.rails == nil {
		d.rails = map[railMode]time.Time{}
	}
	for i := range r.Rails {
		if r.Rails[i].Striped != nil {
			d.rails[railMode{r.Rails[i].Rail, stealing}] = now
		}
		if r.Rails[i].Solo != nil {
			d.rails[railMode{r.Rails[i].Rail, solo}] = now
		}
	}
}

// keepRail keeps the values of a rail that this round did not measure.
func keepRail(rail *result.RailResult, last *result.Result, rdma bool) {
	rail.Latency = nil // it is in the histogram
	if !rdma {
		rail.Solo = nil
		return
	}
	j := slices.IndexFunc(last.Rails, func(l result.RailResult) bool { return l.Rail == rail.Rail })
	if j < 0 || rail.Failure != nil {
		return
	}
	before := &last.Rails[j]
	if rail.Solo == nil {
		rail.Solo, rail.Past = before.Solo, cmp.Or(rail.Past, before.Past)
	}
	if rail.Left != nil && rail.PeerRail == before.PeerRail {
		rail.Striped = before.Striped
	}
}

// connections are the rails of a round with the peer's, in order.
func connections(r result.Result) (list [][2]string) {
	for _, rail := range r.Rails {
		if !rail.Unpaired {
			list = append(list, [2]string{rail.Rail, rail.PeerRail})
		}
	}
	slices.SortFunc(list, func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
	return list
}
