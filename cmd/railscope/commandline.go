package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/common/version"

	"github.com/railscope/railscope/internal/config"
)

// subcommand is one command, with its flags parsed into the settings that run has.
type subcommand struct {
	name string
	run  func(ctx context.Context, parts *unfinished, w io.Writer) error
}

// common are the flags of every command.
type common struct {
	configFile, nodeName, stateDir string
	sysfs, procfs, rootfs          string
	log                            promslog.Config
}

func (c *common) define(app *kingpin.Application) {
	c.log = promslog.Config{Level: promslog.NewLevel(), Format: promslog.NewFormat()}
	app.Flag("config.file", "Configuration file (YAML): which ports are rails, their names, and the peers to probe. "+
		"Without it every port that is not a virtual function is a rail, and nobody is probed.").
		PlaceHolder("FILE").StringVar(&c.configFile)
	app.Flag("node.name", "Name of this node for its peers, unless probe.name in the configuration is set. "+
		"Without both, the host's name.").PlaceHolder("NAME").StringVar(&c.nodeName)
	app.Flag("state.dir", "Directory for what must survive a restart: which rail has which number. serve writes it, "+
		"other commands read it. Empty: numbers last as long as the process.").PlaceHolder("DIR").StringVar(&c.stateDir)
	app.Flag("path.sysfs", "Mount point of sysfs.").Default("/sys").StringVar(&c.sysfs)
	app.Flag("path.procfs", "Mount point of procfs.").Default("/proc").StringVar(&c.procfs)
	app.Flag("path.rootfs", "Mount point of the host's root file system.").Default("/").StringVar(&c.rootfs)
	app.Flag("log.level", "Lowest severity to log: debug, info, warn or error.").Default("info").SetValue(c.log.Level)
	app.Flag("log.format", "Format of the log: logfmt or json.").Default("logfmt").SetValue(c.log.Format)
}

func (c *common) logger() *slog.Logger { return promslog.New(&c.log) }

// load reads the configuration. Its errors are misuse.
func (c *common) load() (*config.Config, error) {
	cfg, err := config.Load(c.configFile)
	if err != nil {
		return nil, misuse{err}
	}
	return cfg, nil
}

// application is the command line and the commands that it fills the settings of.
func application() (*kingpin.Application, []subcommand) {
	app := kingpin.New("railscope", "See what the RDMA rails of this node really do.\n\n"+
		"Every flag has an environment variable, such as RAILSCOPE_PATH_SYSFS for --path.sysfs.")
	app.DefaultEnvars()
	app.Version(version.Print("railscope")).VersionFlag.NoEnvar()
	app.HelpFlag.Short('h').NoEnvar()
	app.UsageWriter(os.Stdout) // help that was asked for is no error
	app.UsageTemplate(usage)
	var all common
	all.define(app)
	return app, []subcommand{
		{"serve", (&serveSettings{nodeSettings: nodeSettings{common: &all}}).define(app).run},
		{"rails", (&railsSettings{common: &all}).define(app).run},
		{"bench", (&benchSettings{common: &all}).define(app).run},
		{"doctor", (&doctorSettings{common: &all}).define(app).run},
		{"demo", (&demoSettings{common: &all}).define(app).run},
	}
}

// parse parses the command line. Its errors are misuse.
func parse(args []string) (subcommand, error) {
	app, commands := application()
	err := missingValue(app, args)
	if err != nil {
		return subcommand{}, misuse{err}
	}
	name, err := app.Parse(args)
	if err != nil {
		return subcommand{}, misuse{explain(err, args)}
	}
	for _, c := range commands {
		if c.name == name {
			return c, nil
		}
	}
	return subcommand{}, fmt.Errorf("command %s has no implementation", name)
}

// formatFlag is --format of a command. Its values differ from command to command, so its variable has the command's
// name.
func formatFlag(cmd *kingpin.CmdClause, variable string, to *string, usual, other string) {
	cmd.Flag("format", usual+" or "+other+".").Envar(variable).Default(usual).EnumVar(to, usual, other)
}

// isTerminal reports whether f is a terminal.
func isTerminal(f *os.File) bool {
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}
