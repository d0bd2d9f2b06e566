package serve

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/common/expfmt"

	"github.com/railscope/railscope/doctor/examine"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/exporter/scrape"
	"github.com/railscope/railscope/internal/finding"
)

// ReadOnce returns an exposition of one read of the sources and one examination of the node. hidden are the silences,
// probed says whether the node probes peers.
func (h *Host) ReadOnce(ctx context.Context, s *Sources, hidden []finding.Silence, probed bool, logger *slog.Logger,
) ([]byte, error) {
	g := h.Gatherer(nil)
	node := h.ProbeNode(nil, g, nil, logger)
	defer node.Close()
	list, _, err := s.open(h, users{probe: node, processes: h.newProcesses(s.ProcessLimit)}, logger)
	if err != nil {
		return nil, err
	}
	scope := facts.WithoutJobs
	if *s.On["process"] {
		scope = facts.All
	}
	at := time.Now()
	here := g.Gather(ctx, scope)
	if ctx.Err() != nil {
		return nil, errors.New("stopped before everything was read") // missing facts would be reported as faults
	}
	found := finding.NewStore(nil)
	found.SetSilences(hidden)
	judged := examine.Judge(here, probed)
	found.Update("node", at, judged)
	found.Update("node", at.Add(1), judged) // a finding is raised at the second examination
	return scrape.New(list, scrape.Options{Budget: sourceBudget, Logger: logger, Once: true, Info: buildInfo(),
		Findings: func() ([]finding.Raised, int) { return found.List(at) },
	}).Exposition(expfmt.NewFormat(expfmt.TypeTextPlain), false)
}
