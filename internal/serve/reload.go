package serve

import (
	"context"

	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/systemd"
	"github.com/railscope/railscope/probe/options"
)

// Start checks for maintenance, so that no round starts during it, and starts the probe: see [ProbeController.Start].
func (n *Node) Start(ctx context.Context, opts *options.Options) error {
	if n.maintenance != nil {
		n.maintenance.Check()
	}
	return n.Probe.Start(ctx, opts)
}

// ReleaseNVML releases NVML for a while, which a reset of a GPU needs.
func (n *Node) ReleaseNVML() {
	logResult(n.logger, n.NVML.Release(hangupRelease), "NVML release failed, retried at every read", "NVML released",
		"for", hangupRelease)
}

// Reload applies the configuration that load reads of a file: all of it or nothing. The probe runs until ctx is
// canceled. Reloads do not overlap.
func (n *Node) Reload(ctx context.Context, file string, load func(file string) (*config.Config, error)) error {
	n.reloading.Lock()
	defer n.reloading.Unlock()
	systemd.Reloading()
	defer systemd.Ready()
	cfg, err := load(file)
	if err == nil {
		err = n.apply(ctx, cfg)
	}
	n.Scraper.Reloaded(err == nil)
	if err != nil {
		n.logger.Error("Reload refused, configuration unchanged", "err", err)
		return err
	}
	n.logger.Info("Configuration reloaded", "file", file)
	return nil
}

func (n *Node) apply(ctx context.Context, cfg *config.Config) error {
	hidden, err := Silences(cfg)
	if err != nil {
		return err
	}
	commit, err := n.Probe.prepare(cfg.Probe, false)
	if err != nil {
		return err
	}
	// From here on nothing can fail. The probe must find the rails under their new names.
	n.Finder.SetOptions(railOptions(cfg))
	n.warnUnmatched()
	n.Keeper.Configure(expectConfig(cfg))
	if n.maintenance != nil {
		n.maintenance.SetPath(cfg.MaintenanceFile())
	}
	applySilences(n.Findings, hidden, n.logger)
	commit(ctx)
	return nil
}
