package main

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/railscope/railscope/doctor/verdict"
	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/serve"
	"github.com/railscope/railscope/internal/status"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// quickRound probes a peer once, as bench does, with fewer samples.
func (c *common) quickRound(ctx context.Context, cfg *config.Config, peer, tokenFile string) (result.Result, error) {
	opts := quickOptions(ctx, cfg, tokenFile)
	h := byHand{common: c, cfg: cfg, opts: opts, ask: serve.BenchAsk{Peer: peer, Quick: true},
		logger: slog.New(slog.DiscardHandler)}
	defer h.close()
	res, _, err := h.round(ctx, func(result.Progress) {})
	return res, cmp.Or(err, ctx.Err())
}

// quickOptions returns the options of a quick round: few samples, and a timeout within the context's. An interactive
// round needs no budget and makes no extras.
func quickOptions(ctx context.Context, cfg *config.Config, tokenFile string) options.Options {
	o := cfg.ProbeOptions()
	o.Security.TokenFile = cmp.Or(tokenFile, o.Security.TokenFile)
	o.LatencySamples = min(o.LatencySamples, serve.QuickSamples)
	o.Budget, o.Extras = options.Budget{Share: 1}, nil
	if until, ok := ctx.Deadline(); ok {
		o.Timeout = min(o.Timeout, time.Until(until))
	}
	return o
}

// recent is the maximum age of the running railscope's last round that replaces a round of this command.
const recent = 5 * time.Minute

// lastRound returns the running railscope's last round with the peer or, if it is too old, makes a round.
func (s *doctorSettings) lastRound(ctx context.Context, cfg *config.Config, running *status.Status,
	peer string) *verdict.Round {
	if running != nil {
		if running.Maintenance {
			return &verdict.Round{Skipped: "a round with " + peer + ": maintenance"}
		}
		for _, p := range running.Peers {
			if r := p.Last; p.Name == peer && r != nil && !result.Outcome(r.Outcome).Quiet() &&
				time.Since(r.Start) < recent {
				return &verdict.Round{Peer: peer, Found: r.Findings}
			}
		}
		if running.Simulated { // the rails exist in the demo's process only
			return &verdict.Round{Skipped: "a round with " + peer + ": the demo has had none yet"}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, checkPeerTime)
	defer cancel()
	res, err := s.quickRound(ctx, cfg, peer, s.tokenFile)
	if err != nil {
		return &verdict.Round{Skipped: "a round with " + peer + ": " + err.Error()}
	}
	return verdict.NewRound(res)
}
