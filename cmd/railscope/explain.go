package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"

	"github.com/alecthomas/kingpin/v2"

	"github.com/railscope/railscope/internal/config"
)

var unknownFlag = regexp.MustCompile(`^unknown long flag '--([^']*)'`)

// explain adds to an error of the command line what it is about, and what would
// be right.
func explain(err error, app *kingpin.Application, args []string) error {
	command := usedCommand(app, args)
	m := unknownFlag.FindStringSubmatch(err.Error())
	if m == nil {
		return fmt.Errorf("%s (see railscope%s --help)", blame(err, app, args), command)
	}
	var known []string
	hint := ""
	for _, group := range append([]*kingpin.CmdModel{{FlagGroupModel: app.Model().FlagGroupModel}}, app.Model().Commands...) {
		own := group.FullCommand == "" || " "+group.FullCommand == command || group.Default && command == ""
		for _, f := range group.Flags {
			switch {
			case own && !f.Hidden:
				known = append(known, "--"+f.Name)
			case !own && f.Name == m[1] && hint == "":
				hint = "; it is one of railscope " + group.FullCommand
			}
		}
	}
	if near := config.Nearest("--"+m[1], known); near != "" && hint == "" {
		hint = fmt.Sprintf("; did you mean %q?", near)
	}
	return fmt.Errorf("unknown flag --%s%s (see railscope%s --help)", m[1], hint, command)
}

// usedCommand is the command that args name, with a blank before it; empty where
// they name none.
func usedCommand(app *kingpin.Application, args []string) string {
	context, _ := app.ParseContext(args) // its error is being explained
	if context == nil || context.SelectedCommand == nil || !slices.Contains(args, context.SelectedCommand.FullCommand()) {
		return ""
	}
	return " " + context.SelectedCommand.FullCommand()
}

// blame names the flag or the variable whose value the error is about: kingpin
// says what is wrong with a value, and not whose it is. Each value is therefore
// given to its flag once more.
func blame(err error, app *kingpin.Application, args []string) string {
	parsed, _ := app.ParseContext(args)
	if parsed == nil {
		return err.Error()
	}
	var given []string
	for _, e := range parsed.Elements {
		f, ok := e.Clause.(*kingpin.FlagClause)
		if !ok || e.Value == nil {
			continue
		}
		given = append(given, f.Model().Name)
		if says := f.Model().Value.Set(*e.Value); says != nil && says.Error() == err.Error() {
			return "--" + f.Model().Name + " " + remedy(err, f.Model())
		}
	}
	flags := app.Model().Flags
	if parsed.SelectedCommand != nil {
		flags = append(flags, parsed.SelectedCommand.Model().Flags...)
	}
	for _, f := range flags {
		value := os.Getenv(f.Envar)
		if f.Envar == "" || value == "" || slices.Contains(given, f.Name) {
			continue
		}
		if says := f.Value.Set(value); says != nil && says.Error() == err.Error() {
			return "the variable " + f.Envar + " " + remedy(err, f)
		}
	}
	return err.Error()
}

// remedy says what is wrong with the value of a flag, and what it is by default.
func remedy(err error, f *kingpin.FlagModel) string {
	says := "is wrong: " + err.Error()
	if bad, ok := errors.AsType[*strconv.NumError](err); ok {
		kind := "a number"
		if bad.Func == "ParseBool" {
			kind = "true or false"
		}
		says = fmt.Sprintf("must be %s, not %q", kind, bad.Num)
	}
	if len(f.Default) > 0 && f.Default[0] != "" {
		says += "; by default it is " + f.Default[0]
	}
	return says
}
