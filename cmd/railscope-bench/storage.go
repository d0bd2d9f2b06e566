package main

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/railscope/railscope/bench/storage"
	"github.com/railscope/railscope/internal/config"
)

type storageSettings struct {
	targets  []string
	format   string
	endpoint string
	size     config.Size
	part     config.Size
	streams  int
	timeout  time.Duration
}

// sizeFlag is a positive size on the command line.
type sizeFlag struct{ *config.Size }

func (f sizeFlag) Set(s string) error {
	if err := f.UnmarshalText([]byte(s)); err != nil || *f.Size <= 0 {
		return errors.New("must be a size such as 64MiB, not " + s)
	}
	return nil
}

func (s *storageSettings) define(app *kingpin.Application) *storageSettings {
	cmd := app.Command("storage", "Measure how fast a checkpoint is saved to and loaded from directories and buckets.")
	cmd.Arg("target", "Directory, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX.").Required().StringsVar(&s.targets)
	cmd.Flag("size", "Size of the checkpoint.").Default("1GiB").SetValue(sizeFlag{&s.size})
	cmd.Flag("part-size", "Size of each part.").Default("64MiB").SetValue(sizeFlag{&s.part})
	cmd.Flag("streams", "Parts in flight.").Default("4").IntVar(&s.streams)
	cmd.Flag("format", "table or json.").Default("table").EnumVar(&s.format, "table", "json")
	cmd.Flag("endpoint", "URL of the S3 server; AWS without it.").StringVar(&s.endpoint)
	cmd.Flag("timeout", "Limit of each target.").Default("10m").DurationVar(&s.timeout)
	return s
}

func (s *storageSettings) run(ctx context.Context, w io.Writer) error {
	o := storage.Options{Size: int64(s.size), Part: int64(s.part), Streams: s.streams, Timeout: s.timeout, Root: "/sys",
		Endpoint: s.endpoint}
	results, failed := []storage.Result{}, false
	for _, name := range s.targets {
		result := storage.Result{Target: name, Streams: o.Streams, Interfaces: []storage.Interface{}}
		target, err := storage.Open(ctx, name, o)
		if err != nil {
			result.Failure = err.Error()
		} else {
			result = storage.Measure(ctx, name, target, o)
		}
		failed = failed || result.Failure != ""
		results = append(results, result)
	}
	write := func() error { return storage.WriteTable(w, results, false) }
	if s.format == "json" {
		write = func() error { return storage.WriteJSON(w, results) }
	}
	if err := write(); err != nil {
		return err
	}
	if failed {
		return errReported
	}
	return nil
}
