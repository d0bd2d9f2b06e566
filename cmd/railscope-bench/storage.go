package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/railscope/railscope/bench/storage"
)

// storageSettings are the flags of railscope storage, which documents them and always passes all of them.
type storageSettings struct {
	targets        []string
	format         string
	options        storage.Options
	color          bool
	timeoutSeconds float64
}

// define defines the command and returns its name.
func (s *storageSettings) define(app *kingpin.Application) string {
	cmd := app.Command("storage", "What railscope storage runs.").Hidden()
	cmd.Arg("target", "").Required().StringsVar(&s.targets)
	cmd.Flag("size", "Bytes.").Required().Int64Var(&s.options.Size)
	cmd.Flag("part-size", "Bytes.").Required().Int64Var(&s.options.Part)
	cmd.Flag("streams", "").Required().IntVar(&s.options.Streams)
	cmd.Flag("timeout", "Seconds.").Required().Float64Var(&s.timeoutSeconds)
	cmd.Flag("endpoint", "").StringVar(&s.options.Endpoint)
	cmd.Flag("format", "").Required().EnumVar(&s.format, "table", "json")
	cmd.Flag("sysfs", "").Required().StringVar(&s.options.Root)
	cmd.Flag("color", "").BoolVar(&s.color)
	return cmd.FullCommand()
}

func (s *storageSettings) run(ctx context.Context) error {
	s.options.Timeout = time.Duration(s.timeoutSeconds * float64(time.Second))
	results := []storage.Result{}
	for _, name := range s.targets {
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted before %s", name)
		}
		results = append(results, storage.MeasureAll(ctx, name, s.options))
	}
	var err error
	if s.format == "json" {
		err = storage.WriteJSON(os.Stdout, results)
	} else {
		err = storage.WriteTable(os.Stdout, results, s.color)
	}
	for _, r := range results {
		if err == nil && r.Failure != "" {
			err = errReported
		}
	}
	return err
}
