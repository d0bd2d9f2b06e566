package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"github.com/railscope/railscope/internal/config"
)

// explain says which flag or variable an error of the command line is about, and what would be right. The parser's
// errors have no type, so the command line is parsed once more and the cause is looked for.
func explain(err error, args []string) error {
	app, _ := application()
	parsed, _ := app.ParseContext(args) // the error is being explained
	if parsed == nil {
		return err
	}
	command := "" // as it was written: serve may be left out
	if c := parsed.SelectedCommand; c != nil && slices.Contains(args, c.FullCommand()) {
		command = " " + c.FullCommand()
	}
	text := cmp.Or(unknownFlag(app, parsed), invalidValue(app, parsed), err.Error())
	if token := parsed.Peek(); command == "" && token.Type == kingpin.TokenArg {
		text = "unknown command " + strconv.Quote(token.Value) + suggestCommand(app, token.Value)
	}
	return fmt.Errorf("%s (see railscope%s --help)", text, command)
}

// missingValue refuses a flag without its value. The parser ignores it before the default command.
func missingValue(app *kingpin.Application, args []string) error {
	for i, arg := range args {
		f := app.GetFlag(strings.TrimPrefix(arg, "--"))
		if f == nil || !strings.HasPrefix(arg, "--") || f.Model().IsBoolFlag() {
			continue
		}
		if i+1 == len(args) || strings.HasPrefix(args[i+1], "-") {
			return fmt.Errorf("%s needs a value (see railscope --help)", arg)
		}
	}
	return nil
}

// suggestCommand is the end of a message about an unknown command.
func suggestCommand(app *kingpin.Application, name string) string {
	var known []string
	for _, c := range app.Model().Commands {
		known = append(known, c.Name)
	}
	if near := config.Nearest(name, known); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return "; the commands are " + strings.Join(known, ", ")
}

// unknownFlag describes the unknown flag at which the parser stopped; empty: it stopped at something else.
func unknownFlag(app *kingpin.Application, parsed *kingpin.ParseContext) string {
	token := parsed.Peek()
	if token.Type != kingpin.TokenLong {
		return ""
	}
	var own []string
	for _, f := range flagsOf(app, parsed.SelectedCommand) {
		if f.Name == token.Value || f.IsBoolFlag() && "no-"+f.Name == token.Value {
			return ""
		}
		if !f.Hidden {
			own = append(own, "--"+f.Name)
		}
	}
	text := "unknown flag --" + token.Value
	for _, c := range app.Model().Commands {
		if slices.ContainsFunc(c.Flags, func(f *kingpin.FlagModel) bool { return f.Name == token.Value }) {
			return text + "; it is a flag of railscope " + c.FullCommand
		}
	}
	if near := config.Nearest("--"+token.Value, own); near != "" {
		return fmt.Sprintf("%s; did you mean %q?", text, near)
	}
	return text
}

// invalidValue describes the first value that its flag refuses, of the command line and of the environment.
func invalidValue(app *kingpin.Application, parsed *kingpin.ParseContext) string {
	given := map[string]bool{}
	for _, e := range parsed.Elements {
		f, ok := e.Clause.(*kingpin.FlagClause)
		if !ok || e.Value == nil {
			continue
		}
		m := f.Model()
		given[m.Name] = true
		if err := m.Value.Set(*e.Value); err != nil {
			return refusal("--"+m.Name, err, m)
		}
	}
	for _, f := range flagsOf(app, parsed.SelectedCommand) {
		if value := os.Getenv(f.Envar); f.Envar != "" && value != "" && !given[f.Name] {
			if err := f.Value.Set(value); err != nil {
				return refusal(f.Envar, err, f)
			}
		}
	}
	return ""
}

// refusal says what is wrong with the value of a flag, and what its default is.
func refusal(name string, err error, f *kingpin.FlagModel) string {
	text := "invalid " + name + ": " + err.Error()
	if bad, ok := errors.AsType[*strconv.NumError](err); ok {
		kind := "a number"
		if bad.Func == "ParseBool" {
			kind = "true or false"
		}
		text = fmt.Sprintf("%s must be %s, not %q", name, kind, bad.Num)
	}
	if def := strings.Join(f.Default, " "); def != "" {
		text += "; the default is " + def
	}
	return text
}

// flagsOf are the flags that a command line with this command may have.
func flagsOf(app *kingpin.Application, cmd *kingpin.CmdClause) []*kingpin.FlagModel {
	if cmd == nil {
		return app.Model().Flags
	}
	return slices.Concat(app.Model().Flags, cmd.Model().Flags)
}
