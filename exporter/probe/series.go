package probe

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/exporter/table"
	"github.com/railscope/railscope/probe/result"
)

// render makes the samples, once per round.
func (p *peer) render() {
	p.samples = p.samples[:0]
	for _, c := range p.counts {
		p.samples = append(p.samples, dated{Sample: c})
	}
	if !p.ended.IsZero() {
		p.put(p.rows.lastRound, table.UnixSeconds(p.ended))
	}
	if !p.burst.IsZero() {
		p.put(p.rows.lastBurst, table.UnixSeconds(p.burst))
	}
	if !p.judged.IsZero() {
		p.put(p.rows.lastResult, table.UnixSeconds(p.judged))
	}
	if p.last == nil {
		return
	}
	p.renderRound()
	for i := range p.last.Rails {
		p.renderRail(&p.last.Rails[i])
		p.renderPaths(p.last.Rails[i].Rail)
	}
}

// put adds a sample of the last round; labels follow the peer.
func (p *peer) put(m *collector.Metric, v float64, labels ...string) {
	p.putOf(time.Time{}, m, v, labels...)
}

// putOf is like put, for a value that was measured at a time; zero: in the last round.
func (p *peer) putOf(measured time.Time, m *collector.Metric, v float64, labels ...string) {
	if !math.IsNaN(v) && !math.IsInf(v, 0) {
		p.samples = append(p.samples, dated{collector.Sample{Metric: m, Labels: append([]string{p.name}, labels...),
			Value: v}, measured})
	}
}

// putKnown is like putOf, for a value that may be nil.
func (p *peer) putKnown(measured time.Time, m *collector.Metric, v *float64, labels ...string) {
	if v != nil {
		p.putOf(measured, m, *v, labels...)
	}
}

func (p *peer) renderRound() {
	r, rows := p.last, p.rows
	p.put(rows.duration, r.Duration.Seconds())
	for _, t := range result.Transports() {
		p.put(rows.transport, collector.Bool(t == r.Transport), p.transport(t))
	}
	if !byRDMA(r.Outcome) {
		p.put(rows.fallback, 1, known(r.Reason))
	}
	components := map[string]bool{}
	for _, m := range r.Mismatches {
		if !slices.Contains(result.Components(), m.Component) {
			m.Component = other
		}
		components[m.Component] = true
	}
	for c := range components {
		p.put(rows.mismatch, 1, c)
	}
	if r.Transport == result.RDMA {
		p.putKnown(p.dates.striped, rows.goodput, r.Striped, stealing)
		p.putKnown(p.dates.striped, rows.goodput, r.Static, static)
		p.putKnown(p.dates.striped, rows.imbalance, r.Imbalance)
		p.putKnown(p.dates.full, rows.scaling, r.Scaling)
		p.putKnown(p.dates.full, rows.speedup, r.Speedup)
	}
	byStreams, mtu := map[int]float64{}, math.MaxInt
	for _, t := range r.TCP {
		byStreams[t.Streams] = max(byStreams[t.Streams], t.BytesPerSecond)
		if t.PathMTU > 0 {
			mtu = min(mtu, t.PathMTU)
		}
	}
	for streams, v := range byStreams {
		p.putOf(p.dates.tcp, rows.tcp, v, strconv.Itoa(streams))
	}
	if mtu < math.MaxInt {
		p.putOf(p.dates.tcp, rows.tcpMTU, float64(mtu))
	}
}

func (p *peer) renderRail(r *result.RailResult) {
	if r.Unpaired { // it has no counterpart, which is not a fault
		return
	}
	rows, rdma := p.rows, p.last.Transport == result.RDMA
	p.put(rows.railUp, collector.Bool(rdma && r.Failure == nil), r.Rail)
	p.putKnown(time.Time{}, rows.railExpected, r.Expected, r.Rail)
	if r.PathMTU > 0 {
		p.put(rows.pathMTU, float64(r.PathMTU), r.Rail)
	}
	if r.GID != "" {
		p.put(rows.gid, 1, r.Rail, strconv.Itoa(r.GIDIndex), r.GID, r.GIDReason)
	}
	if !rdma {
		return
	}
	for mode, flow := range map[string]*result.Flow{stealing: r.Striped, solo: r.Solo} {
		if flow != nil {
			p.putOf(p.dates.rails[railMode{r.Rail, mode}], rows.railGoodput, flow.BytesPerSecond(), r.Rail, mode)
		}
	}
	if r.Solo != nil && r.Past != nil && r.Past.Median > 0 {
		p.putOf(p.dates.rails[railMode{r.Rail, solo}], rows.degradation, r.Solo.BytesPerSecond()/r.Past.Median, r.Rail)
	}
}

// renderPaths makes the samples of the loss on each rail's paths, if it was measured.
func (p *peer) renderPaths(rail string) {
	list := p.last.PathsOf(rail)
	if len(list) == 0 {
		return
	}
	worst := 0.0
	for _, f := range list {
		worst = max(worst, f.PathLoss())
	}
	lossy, _ := p.last.LossyPaths(rail)
	measured := p.last.MadeAt(result.Paths)
	p.putOf(measured, p.rows.pathLoss, worst, rail)
	p.putOf(measured, p.rows.pathsLossy, float64(len(lossy)), rail)
}

// other replaces a word that this version does not know: labels must not grow with data from the network.
const other = "other"

// known returns the label for a stage or a reason.
func known[W interface {
	~string
	Known() bool
}](w W) string {
	if w.Known() {
		return string(w)
	}
	return other
}
