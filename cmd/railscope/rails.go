package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/railscope/railscope/internal/inventory"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rdmadev"
	"github.com/railscope/railscope/internal/serve"
	"github.com/railscope/railscope/internal/terminal"
)

// listBudget is how long rails and bench wait for one device. It exceeds the time limit of a scrape, because
// nothing else waits.
const listBudget = 10 * time.Second

type railsSettings struct {
	*common
	format, forget string
	all            bool
}

func (s *railsSettings) define(app *kingpin.Application) *railsSettings {
	cmd := app.Command("rails", "List the rails: device, port, netdev, state, rate, capacity, and the GID that a "+
		"connection uses, with the reason; and the character devices that a container needs. The exit code is 1 "+
		"without rails.")
	formatFlag(cmd, "RAILSCOPE_RAILS_FORMAT", &s.format, "table", "json")
	cmd.Flag("all", "List every RDMA port that is not a rail, with the reason.").
		Envar("RAILSCOPE_RAILS_ALL").BoolVar(&s.all)
	cmd.Flag("forget", "Remove the rail of this name from --state.dir. Stop serve first. See docs/rails.md.").
		NoEnvar().PlaceHolder("NAME").StringVar(&s.forget)
	return s
}

func (s *railsSettings) run(_ context.Context, tracker *shutdownTracker, w io.Writer) error {
	defer tracker.begin("rails", nil)()
	cfg, err := s.load()
	if err != nil {
		return err
	}
	if s.forget != "" {
		return forget(s.stateDir, s.forget, cfg.Rails.Ports, w)
	}
	h := s.host(cfg, listBudget)
	list := inventory.Read(s.Sysfs, h.Finder, rdmadev.New(s.Sysfs), h.Keeper, listBudget)
	if s.format == "json" {
		err = list.WriteJSON(w)
	} else {
		err = list.WriteTable(w, s.all)
	}
	if err == nil && len(list.Rails) == 0 {
		err = errReported
	}
	return err
}

func forget(dir, name string, names map[string]string, w io.Writer) error {
	if dir == "" {
		return misuse{errors.New("--forget needs --state.dir")}
	}
	gone, err := serve.ForgetRail(dir, name, names)
	if err != nil {
		return fmt.Errorf("forget rail %s: %w", name, err)
	}
	_, err = fmt.Fprintln(w, terminal.Plain(fmt.Sprintf("Forgot rail %s (%s, %s). A new rail gets the lowest free "+
		"number.", name, rail.Key(gone.Device, gone.Port), cmp.Or(gone.PCIAddress, gone.Place, "place unknown"))))
	return err
}
