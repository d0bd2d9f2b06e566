package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/prometheus/common/promslog"

	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/state"
)

// railsSection is the part of the state that says which rail is which.
const railsSection = "rails"

// openState opens the state directory for the process that serves; nil without
// one.
func (s settings) openState(logger *slog.Logger) *state.Store {
	if s.stateDir == "" {
		return nil
	}
	return state.Open(s.stateDir, func(err error) {
		if err != nil {
			logger.Warn("State directory has a problem", "err", err)
			return
		}
		logger.Info("State saved", "dir", s.stateDir)
	})
}

// remember makes the finder go on from what store has, and save there what it
// finds. A nil store remembers nothing.
func remember(finder *rail.Finder, store *state.Store) {
	if store == nil {
		return
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

// finder returns the finder of a command that runs beside the process that serves:
// it calls the rails as that does, and saves nothing.
func (s settings) finder(finder *rail.Finder) *rail.Finder {
	if s.stateDir != "" {
		logger := promslog.New(&s.log)
		remember(finder, state.OpenReadOnly(s.stateDir, func(err error) {
			if err != nil {
				logger.Warn("State not read", "err", err)
			}
		}))
	}
	return finder
}

// forget forgets the rail of --forget.
func forget(s settings, cfg *config.Config, w io.Writer) error {
	if s.stateDir == "" {
		return misuse{errors.New("--forget needs --state.dir: without it nothing is remembered")}
	}
	if _, err := os.Stat(s.stateDir); err != nil {
		return fmt.Errorf("forget rail %s: %w", s.forget, err)
	}
	store := state.Open(s.stateDir, nil)
	if err := store.Err(); err != nil {
		_ = store.Close()
		if errors.Is(err, state.ErrLocked) {
			return fmt.Errorf("forget rail %s: %w; stop that railscope first, and start it again afterwards",
				s.forget, err)
		}
		return fmt.Errorf("forget rail %s: %w", s.forget, err)
	}
	var known []rail.Record
	_, err := store.Get(railsSection, &known)
	if err := errors.Join(err, rail.CheckRecords(known)); err != nil {
		_ = store.Close()
		return fmt.Errorf("forget rail %s: %w", s.forget, err)
	}
	left, gone, found := rail.Forget(known, s.forget, cfg.Rails.Ports)
	if !found {
		_ = store.Close()
		return fmt.Errorf("no rail %q is remembered in %s; railscope rails lists the rails, and the missing ones",
			s.forget, s.stateDir)
	}
	store.Set(railsSection, left)
	if err := store.Close(); err != nil {
		return fmt.Errorf("forget rail %s: %w", s.forget, err)
	}
	_, err = fmt.Fprintf(w, "Forgot rail %s (%s, %s). A new rail takes the lowest number that is free.\n",
		s.forget, rail.Key(gone.Device, gone.Port), cmp.Or(gone.PCIAddress, gone.Place, "place unknown"))
	return err
}
