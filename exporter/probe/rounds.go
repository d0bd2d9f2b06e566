package probe

import (
	"slices"
	"strings"

	"github.com/railscope/railscope/exporter/page"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe"
	"github.com/railscope/railscope/probe/report"
)

// maxText is how many bytes are kept of each text of a round, and maxFailures of how many failures: part of both comes
// from the peer.
const (
	maxText     = 300
	maxFailures = 8
)

// Peers returns the peers as configured, with their last rounds, and whether the probe runs.
func (p *Source) Peers() (peers []page.Peer, probing bool) {
	probing = p.stats().Running
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, peer := range p.order {
		peers = append(peers, page.Peer{Name: plain(peer.name), Rounds: slices.Clone(peer.recent)})
	}
	return peers, probing
}

// roundOf is the part of a result that people are shown.
func roundOf(r probe.Result) page.Round {
	round := page.Round{Start: r.Start, Duration: r.Duration, Outcome: string(r.Outcome),
		Transport: string(r.Transport), Imbalance: r.Imbalance, Detail: plain(r.Detail)}
	if !byRDMA(r.Outcome) {
		round.Reason = known(r.Reason)
	}
	var best, expected, p50, p99 float64
	if r.Transport == probe.RDMA {
		round.Goodput = r.Stealing
	} else if len(r.TCP) > 0 {
		for _, t := range r.TCP {
			best = max(best, t.BytesPerSecond)
		}
		round.Goodput = &best
	}
	for _, rail := range r.Rails {
		if rail.Expected != nil {
			expected += *rail.Expected
		}
		if l := rail.Latency; l != nil && len(l.Samples) > 0 {
			p50, p99 = max(p50, l.Quantile(0.5).Seconds()), max(p99, l.Quantile(0.99).Seconds())
			round.P50, round.P99 = &p50, &p99
		}
	}
	unexpected := func(rail probe.RailResult) bool { return rail.Expected == nil }
	if len(r.Rails) > 0 && !slices.ContainsFunc(r.Rails, unexpected) {
		round.Expected = &expected
	}
	for _, f := range r.Failures[:min(len(r.Failures), maxFailures)] {
		name := ""
		if f.Rail != "" {
			name = "rail " + f.Rail + ": "
		}
		if round.Reason != "" && f.Reason == r.Reason && (f.Detail == r.Detail || name+f.Detail == r.Detail) {
			continue // it is the round's own, shown already
		}
		text := name + known(f.Stage) + ", " + known(f.Reason)
		if f.Detail != "" {
			text += ": " + f.Detail
		}
		round.Failures = append(round.Failures, plain(text))
	}
	for _, f := range report.Slow(r) {
		if len(round.Failures) < 2*maxFailures {
			round.Failures = append(round.Failures, plain(f.Evidence))
		}
	}
	return round
}

// plain is a text without control characters, and of bounded length.
func plain(s string) string {
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "") + "…"
	}
	return terminal.Plain(s)
}
