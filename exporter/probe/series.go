package probe

import (
	"math"
	"slices"
	"strconv"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/exporter/table"
	"github.com/railscope/railscope/probe"
)

// render makes the samples, once per round.
func (p *peer) render() {
	rows := p.rows
	p.samples = p.samples[:0]
	put := func(m *collector.Metric, v float64, labels ...string) {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			p.samples = append(p.samples, collector.Sample{Metric: m, Labels: append([]string{p.name}, labels...),
				Value: v})
		}
	}
	for key, n := range p.counts {
		put(key.row, n, key.labels[:len(key.row.Labels)-1]...)
	}
	if !p.ended.IsZero() {
		put(rows.lastRound, table.UnixSeconds(p.ended))
	}
	if !p.success.IsZero() {
		put(rows.success, table.UnixSeconds(p.success))
	}
	if p.last == nil {
		return
	}
	p.renderRound(put)
	for i := range p.last.Rails {
		p.renderRail(&p.last.Rails[i], put)
	}
}

// put emits a sample.
type put = func(m *collector.Metric, v float64, labels ...string)

// renderRound renders the figures of the last round.
func (p *peer) renderRound(put put) {
	r, rows := p.last, p.rows
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
func (p *peer) renderRail(r *probe.RailResult, put put) {
	rows, name, byRDMA := p.rows, r.Rail, p.last.Transport == probe.RDMA
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

// other stands for a word that this version does not know: labels must not grow by what the network sends.
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
