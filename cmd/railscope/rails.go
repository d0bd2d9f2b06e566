package main

import (
	"io"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/inventory"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rdmanl"
)

// rails lists the rails.
func rails(s settings, w io.Writer) error {
	cfg, err := config.Load(s.configFile)
	if err != nil {
		return misuse{err}
	}
	finder := rail.NewFinder(s.sysfs, cfg.Rails, rdmanl.New(deviceBudget), deviceBudget)
	list := inventory.Read(s.sysfs, finder, collector.NewRDMA(s.sysfs, finder.Rails, deviceBudget))
	if s.format == "json" {
		return list.WriteJSON(w)
	}
	return list.WriteTable(w)
}
