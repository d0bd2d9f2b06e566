package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/prometheus/common/promslog"

	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rdmanl"
	"github.com/railscope/railscope/probe"
	"github.com/railscope/railscope/probe/report"
)

// errNotGood is a round that was not by RDMA, or degraded: the report has said
// all.
var errNotGood = errors.New("")

// bench makes one round with a peer now, and prints what it came to.
func bench(ctx context.Context, s settings, w io.Writer) error {
	cfg, err := config.Load(s.configFile)
	if err != nil {
		return misuse{err}
	}
	opts, peer, err := s.benchOptions(cfg)
	if err != nil {
		return misuse{err}
	}
	logger := promslog.New(&s.log)
	finder := s.finder(rail.NewFinder(s.sysfs, railOptions(cfg), rdmanl.New(listBudget), listBudget))
	node := newNode(s, machine{}, finder, gatherer(s, finder), logger)
	defer node.Close()
	tell := func(probe.Progress) {}
	clear := func() {}
	if terminal(os.Stderr) {
		bar := report.NewBar(os.Stderr)
		tell, clear = bar.Update, bar.Clear
	}
	res := probe.Bench(ctx, node, opts, peer, tell)
	clear()
	if s.format == "json" {
		err = report.WriteJSON(w, res)
	} else {
		err = report.WriteTable(w, res, report.Options{Color: terminal(os.Stdout) && os.Getenv("NO_COLOR") == ""})
	}
	if err != nil {
		return err
	}
	return ending(res)
}

// ending is how bench ends after the report was printed.
func ending(res probe.Result) error {
	if res.Outcome != probe.OK {
		return errNotGood
	}
	return nil
}

// benchOptions are the configuration's with the command line's on top.
func (s settings) benchOptions(cfg *config.Config) (probe.Options, string, error) {
	peer, ok := config.ParsePeer(s.bench.peer)
	if !ok {
		return probe.Options{}, "", fmt.Errorf("PEER must be host or host:port, such as spark-02 or [fd00::2]:%s, not %q",
			config.DefaultPort, s.bench.peer)
	}
	p := cmp.Or(cfg.Probe, config.DefaultProbe())
	p.Timeout = config.Duration(s.bench.timeout)
	p.TokenFile = cmp.Or(s.bench.tokenFile, p.TokenFile)
	p.Depth = cmp.Or(config.Count(s.bench.depth), p.Depth)
	p.LatencySamples = cmp.Or(config.Count(s.bench.latencySamples), p.LatencySamples)
	if s.bench.minGiven {
		p.MinOfExpected = config.Ratio(s.bench.minOfExpected)
	}
	for _, size := range []struct {
		flag, text string
		to         *config.Size
	}{{"transfer", s.bench.transfer, &p.Transfer}, {"chunk", s.bench.chunk, &p.Chunk}} {
		if size.text == "" {
			continue
		}
		if err := size.to.UnmarshalText([]byte(size.text)); err != nil {
			return probe.Options{}, "", fmt.Errorf("--%s: %w", size.flag, err)
		}
	}
	if s.bench.chunk == "" {
		p.Chunk = min(p.Chunk, max(p.Transfer/4096*4096, 4096))
	}
	if bad := p.Check(); bad != nil {
		return probe.Options{}, "", fmt.Errorf("--%s %s", strings.ReplaceAll(bad.Key, "_", "-"), bad.Text)
	}
	opts := *probeOptions(&config.Config{Expect: cfg.Expect, Probe: p})
	opts.Budget = max(opts.Budget, 3*opts.Transfer+1<<26) // a round by hand is not held back
	return opts, peer, checkToken(s.bench.tokenFile)
}

// checkToken checks the file of the flag; that of the configuration was checked
// when it was read.
func checkToken(file string) error {
	if file == "" {
		return nil
	}
	if err := config.CheckToken(file); err != nil {
		return fmt.Errorf("--token-file %q: %w", file, err)
	}
	return nil
}
