package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"github.com/railscope/railscope/internal/config"
)

// missingValue refuses a flag without its value, which the parser ignores before the default command.
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

// explain names the flag or variable of an error of the command line, and valid values. The parser's errors have no
// type, so it is asked where it stopped.
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
	explicit := cmd != nil && slices.Contains(args, cmd.FullCommand()) // serve may be left out
	if explicit {
		help += " " + cmd.FullCommand()
	}
	switch {
	case !explicit && token.Type == kingpin.TokenArg:
		err = unknownCommand(app, token.Value)
	case token.Type == kingpin.TokenLong && !slices.Contains(names(flags), token.String()):
		err = unknownFlag(app, token.String(), names(flags))
	default:
		if invalid := invalidValue(parsed, flags); invalid != nil {
			err = invalid
		}
	}
	return fmt.Errorf("%w (see %s --help)", err, help)
}

// names returns the flags as they are written.
func names(flags []*kingpin.FlagModel) (list []string) {
	for _, f := range flags {
		if list = append(list, "--"+f.Name); f.IsBoolFlag() {
			list = append(list, "--no-"+f.Name)
		}
	}
	return list
}

func unknownCommand(app *kingpin.Application, name string) error {
	var known []string
	for _, c := range app.Model().Commands {
		known = append(known, c.Name)
	}
	if near := config.Nearest(name, known); near != "" {
		return fmt.Errorf("unknown command %q; did you mean %q?", name, near)
	}
	return fmt.Errorf("unknown command %q; the commands are %s", name, strings.Join(known, ", "))
}

func unknownFlag(app *kingpin.Application, name string, known []string) error {
	for _, c := range app.Model().Commands {
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
