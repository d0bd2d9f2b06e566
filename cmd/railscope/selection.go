package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/doctor/verdict"
)

// selection selects checks: --only and --ignore.
type selection struct {
	onlyText, ignoreText string
	verdict.Selection
}

// define adds the flags. Their environment variables contain the name of the command.
func (s *selection) define(cmd *kingpin.CmdClause, variable string) {
	cmd.Flag("only", "Names of the checks that count, separated by commas; all others are left out. See "+
		"docs/doctor.md.").
		Envar(variable + "_ONLY").PlaceHolder("CHECK,…").StringVar(&s.onlyText)
	cmd.Flag("ignore", "Names of checks to leave out, separated by commas.").
		Envar(variable + "_IGNORE").PlaceHolder("CHECK,…").StringVar(&s.ignoreText)
}

// parse returns an error for names of checks that do not exist.
func (s *selection) parse() error {
	known := check.Names()
	for _, f := range []struct {
		flag, text string
		to         *[]string
	}{{"--only", s.onlyText, &s.Only}, {"--ignore", s.ignoreText, &s.Ignore}} {
		*f.to = nil
		for name := range strings.SplitSeq(f.text, ",") {
			name = strings.TrimSpace(name)
			if name == "" {
				continue
			}
			if !slices.Contains(known, name) {
				return fmt.Errorf("%s: unknown check %q%s", f.flag, name, check.Suggest(name))
			}
			*f.to = append(*f.to, name)
		}
	}
	if !slices.ContainsFunc(known, s.Wants) {
		return errors.New("--only and --ignore leave no check")
	}
	return nil
}
