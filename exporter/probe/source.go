package probe

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/exporter/table"
	"github.com/railscope/railscope/probe"
)

// Source keeps what rounds came to, and is the source of its metrics. Nothing is
// read for them when they are scraped. Safe for concurrent use.
type Source struct {
	stats   func() probe.Stats
	rows    *rows
	latency *prometheus.HistogramVec

	mu    sync.Mutex // protects all following fields
	peers map[string]*peer
	order []*peer // as configured
}

// NewSource returns a Source without peers. stats says what the probe counts
// beside the results of rounds; it must not wait.
func NewSource(stats func() probe.Stats) *Source {
	p := &Source{stats: stats, rows: newRows(), peers: map[string]*peer{}}
	p.latency = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: table.FullName(p.rows.latency), Help: p.rows.latency.Help, Buckets: latencyBuckets(),
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
	}, p.rows.latency.Labels)
	return p
}

// latencyBuckets are 1 µs, doubling, to 131.072 ms.
func latencyBuckets() []float64 {
	bounds := make([]float64, 18)
	for i := range bounds {
		bounds[i] = float64(int(1)<<i) / 1e6
	}
	return bounds
}

// SetPeers makes these the peers: new ones appear with counters of 0, all
// series of others go.
func (p *Source) SetPeers(peers []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.peers
	p.peers, p.order = make(map[string]*peer, len(peers)), nil
	for _, name := range peers {
		if p.peers[name] != nil {
			continue // there twice
		}
		peer := before[name]
		if peer == nil {
			peer = newPeer(name)
			peer.render(p.rows)
		}
		p.peers[name], p.order = peer, append(p.order, peer)
	}
	for name, peer := range before {
		if p.peers[name] != nil {
			continue
		}
		for rail := range peer.timed { // one by one: to look for them among those of all peers takes long
			p.latency.DeleteLabelValues(table.Label(name), table.Label(rail))
		}
	}
}

// Observe takes in what a round came to. A result of a peer that is none any
// more is ignored.
func (p *Source) Observe(r probe.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	peer := p.peers[r.Peer]
	if peer == nil {
		return
	}
	if r.Outcome != probe.Skipped {
		for _, rail := range r.Rails {
			p.observeLatency(peer, rail)
		}
	}
	peer.observe(r)
	peer.render(p.rows)
}

func (p *Source) observeLatency(peer *peer, rail probe.RailResult) {
	if rail.Latency == nil || len(rail.Latency.Samples) == 0 {
		return
	}
	series := p.latency.WithLabelValues(table.Label(peer.name), table.Label(rail.Rail))
	peer.timed[rail.Rail] = true
	for _, d := range rail.Latency.Samples {
		series.Observe(d.Seconds())
	}
}

// Name implements [collector.Source].
func (p *Source) Name() string { return "probe" }

// Metrics implements [collector.Source].
func (p *Source) Metrics() []*collector.Metric { return p.rows.Metrics() }

// Read implements [collector.Source] with what rounds have left.
func (p *Source) Read(emit func(collector.Sample)) error {
	stats := p.stats()
	if !stats.Running {
		return collector.ErrAbsent // the configuration has no probe
	}
	emit(collector.Sample{Metric: p.rows.budget, Value: stats.BudgetBytes})
	emit(collector.Sample{Metric: p.rows.leases, Value: float64(stats.Leases)})
	emit(collector.Sample{Metric: p.rows.restarts, Value: float64(stats.WorkerRestarts)})
	emit(collector.Sample{Metric: p.rows.up, Value: collector.Bool(stats.Up)})
	if stats.Interval > 0 {
		emit(collector.Sample{Metric: p.rows.interval, Value: stats.Interval.Seconds()})
	}
	for _, r := range stats.Refused {
		emit(collector.Sample{Metric: p.rows.refused, Labels: []string{r.Reason}, Value: float64(r.Count)})
	}
	for _, name := range stats.Names {
		emit(collector.Sample{Metric: p.rows.dnsPeers, Labels: []string{name.Name}, Value: float64(name.Peers)})
		for _, result := range probe.LookupResults() {
			emit(collector.Sample{Metric: p.rows.dnsLookups, Labels: []string{name.Name, result}, Value: float64(name.Lookups[result])})
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, peer := range p.order {
		for _, s := range peer.samples {
			emit(s)
		}
	}
	return nil
}

// Histograms implements scrape.HistogramSource.
func (p *Source) Histograms() map[*collector.Metric]prometheus.Collector {
	return map[*collector.Metric]prometheus.Collector{p.rows.latency: p.latency}
}
