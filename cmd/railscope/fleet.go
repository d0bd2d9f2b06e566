package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/alecthomas/kingpin/v2"
)

type fleetSettings struct {
	prometheus, httpConfig, selector, topology string
	file, save, format                         string
	timeout, maxAge                            time.Duration
}

func (s *fleetSettings) define(app *kingpin.Application) *fleetSettings {
	cmd := app.Command("fleet", "Find the node, rail, leaf switch or pair that causes failed or slow probe rounds, "+
		"from data in Prometheus. It works on any machine. The exit code is 1 if there is something to blame.")
	cmd.Flag("prometheus", "URL of Prometheus, or of a server with its HTTP API, such as http://prometheus:9090.").
		Envar("RAILSCOPE_FLEET_PROMETHEUS").PlaceHolder("URL").StringVar(&s.prometheus)
	cmd.Flag("http.config.file", "File with credentials and TLS for it, in the form of promtool.").
		Envar("RAILSCOPE_FLEET_HTTP_CONFIG_FILE").PlaceHolder("FILE").StringVar(&s.httpConfig)
	cmd.Flag("selector", `Label matchers of the nodes, such as cluster="a".`).Envar("RAILSCOPE_FLEET_SELECTOR").
		PlaceHolder("MATCHERS").StringVar(&s.selector)
	cmd.Flag("topology", "CSV file of lines node,rail,leaf: which leaf switch a rail is plugged into.").
		Envar("RAILSCOPE_FLEET_TOPOLOGY").PlaceHolder("FILE").StringVar(&s.topology)
	cmd.Flag("file", "Read answers that --save has written, in place of asking Prometheus; - is standard input.").
		Envar("RAILSCOPE_FLEET_FILE").PlaceHolder("FILE").StringVar(&s.file)
	cmd.Flag("save", "Also write the answers of Prometheus, for --file.").Envar("RAILSCOPE_FLEET_SAVE").
		PlaceHolder("FILE").StringVar(&s.save)
	cmd.Flag("max-age", "Age of the last round of a pair above which it is not judged but named, also in the drain "+
		"list; 0s: any.").Envar("RAILSCOPE_FLEET_MAX_AGE").Default("15m").DurationVar(&s.maxAge)
	cmd.Flag("timeout", "Longest time of all questions together.").Envar("RAILSCOPE_FLEET_TIMEOUT").Default("2m").
		DurationVar(&s.timeout)
	formatFlag(cmd, "RAILSCOPE_FLEET_FORMAT", &s.format, "table", "json", "html", "drain")
	return s
}

func (s *fleetSettings) run(ctx context.Context, tracker *shutdownTracker, w io.Writer) error {
	defer tracker.begin("fleet", nil)()
	tracker.wait() // fleet has its own timeout
	switch {
	case (s.prometheus == "") == (s.file == ""):
		return misuse{errors.New("want --prometheus=URL, or --file=FILE with saved answers")}
	case s.timeout <= 0:
		return misuse{fmt.Errorf("--timeout must be positive, not %v", s.timeout)}
	case s.maxAge < 0:
		return misuse{fmt.Errorf("--max-age must be 0s or more, such as 15m, not %v", s.maxAge)}
	}
	args := []string{"fleet", "--prometheus=" + s.prometheus, "--http.config.file=" + s.httpConfig,
		"--selector=" + s.selector, "--topology=" + s.topology, "--file=" + s.file, "--save=" + s.save,
		fmt.Sprintf("--timeout=%g", s.timeout.Seconds()), fmt.Sprintf("--max-age=%g", s.maxAge.Seconds()),
		"--format=" + s.format}
	if page().Color {
		args = append(args, "--color")
	}
	return runCompanion(ctx, w, args)
}
