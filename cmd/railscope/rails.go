package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/expect"
	"github.com/railscope/railscope/internal/inventory"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rdmadev"
	"github.com/railscope/railscope/internal/rdmanl"
	"github.com/railscope/railscope/internal/state"
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
		"connection uses, with the reason; and the character devices that a container needs. The exit code is 1 without "+
		"rails.")
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
	finder, store := s.newFinder(cfg, listBudget)
	list := inventory.Read(s.sysfs, finder, rdmadev.New(s.sysfs), newKeeper(s.common, cfg, finder, store, nil), listBudget)
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

// railsSection is the section of the state with the identities of rails.
const railsSection = "rails"

// openState opens the state directory of serve, or returns nil without one.
func (c *common) openState(logger *slog.Logger) *state.Store {
	if c.stateDir == "" {
		return nil
	}
	return state.Open(c.stateDir, func(err error) {
		logResult(logger, err, "State directory error", "State saved", "dir", c.stateDir)
	})
}

// errForeign is returned when the state is another node's, and is not used.
var errForeign = errors.New("it is of another node, or all adapters were replaced: no adapter that it knows is here. " +
	"Rails are numbered and learned anew; leave --state.dir out of disk images")

// remember connects the finder to the store: it uses the saved records, and saves its own. The state of another
// node is set aside with all sections. A nil store does nothing.
func remember(finder *rail.Finder, store *state.Store) {
	if store == nil {
		return
	}
	if finder.Foreign(recordedGUIDs(store)) {
		store.SetAside(errForeign)
	}
	var known []rail.Record
	_, err := store.Get(railsSection, &known)
	save := func(list []rail.Record) { store.Set(railsSection, list) }
	if err != nil {
		known = nil
	}
	if err := errors.Join(err, finder.Remember(known, save)); err != nil {
		store.Reject(railsSection, err)
	}
}

// recordedGUIDs returns the node GUIDs of the adapters in the store. Users of invalid sections report them.
func recordedGUIDs(store *state.Store) (guids []string) {
	var known []rail.Record
	var memory expect.Memory
	_, errKnown := store.Get(railsSection, &known)
	_, errMemory := store.Get(expectSection, &memory)
	if errKnown != nil || errMemory != nil {
		return nil
	}
	for _, r := range known {
		if r.PCIAddress != "" { // software devices have GUIDs from the interface below
			guids = append(guids, r.NodeGUID)
		}
	}
	for _, p := range memory.Ports {
		guids = append(guids, p.NodeGUID)
	}
	return guids
}

// newFinder returns the finder of commands other than serve. It names the rails as serve does, and saves nothing.
// The store is that of serve, read only; nil without --state.dir.
func (c *common) newFinder(cfg *config.Config, budget time.Duration) (*rail.Finder, *state.Store) {
	finder := rail.NewFinder(c.sysfs, railOptions(cfg), rdmanl.New(budget), budget)
	if c.stateDir == "" {
		return finder, nil
	}
	logger := c.logger()
	store := state.OpenReadOnly(c.stateDir, func(err error) {
		if err != nil {
			logger.Warn("State not read", "err", err)
		}
	})
	remember(finder, store)
	return finder, store
}

func forget(dir, name string, names map[string]string, w io.Writer) error {
	if dir == "" {
		return misuse{errors.New("--forget needs --state.dir")}
	}
	gone, err := forgetRecord(dir, name, names)
	if err != nil {
		return fmt.Errorf("forget rail %s: %w", name, err)
	}
	_, err = fmt.Fprintln(w, terminal.Plain(fmt.Sprintf("Forgot rail %s (%s, %s). A new rail gets the lowest free number.",
		name, rail.Key(gone.Device, gone.Port), cmp.Or(gone.PCIAddress, gone.Place, "place unknown"))))
	return err
}

func forgetRecord(dir, name string, names map[string]string) (gone rail.Record, err error) {
	if _, err := os.Stat(dir); err != nil {
		return gone, err
	}
	store := state.Open(dir, nil)
	defer func() { err = cmp.Or(err, store.Close()) }()
	if err := store.Err(); errors.Is(err, state.ErrLocked) {
		return gone, fmt.Errorf("%w; stop that railscope first, and start it again afterwards", err)
	} else if err != nil {
		return gone, err
	}
	var known []rail.Record
	_, err = store.Get(railsSection, &known)
	if err := errors.Join(err, rail.CheckRecords(known)); err != nil {
		return gone, err
	}
	left, gone, found := rail.Forget(known, name, names)
	if !found {
		return gone, fmt.Errorf("no rail %q is remembered in %s; railscope rails lists them, missing ones too",
			name, dir)
	}
	store.Set(railsSection, left)
	return gone, nil
}
