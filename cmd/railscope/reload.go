package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/systemd"
)

// reloader reloads the configuration, one reload at a time. All of it is applied, or nothing.
type reloader struct {
	node   *node
	file   string
	loader *config.Loader
	ctx    context.Context // of serve: the probe outlives the request
	mu     sync.Mutex
}

func (r *reloader) reload() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	systemd.Reloading()
	defer systemd.Ready()
	err := r.apply()
	r.node.scraper.Reloaded(err == nil)
	if err != nil {
		r.node.logger.Error("Reload refused, configuration unchanged", "err", err)
		return err
	}
	r.node.logger.Info("Configuration reloaded", "file", r.file)
	return nil
}

func (r *reloader) apply() error {
	cfg, err := r.loader.Load(r.file)
	if err != nil {
		return err
	}
	if cfg.Empty && r.file != "" {
		return fmt.Errorf("%s is empty, as a file is while it is written: reload when it is complete, "+
			"or write {} for a configuration without rails and probe", r.file)
	}
	commit, err := r.node.probing.prepare(probeOptions(cfg), false)
	if err != nil {
		return err
	}
	// Nothing can fail from here on. The probe must find the rails under their new names.
	r.node.finder.SetOptions(railOptions(cfg))
	r.node.watch.SetPath(cfg.MaintenanceFile())
	commit(r.ctx)
	return nil
}
