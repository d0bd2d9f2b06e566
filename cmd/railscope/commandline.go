package main

import (
	"context"
	"io"
	"log/slog"
	"os"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/common/version"

	"github.com/railscope/railscope/internal/config"
)

type runFunc func(ctx context.Context, parts *unfinished, w io.Writer) error

type common struct {
	configFile, nodeName, stateDir string
	sysfs, procfs, rootfs          string
	log                            promslog.Config
}

func (c *common) define(app *kingpin.Application) {
	c.log = promslog.Config{Level: promslog.NewLevel(), Format: promslog.NewFormat()}
	app.Flag("config.file", "Configuration file (YAML): which ports are rails, their names, and the peers to probe. "+
		"Without it every port that is not a virtual function is a rail, and no peer is probed.").
		PlaceHolder("FILE").StringVar(&c.configFile)
	app.Flag("node.name", "Name of this node for its peers. probe.name in the configuration takes precedence; without "+
		"both it is the host's name.").PlaceHolder("NAME").StringVar(&c.nodeName)
	app.Flag("state.dir", "Directory of the state that survives a restart: the numbers of rails. serve writes it, other "+
		"commands read it. Empty: the state is lost when the process exits.").PlaceHolder("DIR").StringVar(&c.stateDir)
	app.Flag("path.sysfs", "Mount point of sysfs.").Default("/sys").StringVar(&c.sysfs)
	app.Flag("path.procfs", "Mount point of procfs.").Default("/proc").StringVar(&c.procfs)
	app.Flag("path.rootfs", "Mount point of the host's root file system.").Default("/").StringVar(&c.rootfs)
	app.Flag("log.level", "Lowest severity to log: debug, info, warn or error.").Default("info").SetValue(c.log.Level)
	app.Flag("log.format", "Format of the log: logfmt or json.").Default("logfmt").SetValue(c.log.Format)
}

func (c *common) logger() *slog.Logger { return promslog.New(&c.log) }

// logResult logs a failure as a warning, else the success.
func logResult(logger *slog.Logger, err error, failed, succeeded string, args ...any) {
	if err != nil {
		logger.Warn(failed, append(args, "err", err)...) //nolint:sloglint // callers pass constants
		return
	}
	logger.Info(succeeded, args...) //nolint:sloglint // callers pass constants
}

// load reads the configuration. Its errors are misuse.
func (c *common) load() (*config.Config, error) {
	cfg, err := config.Load(c.configFile)
	if err != nil {
		return nil, misuse{err}
	}
	return cfg, nil
}

// application returns the command line, and its commands by name.
func application() (*kingpin.Application, map[string]runFunc) {
	app := kingpin.New("railscope", "See what the RDMA rails of this node really do.\n\n"+
		"Every flag has an environment variable, such as RAILSCOPE_PATH_SYSFS for --path.sysfs.")
	app.DefaultEnvars()
	app.Version(version.Print("railscope")).VersionFlag.NoEnvar()
	app.HelpFlag.Short('h').NoEnvar()
	app.UsageWriter(os.Stdout) // not standard error: the user has asked for it
	app.UsageTemplate(usage)
	var all common
	all.define(app)
	return app, map[string]runFunc{ // the help has this order
		"serve":  (&serveSettings{nodeSettings: nodeSettings{common: &all}}).define(app).run,
		"rails":  (&railsSettings{common: &all}).define(app).run,
		"bench":  (&benchSettings{common: &all}).define(app).run,
		"doctor": (&doctorSettings{common: &all}).define(app).run,
		"demo":   (&demoSettings{common: &all}).define(app).run,
	}
}

// parse returns the command that the command line names. Its errors are misuse.
func parse(args []string) (runFunc, error) {
	app, commands := application()
	name, err := "", missingValue(app, args)
	if err == nil {
		name, err = app.Parse(args)
	}
	if err != nil {
		return nil, misuse{explain(app, args, err)}
	}
	return commands[name], nil
}

// formatFlag defines --format. Its values depend on the command, so its variable has the name of the command.
func formatFlag(cmd *kingpin.CmdClause, variable string, to *string, usual, other string) {
	cmd.Flag("format", usual+" or "+other+".").Envar(variable).Default(usual).EnumVar(to, usual, other)
}

func isTerminal(f *os.File) bool {
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

// usage is the template of the help. Of a command it shows that command, its own flags first; without one, all
// commands, because serve may be left out.
const usage = `{{define "args"}}{{with .FlagSummary}} {{.}}{{end -}}
{{range .Args}} {{if .Required}}<{{.Name}}>{{else -}}
[<{{.Name}}>{{if .Value | IsCumulative}}...{{end}}]{{end}}{{end}}{{end -}}

{{with .Context.SelectedCommand -}}
usage: {{$.App.Name}} {{.FullCommand}}{{template "args" .}}

{{.Help | Wrap 0}}
{{with .Args -}}
Args:
{{. | ArgsToTwoColumns | FormatTwoColumns}}
{{end -}}
{{with .Flags -}}
Flags:
{{. | FlagsToTwoColumns | FormatTwoColumns}}
{{end -}}
Global flags:
{{$.App.Flags | FlagsToTwoColumns | FormatTwoColumns}}
{{- else -}}
usage: {{.App.Name}} [<flags>] <command> [<args> ...]

{{.App.Help | Wrap 0}}
Flags:
{{.App.Flags | FlagsToTwoColumns | FormatTwoColumns}}
Commands:
{{range .App.Commands -}}
{{if not .Hidden}}{{.FullCommand}}{{template "args" .}}
{{.Help | Wrap 4}}
{{with .Flags | FlagsToTwoColumns}}{{FormatTwoColumnsWithIndent . 4 2}}{{end}}
{{end}}{{end}}{{end}}`
