package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/railscope/railscope/internal/baseline"
	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/expect"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rdmanl"
	"github.com/railscope/railscope/internal/state"
	"github.com/railscope/railscope/internal/statussock"
	"github.com/railscope/railscope/internal/terminal"
)

type expectSettings struct {
	*common
	format, reset string
}

func (s *expectSettings) define(app *kingpin.Application) *expectSettings {
	cmd := app.Command("expect", "Show what is expected of the rails and GPUs of this node, what they are now, and why: "+
		"the configuration, else the best that was ever seen (--state.dir).")
	formatFlag(cmd, "RAILSCOPE_EXPECT_FORMAT", &s.format, "table", "json")
	cmd.Flag("reset", "Forget what was seen of the rail of this name, or gpus, after a planned change: the running "+
		"railscope of --state.dir does it, and without one this command. A missing rail is forgotten. See docs/expect.md.").
		NoEnvar().PlaceHolder("RAIL").StringVar(&s.reset)
	return s
}

func (s *expectSettings) run(ctx context.Context, tracker *shutdownTracker, w io.Writer) error {
	defer tracker.begin("expect", nil)()
	cfg, err := s.load()
	if err != nil {
		return err
	}
	if s.reset != "" {
		text, err := s.forget(ctx, cfg)
		if err != nil {
			return err
		}
		_, err = fmt.Fprint(w, terminal.PlainLines(text))
		return err
	}
	finder, store := s.newFinder(cfg, listBudget)
	list := newKeeper(s.common, cfg, finder, store, nil).List()
	if s.format == "json" {
		return list.WriteJSON(w)
	}
	return list.WriteTable(w)
}

// expectSection is the section of the state with the best values seen.
const expectSection = "expect"

func expectConfig(c *config.Config) expect.Config {
	e := c.Expect
	return expect.Config{Rails: int(e.Rails), Rate: float64(e.Rate), MTU: int(e.MTU), GPUs: int(e.GPUs)}
}

// newKeeper returns a keeper of what is expected of the finder's rails, with the expectations in the store, if
// there is one. save, which may be nil, saves them.
func newKeeper(c *common, cfg *config.Config, finder *rail.Finder, store *state.Store,
	save func(section string, v any)) *expect.Keeper {
	opts := expect.Options{Sysfs: c.sysfs, Find: finder.Snapshot, Config: expectConfig(cfg), Budget: deviceBudget,
		Forget: finder.Forget}
	if store != nil {
		_, err := store.Get(expectSection, &opts.Memory)
		if err = errors.Join(err, opts.Memory.Check()); err != nil {
			opts.Memory = expect.Memory{}
			store.Reject(expectSection, err)
		}
	}
	if save != nil {
		opts.Save = func(m expect.Memory) { save(expectSection, m) }
	}
	return expect.New(opts)
}

const pathReset = "/-/expect/reset"

// reset drops what was seen of a rail, and what it carried.
func reset(k *expect.Keeper, past *baseline.Keeper, name string) (text string, err error) {
	text, err = k.Reset(name)
	if err == nil {
		past.Forget(name)
	}
	return text, err
}

// resetHandler answers a reset request on the socket of the state directory.
func resetHandler(k *expect.Keeper, past *baseline.Keeper) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := reset(k, past, r.URL.Query().Get("rail"))
		switch {
		case errors.Is(err, expect.ErrUnknown):
			http.Error(w, err.Error(), http.StatusNotFound)
		case err != nil:
			http.Error(w, err.Error(), http.StatusConflict)
		default:
			fmt.Fprintf(w, "Forgot %s.\n", text)
		}
	})
}

// resetTime is the time limit for the running process.
const resetTime = 10 * time.Second

// forget asks the running process to drop what was seen of a rail. Without one, it changes the state itself.
func (s *expectSettings) forget(ctx context.Context, cfg *config.Config) (text string, err error) {
	if s.stateDir == "" {
		return "", misuse{errors.New("--reset needs --state.dir, that of the running railscope; without one, railscope " +
			"forgets when it is restarted")}
	}
	if _, err := os.Stat(s.stateDir); err != nil {
		return "", fmt.Errorf("--state.dir: %w", err)
	}
	const most = 64 << 10 // bytes of an answer
	address := statussock.URL + pathReset + "?rail=" + url.QueryEscape(s.reset)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, nil)
	if err != nil {
		return "", err
	}
	answer, err := statussock.Client(s.stateDir, resetTime).Do(req)
	switch {
	case errors.Is(err, statussock.ErrNotRunning):
		return s.forgetAlone(cfg)
	case errors.Is(err, os.ErrPermission):
		return "", fmt.Errorf("ask the running railscope: %w; run this as root or as its user", err)
	case err != nil:
		return "", fmt.Errorf("ask the running railscope: %w", err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, most))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = errors.New(strings.TrimSpace(string(body)))
	}
	return string(body), err
}

// forgetAlone changes the state in a directory in which no process answers.
func (s *expectSettings) forgetAlone(cfg *config.Config) (text string, err error) {
	store := state.Open(s.stateDir, nil)
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := store.Err(); errors.Is(err, state.ErrLocked) {
		return "", fmt.Errorf("%w; and it does not answer there: it is starting, or of an earlier version. Retry, or "+
			"restart it and retry", err)
	} else if err != nil {
		return "", err
	}
	finder := rail.NewFinder(s.sysfs, railOptions(cfg), rdmanl.New(listBudget), listBudget)
	remember(finder, store)
	text, err = reset(newKeeper(s.common, cfg, finder, store, store.Set), newBaselines(store), s.reset)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("No railscope is running with --state.dir=%s: changed the state there.\nForgot %s.\n", s.stateDir,
		text), nil
}
