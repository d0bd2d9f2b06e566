package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/version"

	"github.com/railscope/railscope/doctor/examine"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/exporter/scrape"
	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/outfile"
	"github.com/railscope/railscope/internal/rdmanl"
)

type metricsSettings struct {
	*common
	sources  sourceSettings
	textfile string
}

func (s *metricsSettings) define(app *kingpin.Application) *metricsSettings {
	cmd := app.Command("metrics", "Read every source once and print the metrics, with what is found of this node: for "+
		"nodes without a port for Prometheus. Sources of what happens over time (sampler, nccl, kmsg) and the probe are "+
		"not in them.").Validate(s.check)
	cmd.Flag("textfile", "File to write instead, for the textfile collector of node_exporter: its name ends in .prom. It "+
		"is replaced at once, never half written.").PlaceHolder("FILE").StringVar(&s.textfile)
	s.sources.define(cmd, true)
	return s
}

// check returns an error for values that the parser accepts but metrics does not.
func (s *metricsSettings) check(*kingpin.CmdClause) error {
	if s.textfile != "" && !strings.HasSuffix(s.textfile, ".prom") {
		return fmt.Errorf("--textfile must end in .prom, or node_exporter does not read it, not %q", s.textfile)
	}
	return s.sources.check()
}

func (s *metricsSettings) run(ctx context.Context, tracker *shutdownTracker, w io.Writer) error {
	defer tracker.begin("metrics", nil)()
	cfg, err := s.load()
	if err != nil {
		return err
	}
	text, err := s.sources.readOnce(ctx, s.common, cfg, s.logger())
	switch {
	case err != nil:
		return err
	case s.textfile != "":
		return outfile.Write(s.textfile, text)
	}
	_, err = w.Write(text)
	return err
}

// readOnce returns an exposition of one read of the sources and one examination of the node.
func (s *sourceSettings) readOnce(ctx context.Context, c *common, cfg *config.Config, logger *slog.Logger,
) ([]byte, error) {
	finder, store := c.newFinder(cfg, deviceBudget)
	keeper := newKeeper(c, cfg, finder, store, nil)
	g := gatherer(c, finder, keeper, nil)
	probed := newProbeNode(c, nil, finder, keeper, nil, g, logger)
	defer probed.Close()
	m := machine{kernel: rdmanl.New(deviceBudget), nvml: nvml.NewSession(nvml.NewLibrary(s.nvml))}
	list, _, err := s.open(c, m, finder, keeper, probed, logger)
	if err != nil {
		return nil, err
	}
	scope := facts.WithoutJobs
	if *s.on["process"] {
		scope = facts.All
	}
	at := time.Now()
	here := g.Gather(ctx, scope)
	if ctx.Err() != nil {
		return nil, errors.New("stopped before everything was read") // missing facts would be reported as faults
	}
	hidden, err := silences(cfg)
	if err != nil {
		return nil, misuse{err}
	}
	found := finding.NewStore(nil)
	found.SetSilences(hidden)
	judged := examine.Judge(here, cfg.Probe != nil)
	found.Update("node", at, judged)
	found.Update("node", at.Add(1), judged) // a finding is raised at the second examination
	return scrape.New(list, scrape.Options{
		Budget: sourceBudget, Logger: logger, Once: true,
		Info: scrape.Info{Version: cmp.Or(version.Version, "unknown"), Revision: version.GetRevision(),
			GoVersion: runtime.Version()},
		Findings: func() ([]finding.Raised, int) { return found.List(at) },
	}).Exposition(expfmt.NewFormat(expfmt.TypeTextPlain), false)
}
