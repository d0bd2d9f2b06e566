package main

import (
	"io"
	"time"

	"github.com/railscope/railscope/collector/rdma"
	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/inventory"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rdmanl"
)

// listBudget is how long the list waits for one device. Nobody else waits
// meanwhile, so it is longer than a scrape's.
const listBudget = 10 * time.Second

// rails lists the rails.
func rails(s settings, w io.Writer) error {
	cfg, err := config.Load(s.configFile)
	if err != nil {
		return misuse{err}
	}
	if s.forget != "" {
		return forget(s, cfg, w)
	}
	finder := s.finder(rail.NewFinder(s.sysfs, railOptions(cfg), rdmanl.New(listBudget), listBudget))
	list := inventory.Read(s.sysfs, finder, rdma.New(s.sysfs, finder.Rails, listBudget))
	if s.format == "json" {
		return list.WriteJSON(w)
	}
	return list.WriteTable(w)
}
