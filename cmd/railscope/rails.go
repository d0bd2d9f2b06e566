package main

import (
	"context"
	"io"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/railscope/railscope/internal/inventory"
	"github.com/railscope/railscope/internal/rdmadev"
)

// listBudget is how long rails and bench wait for one device. Nothing else waits meanwhile, so it is longer than the
// budget of a scrape.
const listBudget = 10 * time.Second

type railsSettings struct {
	*common
	format, forget string
}

func (s *railsSettings) define(app *kingpin.Application) *railsSettings {
	cmd := app.Command("rails", "List the rails: device, port, netdev, state, rate, capacity, and the GID that a "+
		"connection uses, with the reason; and the character devices that a container needs.")
	formatFlag(cmd, "RAILSCOPE_RAILS_FORMAT", &s.format, "table", "json")
	cmd.Flag("forget", "Remove the rail of this name from --state.dir. Stop serve first. See docs/rails.md.").
		NoEnvar().PlaceHolder("NAME").StringVar(&s.forget)
	return s
}

func (s *railsSettings) run(_ context.Context, parts *unfinished, w io.Writer) error {
	defer parts.begin("rails", nil)()
	cfg, err := s.load()
	if err != nil {
		return err
	}
	if s.forget != "" {
		return forget(s.stateDir, s.forget, cfg.Rails.Ports, w)
	}
	finder := s.newFinder(cfg, listBudget)
	list := inventory.Read(s.sysfs, finder, rdmadev.New(s.sysfs), listBudget)
	if s.format == "json" {
		return list.WriteJSON(w)
	}
	return list.WriteTable(w)
}
