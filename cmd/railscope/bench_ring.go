package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/alecthomas/units"

	"github.com/railscope/railscope/bench"
	"github.com/railscope/railscope/internal/config"
	"github.com/railscope/railscope/probe"
)

// ringSettings are the flags of a ring over several nodes.
type ringSettings struct {
	allReduce, model, dtype string
	stepTime                time.Duration
}

func (s *ringSettings) define(cmd *kingpin.CmdClause) {
	cmd.Flag("all-reduce", "Measure a ring over the named nodes in place of a round: all stream to their successor at "+
		"once, as an all-reduce of this size does. Each must have probe.allow_ring, and its successor among its peers.").
		PlaceHolder("BYTES").StringVar(&s.allReduce)
	cmd.Flag("model", "The same for the gradients of a model with so many parameters, such as 7B.").
		PlaceHolder("PARAMETERS").StringVar(&s.model)
	cmd.Flag("dtype", "Type of the gradients.").Default("bf16").EnumVar(&s.dtype, "fp32", "bf16", "fp16", "fp8")
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
	size := map[string]float64{"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}[s.dtype]
	n, err := strconv.ParseFloat(count, 64)
	if bytes := n * unit * size; err == nil && bytes >= 1 && bytes <= maxReduce {
		return int64(bytes), nil
	}
	return 0, fmt.Errorf("--model must be a number of parameters such as 7B or 350M, not %q", s.model)
}

// checkRing refuses what only a benchmark of one peer has.
func (s *benchSettings) checkRing() error {
	if s.reports.asked() || s.save != "" || s.compare != "" {
		return errors.New("--save, --compare, --report and --plot are of a benchmark of one peer; a ring has none of them")
	}
	if s.format == "csv" {
		return errors.New("a ring is written as table or json, not as csv")
	}
	for key, value := range s.options {
		if *value != "" {
			return fmt.Errorf("--%s is of a benchmark of one peer; the members of a ring use their own configuration",
				strings.ReplaceAll(key, "_", "-"))
		}
	}
	list, _, err := s.extras.list()
	if err == nil && len(list) > 0 {
		err = errors.New("a ring measures all rails by RDMA WRITE: leave out --all, --sweep, --kv-cache and the like")
	}
	return err
}

func (s *benchSettings) runRing(ctx context.Context, cfg *config.Config, w io.Writer) error {
	bytes, err := s.ring.bytes()
	if err != nil {
		return misuse{err}
	}
	if s.ring.stepTime < 0 {
		return misuse{fmt.Errorf("--step-time must be positive, not %v", s.ring.stepTime)}
	}
	var nodes []string
	for _, text := range s.peers {
		node, err := parsePeer("PEER", text)
		if err != nil {
			return misuse{err}
		}
		nodes = append(nodes, node)
	}
	if err := checkToken(s.tokenFile); err != nil {
		return misuse{err}
	}
	p := *cmp.Or(cfg.Probe, config.DefaultProbe())
	p.TokenFile = cmp.Or(s.tokenFile, p.TokenFile)
	progress := func(string) {}
	if isTerminal(os.Stderr) {
		progress = func(node string) {
			fmt.Fprintf(os.Stderr, "%s\n", cmp.Or(node, "all at once"))
		}
	}
	res, err := probe.Ring(ctx, probeOptions(&config.Config{Probe: &p}).Security, nodes, progress)
	if err != nil {
		return misuse{err}
	}
	o := bench.RingOptions{Bytes: bytes, StepTime: s.ring.stepTime, Color: page().Color}
	switch s.format {
	case "json":
		err = bench.WriteRingJSON(w, res, o)
	default:
		err = bench.WriteRing(w, res, o)
	}
	if measured, _, _ := res.Seconds(bytes); err == nil && measured == nil {
		err = errReported
	}
	return err
}
