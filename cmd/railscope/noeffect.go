package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kingpin/v2"
)

// dependence describes a flag that has no effect without another flag, or together with it.
type dependence struct {
	command, flag string
	needs         []string // one of these flags is required
	replaced      string   // flag that replaces it; empty: none
}

func dependences() []dependence {
	return []dependence{
		{command: "bench", flag: "step-time", needs: []string{"all-reduce", "model"}},
		{command: "bench", flag: "dtype", needs: []string{"model", "layers"}},
		{command: "bench", flag: "model", replaced: "all-reduce"},
		{command: "bench", flag: "tensor-parallel", needs: []string{"kv-cache", "suite", "layers"}},
		{command: "bench", flag: "heads", needs: []string{"layers"}},
		{command: "bench", flag: "head-dim", needs: []string{"layers"}},
		{command: "bench", flag: "tokens", needs: []string{"layers"}},
		{command: "bench", flag: "resume", needs: []string{"suite"}},
		{command: "bench", flag: "storage", needs: []string{"suite"}},
		{command: "check", flag: "token-file", needs: []string{"peer"}},
		{command: "doctor", flag: "token-file", needs: []string{"peer"}},
		{command: "expect", flag: "format", replaced: "reset"},
		{command: "fleet blame", flag: "http.config.file", replaced: "file"},
		{command: "fleet blame", flag: "selector", replaced: "file"},
		{command: "fleet blame", flag: "timeout", replaced: "file"},
		{command: "metrics", flag: "source.process.limit", needs: []string{"source.process"}},
		{command: "metrics", flag: "source.gpu.processes", needs: []string{"source.gpu"}},
		{command: "metrics", flag: "source.netdev.modules", needs: []string{"source.netdev"}},
		{command: "nixlbench", flag: "group", needs: []string{"etcd"}},
		{command: "nixlbench", flag: "address", replaced: "etcd"},
		{command: "nixlbench", flag: "port", replaced: "etcd"},
		{command: "rails", flag: "all", replaced: "forget"},
		{command: "rails", flag: "format", replaced: "forget"},
		{command: "run", flag: "repeat", needs: []string{"compare"}},
		{command: "serve", flag: "source.process.limit", needs: []string{"source.process"}},
		{command: "serve", flag: "source.gpu.processes", needs: []string{"source.gpu"}},
		{command: "serve", flag: "source.netdev.modules", needs: []string{"source.netdev"}},
		{command: "serve", flag: "nccl.log", needs: []string{"source.nccl"}},
		{command: "serve", flag: "otlp.http.config.file", needs: []string{"otlp.endpoint"}},
		{command: "serve", flag: "otlp.interval", needs: []string{"otlp.endpoint"}},
		{command: "serve", flag: "sample.interval", needs: []string{"source.sampler"}},
	}
}

// withoutEffect returns an error for a flag on the command line that has no effect. Environment variables are
// defaults for many calls, so those without effect are ignored.
func withoutEffect(app *kingpin.Application, args []string) error {
	parsed, err := app.ParseContext(args)
	if err != nil || parsed.SelectedCommand == nil {
		return err
	}
	given := map[string]string{}
	for _, e := range parsed.Elements {
		if f, ok := e.Clause.(*kingpin.FlagClause); ok {
			given[f.Model().Name] = "true"
			if e.Value != nil {
				given[f.Model().Name] = *e.Value
			}
		}
	}
	flags := parsed.SelectedCommand.Model().Flags
	on := func(name string) bool {
		value, ok := given[name]
		i := slices.IndexFunc(flags, func(f *kingpin.FlagModel) bool { return f.Name == name })
		if ok || i < 0 {
			return ok && value != "false"
		}
		value = os.Getenv(flags[i].Envar)
		if value != "" {
			return value != "false"
		}
		return slices.Equal(flags[i].Default, []string{"true"})
	}
	for _, d := range dependences() {
		value, ok := given[d.flag]
		switch {
		case d.command != parsed.SelectedCommand.FullCommand() || !ok || value == "false":
		case d.replaced != "" && on(d.replaced):
			return fmt.Errorf("--%s has no effect with --%s: leave one of them out", d.flag, d.replaced)
		case d.needs != nil && !slices.ContainsFunc(d.needs, on):
			return fmt.Errorf("--%s has no effect without --%s", d.flag, strings.Join(d.needs, " or --"))
		}
	}
	return nil
}
