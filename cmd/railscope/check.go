package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/doctor/verdict"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/serve"
)

// errUnknown is returned when the state of the node is unknown. The output of check says why.
var errUnknown = errors.New("unknown")

// Time limits of check: without a peer, and with one.
const (
	checkTime     = 2 * time.Second
	checkPeerTime = 15 * time.Second
)

type checkSettings struct {
	*common
	selection
	remote
	minSeverity, peer, tokenFile, format string
	timeout                              time.Duration
}

func (s *checkSettings) define(app *kingpin.Application) *checkSettings {
	cmd := app.Command("check", "Print one line about the health of this node, for Slurm, node-problem-detector, "+
		"Nagios and scripts. It asks the railscope that runs here (--state.dir, else /"+packagedState+"), else "+
		"--url, else examines the node itself. The exit code is 0 if the node is healthy, 1 for a finding of "+
		"--min-severity or worse, 2 if it is unknown. See docs/check.md.")
	const variable = "RAILSCOPE_CHECK"
	cmd.Flag("min-severity", "Least severity of a finding for exit code 1: critical, warning or info.").
		Envar(variable+"_MIN_SEVERITY").Default("critical").EnumVar(&s.minSeverity, "critical", "warning", "info")
	s.selection.define(cmd, variable)
	s.remote.define(cmd, variable)
	cmd.Flag("peer", "Also probe this node now, host or host:port, as railscope bench does. It must answer probes.").
		Envar(variable + "_PEER").PlaceHolder("HOST").StringVar(&s.peer)
	tokenFlag(cmd, &s.tokenFile)
	cmd.Flag("timeout", "Longest time, after which the exit code is 2. 2s, with --peer 15s.").
		Envar(variable + "_TIMEOUT").PlaceHolder("DURATION").DurationVar(&s.timeout)
	formatFlag(cmd, variable+"_FORMAT", &s.format, "text", "json")
	return s
}

func (s *checkSettings) run(ctx context.Context, tracker *shutdownTracker, w io.Writer) error {
	defer tracker.begin("check", nil)()
	if err := s.parse(); err != nil {
		return misuse{err}
	}
	limit := cmp.Or(s.timeout, checkTime)
	if s.timeout == 0 && s.peer != "" {
		limit = checkPeerTime
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	collected := make(chan verdict.State, 1)
	go func() { collected <- s.collect(ctx) }()
	var state verdict.State
	select {
	case state = <-collected:
	case <-ctx.Done(): // whatever hangs is left behind
		state.Unknown = fmt.Sprintf("no answer within %v", limit)
	}
	out := verdict.Criteria{Selection: s.Selection, Min: finding.Severity(s.minSeverity)}.Judge(state)
	var err error
	if s.format == "json" {
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		err = enc.Encode(out)
	} else {
		_, err = fmt.Fprintln(w, out.Text)
	}
	switch {
	case err != nil || out.Exit == verdict.ExitUnknown:
		return errors.Join(errUnknown, err)
	case out.Exit == verdict.ExitBad:
		return errReported
	}
	return nil
}

// parse returns an error for values that the parser accepts but check does not.
func (s *checkSettings) parse() (err error) {
	switch {
	case s.timeout < 0:
		return fmt.Errorf("--timeout must be above 0, such as 2s, not %v", s.timeout)
	case s.peer != "":
		s.peer, err = parsePeer("--peer", s.peer)
		if err != nil {
			return err
		}
	}
	return cmp.Or(s.selection.parse(), s.remote.parse(), checkToken(s.tokenFile))
}

// collect asks the running railscope, or the one at --url, or examines the node itself. It also probes the peer.
func (s *checkSettings) collect(ctx context.Context) verdict.State {
	state, err := s.ask(ctx)
	if errors.Is(err, errNoDaemon) && s.url == "" {
		state, err = s.examine(ctx)
		if err == nil && s.peer == "" {
			return state
		}
	}
	if err != nil {
		return verdict.State{Source: state.Source, Unknown: err.Error()}
	}
	if s.peer != "" && !state.Maintenance {
		round, err := s.probe(ctx)
		if err != nil {
			round = &verdict.Round{Skipped: err.Error()}
		}
		state.Round, state.Unknown = round.Found, cmp.Or(state.Unknown, round.Skipped)
	}
	return state
}

// ask asks a running railscope. Its error wraps errNoDaemon if this command must examine the node itself.
func (s *checkSettings) ask(ctx context.Context) (state verdict.State, err error) {
	source := "status.sock"
	at, err := s.runningStatus(ctx, cmp.Or(s.timeout, checkTime))
	if errors.Is(err, errNoDaemon) && s.url != "" {
		source = "url"
		at, err = s.get(ctx)
	}
	if err == nil && !at.Maintenance && !at.Examined() && s.url == "" {
		err = errNoDaemon // railscope has just started
	}
	if err == nil {
		state = verdict.FromStatus(at)
	}
	state.Source = source
	return state, err
}

// examine examines the node once.
func (s *checkSettings) examine(ctx context.Context) (state verdict.State, err error) {
	const source = "self"
	state.Source = source
	cfg, err := s.load()
	if err != nil {
		return state, err
	}
	hidden, err := serve.Silences(cfg)
	if err != nil {
		return state, err
	}
	if _, err := os.Stat(cfg.MaintenanceFile()); err == nil {
		state.Maintenance = true
		return state, nil
	}
	f := s.host(cfg, checkTime).Gatherer(nil).Gather(ctx, facts.OneNode)
	if err := ctx.Err(); err != nil {
		return state, fmt.Errorf("examine the node: %w", err) // missing facts would be reported as faults
	}
	state = verdict.FromFacts(f, s.Selection, hidden)
	state.Source = source
	return state, nil
}

// probe probes the peer once.
func (s *checkSettings) probe(ctx context.Context) (*verdict.Round, error) {
	cfg, err := s.load()
	if err != nil {
		return nil, err
	}
	res, err := s.quickRound(ctx, cfg, s.peer, s.tokenFile)
	if err != nil {
		return nil, err
	}
	return verdict.NewRound(res), nil
}
