package main

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/doctor/report"
	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/status"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// quickSamples is the number of 8 B writes of a quick round, per rail.
const quickSamples = 50

// quickRound probes a peer once, as bench does, with fewer samples.
func (c *common) quickRound(ctx context.Context, cfg *config.Config, peer, tokenFile string) (result.Result, error) {
	opts := quickOptions(ctx, cfg, tokenFile)
	h := byHand{common: c, cfg: cfg, opts: opts, ask: benchAsk{Peer: peer, Quick: true},
		logger: slog.New(slog.DiscardHandler)}
	defer h.close()
	res, _, err := h.round(ctx, func(result.Progress) {})
	return res, cmp.Or(err, ctx.Err())
}

// skippedBecause returns why a round has no figures although nothing is wrong with the rails, or empty.
func skippedBecause(r result.Result) string {
	if r.Outcome != result.Skipped {
		return ""
	}
	return "peer " + r.Peer + " was not probed: " + check.Reason(r.Reason, r.Detail)
}

// quickOptions returns the options of a quick round: few samples, and a timeout within the context's. An interactive
// round needs no budget and makes no extras.
func quickOptions(ctx context.Context, cfg *config.Config, tokenFile string) options.Options {
	o := cfg.ProbeOptions()
	o.Security.TokenFile = cmp.Or(tokenFile, o.Security.TokenFile)
	o.LatencySamples = min(o.LatencySamples, quickSamples)
	o.Budget, o.Extras = options.Budget{Share: 1}, nil
	if until, ok := ctx.Deadline(); ok {
		o.Timeout = min(o.Timeout, time.Until(until))
	}
	return o
}

// recent is the maximum age of the running railscope's last round that replaces a round of this command.
const recent = 5 * time.Minute

// peerRound is the result of a round with a peer, or why there was none.
type peerRound struct {
	peer    string
	found   []finding.Finding
	skipped string
}

// contradict returns the findings in raised, changed by the round: findings about the peer that the round did not
// repeat are recovering, and so are those about rails if no other peer can have raised them. A nil p changes
// nothing.
func (p *peerRound) contradict(raised []finding.Finding, running *status.Status) []finding.Finding {
	if p == nil || p.skipped != "" {
		return raised
	}
	only := len(running.Peers) == 1 && running.Peers[0].Name == p.peer
	for i, f := range raised {
		again := slices.ContainsFunc(p.found, func(o finding.Finding) bool {
			return o.Check == f.Check && o.Subject == f.Subject
		})
		raised[i].Recovering = f.Recovering || !again &&
			(f.Subject == "peer "+p.peer || only && !f.Peer() && check.OfRoundAlone(f.Check))
	}
	return raised
}

// lastRound returns the running railscope's last round with the peer or, if it is too old, makes a round.
func (s *doctorSettings) lastRound(ctx context.Context, cfg *config.Config, running *status.Status,
	peer string) *peerRound {
	if running != nil {
		if running.Maintenance {
			return &peerRound{skipped: "a round with " + peer + ": maintenance"}
		}
		for _, p := range running.Peers {
			if r := p.Last; p.Name == peer && r != nil && r.Outcome != string(result.Skipped) && time.Since(r.Start) < recent {
				return &peerRound{peer: peer, found: r.Findings}
			}
		}
		if running.Simulated { // the rails exist in the demo's process only
			return &peerRound{skipped: "a round with " + peer + ": the demo has had none yet"}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, checkPeerTime)
	defer cancel()
	res, err := s.quickRound(ctx, cfg, peer, s.tokenFile)
	switch {
	case err != nil:
		return &peerRound{skipped: "a round with " + peer + ": " + err.Error()}
	case res.Outcome == result.Skipped:
		return &peerRound{skipped: skippedBecause(res)}
	}
	return &peerRound{peer: peer, found: check.Round(res)}
}

func (p *peerRound) addTo(r *report.Report) {
	if p.skipped != "" {
		r.AddUnread(p.skipped)
		return
	}
	r.AddRound(p.found)
}

// remembered returns the findings of the running railscope that this process cannot see, without silenced ones.
func remembered(running *status.Status, stateKnown bool) (list []finding.Finding) {
	for _, f := range standing(running) {
		if check.Remembered(f.Check, stateKnown) {
			list = append(list, f)
		}
	}
	return list
}

// standing returns the findings of the running railscope, including recovering ones, without silenced ones. running
// may be nil.
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
