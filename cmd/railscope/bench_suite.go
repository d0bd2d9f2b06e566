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
	"github.com/railscope/railscope/bench/kvcache"
	"github.com/railscope/railscope/bench/suite"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/probe"
)

// extraSettings are the flags of measurements besides those of a round.
type extraSettings struct {
	op, queuePairs, memory, rails, sweep, kvCache string
	all, bidirectional, loopback, pairs           bool
	paths, tensorParallel                         int
}

// Values of flags that may be left out: see [withValues].
const (
	usualSweep = "64KiB..64MiB"
	allModels  = "models"
)

func (s *extraSettings) define(cmd *kingpin.CmdClause) {
	cmd.Flag("all", "Measure what the tutorials compare: TCP with 1 and 4 streams, TCP over a bond, each rail, all "+
		"rails, RDMA WRITE and READ, memory of the host and of GPUs, and messages of 8 B and 4 KiB.").BoolVar(&s.all)
	cmd.Flag("sweep", "Also measure transfers of sizes from FROM to TO, doubled each time, in equal parts over the "+
		"rails. Without a value: "+usualSweep+".").PlaceHolder("FROM..TO").StringVar(&s.sweep)
	cmd.Flag("rails", "Also measure these rails at once, and make the sweep over these. Each "+
		"rail alone is always measured.").PlaceHolder("NAME,NAME,...").
		StringVar(&s.rails)
	cmd.Flag("kv-cache", "Also measure how long the KV cache of a model takes, read in its pages, or of a size: names or "+
		"sizes, separated by commas. Without a value: all models that are known.").PlaceHolder("MODEL|BYTES").
		StringVar(&s.kvCache)
	cmd.Flag("tensor-parallel", "GPUs of a node over which the model of --kv-cache is divided.").Default("1").
		IntVar(&s.tensorParallel)
	cmd.Flag("op", "read: also measure RDMA READ, each rail alone and all at once; the sweep reads.").Default("write").
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

// withValues adds the value to flags that may be without one, which the parser does not know.
func withValues(args []string) []string {
	args = slices.Clone(args)
	for i, arg := range args {
		switch arg {
		case "--": // what follows is of a command to run
			return args
		case "--sweep":
			args[i] += "=" + usualSweep
		case "--kv-cache":
			args[i] += "=" + allModels
		}
	}
	return args
}

// list returns the extras in the order in which they are made, and the KV caches that are asked for.
func (s *extraSettings) list() (list []probe.Extra, caches []bench.Cache, err error) {
	add := func(wanted bool, e probe.Extra) {
		if wanted {
			list = append(list, e)
		}
	}
	counts, err := numbers("--queue-pairs", s.queuePairs, rail.MaxQueuePairs)
	if err != nil {
		return nil, nil, err
	}
	if s.paths < 0 || s.paths > probe.MaxPaths {
		return nil, nil, fmt.Errorf("--paths must be from 1 to %d, not %d", probe.MaxPaths, s.paths)
	}
	sizes, err := s.sizes()
	if err != nil {
		return nil, nil, err
	}
	if caches, err = s.caches(); err != nil {
		return nil, nil, err
	}
	var rails []string
	if s.rails != "" {
		rails = strings.Split(s.rails, ",")
	}
	read := s.op == "read"
	add(s.all || read || len(caches) > 0, probe.Extra{Kind: probe.Reads})
	add(s.bidirectional, probe.Extra{Kind: probe.Both})
	add(len(counts) > 0, probe.Extra{Kind: probe.QueuePairs, Counts: counts})
	add(len(rails) > 1, probe.Extra{Kind: probe.Subset, Rails: rails})
	add(s.all, probe.Extra{Kind: probe.Messages, Counts: []int{4096}})
	add(len(sizes) > 0, probe.Extra{Kind: probe.Sizes, Counts: sizes, Rails: rails, Read: read})
	add(s.loopback, probe.Extra{Kind: probe.Loopback})
	add(s.paths > 0, probe.Extra{Kind: probe.Paths, Counts: []int{s.paths}})
	add(s.pairs, probe.Extra{Kind: probe.Contention})
	switch {
	case s.memory == "gpu", s.memory == "host" && s.all:
		add(true, probe.Extra{Kind: probe.GPU})
	case s.memory != "host":
		add(true, probe.Extra{Kind: probe.GPU, Memories: []string{s.memory}})
	}
	add(len(caches) > 0, probe.Extra{Kind: probe.Pages, Counts: pages(caches)})
	add(s.all, probe.Extra{Kind: probe.TCPTime, Counts: []int{8, 4096}})
	add(s.all, probe.Extra{Kind: probe.Bond})
	return list, caches, nil
}

// numbers are whole numbers from 1 to most.
func numbers(flag, text string, most int) (list []int, err error) {
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 || n > most {
			return nil, fmt.Errorf("%s must be numbers from 1 to %d, separated by commas, such as 1,2,4,8, not %q", flag, most,
				text)
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
	if !ok || err != nil || err2 != nil || first < probe.MinSize || last > probe.MaxSize || first > last {
		return nil, fmt.Errorf("--sweep must be sizes from %s to %s, such as %s, not %q", grid.Size(probe.MinSize),
			grid.Size(probe.MaxSize), usualSweep, s.sweep)
	}
	for size := first; size <= last; size *= 2 {
		list = append(list, int(size))
	}
	return list, nil
}

// sizePage is the page of a KV cache of which only the size is given: that of Llama 3 on one GPU.
const sizePage = 32 << 10

const (
	maxTensorParallel = 64
	maxCaches         = 32 // names or sizes
)

func (s *extraSettings) caches() (list []bench.Cache, err error) {
	if s.tensorParallel < 1 || s.tensorParallel > maxTensorParallel {
		return nil, fmt.Errorf("--tensor-parallel must be from 1 to %d, not %d", maxTensorParallel, s.tensorParallel)
	}
	switch s.kvCache {
	case "":
		return nil, nil
	case allModels:
		return bench.Caches("", s.tensorParallel), nil
	}
	asked := strings.Split(s.kvCache, ",")
	for _, word := range asked[:min(len(asked), maxCaches)] {
		word = strings.TrimSpace(word)
		if of := bench.Caches(word, s.tensorParallel); len(of) > 0 {
			list = append(list, of...)
			continue
		}
		bytes, err := units.ParseStrictBytes(word)
		if err != nil || bytes <= 0 || bytes > 1<<50 {
			var names []string
			for _, m := range kvcache.Models() {
				names = append(names, strconv.Quote(m.Name))
			}
			return nil, fmt.Errorf("--kv-cache must be a size, such as 4GB, or a model, %s, not %q", strings.Join(names, ", "),
				word)
		}
		list = append(list, bench.Cache{Model: word, Bytes: bytes, Page: sizePage})
	}
	return list, nil
}

// pages are the sizes of pages of caches, each once, ascending.
func pages(caches []bench.Cache) (list []int) {
	for _, c := range caches {
		list = append(list, int(c.Page))
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// environment are the variables of this process that NCCL and UCX read.
func environment() (list []suite.Setting) {
	for _, v := range os.Environ() {
		name, value, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, "NCCL_") || strings.HasPrefix(name, "UCX_") {
			list = append(list, suite.Setting{Name: name, Here: value})
		}
	}
	slices.SortFunc(list, func(a, b suite.Setting) int { return strings.Compare(a.Name, b.Name) })
	return list
}
