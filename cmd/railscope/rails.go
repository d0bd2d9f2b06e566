package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/railscope/railscope/internal/inventory"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rdmadev"
	"github.com/railscope/railscope/internal/serve"
	"github.com/railscope/railscope/internal/status"
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

func (s *railsSettings) run(ctx context.Context, tracker *shutdownTracker, w io.Writer) error {
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
	if running, err := s.runningStatus(ctx, statusTime); err == nil { // without it, there are no proofs
		prove(list.Rails, running)
	}
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

// prove adds the proofs that a running railscope knows. A rail is the same if it has the same name and port.
func prove(rails []inventory.Rail, running *status.Status) {
	for i := range rails {
		r := &rails[i]
		for _, known := range running.Rails {
			if known.Name == r.Name && known.Device == r.Device && known.Port == strconv.Itoa(r.Port) {
				r.Proof = known.Proof
			}
		}
	}
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
