package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/railscope/railscope/fleet"
	"github.com/railscope/railscope/internal/outfile"
)

// fleetSettings are the flags of railscope fleet, which documents them and always passes all of them.
type fleetSettings struct {
	prometheus, httpConfig, selector, topology string
	file, save, format                         string
	timeoutSeconds, maxAgeSeconds              float64
	color                                      bool
}

// define defines the command and returns its name.
func (s *fleetSettings) define(app *kingpin.Application) string {
	cmd := app.Command("fleet", "What railscope fleet runs.").Hidden()
	cmd.Flag("prometheus", "").StringVar(&s.prometheus)
	cmd.Flag("http.config.file", "").StringVar(&s.httpConfig)
	cmd.Flag("selector", "").StringVar(&s.selector)
	cmd.Flag("topology", "").StringVar(&s.topology)
	cmd.Flag("file", "").StringVar(&s.file)
	cmd.Flag("save", "").StringVar(&s.save)
	cmd.Flag("timeout", "Seconds.").Required().Float64Var(&s.timeoutSeconds)
	cmd.Flag("max-age", "Seconds.").Required().Float64Var(&s.maxAgeSeconds)
	cmd.Flag("format", "").Required().EnumVar(&s.format, "table", "json", "html", "drain")
	cmd.Flag("color", "").BoolVar(&s.color)
	return cmd.FullCommand()
}

func (s *fleetSettings) run(ctx context.Context) error {
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
	switch s.format {
	case "json":
		err = shown.WriteJSON(os.Stdout)
	case "html":
		err = shown.WriteHTML(os.Stdout)
	case "drain":
		err = shown.WriteDrain(os.Stdout)
	default:
		err = shown.WriteTable(os.Stdout, s.color)
	}
	if err == nil && !shown.Good() {
		err = errReported
	}
	return err
}

// leaves reads the topology, if one is given.
func (s *fleetSettings) leaves() (fleet.Topology, error) {
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
func (s *fleetSettings) answers(ctx context.Context) (fleet.Answers, error) {
	switch {
	case (s.prometheus == "") == (s.file == ""):
		return fleet.Answers{}, misuse{errors.New("want --prometheus=URL, or --file=FILE with saved answers")}
	case s.file != "":
		return s.read()
	}
	p, err := fleet.NewPrometheus(s.prometheus, s.httpConfig)
	if err != nil {
		return fleet.Answers{}, misuse{fmt.Errorf("--prometheus: %w", err)}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(s.timeoutSeconds*float64(time.Second)))
	defer cancel()
	answers, err := fleet.Ask(ctx, s.selector, time.Now(), p.Ask)
	if err != nil {
		return answers, fmt.Errorf("%s answers nothing: %w", s.prometheus, err)
	}
	return answers, nil
}

func (s *fleetSettings) read() (fleet.Answers, error) {
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
