package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"github.com/railscope/railscope/bench"
	"github.com/railscope/railscope/bench/suite"
	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/doctor/verdict"
	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/hostport"
	"github.com/railscope/railscope/internal/outfile"
	"github.com/railscope/railscope/internal/serve"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

type benchSettings struct {
	*common
	format, peer, tokenFile string
	peers                   []string
	ring                    ringSettings
	save, compare           string
	reports                 reports
	caches                  []bench.Cache
	options                 map[string]*string // by key below probe; empty: as configured
	extras                  extraSettings
	suite                   suiteSettings
}

func (s *benchSettings) define(app *kingpin.Application) *benchSettings {
	cmd := app.Command("bench", "Probe one peer now: RDMA over every rail, alone and striped, and TCP for "+
		"comparison. The exit code is 0 if every rail carried what is expected, and all that was asked for was "+
		"measured; 1 if a rail did not, also after a fallback to TCP; 3 if all is well so far, and something was not "+
		"measured.")
	cmd.Arg("peer", "The peer, host or host:port. It must answer probes (probe.listen in its configuration). With "+
		"--all-reduce or --model, the nodes of a ring in order.").Required().StringsVar(&s.peers)
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
	option("timeout", "Longest time of a round: 1m, and 10m with --all, --sweep or --kv-cache.").PlaceHolder("DURATION")
	s.extras.define(cmd)
	s.extras.model.dtype = &s.ring.dtype
	s.ring.define(cmd)
	s.suite.define(cmd)
	cmd.Flag("save", fmt.Sprintf("Make %d rounds, and write what they measured as JSON, for --compare. "+
		"With --suite, the file of the suite.", savedRounds)).
		Envar("RAILSCOPE_BENCH_SAVE").PlaceHolder("FILE").StringVar(&s.save)
	cmd.Flag("compare", fmt.Sprintf("Make %d rounds, or the suite, and compare them with a file of --save. A figure "+
		"has changed if "+
		"the ranges of its runs do not overlap and their medians differ by more than 2 %%. The exit code is 1 if one "+
		"is worse.", savedRounds)).Envar("RAILSCOPE_BENCH_COMPARE").PlaceHolder("FILE").StringVar(&s.compare)
	s.reports.define(cmd, "BENCH")
	formatFlag(cmd, "RAILSCOPE_BENCH_FORMAT", &s.format, "table", "json", "csv")
	return s
}

func tokenFlag(cmd *kingpin.CmdClause, to *string) {
	cmd.Flag("token-file", "File with the secret that all peers share.").PlaceHolder("FILE").StringVar(to)
}

func (s *benchSettings) run(ctx context.Context, tracker *shutdownTracker, w io.Writer) error {
	defer tracker.begin("bench", nil)()
	cfg, err := s.load()
	if err != nil {
		return err
	}
	if err := s.reports.check(); err != nil {
		return err
	}
	if s.ring.asked() {
		if err := s.checkRing(); err != nil {
			return misuse{err}
		}
		return s.runRing(ctx, cfg, w)
	}
	s.peer = s.peers[0]
	if len(s.peers) > 1 {
		return misuse{errors.New("several nodes make a ring, which needs --all-reduce or --model; bench probes one " +
			"peer")}
	}
	if s.suite.asked() {
		return s.runSuite(ctx, cfg, w)
	}
	opts, peer, err := s.probeOptions(cfg)
	if err != nil {
		return misuse{err}
	}
	before, err := s.readSaved()
	if err != nil {
		return err
	}
	results, out, err := s.rounds(ctx, cfg, opts, peer)
	if err != nil {
		return err
	}
	last := results[len(results)-1]
	out.Earlier = results[:len(results)-1]
	all := bench.Suite(last, out)
	if before != nil {
		out.Compared = suite.Compare(*before, all)
	}
	if err := s.write(ctx, w, last, out, all); err != nil {
		return err
	}
	if slices.ContainsFunc(out.Compared, suite.Change.Worse) {
		return errReported
	}
	if err := benchError(results); err != nil || len(all.Incomplete.Unmeasured) == 0 {
		return err
	}
	return errIncomplete
}

// savedRounds are those of --save and --compare: enough to know the spread of a figure.
const savedRounds = 5

// runs is how often everything is measured.
func (s *benchSettings) runs() int {
	if s.save != "" || s.compare != "" {
		return savedRounds
	}
	return 1
}

// rounds makes the rounds, and returns what is to be shown beside them.
func (s *benchSettings) rounds(ctx context.Context, cfg *config.Config, opts options.Options,
	peer string) (list []result.Result, out bench.Options, err error) {
	h := s.byHand(cfg, opts, peer)
	defer h.close()
	out = s.shownBeside(ctx, cfg)
	progress, clear, begin := func(result.Progress) {}, func() {}, func(int, int) {}
	if isTerminal(os.Stderr) {
		bar := bench.NewBar(os.Stderr)
		progress, clear, begin = bar.Update, bar.Clear, bar.Round
	}
	n := s.runs()
	for i := range n {
		begin(i+1, n)
		res, simulated, err := h.round(ctx, progress)
		clear()
		if err != nil {
			return nil, out, err
		}
		simulate(&out, simulated)
		list = append(list, res)
		if res.Outcome == result.Failed || res.Outcome == result.Skipped {
			break
		}
	}
	return list, out, nil
}

// simulate leaves out what is of the real node, if the rounds are those of the demo.
func simulate(out *bench.Options, simulated bool) {
	out.Simulated = simulated
	if simulated {
		out.Node, out.Settings = nil, nil
	}
}

// byHand returns rounds with the peer as the flags want them.
func (s *benchSettings) byHand(cfg *config.Config, opts options.Options, peer string) *byHand {
	h := &byHand{common: s.common, cfg: cfg, opts: opts, ask: serve.BenchAsk{Peer: peer, Set: map[string]string{},
		Extras: opts.Extras}, logger: s.logger()}
	for key, value := range s.options {
		if *value != "" {
			h.ask.Set[key] = *value
		}
	}
	return h
}

// shownBeside returns what is shown beside the rounds.
func (s *benchSettings) shownBeside(ctx context.Context, cfg *config.Config) bench.Options {
	return bench.Options{Node: s.nodeFindings(ctx, s.host(cfg, listBudget).Gatherer(nil)), Color: page().Color,
		Caches: s.caches, Settings: append([]suite.Setting{commandLine(os.Args[1:])}, environment()...),
		GPUsIfAny: s.extras.memory == hostMemory}
}

// readSaved reads the file of --compare before anything is measured, and checks that the file of --save can be written.
func (s *benchSettings) readSaved() (*suite.Suite, error) {
	if s.save != "" {
		if err := outfile.Check(s.save); err != nil {
			return nil, misuse{fmt.Errorf("--save: %w", err)}
		}
	}
	if s.compare == "" {
		return nil, nil
	}
	f, err := os.Open(s.compare)
	if err != nil {
		return nil, misuse{fmt.Errorf("--compare: %w", err)}
	}
	defer func() { _ = f.Close() }() // it was only read
	saved, err := suite.Read(f)
	if err != nil {
		return nil, misuse{fmt.Errorf("--compare %s: %w", s.compare, err)}
	}
	if of := map[bool]string{true: "a ring", false: "one peer"}; (saved.Ring != nil) != s.ring.asked() {
		return nil, misuse{fmt.Errorf("--compare %s: it is of %s, and this benchmark is of %s", s.compare,
			of[saved.Ring != nil], of[s.ring.asked()])}
	}
	return &saved, nil
}

// saveAs writes the file of --save.
func (s *benchSettings) saveAs(json func(io.Writer) error) error {
	var text bytes.Buffer
	if err := json(&text); err != nil {
		return err
	}
	return outfile.Write(s.save, text.Bytes())
}

func (s *benchSettings) write(ctx context.Context, w io.Writer, res result.Result, o bench.Options,
	all suite.Suite) error {
	return errors.Join(writeRound(w, s.format, res, o), s.saveTo(res, o, all),
		s.reports.write(ctx, "bench", func(to io.Writer) error {
			return bench.WriteJSON(to, res, o)
		}))
}

// saveTo writes the file of --save, unless nothing was measured: an earlier one is worth more.
func (s *benchSettings) saveTo(res result.Result, o bench.Options, all suite.Suite) error {
	switch {
	case s.save == "":
		return nil
	case !all.HasFigures():
		return fmt.Errorf("--save: %s is not written, because nothing was measured: %s", s.save,
			strings.TrimRight(all.Verdict, "."))
	}
	var text bytes.Buffer
	if err := bench.WriteJSON(&text, res, o); err != nil {
		return err
	}
	return outfile.Write(s.save, text.Bytes())
}

func writeRound(w io.Writer, format string, res result.Result, o bench.Options) error {
	switch format {
	case "json":
		return bench.WriteJSON(w, res, o)
	case "csv":
		return bench.WriteCSV(w, bench.Suite(res, o))
	}
	return bench.WriteTable(w, res, o)
}

// nodeFindings returns what is wrong with this node: what the running railscope knows, else what it examines itself.
func (c *common) nodeFindings(ctx context.Context, g *facts.Gatherer) []finding.Finding {
	if running, err := c.runningStatus(ctx, serve.GatherBudget); err == nil && running.Examined() {
		return slices.DeleteFunc(verdict.Standing(running), func(f finding.Finding) bool { return f.Recovering })
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

// benchError is nil if every rail carried what is expected in every round. Of a round without bursts, nothing is known.
func benchError(results []result.Result) (err error) {
	for _, r := range results {
		switch {
		case r.Outcome == result.Reached, r.Outcome == result.OK && r.BurstSkipped != nil:
			err = errIncomplete
		case r.Outcome != result.OK:
			return errReported
		}
	}
	return err
}

// probeOptions returns the options of the configuration, overridden by the command line.
func (s *benchSettings) probeOptions(cfg *config.Config) (opts options.Options, peer string, err error) {
	peer, err = parsePeer("PEER", s.peer)
	if err != nil {
		return opts, "", err
	}
	extras, caches, err := s.extras.list()
	if err != nil {
		return opts, "", err
	}
	s.caches = caches
	if *s.options["timeout"] == "" {
		*s.options["timeout"] = "1m"
		if s.extras.all || s.extras.sweep != "" || len(caches) > 0 {
			*s.options["timeout"] = "10m"
		}
	}
	opts = cfg.ProbeOptions()
	opts.Security.TokenFile = cmp.Or(s.tokenFile, opts.Security.TokenFile)
	if bad := config.Override(&opts, s.options); bad != nil {
		return opts, "", fmt.Errorf("--%s %s", strings.ReplaceAll(bad.Key, "_", "-"), bad.Text)
	}
	opts.Budget = options.Budget{Share: 1} // does not delay a round by hand
	opts.Extras = extras
	return opts, peer, checkToken(s.tokenFile)
}

func parsePeer(name, text string) (string, error) {
	peer, ok := hostport.Parse(text, options.DefaultPort)
	if !ok {
		return "", fmt.Errorf("%s must be host or host:port, such as spark-02 or [fd00::2]:%s, not %q",
			name, options.DefaultPort, text)
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
