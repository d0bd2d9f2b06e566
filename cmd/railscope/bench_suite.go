package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kingpin/v2"
	"github.com/alecthomas/units"

	"github.com/railscope/railscope/bench"
	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/bench/suite"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/internal/text"
	"github.com/railscope/railscope/probe/result"
)

// extraSettings are the flags of measurements besides those of a round.
type extraSettings struct {
	op, queuePairs, memory, rails, sweep, kvCache string
	all                                           bool
	paths, tensorParallel                         int
	model                                         modelSettings
	switches                                      map[result.Kind]*bool // flags of bench.Measurements
}

// Values of flags that may be left out: see [spelledOut].
const (
	usualSweep = "64KiB..64MiB"
	allModels  = "models"
	hostMemory = "host"
)

func (s *extraSettings) define(cmd *kingpin.CmdClause) {
	cmd.Flag("all", "Compare TCP with 1 and 4 streams, over one rail and over a bond, each rail, all rails, RDMA "+
		"WRITE and READ, plain memory of the host and memory that GPUs use, and messages of 8 B and 4 "+
		"KiB.").BoolVar(&s.all)
	cmd.Flag("sweep", "Also measure transfers of sizes from FROM to TO, doubled each time, in equal parts over the "+
		"rails. Without a value: "+usualSweep+".").PlaceHolder("FROM..TO").StringVar(&s.sweep)
	cmd.Flag("rails", "Also measure these rails at once, and make the sweep over these. Each "+
		"rail alone is always measured.").PlaceHolder("NAME,NAME,...").
		StringVar(&s.rails)
	cmd.Flag("kv-cache", "Also measure how long the KV cache of a model takes, read in its pages, or of a size: "+
		"names or sizes, separated by commas. Without a value: all models that are known.").PlaceHolder("MODEL|BYTES").
		StringVar(&s.kvCache)
	s.model.define(cmd)
	cmd.Flag("tensor-parallel", "GPUs of a node over which the model of --kv-cache is divided.").Default("1").
		IntVar(&s.tensorParallel)
	cmd.Flag("op", "read: also measure RDMA READ, each rail alone and all at once; the sweep reads.").Default("write").
		EnumVar(&s.op, "write", "read")
	s.switches = map[result.Kind]*bool{}
	for _, measurement := range bench.Measurements() {
		if measurement.Flag != "" {
			s.switches[measurement.Kind] = cmd.Flag(measurement.Flag, measurement.Help).Bool()
		}
	}
	cmd.Flag("queue-pairs", "Also measure all rails with these numbers of queue pairs per rail, such as 1,2,4,8.").
		PlaceHolder("N,N,...").StringVar(&s.queuePairs)
	cmd.Flag("paths", fmt.Sprintf("Also measure each rail by N flow labels, one after the other: other paths of an "+
		"ECMP fabric (1 to %d).", result.MaxPaths)).PlaceHolder("N").IntVar(&s.paths)
	cmd.Flag("memory", "Also measure from memory that the GPU nearest to each rail uses to that of the peer's: "+
		strings.Join(result.Memories(), ", ")+", or gpu for the first of the GPU's vendor that works; if that is "+
		"cuda_host, cuda_staged as well. "+
		"The peer must allow it (probe.extras: [gpu] in its configuration).").Default(hostMemory).
		EnumVar(&s.memory, slices.Concat([]string{hostMemory, "gpu"}, result.Memories())...)
}

// list returns the extras in the order in which they are made, and the KV caches that are asked for.
func (s *extraSettings) list() (list []result.Extra, caches []bench.Cache, err error) {
	wanted := map[result.Kind]result.Extra{}
	add := func(is bool, e result.Extra) {
		if is {
			wanted[e.Kind] = e
		}
	}
	counts, err := numbers("--queue-pairs", s.queuePairs, rail.MaxQueuePairs)
	if err != nil {
		return nil, nil, err
	}
	if s.paths < 0 || s.paths > result.MaxPaths {
		return nil, nil, fmt.Errorf("--paths must be from 1 to %d, not %d", result.MaxPaths, s.paths)
	}
	sizes, err := s.sizes()
	if err != nil {
		return nil, nil, err
	}
	caches, err = s.caches()
	if err != nil {
		return nil, nil, err
	}
	rails, err := s.chosenRails()
	if err != nil {
		return nil, nil, err
	}
	read := s.op == "read"
	add(s.all || read || len(caches) > 0, result.Extra{Kind: result.Reads})
	add(len(counts) > 0, result.Extra{Kind: result.QueuePairs, Values: counts})
	add(len(rails) > 1, result.Extra{Kind: result.Rails, Rails: rails})
	add(s.all, result.Extra{Kind: result.Messages, Values: []int{4096}})
	add(len(sizes) > 0, result.Extra{Kind: result.Sweep, Values: sizes, Rails: rails, Read: read})
	add(s.paths > 0, result.Extra{Kind: result.Paths, Values: []int{s.paths}})
	switch {
	case s.memory == "gpu", s.memory == hostMemory && s.all:
		add(true, result.Extra{Kind: result.GPU})
	case s.memory != hostMemory:
		add(true, result.Extra{Kind: result.GPU, Memories: []string{s.memory}})
	}
	add(len(caches) > 0, result.Extra{Kind: result.KVCache, Values: pages(caches)})
	add(s.all, result.Extra{Kind: result.TCPTime, Values: []int{8, 4096}})
	add(s.all, result.Extra{Kind: result.Bond})
	add(s.all, result.Extra{Kind: result.OneTCP})
	for kind, on := range s.switches {
		add(*on, result.Extra{Kind: kind})
	}
	for _, measurement := range bench.Measurements() {
		if e, is := wanted[measurement.Kind]; is {
			list = append(list, e)
		}
	}
	return list, caches, nil
}

// chosenRails are those of --rails, each once.
func (s *extraSettings) chosenRails() (rails []string, err error) {
	if s.rails == "" {
		return nil, nil
	}
	for name := range strings.SplitSeq(s.rails, ",") {
		name = strings.TrimSpace(name)
		if name == "" || slices.Contains(rails, name) {
			return nil, fmt.Errorf("--rails must be names of rails, each once, separated by commas, not %q", s.rails)
		}
		rails = append(rails, name)
	}
	if len(rails) == 1 && s.sweep == "" {
		return nil, fmt.Errorf("--rails=%s has no effect without --sweep: each rail alone is always measured (SOLO, "+
			"and all ÷ one rail)", s.rails)
	}
	return rails, nil
}

// numbers are whole numbers from 1 to most.
func numbers(flag, text string, most int) (list []int, err error) {
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 || n > most {
			return nil, fmt.Errorf("%s must be numbers from 1 to %d, separated by commas, such as 1,2,4,8, not %q",
				flag, most, text)
		}
		list = append(list, n)
	}
	return list, nil
}

// sizes are those of the sweep.
func (s *extraSettings) sizes() (list []int, err error) {
	if s.sweep == "" {
		return nil, nil
	}
	from, to, ok := strings.Cut(s.sweep, "..")
	first, err := units.ParseStrictBytes(from)
	last, err2 := units.ParseStrictBytes(to)
	if !ok || err != nil || err2 != nil || first < result.MinSize || last > result.MaxSize || first > last {
		return nil, fmt.Errorf("--sweep must be sizes from %s to %s, such as %s, not %q", grid.Size(result.MinSize),
			grid.Size(result.MaxSize), usualSweep, s.sweep)
	}
	for size := first; size <= last; size *= 2 {
		list = append(list, int(size))
	}
	return list, nil
}

// commandLine is the command as it can be pasted.
func commandLine(args []string) suite.Setting {
	words := []string{"railscope"}
	for _, arg := range args {
		word, ok := text.ShellWord(arg)
		if !ok {
			word = strconv.Quote(arg)
		}
		words = append(words, word)
	}
	return suite.Setting{Name: "command", Here: strings.Join(words, " ")}
}

// environment are the variables of this process that NCCL, RCCL and UCX read.
func environment() (list []suite.Setting) {
	for _, v := range os.Environ() {
		name, value, _ := strings.Cut(v, "=")
		prefix, _, _ := strings.Cut(name, "_")
		if slices.Contains([]string{"NCCL", "RCCL", "UCX"}, prefix) {
			list = append(list, suite.Setting{Name: name, Here: terminal.PlainName(value)})
		}
	}
	slices.SortFunc(list, func(a, b suite.Setting) int { return strings.Compare(a.Name, b.Name) })
	return list
}
