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

// Peers returns the peers as configured, with what their last rounds came
// to, and whether there is a probe.
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
		Transport: string(r.Transport),
		Imbalance: r.Imbalance, Detail: plain(r.Detail)}
	if !byRDMA(r.Outcome) {
		round.Reason = reason(r.Reason)
	}
	if r.Transport == probe.RDMA {
		round.Goodput = r.Stealing
	} else {
		for _, t := range r.TCP {
			if round.Goodput == nil || t.BytesPerSecond > *round.Goodput {
				round.Goodput = &t.BytesPerSecond
			}
		}
	}
	expected, known := 0., len(r.Rails) > 0
	for _, rail := range r.Rails {
		if rail.Expected == nil {
			known = false
		} else {
			expected += *rail.Expected
		}
		if l := rail.Latency; l != nil && len(l.Samples) > 0 {
			round.P50, round.P99 = slower(round.P50, l.Quantile(0.5).Seconds()),
				slower(round.P99, l.Quantile(0.99).Seconds())
		}
	}
	if known {
		round.Expected = &expected
	}
	for _, f := range r.Failures[:min(len(r.Failures), maxFailures)] {
		if round.Reason != "" && f.Reason == r.Reason &&
			(f.Detail == r.Detail || "rail "+f.Rail+": "+f.Detail == r.Detail) {
			continue // it is the round's own, which has been said
		}
		text := stage(f.Stage) + ", " + reason(f.Reason)
		if f.Rail != "" {
			text = "rail " + f.Rail + ": " + text
		}
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

func slower(than *float64, v float64) *float64 {
	if than != nil && *than >= v {
		return than
	}
	return &v
}

// plain is a text without control characters, and of bounded length.
func plain(s string) string {
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "") + "…"
	}
	return terminal.Plain(s)
}
