package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/systemd"
)

// loadBudget bounds the reading of the configuration: a file on a dead NFS server must not delay the next reload.
const loadBudget = 10 * time.Second

// reloader reloads the configuration, one reload at a time. All of it is applied, or nothing.
type reloader struct {
	node   *node
	file   string
	loader *config.Loader
	ctx    context.Context // of serve: what a reload starts outlives its request
	mu     sync.Mutex
	lane   lane.Group[loaded]
}

type loaded struct {
	cfg *config.Config
	err error
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
	cfg, err := r.load()
	if err != nil {
		return err
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

func (r *reloader) load() (*config.Config, error) {
	res := r.lane.Run(loadBudget, []string{r.file}, func(file string) loaded {
		cfg, err := r.loader.Load(file)
		return loaded{cfg, err}
	})[0]
	switch {
	case res.Err != nil:
		return nil, fmt.Errorf("read configuration %s: %w", r.file, res.Err)
	case res.Value.err != nil:
		return nil, res.Value.err
	case res.Value.cfg.Empty && r.file != "":
		return nil, fmt.Errorf("%s is empty, as a file is while it is written: reload when it is complete, "+
			"or write {} for a configuration without rails and probe", r.file)
	}
	return res.Value.cfg, nil
}
