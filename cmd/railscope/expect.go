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

	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/rdmanl"
	"github.com/railscope/railscope/internal/serve"
	"github.com/railscope/railscope/internal/state"
	"github.com/railscope/railscope/internal/statussock"
	"github.com/railscope/railscope/internal/terminal"
)

type expectSettings struct {
	*common
	format, reset string
}

func (s *expectSettings) define(app *kingpin.Application) *expectSettings {
	cmd := app.Command("expect", "Show what is expected of the rails and GPUs of this node, what they are now, and "+
		"why: the configuration, else the best ever seen (--state.dir).")
	formatFlag(cmd, "RAILSCOPE_EXPECT_FORMAT", &s.format, "table", "json")
	cmd.Flag("reset", "Forget what was seen of the rail of this name, or gpus, after a planned change: the running "+
		"railscope of --state.dir does it, and without one this command. A missing rail is forgotten. See "+
		"docs/expect.md.").
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
	list := s.host(cfg, listBudget).Keeper.List()
	if s.format == "json" {
		return list.WriteJSON(w)
	}
	return list.WriteTable(w)
}

// resetTime is the time limit for the running process.
const resetTime = 10 * time.Second

// forget asks the running process to drop what was seen of a rail. Without one, it changes the state itself.
func (s *expectSettings) forget(ctx context.Context, cfg *config.Config) (text string, err error) {
	if s.stateDir == "" {
		return "", misuse{errors.New("--reset needs --state.dir, that of the running railscope; without one, " +
			"railscope forgets when it is restarted")}
	}
	if _, err := os.Stat(s.stateDir); err != nil {
		return "", fmt.Errorf("--state.dir: %w", err)
	}
	const most = 64 << 10 // bytes of an answer
	address := statussock.URL + serve.PathReset + "?rail=" + url.QueryEscape(s.reset)
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
	m := s.Machine
	m.RDMA = rdmanl.New(listBudget)
	h := serve.NewHost(m, cfg, store, listBudget)
	text, err = h.Reset(h.Baselines(), s.reset)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("No railscope is running with --state.dir=%s: changed the state there.\nForgot %s.\n",
		s.stateDir, text), nil
}
