package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"github.com/railscope/railscope/bench"
	"github.com/railscope/railscope/bench/steps"
	"github.com/railscope/railscope/bench/suite"
	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/outfile"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// suiteSettings are the flags of a suite: all measurements, one after the other.
type suiteSettings struct {
	parts, storage string
	resume         bool
}

// Values of flags where none is given.
const (
	allParts    = "all"
	suiteCaches = "1GB,4GB,8GB," + allModels
	suiteTimes  = "1000" // latency_samples
)

func (s *suiteSettings) define(cmd *kingpin.CmdClause) {
	cmd.Flag("suite", fmt.Sprintf("Measure all that this pair of nodes can do, in steps of %d rounds, and keep each "+
		"round in the file of --save as soon as it is made (railscope-suite-PEER.json, with a page beside it). Of %s; "+
		"without a value: all.", steps.Runs, strings.Join(steps.Parts(), ", "))).
		PlaceHolder("PART,PART,...").StringVar(&s.parts)
	cmd.Flag("storage", "Where the part storage of the suite saves a checkpoint and loads it: directories, "+
		"s3://BUCKET/PREFIX, gs://BUCKET/PREFIX. The variables of railscope storage apply, such as "+
		"RAILSCOPE_STORAGE_SIZE (1GiB).").PlaceHolder("TARGET,TARGET,...").StringVar(&s.storage)
	cmd.Flag("resume", "Continue the suite of the file of --save that was broken off.").BoolVar(&s.resume)
}

func (s *suiteSettings) asked() bool { return s.parts != "" }

// list returns the parts that are asked for.
func (s *suiteSettings) list() (parts []string, err error) {
	if s.parts == allParts {
		return steps.Parts(), nil
	}
	for part := range strings.SplitSeq(s.parts, ",") {
		part = strings.TrimSpace(part)
		if !slices.Contains(steps.Parts(), part) {
			return nil, fmt.Errorf("--suite must be of %s, separated by commas, not %q",
				strings.Join(steps.Parts(), ", "), s.parts)
		}
		parts = append(parts, part)
	}
	switch stored := slices.Contains(parts, steps.Storage); {
	case stored && s.storage == "":
		return nil, errors.New("--suite: for the part storage, name directories and buckets by --storage")
	case !stored && s.storage != "":
		return nil, errors.New("--storage has no effect without the part storage of --suite")
	}
	return parts, nil
}

// targets are those of --storage.
func (s *suiteSettings) targets() (list []string) {
	for target := range strings.SplitSeq(s.storage, ",") {
		target = strings.TrimSpace(target)
		if target != "" {
			list = append(list, target)
		}
	}
	return list
}

// unfit matches what a file name of a peer leaves out.
var unfit = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

// files sets the files of the suite that the flags do not name. Without railscope-bench there is no page.
func (s *benchSettings) files(peer string) {
	if s.save == "" {
		s.save = "railscope-suite-" + strings.Trim(unfit.ReplaceAllString(strings.TrimSuffix(peer, ":"+
			options.DefaultPort), "-"), "-") + ".json"
	}
	if _, err := companion(); err == nil && s.reports.html == "" {
		s.reports.html = strings.TrimSuffix(s.save, filepath.Ext(s.save)) + ".html"
	}
}

// suiteSteps returns the steps that the flags ask for.
func (s *benchSettings) suiteSteps() ([]steps.Step, error) {
	parts, err := s.suite.list()
	if err != nil {
		return nil, err
	}
	if s.extras.sweep == "" {
		s.extras.sweep = usualSweep
	}
	if s.extras.kvCache == "" {
		s.extras.kvCache = suiteCaches
	}
	sizes, err := s.extras.sizes()
	if err != nil {
		return nil, err
	}
	s.caches, err = s.extras.caches()
	return steps.Of(parts, steps.Sizes{Sweep: sizes, Pages: pages(s.caches)}), err
}

// checkSuite refuses flags that a suite does not know: it measures all of that anyway.
func (s *benchSettings) checkSuite() error {
	own := s.extras
	own.sweep, own.kvCache, own.tensorParallel, own.model = "", "", 1, modelSettings{}
	list, _, err := own.list()
	if err == nil && len(list) > 0 {
		err = errors.New("--suite measures this anyway, or not at all: beside it, leave out all flags of extra " +
			"measurements but --sweep, --kv-cache, --layers and --tensor-parallel")
	}
	return err
}

// course is a suite while it is made.
type course struct {
	*benchSettings
	hand  *byHand
	out   bench.Options
	all   []steps.Step
	needs map[string]int // bursts of a round of each step
	bar   *bench.Bar     // nil: no terminal
}

func (s *benchSettings) runSuite(ctx context.Context, cfg *config.Config, w io.Writer) error {
	err := s.checkSuite()
	if err != nil {
		return misuse{err}
	}
	all, err := s.suiteSteps()
	if err != nil {
		return misuse{err}
	}
	if *s.options["latency_samples"] == "" {
		*s.options["latency_samples"] = suiteTimes
	}
	opts, peer, err := s.probeOptions(cfg)
	if err != nil {
		return misuse{err}
	}
	opts.Extras = nil
	s.files(peer)
	if err := s.reports.check(); err != nil {
		return err
	}
	before, err := s.readSaved()
	if err != nil {
		return err
	}
	earlier, err := s.earlierSteps(peer, all)
	if err != nil {
		return misuse{err}
	}
	c := &course{benchSettings: s, hand: s.byHand(cfg, opts, peer), out: s.shownBeside(ctx, cfg), all: all}
	c.out.Storage = slices.DeleteFunc(earlier.Storage, func(r suite.Checkpoint) bool {
		return !slices.Contains(s.suite.targets(), r.Target)
	})
	defer c.hand.close()
	if isTerminal(os.Stderr) {
		c.bar = bench.NewBar(os.Stderr)
	}
	done, err := c.measure(ctx, earlier.Steps)
	if len(done) == 0 {
		return err
	}
	if err == nil {
		err = c.checkpoints(ctx, done)
	}
	ended := c.end(ctx, w, done, before)
	return cmp.Or(err, ended) // why it broke off is not in the summary
}

// earlierSteps returns the steps that --resume need not make again. A suite that was broken off is not overwritten
// without a word.
func (s *benchSettings) earlierSteps(peer string, all []steps.Step) (file steps.File, err error) {
	f, err := os.Open(s.save)
	if errors.Is(err, fs.ErrNotExist) && !s.suite.resume {
		return file, nil
	}
	if err != nil {
		return file, fmt.Errorf("--resume: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	file, err = steps.Read(f)
	switch {
	case !s.suite.resume && (err != nil || file.Peer != peer || steps.Ended(file.Steps, all)):
		return steps.File{}, nil // an earlier suite, or another file: it is written anew
	case !s.suite.resume:
		return file, fmt.Errorf("%s has a suite that lacks some of these steps: add them by --resume, or remove the "+
			"file", s.save)
	case err != nil:
		return file, fmt.Errorf("--resume: %s: %w", s.save, err)
	case file.Peer != peer:
		return file, fmt.Errorf("--resume: %s is of %s, not of %s", s.save, file.Peer, peer)
	}
	file.Steps = steps.Kept(file.Steps, all)
	return file, nil
}

// measure makes the steps that are not done yet, and keeps each round as soon as it is made.
func (c *course) measure(ctx context.Context, done []steps.Done) ([]steps.Done, error) {
	if len(done) > 0 {
		c.plan(ctx, done)
	}
	for i, step := range c.all {
		at := slices.IndexFunc(done, func(d steps.Done) bool { return d.Matches(step) })
		if at < 0 {
			at, done = len(done), append(done, steps.Done{Name: step.Name, Extras: step.Extras})
		}
		for n := len(done[at].Rounds); n < steps.Runs; n++ {
			if c.bar != nil {
				c.bar.Step(step.Name, steps.Left(done, c.all[i+1:], c.needs))
				c.bar.Round(n+1, steps.Runs)
			}
			r, err := c.round(ctx, step.Extras)
			if err != nil || ctx.Err() != nil {
				return c.brokenOff(done, err)
			}
			done[at].Add(r)
			if err := c.keep(done); err != nil {
				return done, err
			}
			if i == 0 && (r.Outcome == result.Failed || r.Outcome == result.Skipped) {
				return done, nil // nothing else can be measured
			}
			if i == 0 && n == 0 {
				c.plan(ctx, done)
			}
		}
	}
	return done, nil
}

func (c *course) round(ctx context.Context, extras []result.Extra) (result.Result, error) {
	c.hand.opts.Extras, c.hand.ask.Extras = extras, extras
	progress, clear := func(result.Progress) {}, func() {}
	if c.bar != nil {
		progress, clear = c.bar.Update, c.bar.Clear
	}
	r, simulated, err := c.hand.round(ctx, progress)
	clear()
	simulate(&c.out, simulated)
	return r, err
}

// brokenOff returns what was made before an error or an interruption, and how to go on.
func (c *course) brokenOff(done []steps.Done, err error) ([]steps.Done, error) {
	done = slices.DeleteFunc(done, func(d steps.Done) bool { return len(d.Rounds) == 0 })
	if err == nil {
		err = errors.New("interrupted")
	}
	if len(done) > 0 {
		err = fmt.Errorf("%w; %s has what was measured: go on with the same command and --resume", err, c.save)
	}
	return done, err
}

// plan prints what follows and how long it takes, after the first round has shown how long a burst takes.
func (c *course) plan(ctx context.Context, done []steps.Done) {
	lists := make([][]result.Extra, len(c.all))
	for i, step := range c.all {
		lists[i] = step.Extras
	}
	plans, err := c.hand.plans(ctx, lists)
	if err != nil || len(plans.Needs) != len(c.all) {
		return // the next round reports why the peer does not answer
	}
	c.needs = map[string]int{}
	for i, step := range c.all {
		c.needs[step.Name] = plans.Needs[i].Bursts
	}
	var text strings.Builder
	bench.WritePlan(&text, c.all, done, c.needs, plans)
	if parts, _ := c.suite.list(); slices.Contains(parts, steps.Storage) && c.suite.storage == "" {
		text.WriteString("  storage   left out: name directories and buckets by --storage\n")
	}
	fmt.Fprint(os.Stderr, terminal.PlainLines(text.String()))
}

// checkpoints measures the targets of --storage that are not measured yet, one after the other. A target that fails is
// a result.
func (c *course) checkpoints(ctx context.Context, done []steps.Done) error {
	for _, target := range c.suite.targets() {
		same := func(r suite.Checkpoint) bool { return r.Target == target }
		i := slices.IndexFunc(c.out.Storage, same)
		if i >= 0 && c.out.Storage[i].Failure == "" {
			continue
		}
		fmt.Fprintf(os.Stderr, "storage: %s\n", terminal.Plain(target))
		app := kingpin.New("railscope", "")
		one := (&storageSettings{common: c.common}).define(app)
		_, err := app.Parse([]string{"storage", "--format=json", "--", target}) // with the variables of that command
		if err != nil {
			return misuse{err}
		}
		args, err := one.args()
		if err != nil {
			return misuse{err}
		}
		var text bytes.Buffer
		var results []suite.Checkpoint
		err = runCompanion(ctx, &text, args)
		if bad := json.Unmarshal(text.Bytes(), &results); bad != nil {
			_, err = c.brokenOff(done, cmp.Or(err, bad))
			return err
		}
		c.out.Storage = append(slices.DeleteFunc(c.out.Storage, same), results...)
		if err := c.keep(done); err != nil {
			return err
		}
	}
	return nil
}

// joined returns the suite as one round, and what is shown with it.
func (c *course) joined(done []steps.Done) (result.Result, bench.Options) {
	rounds, out := steps.Joined(done), c.out
	last := len(rounds) - 1
	out.Earlier, out.Steps = rounds[:last], done
	return rounds[last], out
}

// keep writes the file of the suite, once there is a figure.
func (c *course) keep(done []steps.Done) error {
	res, out := c.joined(done)
	if !bench.Suite(res, out).HasFigures() {
		return nil
	}
	var text bytes.Buffer
	if err := bench.WriteJSON(&text, res, out); err != nil {
		return err
	}
	return outfile.Write(c.save, text.Bytes())
}

// end writes the page and the summary.
func (c *course) end(ctx context.Context, w io.Writer, done []steps.Done, before *suite.Suite) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTime) // also after an interruption
	defer cancel()
	res, out := c.joined(done)
	all := bench.Suite(res, out)
	if before != nil {
		out.Compared = suite.Compare(*before, all)
	}
	err := writeRound(w, c.format, res, out)
	if err == nil && all.HasFigures() {
		err = c.reports.write(ctx, "bench", func(to io.Writer) error { return bench.WriteJSON(to, res, out) })
		fmt.Fprintf(os.Stderr, "written: %s\n", strings.TrimRight(c.save+", "+c.reports.html, ", "))
	}
	if err != nil {
		return err
	}
	failed := slices.ContainsFunc(out.Storage, func(r suite.Checkpoint) bool { return r.Failure != "" })
	if failed || slices.ContainsFunc(out.Compared, suite.Change.Worse) {
		return errReported
	}
	var rounds []result.Result
	for _, d := range done {
		rounds = append(rounds, d.Rounds...)
	}
	if err := benchError(rounds); err != nil || len(all.Incomplete.Unmeasured) == 0 {
		return err
	}
	return errIncomplete
}
