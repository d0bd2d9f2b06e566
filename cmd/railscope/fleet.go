package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/model"
)

// fleetGroup returns the command whose parts the fleet commands are.
func fleetGroup(app *kingpin.Application) *kingpin.CmdClause {
	if group := app.GetCommand("fleet"); group != nil {
		return group
	}
	return app.Command("fleet", "Judge all nodes from their data in Prometheus, on any machine. Without a further "+
		"command it is fleet blame.")
}

// fleetSettings are the flags of all fleet commands: which Prometheus they ask, and for which nodes.
type fleetSettings struct {
	prometheus, httpConfig, selector string
	timeout                          time.Duration
}

func (s *fleetSettings) define(cmd *kingpin.CmdClause) {
	cmd.Flag("prometheus", "URL of Prometheus, or of a server with its HTTP API, such as http://prometheus:9090.").
		Envar("RAILSCOPE_FLEET_PROMETHEUS").PlaceHolder("URL").StringVar(&s.prometheus)
	cmd.Flag("http.config.file", "File with credentials and TLS for it, in the form of promtool.").
		Envar("RAILSCOPE_FLEET_HTTP_CONFIG_FILE").PlaceHolder("FILE").StringVar(&s.httpConfig)
	cmd.Flag("selector", `Label matchers of the nodes, such as cluster="a".`).Envar("RAILSCOPE_FLEET_SELECTOR").
		PlaceHolder("MATCHERS").StringVar(&s.selector)
	cmd.Flag("timeout", "Longest time of all questions together.").Envar("RAILSCOPE_FLEET_TIMEOUT").Default("2m").
		DurationVar(&s.timeout)
}

// companion runs a command of railscope-bench with the flags of all fleet commands, and further arguments.
func (s *fleetSettings) companion(ctx context.Context, tracker *shutdownTracker, w io.Writer, name string,
	args ...string) error {
	defer tracker.begin("fleet "+name, nil)()
	tracker.wait() // fleet has its own timeout
	if s.timeout <= 0 {
		return misuse{fmt.Errorf("--timeout must be positive, not %v", s.timeout)}
	}
	args = append([]string{name, "--prometheus=" + s.prometheus, "--http.config.file=" + s.httpConfig,
		"--selector=" + s.selector, fmt.Sprintf("--timeout=%g", s.timeout.Seconds())}, args...)
	if page().Color {
		args = append(args, "--color")
	}
	return runCompanion(ctx, w, args)
}

type blameSettings struct {
	fleetSettings
	topology, file, save, format string
	maxAge                       time.Duration
}

func (s *blameSettings) define(app *kingpin.Application) *blameSettings {
	cmd := fleetGroup(app).Command("blame", "Find the node, rail, leaf switch or pair that causes failed or slow "+
		"probe rounds. The exit code is 1 if there is something to blame.").Default()
	s.fleetSettings.define(cmd)
	cmd.Flag("topology", "CSV file of lines node,rail,leaf: which leaf switch a rail is plugged into.").
		Envar("RAILSCOPE_FLEET_TOPOLOGY").PlaceHolder("FILE").StringVar(&s.topology)
	cmd.Flag("file", "Read answers that --save has written, in place of asking Prometheus; - is standard input.").
		Envar("RAILSCOPE_FLEET_FILE").PlaceHolder("FILE").StringVar(&s.file)
	cmd.Flag("save", "Also write the answers of Prometheus, for --file.").Envar("RAILSCOPE_FLEET_SAVE").
		PlaceHolder("FILE").StringVar(&s.save)
	cmd.Flag("max-age", "Age of the last round of a pair above which it is not judged but named, also in the drain "+
		"list; 0s: any.").Envar("RAILSCOPE_FLEET_MAX_AGE").Default("15m").DurationVar(&s.maxAge)
	formatFlag(cmd, "RAILSCOPE_FLEET_FORMAT", &s.format, "table", "json", "html", "drain")
	return s
}

func (s *blameSettings) run(ctx context.Context, tracker *shutdownTracker, w io.Writer) error {
	switch {
	case (s.prometheus == "") == (s.file == ""):
		return misuse{errors.New("want --prometheus=URL, or --file=FILE with saved answers")}
	case s.maxAge < 0:
		return misuse{fmt.Errorf("--max-age must be 0s or more, such as 15m, not %v", s.maxAge)}
	}
	return s.companion(ctx, tracker, w, "blame", "--topology="+s.topology, "--file="+s.file, "--save="+s.save,
		fmt.Sprintf("--max-age=%g", s.maxAge.Seconds()), "--format="+s.format)
}

type driftSettings struct {
	fleetSettings
	since, format string
}

func (s *driftSettings) define(app *kingpin.Application) *driftSettings {
	cmd := fleetGroup(app).Command("drift", "Find what differs between nodes with the same hardware, such as "+
		"firmware, drivers and settings. The exit code is 1 if a node deviates.")
	s.fleetSettings.define(cmd)
	cmd.Flag("since", "Also show what changed since then, the first change first: a time such as "+
		"2026-11-02T15:04:05Z, or the time that has passed, such as 6h or 2d.").
		Envar("RAILSCOPE_FLEET_DRIFT_SINCE").PlaceHolder("TIME").StringVar(&s.since)
	formatFlag(cmd, "RAILSCOPE_FLEET_DRIFT_FORMAT", &s.format, "table", "json")
	return s
}

func (s *driftSettings) run(ctx context.Context, tracker *shutdownTracker, w io.Writer) error {
	if s.prometheus == "" {
		return misuse{errors.New("want --prometheus=URL")}
	}
	since, err := past(s.since, time.Now())
	if err != nil {
		return misuse{fmt.Errorf("--since: %w", err)}
	}
	return s.companion(ctx, tracker, w, "drift", "--since="+since, "--format="+s.format)
}

type whySettings struct {
	fleetSettings
	job, within, format string
}

func (s *whySettings) define(app *kingpin.Application) *whySettings {
	cmd := fleetGroup(app).Command("why", "Find what was wrong where a job ran: its nodes and rails, what was found "+
		"there, what they carried, and the likeliest cause. Its nodes need --source.process. The exit code is 1 if "+
		"a cause is named. See docs/why.md.")
	s.fleetSettings.define(cmd)
	cmd.Arg("job", "ID of a Slurm job, or name of a pod, also as namespace/name and without what follows a dash.").
		Required().StringVar(&s.job)
	cmd.Flag("within", "How long ago the job may have run, such as 7d.").Envar("RAILSCOPE_FLEET_WHY_WITHIN").
		Default("7d").StringVar(&s.within)
	formatFlag(cmd, "RAILSCOPE_FLEET_WHY_FORMAT", &s.format, "table", "json")
	return s
}

func (s *whySettings) run(ctx context.Context, tracker *shutdownTracker, w io.Writer) error {
	if s.prometheus == "" {
		return misuse{errors.New("want --prometheus=URL")}
	}
	within, err := model.ParseDuration(s.within)
	if err != nil || within <= 0 {
		return misuse{fmt.Errorf("--within must be a duration such as 7d, not %q", s.within)}
	}
	return s.companion(ctx, tracker, w, "why", "--job="+s.job,
		fmt.Sprintf("--within=%g", time.Duration(within).Seconds()), "--format="+s.format)
}

// past returns a time before now, given as such or as the time that has passed, in RFC 3339. It is empty if text is.
func past(text string, now time.Time) (string, error) {
	if text == "" {
		return "", nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		passed, err := model.ParseDuration(text)
		if err != nil {
			return "", fmt.Errorf("want a time such as 2026-11-02T15:04:05Z or a duration such as 6h, not %q", text)
		}
		at = now.Add(-time.Duration(passed))
	}
	if !at.Before(now) {
		return "", fmt.Errorf("%s is not in the past", text)
	}
	return at.UTC().Format(time.RFC3339), nil
}
