// Package probe keeps the results of probe rounds, and is the source of their metrics.
package probe

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/exporter/page"
	"github.com/railscope/railscope/exporter/table"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/proof"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// Source keeps the results of rounds. A scrape only copies them. Safe for concurrent use.
type Source struct {
	Simulated bool             // RDMA rounds are simulated by the demo; set before the first peer
	Now       func() time.Time // clock by which figures become old; tests set it

	stats func() options.Stats
	*rows

	mu    sync.Mutex // protects all following fields
	peers map[string]*peer
	order []*peer // in the configured order
	last  *peer   // peer whose rounds measured this node's rails last; nil: none yet
}

// NewSource returns a source without peers. stats returns the probe's counters other than results of rounds; it
// must not block.
func NewSource(stats func() options.Stats) *Source {
	return &Source{Now: time.Now, stats: stats, rows: newRows(), peers: map[string]*peer{}}
}

// SetPeers sets the peers. New peers start with counters of 0; the series of removed peers are dropped.
func (p *Source) SetPeers(peers []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.peers
	p.peers, p.order = make(map[string]*peer, len(peers)), nil
	for _, name := range peers {
		if p.peers[name] != nil {
			continue // listed twice
		}
		peer := before[name]
		if peer == nil {
			peer = newPeer(name, p.rows)
			peer.simulated = p.Simulated
		}
		p.peers[name], p.order = peer, append(p.order, peer)
	}
}

// Observe records the result of a round and its findings. Rounds with a peer that was removed are ignored.
func (p *Source) Observe(r result.Result, found []finding.Finding) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if peer := p.peers[r.Peer]; peer != nil {
		peer.observe(r, found)
		peer.render()
		if slices.ContainsFunc(r.Extras, ofThisNode) {
			p.last = peer
		}
	}
}

// ofThisNode reports whether a burst measures this node's rails, independent of the peer.
func ofThisNode(m result.Measured) bool {
	return m.Kind == result.Loopback || m.Kind == result.Contention || m.Kind == result.GPU
}

// minFigureAge is the age up to which figures of bursts are exported at least.
const minFigureAge = 15 * time.Minute

// figureAge returns the age up to which figures of bursts are exported, and that of extras, of which full rounds make
// one each, in turn: two rounds that could have measured them.
func figureAge(stats options.Stats) (bursts, extras time.Duration) {
	bursts = max(minFigureAge, 2*stats.Full)
	return bursts, max(minFigureAge, 2*stats.Full*time.Duration(len(options.ScheduledExtras())))
}

// putExtras emits the last measurements of this node's rails, unless they are older than limit.
func (p *Source) putExtras(limit time.Duration, put func(m *collector.Metric, v float64, labels ...string)) {
	if p.last == nil || p.last.last == nil || p.peers[p.last.name] != p.last {
		return
	}
	r := p.last.last
	old := func(k result.Kind) bool { return p.Now().Sub(r.MadeAt(k)) > limit }
	for i := range r.Rails {
		if v := r.LoopbackOf(r.Rails[i].Rail); v != nil && !old(result.Loopback) {
			put(p.loopback, *v, r.Rails[i].Rail)
		}
		if ratio, memory := r.GPUOf(r.Rails[i].Rail); memory != "" && !old(result.GPU) {
			put(p.gpu, ratio, r.Rails[i].Rail, memory)
		}
	}
	for _, pair := range result.Contended(r.Extras) {
		if !old(result.Contention) {
			put(p.contention, pair.Ratio, pair.Rail, pair.Other)
		}
	}
}

// Read implements [collector.Source] with the results of past rounds.
func (p *Source) Read(emit func(collector.Sample)) error {
	stats := p.stats()
	if !stats.Running {
		return collector.ErrAbsent // no probe is configured
	}
	put := func(m *collector.Metric, v float64, labels ...string) {
		emit(collector.Sample{Metric: m, Labels: labels, Value: v})
	}
	put(p.budget, stats.BudgetSeconds)
	put(p.leases, float64(stats.Leases))
	put(p.restarts, float64(stats.WorkerRestarts))
	put(p.up, collector.Bool(stats.Up))
	if stats.Interval > 0 {
		put(p.interval, stats.Interval.Seconds())
	}
	for _, r := range stats.Refused {
		put(p.refused, float64(r.Count), r.Reason)
	}
	for _, name := range stats.Names {
		put(p.dnsPeers, float64(name.Peers), name.Name)
		for _, result := range options.LookupResults() {
			put(p.dnsLookups, float64(name.Lookups[result]), name.Name, result)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	bursts, extras := figureAge(stats)
	p.putExtras(extras, put)
	now := p.Now()
	for _, peer := range p.order {
		for _, s := range peer.samples {
			if s.measured.IsZero() || now.Sub(s.measured) <= bursts {
				emit(s.Sample)
			}
		}
	}
	return nil
}

// Histograms implements scrape.HistogramSource.
func (p *Source) Histograms() map[*collector.Metric]table.Histograms {
	return map[*collector.Metric]table.Histograms{p.latency: p.latencies}
}

// latencies passes native histograms of each peer and rail, or classic ones of each peer: with classic buckets,
// each rail of a peer would be 21 series.
func (p *Source) latencies(native bool, each func(*dto.Metric)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, peer := range p.order {
		list := peer.latency
		if native {
			list = peer.railLatency
		}
		for _, h := range list {
			each(h.written)
		}
	}
}

type latency struct {
	prometheus.Histogram
	written *dto.Metric // made once per round, because scrapes are more frequent
}

// railLoad is a rail, empty for all, beside a load of others.
type railLoad struct{ rail, load string }

// Loads, as values of the label load.
const (
	idle = "idle"
	busy = "busy"
)

// newLatency returns the native histogram of a rail, or the classic one of all rails, whose label is empty.
func newLatency(row *collector.Metric, peer string, of railLoad) *latency {
	opts := prometheus.HistogramOpts{Name: table.FullName(row), Help: row.Help}
	switch {
	case of.rail == "" && of.load == busy: // the queues of others, of any length
		opts.Buckets = prometheus.ExponentialBucketsRange(4e-6, 0.131072, 5)
	case of.rail == "": // a percentile up to 64 µs is at most 25 % off
		opts.Buckets = append(prometheus.ExponentialBuckets(1e-6, 1.25, 20),
			prometheus.ExponentialBucketsRange(256e-6, 0.131072, 4)...)
	default:
		opts.NativeHistogramBucketFactor, opts.NativeHistogramMaxBucketNumber = 1.1, 160
	}
	return &latency{Histogram: prometheus.NewHistogramVec(opts, row.Labels).
		WithLabelValues(table.Label(peer), table.Label(of.rail), of.load).(prometheus.Histogram)}
}

func (l *latency) observe(samples []time.Duration) {
	for _, d := range samples {
		l.Observe(d.Seconds())
	}
	l.written = &dto.Metric{}
	_ = l.Write(l.written) // a histogram of numbers cannot fail
}

// Limits of what is kept of a round, because part of it comes from the peer: maxText is the number of bytes of each
// text, the others are numbers of failures and findings.
const (
	maxText     = 300
	maxFailures = 8
	maxFindings = 64
)

// Peers returns the configured peers with their last rounds, and whether the probe runs.
func (p *Source) Peers() (peers []page.Peer, probing bool) {
	probing = p.stats().Running
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, peer := range p.order {
		peers = append(peers, page.Peer{Name: plain(peer.name), Rounds: slices.Clone(peer.recent)})
	}
	return peers, probing
}

// Proof returns the proof of a rail by the last burst with any peer, or nil, and the part of what is expected of a rail
// that makes traffic a proof.
func (p *Source) Proof(rail string) (burst *proof.Proof, part float64) {
	part = p.stats().MinOfExpected
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, peer := range p.order {
		burst = proof.Later(burst, peer.proofs[rail])
	}
	return burst, cmp.Or(part, options.DefaultOptions().MinOfExpected)
}

// roundOf returns the part of a result that the page shows.
func roundOf(r result.Result, found []finding.Finding) page.Round {
	round := page.Round{Start: r.Start, Duration: r.Duration, Outcome: string(r.Outcome),
		Transport: string(r.Transport), Imbalance: r.Imbalance, Detail: plain(r.Detail),
		Findings: slices.Clone(found[:min(len(found), maxFindings)])}
	if !byRDMA(r.Outcome) || r.Outcome == result.Reached {
		round.Reason = known(r.Reason)
	}
	var best, expected, p50, p99 float64
	if r.Transport == result.RDMA {
		round.Goodput = r.Striped
	} else if len(r.TCP) > 0 {
		for _, t := range r.TCP {
			best = max(best, t.BytesPerSecond)
		}
		round.Goodput = &best
	}
	left := func(rail result.RailResult) bool { // it had no part in the striped burst
		return rail.Failure == nil && rail.Striped == nil && (rail.Left != nil || rail.Busy)
	}
	for _, rail := range r.Rails {
		if rail.Expected != nil && !left(rail) {
			expected += *rail.Expected
		}
		if met := rail.Latency.Met(); len(met) > 0 {
			p50, p99 = max(p50, result.Quantile(met, 0.5).Seconds()), max(p99, result.Quantile(met, 0.99).Seconds())
			round.P50, round.P99 = &p50, &p99
		}
	}
	unexpected := func(rail result.RailResult) bool { return rail.Expected == nil && !rail.Unpaired }
	if len(r.Rails) > 0 && !slices.ContainsFunc(r.Rails, unexpected) {
		round.Expected = &expected
	}
	for _, f := range r.Failures[:min(len(r.Failures), maxFailures)] {
		name := ""
		if f.Rail != "" {
			name = "rail " + f.Rail + ": "
		}
		own := round.Reason != "" && f.Reason == r.Reason
		if own || r.Outcome == result.Degraded && f.Rail != "" {
			continue // it is the round's own failure, whose detail has the number of rails, or it is among the findings
		}
		text := name + known(f.Stage) + ", " + known(f.Reason)
		if f.Detail != "" {
			text += ": " + f.Detail
		}
		round.Failures = append(round.Failures, plain(text))
	}
	for _, f := range found {
		if r.Outcome == result.Degraded && f.Severity != finding.Info && len(round.Failures) < 2*maxFailures {
			round.Failures = append(round.Failures, plain(f.Evidence))
		}
	}
	return round
}

// plain returns a text without control characters, with bounded length.
func plain(s string) string {
	s = terminal.Plain(s)
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "") + "…"
	}
	return s
}
