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
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/alecthomas/units"

	"github.com/railscope/railscope/bench"
	"github.com/railscope/railscope/bench/suite"
	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe"
	"github.com/railscope/railscope/probe/result"
)

// ringSettings are the flags of a ring over several nodes.
type ringSettings struct {
	allReduce, model, dtype string
	stepTime                time.Duration
}

func (s *ringSettings) define(cmd *kingpin.CmdClause) {
	cmd.Flag("all-reduce", "Measure a ring over the named nodes in place of a round: all stream to their successor at "+
		"once, as an all-reduce of this size does. Each must have probe.allow_ring, and its successor among its "+
		"peers.").
		PlaceHolder("BYTES").StringVar(&s.allReduce)
	cmd.Flag("model", "The same for the gradients of a model with so many parameters, such as 7B.").
		PlaceHolder("PARAMETERS").StringVar(&s.model)
	cmd.Flag("dtype", "Type of the gradients of --model, or of the keys and values of "+
		"--layers.").Default("bf16").
		EnumVar(&s.dtype, "fp32", "bf16", "fp16", "fp8")
	cmd.Flag("step-time", "Time of a training step, to show which part of it the synchronisation is.").
		PlaceHolder("DURATION").DurationVar(&s.stepTime)
}

func (s *ringSettings) asked() bool { return s.allReduce != "" || s.model != "" }

// maxReduce bounds the size of an all-reduce, in bytes.
const maxReduce = 1 << 50

// bytes is what is reduced.
func (s *ringSettings) bytes() (int64, error) {
	if s.allReduce != "" {
		n, err := units.ParseStrictBytes(s.allReduce)
		if err != nil || n <= 0 || n > maxReduce {
			return 0, fmt.Errorf("--all-reduce must be a size such as 1GiB, not %q", s.allReduce)
		}
		return n, nil
	}
	count, unit := s.model, 1.0
	for suffix, factor := range map[string]float64{"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12} {
		if text, ok := strings.CutSuffix(strings.ToUpper(s.model), suffix); ok {
			count, unit = text, factor
		}
	}
	size := float64(elementBytes()[s.dtype])
	n, err := strconv.ParseFloat(count, 64)
	if bytes := n * unit * size; err == nil && bytes >= 1 && bytes <= maxReduce {
		return int64(bytes), nil
	}
	return 0, fmt.Errorf("--model must be a number of parameters such as 7B or 350M, not %q", s.model)
}

// checkRing refuses what only a benchmark of one peer has.
func (s *benchSettings) checkRing() error {
	for key, value := range s.options {
		if *value != "" {
			return fmt.Errorf("--%s is of a benchmark of one peer; the members of a ring use their own configuration",
				strings.ReplaceAll(key, "_", "-"))
		}
	}
	list, _, err := s.extras.list()
	if err == nil && (len(list) > 0 || s.extras.rails != "") {
		err = errors.New("a ring measures all rails by RDMA WRITE: leave out --all, --sweep, --rails, --kv-cache and " +
			"all other flags of extra measurements")
	}
	if err == nil && s.ring.stepTime < 0 {
		err = fmt.Errorf("--step-time must be positive, not %v", s.ring.stepTime)
	}
	return cmp.Or(err, checkToken(s.tokenFile))
}

func (s *benchSettings) runRing(ctx context.Context, cfg *config.Config, w io.Writer) error {
	bytes, err := s.ring.bytes()
	if err != nil {
		return misuse{err}
	}
	var nodes []string
	for _, text := range s.peers {
		node, err := parsePeer("PEER", text)
		if err != nil {
			return misuse{err}
		}
		nodes = append(nodes, node)
	}
	before, err := s.readSaved()
	if err != nil {
		return err
	}
	o := bench.RingOptions{Start: time.Now(), Bytes: bytes, StepTime: s.ring.stepTime}
	runs, err := s.rings(ctx, cfg, nodes, bytes)
	if err != nil {
		return misuse{err}
	}
	all := bench.Ring(runs, o)
	if before != nil {
		all.Compared = suite.Compare(*before, all)
	}
	return cmp.Or(s.writeRing(ctx, w, all), ringError(all))
}

// rings measures the ring as often as --save and --compare need it, until a run measures nothing.
func (s *benchSettings) rings(ctx context.Context, cfg *config.Config, nodes []string, bytes int64,
) (runs []result.RingResult, err error) {
	security := cfg.ProbeOptions().Security
	security.TokenFile = cmp.Or(s.tokenFile, security.TokenFile)
	progress := func(string) {}
	if isTerminal(os.Stderr) {
		progress = func(node string) {
			fmt.Fprintf(os.Stderr, "%s\n", cmp.Or(terminal.Plain(node), "all at once"))
		}
	}
	for range s.runs() {
		res, err := probe.Ring(ctx, security, nodes, progress)
		if err != nil {
			return nil, err
		}
		runs = append(runs, res)
		if measured, _, _ := res.Seconds(bytes); measured == nil {
			break
		}
	}
	return runs, nil
}

func (s *benchSettings) writeRing(ctx context.Context, w io.Writer, all suite.Suite) error {
	object := func(to io.Writer) error { return bench.WriteRingJSON(to, all) }
	write := func() error { return bench.WriteRing(w, all, page().Color) }
	switch s.format {
	case "json":
		write = func() error { return object(w) }
	case "csv":
		write = func() error { return bench.WriteCSV(w, all) }
	}
	var err error
	switch {
	case s.save != "" && all.Good:
		err = s.saveAs(object)
	case s.save != "":
		err = fmt.Errorf("--save: %s is not written: the ring was not measured", s.save)
	}
	return errors.Join(write(), err, s.reports.write(ctx, "bench", object))
}

// ringError is nil if all nodes carried their part, and no less than before.
func ringError(all suite.Suite) error {
	if !all.Good || slices.ContainsFunc(all.Compared, suite.Change.Worse) {
		return errReported
	}
	return nil
}
