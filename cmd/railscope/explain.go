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
	m := unknownFlag.FindStringSubmatch(err.Error())
	if m == nil {
		return fmt.Errorf("%s (see railscope --help)", blame(err, app, args))
	}
	var known []string
	for _, group := range append([]*kingpin.CmdModel{{FlagGroupModel: app.Model().FlagGroupModel}}, app.Model().Commands...) {
		for _, f := range group.Flags {
			if f.Name == m[1] {
				return fmt.Errorf("--%s is a flag of railscope %s alone (see railscope --help)", f.Name, group.Name)
			}
			known = append(known, "--"+f.Name)
		}
	}
	return fmt.Errorf("unknown flag --%s%s (see railscope --help)", m[1], config.Suggest("--"+m[1], known))
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
