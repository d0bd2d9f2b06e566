package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/railscope/railscope/fleet"
	"github.com/railscope/railscope/fleet/prometheus"
	"github.com/railscope/railscope/fleet/why"
	"github.com/railscope/railscope/internal/outfile"
)

// fleetSettings are the flags of all commands of railscope fleet, which documents them and always passes all of them.
type fleetSettings struct {
	prometheus, httpConfig, selector, format string
	timeoutSeconds                           float64
	color                                    bool
}

func (s *fleetSettings) define(cmd *kingpin.CmdClause, formats ...string) {
	cmd.Flag("prometheus", "").StringVar(&s.prometheus)
	cmd.Flag("http.config.file", "").StringVar(&s.httpConfig)
	cmd.Flag("selector", "").StringVar(&s.selector)
	cmd.Flag("timeout", "Seconds.").Required().Float64Var(&s.timeoutSeconds)
	cmd.Flag("format", "").Required().EnumVar(&s.format, formats...)
	cmd.Flag("color", "").BoolVar(&s.color)
}

// heap is the size, in bytes, up to which little is collected: nearly all of it is the fleet, which is needed.
const heap = 1500 << 20

// ask calls f with a Prometheus and the time limit of all questions.
func (s *fleetSettings) ask(ctx context.Context, f func(context.Context, fleet.Asker) error) error {
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(heap)
	p, err := prometheus.NewClient(s.prometheus, s.httpConfig)
	if err != nil {
		return misuse{fmt.Errorf("--prometheus: %w", err)}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(s.timeoutSeconds*float64(time.Second)))
	defer cancel()
	if err := f(ctx, p.Ask); err != nil {
		return fmt.Errorf("%s answers nothing: %w", s.prometheus, err)
	}
	return nil
}

// show prints a judgement, and returns errReported if it is not good.
func (s *fleetSettings) show(j interface {
	WriteJSON(io.Writer) error
	WriteTable(io.Writer, bool) error
	Good() bool
}) error {
	write := func(w io.Writer) error { return j.WriteTable(w, s.color) }
	if s.format == "json" {
		write = j.WriteJSON
	}
	if err := write(os.Stdout); err != nil {
		return err
	}
	if !j.Good() {
		return errReported
	}
	return nil
}

type driftSettings struct {
	fleetSettings
	since string
}

// define defines the command and returns its name.
func (s *driftSettings) define(app *kingpin.Application) string {
	cmd := app.Command("drift", "What railscope fleet drift runs.").Hidden()
	s.fleetSettings.define(cmd, "table", "json")
	cmd.Flag("since", "").StringVar(&s.since)
	return cmd.FullCommand()
}

func (s *driftSettings) run(ctx context.Context) error {
	var since time.Time
	if s.since != "" {
		at, err := time.Parse(time.RFC3339, s.since)
		if err != nil {
			return misuse{fmt.Errorf("--since: %w", err)}
		}
		since = at
	}
	var d fleet.Drift
	err := s.ask(ctx, func(ctx context.Context, ask fleet.Asker) (err error) {
		d, err = fleet.AskDrift(ctx, s.selector, time.Now(), since, ask)
		return err
	})
	if err != nil {
		return err
	}
	return s.show(d)
}

type whySettings struct {
	fleetSettings
	job           string
	withinSeconds float64
}

// define defines the command and returns its name.
func (s *whySettings) define(app *kingpin.Application) string {
	cmd := app.Command("why", "What railscope fleet why runs.").Hidden()
	s.fleetSettings.define(cmd, "table", "json")
	cmd.Flag("job", "").Required().StringVar(&s.job)
	cmd.Flag("within", "Seconds.").Required().Float64Var(&s.withinSeconds)
	return cmd.FullCommand()
}

func (s *whySettings) run(ctx context.Context) error {
	job, err := why.NewJob(s.job)
	if err != nil {
		return misuse{err}
	}
	var data why.Data
	err = s.ask(ctx, func(ctx context.Context, ask fleet.Asker) (err error) {
		within := time.Duration(s.withinSeconds * float64(time.Second))
		data, err = why.Ask(ctx, job, s.selector, time.Now(), within, ask)
		return err
	})
	if err != nil {
		return err
	}
	return s.show(why.Judge(data))
}

type blameSettings struct {
	fleetSettings
	topology, file, save string
	maxAgeSeconds        float64
}

// define defines the command and returns its name.
func (s *blameSettings) define(app *kingpin.Application) string {
	cmd := app.Command("blame", "What railscope fleet blame runs.").Hidden()
	s.fleetSettings.define(cmd, "table", "json", "html", "drain")
	cmd.Flag("topology", "").StringVar(&s.topology)
	cmd.Flag("file", "").StringVar(&s.file)
	cmd.Flag("save", "").StringVar(&s.save)
	cmd.Flag("max-age", "Seconds.").Required().Float64Var(&s.maxAgeSeconds)
	return cmd.FullCommand()
}

func (s *blameSettings) run(ctx context.Context) error {
	if s.save != "" {
		if err := outfile.Check(s.save); err != nil {
			return misuse{fmt.Errorf("--save: %w", err)}
		}
	}
	leaves, err := s.leaves()
	if err != nil {
		return misuse{err}
	}
	answers, err := s.answers(ctx)
	if err != nil {
		return err
	}
	if s.save != "" {
		var text strings.Builder
		if err := answers.Write(&text); err != nil {
			return err
		}
		if err := outfile.Write(s.save, []byte(text.String())); err != nil {
			return fmt.Errorf("--save: %w", err)
		}
	}
	shown := fleet.NewRecent(answers, leaves, time.Now(), time.Duration(s.maxAgeSeconds*float64(time.Second)))
	if s.prometheus != "" {
		err = s.ask(ctx, func(ctx context.Context, ask fleet.Asker) error {
			shown.AddContext(ctx, s.selector, leaves, ask)
			return nil
		})
		if err != nil {
			return err
		}
	}
	switch s.format {
	case "html":
		err = shown.WriteHTML(os.Stdout)
	case "drain":
		err = shown.WriteDrain(os.Stdout)
	default:
		return s.show(shown)
	}
	if err == nil && !shown.Good() {
		err = errReported
	}
	return err
}

// leaves reads the topology, if one is given.
func (s *blameSettings) leaves() (fleet.Topology, error) {
	if s.topology == "" {
		return nil, nil
	}
	f, err := os.Open(s.topology)
	if err != nil {
		return nil, fmt.Errorf("--topology: %w", err)
	}
	defer func() { _ = f.Close() }() // the file was only read
	t, err := fleet.ReadTopology(f)
	if err != nil {
		return nil, fmt.Errorf("--topology %s: %w", s.topology, err)
	}
	return t, nil
}

// answers queries Prometheus, or reads saved answers.
func (s *blameSettings) answers(ctx context.Context) (fleet.Answers, error) {
	switch {
	case (s.prometheus == "") == (s.file == ""):
		return fleet.Answers{}, misuse{errors.New("want --prometheus=URL, or --file=FILE with saved answers")}
	case s.file != "":
		return s.read()
	}
	var answers fleet.Answers
	err := s.ask(ctx, func(ctx context.Context, ask fleet.Asker) (err error) {
		answers, err = fleet.Ask(ctx, s.selector, time.Now(), ask)
		return err
	})
	return answers, err
}

func (s *blameSettings) read() (fleet.Answers, error) {
	in := io.Reader(os.Stdin)
	if s.file != "-" {
		f, err := os.Open(s.file)
		if err != nil {
			return fleet.Answers{}, misuse{fmt.Errorf("--file: %w", err)}
		}
		defer func() { _ = f.Close() }() // the file was only read
		in = f
	}
	answers, err := fleet.ReadAnswers(in)
	if err != nil {
		return answers, fmt.Errorf("%s: %w", s.file, err)
	}
	return answers, nil
}
