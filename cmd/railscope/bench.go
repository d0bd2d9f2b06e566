package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"github.com/railscope/railscope/bench"
	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/hostport"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe"
)

type benchSettings struct {
	*common
	format, peer, tokenFile string
	options                 map[string]*string // by key below probe; empty: as configured
	extras                  extraSettings
}

// extraSettings are the flags of measurements besides those of a round.
type extraSettings struct {
	op, queuePairs, memory         string
	bidirectional, loopback, pairs bool
	paths                          int
}

func (s *extraSettings) define(cmd *kingpin.CmdClause) {
	cmd.Flag("op", "read: also measure RDMA READ, each rail alone and all at once.").Default("write").
		EnumVar(&s.op, "write", "read")
	cmd.Flag("bidirectional", "Also measure WRITE and READ at once, each rail alone and all at once.").
		BoolVar(&s.bidirectional)
	cmd.Flag("queue-pairs", "Also measure all rails with these numbers of queue pairs per rail, such as 1,2,4,8.").
		PlaceHolder("N,N,...").StringVar(&s.queuePairs)
	cmd.Flag("loopback", "Also measure each rail to itself and to each other rail of this node: without the wire to "+
		"the peer.").BoolVar(&s.loopback)
	cmd.Flag("paths", fmt.Sprintf("Also measure each rail by N flow labels, one after the other: other paths of an ECMP "+
		"fabric (1 to %d).", probe.MaxPaths)).PlaceHolder("N").IntVar(&s.paths)
	cmd.Flag("memory", "Also measure from memory of the GPU nearest to each rail to that of the peer's: "+
		strings.Join(probe.Memories(), ", ")+", or gpu for the first of these that works. The peer must allow it "+
		"(probe.extras: [gpu] in its configuration).").Default("host").
		EnumVar(&s.memory, slices.Concat([]string{"host", "gpu"}, probe.Memories())...)
	cmd.Flag("pairs", "Also measure two rails at a time, beside each alone: which of them share something.").
		BoolVar(&s.pairs)
}

// list returns the extras in the order of [probe.Kinds].
func (s *extraSettings) list() (list []probe.Extra, err error) {
	add := func(wanted bool, kind probe.Kind, counts ...int) {
		if wanted {
			list = append(list, probe.Extra{Kind: kind, Counts: counts})
		}
	}
	add(s.op == "read", probe.Reads)
	add(s.bidirectional, probe.Both)
	if s.queuePairs != "" {
		var counts []int
		for text := range strings.SplitSeq(s.queuePairs, ",") {
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 || n > rail.MaxQueuePairs {
				return nil, fmt.Errorf("--queue-pairs must be numbers from 1 to %d, separated by commas, such as 1,2,4,8, not %q",
					rail.MaxQueuePairs, s.queuePairs)
			}
			counts = append(counts, n)
		}
		add(true, probe.QueuePairs, counts...)
	}
	if s.paths < 0 || s.paths > probe.MaxPaths {
		return nil, fmt.Errorf("--paths must be from 1 to %d, not %d", probe.MaxPaths, s.paths)
	}
	add(s.loopback, probe.Loopback)
	add(s.paths > 0, probe.Paths, s.paths)
	add(s.pairs, probe.Contention)
	switch s.memory {
	case "host":
	case "gpu":
		add(true, probe.GPU)
	default:
		list = append(list, probe.Extra{Kind: probe.GPU, Memories: []string{s.memory}})
	}
	return list, nil
}

func (s *benchSettings) define(app *kingpin.Application) *benchSettings {
	cmd := app.Command("bench", "Probe one peer now: RDMA over every rail, alone and striped, and TCP for comparison. "+
		"The exit code is 0 if every rail carried what is expected, else 1, also after a fallback to TCP.")
	cmd.Arg("peer", "The peer, host or host:port. It must answer probes (probe.listen in its configuration).").
		Required().StringVar(&s.peer)
	tokenFlag(cmd, &s.tokenFile)
	s.options = map[string]*string{}
	option := func(key, help string) *kingpin.FlagClause {
		flag := cmd.Flag(strings.ReplaceAll(key, "_", "-"), help)
		s.options[key] = flag.String()
		return flag
	}
	option("burst", "Time for which a burst measures, such as 5ms.").PlaceHolder("DURATION")
	option("depth", "Writes in flight per rail.").PlaceHolder("N")
	for key := range config.Replaced() { // refused with what to write instead
		option(key, "").Hidden()
	}
	option("latency_samples", "Writes of 8 B per rail.").PlaceHolder("N")
	option("min_of_expected", "Minimum goodput of a rail, and of all together, as a fraction of what is expected "+
		"(more than 0, at most 1; 0.7). The exit code is 1 below it.").PlaceHolder("RATIO")
	option("timeout", "Longest time of the round.").Default("1m")
	s.extras.define(cmd)
	formatFlag(cmd, "RAILSCOPE_BENCH_FORMAT", &s.format, "table", "json")
	return s
}

func tokenFlag(cmd *kingpin.CmdClause, to *string) {
	cmd.Flag("token-file", "File with the secret that all peers share.").PlaceHolder("FILE").StringVar(to)
}

func (s *benchSettings) run(ctx context.Context, parts *unfinished, w io.Writer) error {
	defer parts.begin("bench", nil)()
	cfg, err := s.load()
	if err != nil {
		return err
	}
	opts, peer, err := s.probeOptions(cfg)
	if err != nil {
		return misuse{err}
	}
	if running, err := s.runningStatus(ctx, doctorBudget); err == nil && running.Simulated {
		if len(opts.Extras) > 0 {
			return misuse{errors.New("railscope demo simulates a round alone: leave out --op, --bidirectional, --queue-pairs, " +
				"--loopback, --paths, --memory and --pairs, or stop the demo to measure real rails")}
		}
		return s.benchDemo(ctx, peer, w)
	}
	finder, store := s.newFinder(cfg, listBudget)
	keeper := newKeeper(s.common, cfg, finder, store, nil)
	g := gatherer(s.common, finder, keeper, nil)
	node := newProbeNode(s.common, nil, finder, keeper, g, s.logger())
	defer node.Close()
	here := s.nodeFindings(ctx, g)
	progress, clear := func(probe.Progress) {}, func() {}
	if isTerminal(os.Stderr) {
		bar := bench.NewBar(os.Stderr)
		progress, clear = bar.Update, bar.Clear
	}
	res := probe.Bench(ctx, node, opts, peer, progress)
	clear()
	out := bench.Options{Node: here, Color: page().Color}
	return cmp.Or(writeRound(w, s.format, res, out), benchError(res))
}

func writeRound(w io.Writer, format string, res probe.Result, o bench.Options) error {
	if format == "json" {
		return bench.WriteJSON(w, res, o)
	}
	return bench.WriteTable(w, res, o)
}

// nodeFindings returns what is wrong with this node: what the running railscope knows, else what it examines itself.
func (c *common) nodeFindings(ctx context.Context, g *facts.Gatherer) []finding.Finding {
	if running, err := c.runningStatus(ctx, doctorBudget); err == nil && running.Examined() {
		return standing(running)
	}
	f := g.Gather(ctx, facts.OneNode)
	if ctx.Err() != nil {
		return nil // missing facts would be reported as faults
	}
	found := check.Node(f, nil)
	for i := range found {
		found[i].Node = ""
	}
	slices.SortStableFunc(found, finding.Finding.Compare)
	return found
}

// benchError is nil if every rail carried what is expected.
func benchError(res probe.Result) error {
	if res.Outcome != probe.OK {
		return errReported
	}
	return nil
}

// probeOptions returns the options of the configuration, overridden by the command line.
func (s *benchSettings) probeOptions(cfg *config.Config) (opts probe.Options, peer string, err error) {
	if peer, err = parsePeer("PEER", s.peer); err != nil {
		return opts, "", err
	}
	p := cmp.Or(cfg.Probe, config.DefaultProbe())
	p.TokenFile = cmp.Or(s.tokenFile, p.TokenFile)
	if bad := p.Override(s.options); bad != nil {
		return opts, "", fmt.Errorf("--%s %s", strings.ReplaceAll(bad.Key, "_", "-"), bad.Text)
	}
	opts = *probeOptions(&config.Config{Probe: p})
	opts.Budget = probe.Budget{Share: 1} // does not delay a round by hand
	if opts.Extras, err = s.extras.list(); err != nil {
		return opts, "", err
	}
	return opts, peer, checkToken(s.tokenFile)
}

func parsePeer(name, text string) (string, error) {
	peer, ok := hostport.Parse(text, config.DefaultPort)
	if !ok {
		return "", fmt.Errorf("%s must be host or host:port, such as spark-02 or [fd00::2]:%s, not %q",
			name, config.DefaultPort, text)
	}
	return peer, nil
}

// checkToken checks the file of the flag. The one of the configuration has been checked.
func checkToken(file string) error {
	if file == "" {
		return nil
	}
	if err := config.CheckToken(file); err != nil {
		return fmt.Errorf("--token-file %q: %w", file, err)
	}
	return nil
}
