package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/alecthomas/kingpin/v2"

	"github.com/railscope/railscope/bench/record"
	"github.com/railscope/railscope/bench/report"
	"github.com/railscope/railscope/bench/suite"
)

type reportSettings struct{ of, as string }

// Kinds and formats of a report.
const (
	ofBench, ofRun = "bench", "run"
	asHTML         = "html"
)

// define defines the command and returns its name.
func (s *reportSettings) define(app *kingpin.Application) string {
	cmd := app.Command("report", "Write a report or a picture of the JSON on standard input to standard output.")
	cmd.Flag("of", "Command that wrote the JSON: bench or run.").Default(ofBench).EnumVar(&s.of, ofBench, ofRun)
	cmd.Flag("as", "Format: html, png or svg.").Default(asHTML).EnumVar(&s.as, asHTML, report.PNG, report.SVG)
	return cmd.FullCommand()
}

// maxInput limits the JSON on standard input, in bytes: a command that ran for days has many points.
const maxInput = 256 << 20

func (s *reportSettings) run(context.Context) error {
	r, err := s.read(os.Stdin)
	if err != nil {
		return fmt.Errorf("standard input: %w", err)
	}
	var out bytes.Buffer
	if s.as == asHTML {
		err = r.WriteHTML(&out)
	} else {
		err = r.WritePicture(&out, s.as)
	}
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(out.Bytes())
	return err
}

func (s *reportSettings) read(in io.Reader) (report.Report, error) {
	if s.of == ofBench {
		measured, err := suite.Read(in)
		return report.Bench(measured), err
	}
	data, err := io.ReadAll(io.LimitReader(in, maxInput+1))
	switch {
	case err != nil:
		return report.Report{}, err
	case len(data) > maxInput:
		return report.Report{}, fmt.Errorf("larger than %d MiB", maxInput>>20)
	}
	var kind struct {
		Version int             `json:"version"`
		Runs    json.RawMessage `json:"runs"`
	}
	if err := json.Unmarshal(data, &kind); err != nil {
		return report.Report{}, fmt.Errorf("not the JSON of railscope run: %w", err)
	}
	if kind.Version != record.Version {
		return report.Report{}, errors.New("not the JSON of railscope run --json of this version")
	}
	if kind.Runs != nil {
		var c record.Comparison
		err := json.Unmarshal(data, &c)
		return report.Compared(c), err
	}
	var rec record.Record
	err = json.Unmarshal(data, &rec)
	return report.Run(rec), err
}
