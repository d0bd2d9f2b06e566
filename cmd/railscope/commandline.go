package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/common/version"

	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/rdmanl"
	"github.com/railscope/railscope/internal/serve"
	"github.com/railscope/railscope/internal/state"
	"github.com/railscope/railscope/internal/terminal"
)

type runFunc func(ctx context.Context, tracker *shutdownTracker, w io.Writer) error

// common are the flags of all commands.
type common struct {
	serve.Machine
	configFile, stateDir string
	log                  promslog.Config
}

func (c *common) define(app *kingpin.Application) {
	c.log = promslog.Config{Level: promslog.NewLevel(), Format: promslog.NewFormat()}
	app.Flag("config.file", "Configuration file (YAML): which ports are rails, their names, and the peers to probe. "+
		"Without it every port that jobs can use is a rail, and no peer is probed.").
		PlaceHolder("FILE").StringVar(&c.configFile)
	app.Flag("node.name", "Name of this node for its peers. probe.name in the configuration takes precedence; without "+
		"both it is the host's name.").PlaceHolder("NAME").StringVar(&c.Name)
	app.Flag("state.dir", "Directory of the state that survives a restart: the numbers of rails, and the best that "+
		"was seen of them. serve writes it, other commands read it. Empty: the state is lost when the process exits.").
		PlaceHolder("DIR").StringVar(&c.stateDir)
	app.Flag("path.sysfs", "Mount point of sysfs.").Default("/sys").StringVar(&c.Sysfs)
	app.Flag("path.procfs", "Mount point of procfs.").Default("/proc").StringVar(&c.Procfs)
	app.Flag("path.rootfs", "Mount point of the host's root file system.").Default("/").StringVar(&c.Rootfs)
	app.Validate(func(*kingpin.Application) error { return c.checkPaths() })
	app.Flag("log.level", "Lowest severity to log: debug, info, warn or error.").Default("info").SetValue(c.log.Level)
	app.Flag("log.format", "Format of the log: logfmt or json.").Default("logfmt").SetValue(c.log.Format)
}

// checkPaths returns an error for a mount point that is a file, and for a directory that is no sysfs: without sysfs,
// the rails of a node are unknown. An empty one is that of a machine without devices. The readers report what procfs
// and the root lack.
func (c *common) checkPaths() error {
	const cure = "mount the host's file system there"
	for _, p := range []struct{ flag, dir string }{{"sysfs", c.Sysfs}, {"procfs", c.Procfs}, {"rootfs", c.Rootfs}} {
		info, err := os.Stat(p.dir)
		if err != nil && p.flag == "sysfs" {
			return fmt.Errorf("--path.%s: %w: %s", p.flag, err, cure)
		}
		if err == nil && !info.IsDir() {
			return fmt.Errorf("--path.%s: %s is not a directory: %s", p.flag, p.dir, cure)
		}
	}
	inside, _ := os.ReadDir(c.Sysfs) // unreadable: the readers say so
	if len(inside) > 0 && !slices.ContainsFunc(inside, func(e os.DirEntry) bool {
		return slices.Contains([]string{"class", "bus", "devices"}, e.Name())
	}) {
		return fmt.Errorf("--path.sysfs: %s is not a sysfs, it has no class: %s", c.Sysfs, cure)
	}
	return nil
}

func (c *common) logger() *slog.Logger {
	logging := c.log
	logging.Writer = terminal.Writer{Writer: cmp.Or(logging.Writer, io.Writer(os.Stderr))}
	return promslog.New(&logging)
}

// load reads the configuration. An error is a misuse.
func (c *common) load() (*config.Config, error) {
	cfg, err := config.Load(c.configFile)
	if err != nil {
		return nil, misuse{err}
	}
	return cfg, nil
}

// host returns what commands other than serve read. It names the rails as serve does, with the state of serve, and
// saves nothing. budget limits the wait for one device.
func (c *common) host(cfg *config.Config, budget time.Duration) *serve.Host {
	var store *state.Store
	if c.stateDir != "" {
		logger := c.logger()
		store = state.OpenReadOnly(c.stateDir, func(err error) {
			if err != nil {
				logger.Warn("State not read", "err", err)
			}
		})
	}
	m := c.Machine
	m.RDMA = rdmanl.New(budget)
	return serve.NewHost(m, cfg, store, budget)
}

// application returns the parser of the command line, and its commands by name.
func application() (*kingpin.Application, map[string]runFunc) {
	app := kingpin.New("railscope", "See what the RDMA rails of this node really do.\n\n"+
		"Flags have environment variables, such as RAILSCOPE_PATH_SYSFS for --path.sysfs: docs/configuration.md "+
		"lists them.")
	app.DefaultEnvars()
	app.Version(version.Print("railscope")).VersionFlag.NoEnvar()
	app.HelpFlag.Short('h').NoEnvar()
	app.UsageWriter(os.Stdout) // standard output, because the user asked for the help
	app.UsageTemplate(usage)
	var all common
	all.define(app)
	return app, map[string]runFunc{ // order of the help
		"serve":       (&serveSettings{common: &all}).define(app).run,
		"rails":       (&railsSettings{common: &all}).define(app).run,
		"expect":      (&expectSettings{common: &all}).define(app).run,
		"check":       (&checkSettings{common: &all}).define(app).run,
		"bench":       (&benchSettings{common: &all}).define(app).run,
		"read":        (&readSettings{common: &all}).define(app).run,
		"nixlbench":   (&nixlbenchSettings{common: &all}).define(app).run,
		"run":         (&runSettings{common: &all}).define(app).run,
		"storage":     (&storageSettings{common: &all}).define(app).run,
		"rules":       (&rulesSettings{}).define(app).run,
		"doctor":      (&doctorSettings{common: &all}).define(app).run,
		"fleet blame": new(blameSettings).define(app).run,
		"fleet drift": new(driftSettings).define(app).run,
		"fleet gate":  (&gateSettings{common: &all}).define(app).run,
		"fleet why":   new(whySettings).define(app).run,
		"metrics":     (&metricsSettings{common: &all}).define(app).run,
		"bundle":      (&bundleSettings{common: &all}).define(app).run,
		"demo":        (&demoSettings{common: &all}).define(app).run,
	}
}

// parse returns the command that the command line selects. An error is a misuse.
func parse(args []string) (runFunc, error) {
	app, commands := application()
	args = spelledOut(args)
	own := args // railscope's own arguments, without those of a command to run
	if i := slices.Index(args, "--"); i >= 0 {
		own = args[:i]
	}
	name, err := "", missingValue(app, own)
	if err == nil {
		name, err = app.Parse(args)
	}
	if err != nil {
		return nil, misuse{explain(app, args, err)}
	}
	if err := withoutEffect(app, args); err != nil {
		return nil, misuse{err}
	}
	return commands[name], nil
}

// spelledOut returns args as the parser knows them: with the values of flags that may be without one, and with
// --source.NAME for node_exporter's --collector.NAME.
func spelledOut(args []string) []string {
	args = slices.Clone(args)
	for i, arg := range args {
		switch {
		case arg == "--": // what follows is of a command to run
			return args
		case arg == "--sweep":
			args[i] += "=" + usualSweep
		case arg == "--kv-cache":
			args[i] += "=" + allModels
		case arg == "--suite":
			args[i] += "=" + allParts
		case strings.HasPrefix(arg, "--collector."), strings.HasPrefix(arg, "--no-collector."):
			args[i] = strings.Replace(arg, "collector.", "source.", 1)
		}
	}
	return args
}

// formatFlag defines --format with the default first. Its values depend on the command, so its environment variable
// contains the name of the command.
func formatFlag(cmd *kingpin.CmdClause, variable string, to *string, formats ...string) {
	last := len(formats) - 1
	cmd.Flag("format", strings.Join(formats[:last], ", ")+" or "+formats[last]+".").Envar(variable).Default(formats[0]).
		EnumVar(to, formats...)
}

func isTerminal(f *os.File) bool {
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

// usage is the template of the help. The help of a command lists its own flags first. Without a command it lists
// all commands, because serve may be omitted.
const usage = `{{define "args"}}{{with .FlagSummary}} {{.}}{{end -}}
{{range .Args}} {{if .Required}}<{{.Name}}>{{else -}}
[<{{.Name}}>{{if .Value | IsCumulative}}...{{end}}]{{end}}{{end}}{{end -}}
{{define "commands"}}{{range . -}}
{{if not .Hidden}}{{.FullCommand}}{{template "args" .}}
{{.Help | Wrap 4}}
{{with .Flags | FlagsToTwoColumns}}{{FormatTwoColumnsWithIndent . 4 2}}{{end}}
{{end}}{{end}}{{end -}}

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
{{with .Commands -}}
Commands:
{{template "commands" .}}
{{end -}}
Global flags:
{{$.App.Flags | FlagsToTwoColumns | FormatTwoColumns}}
{{- else -}}
usage: {{.App.Name}} [<flags>] <command> [<args> ...]

{{.App.Help | Wrap 0}}
Flags:
{{.App.Flags | FlagsToTwoColumns | FormatTwoColumns}}
Commands:
{{template "commands" .App.FlattenedCommands}}{{end}}`

// missingValue returns an error for a flag without its value, which the parser ignores before the default command.
func missingValue(app *kingpin.Application, args []string) error {
	for i, arg := range args {
		f := app.GetFlag(strings.TrimPrefix(arg, "--"))
		if f != nil && strings.HasPrefix(arg, "--") && !f.Model().IsBoolFlag() &&
			(i+1 == len(args) || strings.HasPrefix(args[i+1], "-")) {
			return fmt.Errorf("%s needs a value", arg)
		}
	}
	return nil
}

// explain adds the flag or variable, and the valid values, to an error of the command line. The parser's errors
// have no type, so explain looks at where the parser stopped.
func explain(app *kingpin.Application, args []string, err error) error {
	parsed, _ := app.ParseContext(args)
	if parsed == nil {
		return err
	}
	help, flags, token := "railscope", app.Model().Flags, parsed.Peek()
	cmd := parsed.SelectedCommand
	if cmd != nil {
		flags = slices.Concat(flags, cmd.Model().Flags)
	}
	var given []string // words of the command on the command line: serve may be omitted, and blame after fleet
	if cmd != nil {
		given = strings.Fields(cmd.FullCommand())
		for len(given) > 0 && !slices.Contains(args, given[len(given)-1]) {
			given = given[:len(given)-1]
		}
		help = strings.Join(append([]string{help}, given...), " ")
	}
	switch {
	case token.Type == kingpin.TokenArg && (cmd == nil || strings.Join(given, " ") != cmd.FullCommand()):
		err = unknownCommand(app, given, token.Value)
	case token.Type == kingpin.TokenLong && !slices.Contains(names(flags), token.String()):
		err = unknownFlag(app, token.String(), names(flags))
	default:
		if invalid := invalidValue(parsed, flags); invalid != nil {
			err = invalid
		}
	}
	return fmt.Errorf("%w (see %s --help)", err, help)
}

// names returns the flags as typed on a command line.
func names(flags []*kingpin.FlagModel) (list []string) {
	for _, f := range flags {
		list = append(list, "--"+f.Name)
		if f.IsBoolFlag() {
			list = append(list, "--no-"+f.Name)
		}
	}
	return list
}

// unknownCommand returns the error of a word that is none of the commands in a group.
func unknownCommand(app *kingpin.Application, group []string, name string) error {
	commands := app.Model().Commands
	for _, word := range group {
		i := slices.IndexFunc(commands, func(c *kingpin.CmdModel) bool { return c.Name == word })
		commands = commands[i].Commands
	}
	var known []string
	for _, c := range commands {
		known = append(known, c.Name)
	}
	if near := config.Nearest(name, known); near != "" {
		return fmt.Errorf("unknown command %q; did you mean %q?", name, near)
	}
	return fmt.Errorf("unknown command %q; the commands are %s", name, strings.Join(known, ", "))
}

func unknownFlag(app *kingpin.Application, name string, known []string) error {
	for _, c := range app.Model().FlattenedCommands() {
		if slices.Contains(names(c.Flags), name) {
			return fmt.Errorf("unknown flag %s; it is a flag of railscope %s", name, c.FullCommand)
		}
	}
	if near := config.Nearest(name, known); near != "" {
		return fmt.Errorf("unknown flag %s; did you mean %q?", name, near)
	}
	return fmt.Errorf("unknown flag %s", name)
}

// invalidValue returns the error of the first flag with an invalid value, from the command line or the environment.
func invalidValue(parsed *kingpin.ParseContext, flags []*kingpin.FlagModel) error {
	given := map[string]string{}
	for _, e := range parsed.Elements {
		if f, ok := e.Clause.(*kingpin.FlagClause); ok && e.Value != nil {
			given[f.Model().Name] = *e.Value
		}
	}
	for _, f := range flags {
		name := "--" + f.Name
		value, ok := given[f.Name]
		if !ok {
			name, value = f.Envar, os.Getenv(f.Envar)
		}
		if ok || value != "" {
			if err := f.Value.Set(value); err != nil {
				return refusal(name, err, f)
			}
		}
	}
	return nil
}

func refusal(name string, err error, f *kingpin.FlagModel) error {
	var def string
	if len(f.Default) > 0 {
		def = "; the default is " + strings.Join(f.Default, " ")
	}
	bad, ok := errors.AsType[*strconv.NumError](err)
	switch {
	case !ok:
		return fmt.Errorf("invalid %s: %w%s", name, err, def)
	case bad.Func == "ParseBool":
		return fmt.Errorf("%s must be true or false, not %q%s", name, bad.Num, def)
	}
	return fmt.Errorf("%s must be a number, not %q%s", name, bad.Num, def)
}
