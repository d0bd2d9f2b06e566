package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/outfile"
	"github.com/railscope/railscope/internal/serve"
)

type metricsSettings struct {
	*common
	sources  sourceSettings
	textfile string
}

func (s *metricsSettings) define(app *kingpin.Application) *metricsSettings {
	cmd := app.Command("metrics", "Read every source once and print the metrics and findings of this node, for nodes "+
		"without a port for Prometheus. The sampler, nccl, kmsg and the probe need a running railscope and are not "+
		"included.").Validate(s.check)
	cmd.Flag("textfile", "File to write instead, for the textfile collector of node_exporter: its name ends in "+
		".prom. It is replaced at once, never half written.").PlaceHolder("FILE").StringVar(&s.textfile)
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
	hidden, err := serve.Silences(cfg)
	if err != nil {
		return nil, misuse{err}
	}
	h := c.host(cfg, time.Second)
	h.NVML = nvml.NewSession(nvml.NewLibrary(s.nvml))
	return h.ReadOnce(ctx, &s.Sources, hidden, cfg.Probe != nil, logger)
}
