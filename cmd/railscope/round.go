package main

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/doctor/report"
	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/status"
	"github.com/railscope/railscope/probe"
)

// quickSamples are the writes of 8 B of a quick round, per rail.
const quickSamples = 50

// quickRound probes a peer once, as bench does, with fewer samples.
func (c *common) quickRound(ctx context.Context, cfg *config.Config, peer, tokenFile string) (probe.Result, error) {
	p := quickOptions(ctx, cfg, tokenFile)
	opts := *probeOptions(&config.Config{Probe: p})
	opts.Budget, opts.Extras = probe.Budget{Share: 1}, nil // does not delay a round by hand
	finder, store := c.newFinder(cfg, doctorBudget)
	keeper := newKeeper(c, cfg, finder, store, nil)
	node := newProbeNode(c, nil, finder, keeper, gatherer(c, finder, keeper, nil), slog.New(slog.DiscardHandler))
	defer node.Close()
	res := probe.Bench(ctx, node, opts, peer, func(probe.Progress) {})
	return res, ctx.Err()
}

// skippedBecause is why a round measured nothing although nothing is wrong; empty: it did.
func skippedBecause(r probe.Result) string {
	if r.Outcome != probe.Skipped {
		return ""
	}
	return "peer " + r.Peer + " was not probed: " + check.Reason(r.Reason, r.Detail)
}

// quickOptions are those of a round in between: few samples, and no longer than the context allows.
func quickOptions(ctx context.Context, cfg *config.Config, tokenFile string) *config.Probe {
	p := *cmp.Or(cfg.Probe, config.DefaultProbe())
	p.TokenFile = cmp.Or(tokenFile, p.TokenFile)
	p.LatencySamples = min(p.LatencySamples, quickSamples)
	if until, ok := ctx.Deadline(); ok {
		p.Timeout = config.Duration(min(time.Duration(p.Timeout), time.Until(until)))
	}
	return &p
}

// recent is how old the last round of the running railscope may be to stand for one.
const recent = 5 * time.Minute

// peerRound is what a round with a peer found, or why there was none.
type peerRound struct {
	found   []finding.Finding
	skipped string
}

// lastRound is the last round of the running railscope with the peer, and without a recent one a round of its own.
func (s *doctorSettings) lastRound(ctx context.Context, cfg *config.Config, running *status.Status,
	peer string) *peerRound {
	if running != nil {
		if running.Maintenance {
			return &peerRound{skipped: "a round with " + peer + ": maintenance"}
		}
		for _, p := range running.Peers {
			if r := p.Last; p.Name == peer && r != nil && r.Outcome != string(probe.Skipped) && time.Since(r.Start) < recent {
				return &peerRound{found: byBench(peer, r.Findings)}
			}
		}
		if running.Simulated { // its rails exist in its process only
			return &peerRound{skipped: "a round with " + peer + ": the demo has had none yet"}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, checkPeerTime)
	defer cancel()
	res, err := s.quickRound(ctx, cfg, peer, s.tokenFile)
	switch {
	case err != nil:
		return &peerRound{skipped: "a round with " + peer + ": " + err.Error()}
	case res.Outcome == probe.Skipped:
		return &peerRound{skipped: skippedBecause(res)}
	}
	return &peerRound{found: byBench(peer, check.Round(res))}
}

// byBench replaces the fix to run doctor by the command that shows the whole round.
func byBench(peer string, found []finding.Finding) []finding.Finding {
	list := slices.Clone(found)
	for i, f := range list {
		if len(f.Fix) == 1 && strings.HasPrefix(f.Fix[0], "railscope doctor") {
			list[i].Fix = []string{"# the figures of each rail: railscope bench " + peer}
		}
	}
	return list
}

func (p *peerRound) addTo(r *report.Report) {
	if p.skipped != "" {
		r.AddUnread(p.skipped)
		return
	}
	r.AddRound(p.found)
}

// remembered returns what the running railscope found and this process cannot see, without what is silenced.
func remembered(running *status.Status, stateKnown bool) (list []finding.Finding) {
	for _, f := range standing(running) {
		if check.Remembered(f.Check, stateKnown) {
			list = append(list, f)
		}
	}
	return list
}

// standing returns the findings of the running railscope, without what is silenced; nil is none.
func standing(running *status.Status) (list []finding.Finding) {
	if running == nil {
		return nil
	}
	for _, f := range running.Findings {
		if f.Silenced == "" {
			list = append(list, f.Finding)
		}
	}
	return list
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
