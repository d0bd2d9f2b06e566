package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"github.com/railscope/railscope/deploy/rules"
)

type rulesSettings struct {
	set, disable []string
}

func (s *rulesSettings) define(app *kingpin.Application) *rulesSettings {
	cmd := app.Command("rules", "Print the alerts and recording rules for Prometheus as one rule file, with other "+
		"thresholds and without the alerts that are disabled. It needs no RDMA.")
	cmd.Flag("set", "Another threshold, such as goodput_ratio=0.6: the names are those of the rules "+
		"railscope:threshold:NAME. Can be repeated.").Envar("RAILSCOPE_RULES_SET").PlaceHolder("NAME=VALUE").
		StringsVar(&s.set)
	cmd.Flag("disable", "An alert to leave out, such as RailscopeDiscards, or the group railscope.gpu. Can be "+
		"repeated.").
		Envar("RAILSCOPE_RULES_DISABLE").PlaceHolder("ALERT").StringsVar(&s.disable)
	return s
}

func (s *rulesSettings) run(_ context.Context, tracker *shutdownTracker, w io.Writer) error {
	defer tracker.begin("rules", nil)()
	tuning := rules.Tuning{Thresholds: map[string]float64{}, Disabled: s.disable}
	for _, one := range s.set {
		name, value, ok := strings.Cut(one, "=")
		v, err := strconv.ParseFloat(value, 64)
		if !ok || err != nil {
			return misuse{fmt.Errorf("--set must be a threshold and a number, such as goodput_ratio=0.6, not %q", one)}
		}
		if _, twice := tuning.Thresholds[name]; twice {
			return misuse{fmt.Errorf("--set names %s twice", name)}
		}
		tuning.Thresholds[name] = v
	}
	if err := tuning.Check(); err != nil {
		return misuse{err}
	}
	return rules.Write(w, tuning)
}
