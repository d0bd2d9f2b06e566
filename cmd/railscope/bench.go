package main

import (
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
	finder := s.finder(rail.NewFinder(s.sysfs, cfg.Rails, rdmanl.New(listBudget), listBudget))
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
	opts := probe.DefaultOptions()
	if cfg.Probe != nil {
		opts = *cfg.Probe
	}
	opts.ExpectedRate = cfg.Expect.Rate
	peer, ok := config.ParsePeer(s.bench.peer)
	if !ok {
		return opts, "", fmt.Errorf("PEER must be host or host:port, such as spark-02 or [fd00::2]:%s, not %q", probe.DefaultPort, s.bench.peer)
	}
	opts.Timeout = s.bench.timeout
	if s.bench.tokenFile != "" {
		opts.Security.TokenFile = s.bench.tokenFile
	}
	for _, size := range []struct {
		flag, text string
		to         *int64
	}{{"transfer", s.bench.transfer, &opts.Transfer}, {"chunk", s.bench.chunk, &opts.Chunk}} {
		if size.text == "" {
			continue
		}
		n, err := config.ParseSize(size.text)
		if err != nil {
			return opts, "", fmt.Errorf("--%s: %w", size.flag, err)
		}
		*size.to = n
	}
	if s.bench.chunk == "" {
		opts.Chunk = min(opts.Chunk, max(opts.Transfer/4096*4096, 4096))
	}
	if s.bench.depth != 0 {
		opts.Depth = s.bench.depth
	}
	if s.bench.latencySamples != 0 {
		opts.LatencySamples = s.bench.latencySamples
	}
	if s.bench.minGiven {
		opts.MinOfExpected = s.bench.minOfExpected
	}
	opts.Budget = max(opts.Budget, 3*opts.Transfer+1<<26) // whoever asks by hand has decided
	if p := config.CheckProbe(opts); p != nil {
		return opts, "", fmt.Errorf("--%s %s", strings.ReplaceAll(p.Key, "_", "-"), p.Text)
	}
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
