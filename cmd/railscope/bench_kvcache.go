package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kingpin/v2"
	"github.com/alecthomas/units"

	"github.com/railscope/railscope/bench"
	"github.com/railscope/railscope/bench/kvcache"
)

// modelSettings are the flags of a model that is not among those that are known.
type modelSettings struct {
	layers, heads, headDim int
	tokens                 string
	dtype                  *string // flag of the gradients of a ring, too
}

func (s *modelSettings) define(cmd *kingpin.CmdClause) {
	cmd.Flag("layers", "Layers of another model: its KV caches are measured as those of --kv-cache, in pages of 16 "+
		"tokens, with elements of --dtype. Needs --heads.").PlaceHolder("N").IntVar(&s.layers)
	cmd.Flag("heads", "Heads of the model of --layers that have keys and values "+
		"(num_key_value_heads).").PlaceHolder("N").
		IntVar(&s.heads)
	cmd.Flag("head-dim", "Elements of a head of the model of --layers.").Default("128").IntVar(&s.headDim)
	cmd.Flag("tokens", "Contexts of the model of --layers. Without it those of all models.").PlaceHolder("N,N,...").
		StringVar(&s.tokens)
}

func (s *modelSettings) asked() bool { return s.layers != 0 || s.heads != 0 }

// Limits of a model.
const (
	maxLayers = 1 << 10
	maxHeads  = 1 << 12 // heads, or elements of a head
	maxTokens = 1 << 24 // together with the others, a cache of less than 2^63 bytes
	maxPage   = 1 << 30 // bytes
	maxCache  = 1 << 50 // bytes
)

// caches returns the caches of the model on a node that shards it over GPUs; nil: none is asked for.
func (s *modelSettings) caches(gpus int) (list []bench.Cache, err error) {
	if !s.asked() {
		return nil, nil
	}
	if min(s.layers, s.heads, s.headDim) < 1 || s.layers > maxLayers || max(s.heads, s.headDim) > maxHeads {
		return nil, fmt.Errorf("--layers, --heads and --head-dim must be from 1 to %d, %d and %[2]d, as in the file "+
			"config.json of the model, such as 32, 8 and 128, not %[3]d, %d and %d", maxLayers, maxHeads, s.layers,
			s.heads,
			s.headDim)
	}
	contexts := kvcache.Contexts()
	if s.tokens != "" {
		counts, err := numbers("--tokens", s.tokens, maxTokens)
		if err != nil {
			return nil, err
		}
		contexts = nil
		for _, n := range counts {
			contexts = append(contexts, int64(n))
		}
	}
	m := kvcache.Model{Kind: kvcache.GQA, Layers: s.layers, KVHeads: s.heads, HeadDim: s.headDim,
		Element: elementBytes()[*s.dtype]}
	m.Name = fmt.Sprintf("%d × %d × %d, %s", s.layers, s.heads, s.headDim, *s.dtype)
	if !m.Divides(gpus) {
		return nil, notDivided(gpus, m.KVHeads, "the model of --layers")
	}
	list = bench.CachesOf(m, contexts, gpus)
	for _, c := range list {
		if c.Page > maxPage || c.Bytes > maxCache {
			return nil, fmt.Errorf("--layers, --heads, --head-dim and --tokens make a cache of %d bytes in pages of "+
				"%d: the "+
				"limits are %d and %d", c.Bytes, c.Page, int64(maxCache), maxPage)
		}
	}
	return list, nil
}

// elementBytes returns the size of an element of each type.
func elementBytes() map[string]int { return map[string]int{"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1} }

func notDivided(gpus, heads int, of string) error {
	return fmt.Errorf("--tensor-parallel=%d does not divide the %d heads of %s: use a divisor or a multiple of these",
		gpus, heads, of)
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
	if err := s.divides(); err != nil {
		return nil, err
	}
	list, err = s.model.caches(s.tensorParallel)
	if err != nil || s.kvCache == "" {
		return list, err
	}
	asked := strings.Split(s.kvCache, ",")
	if len(asked) > maxCaches {
		return nil, fmt.Errorf("--kv-cache: %d names and sizes: the limit is %d", len(asked), maxCaches)
	}
	for _, word := range asked {
		word = strings.TrimSpace(word)
		of := bench.Caches(word, s.tensorParallel)
		if word == allModels {
			of = bench.Caches("", s.tensorParallel)
		}
		if len(of) > 0 {
			list = append(list, of...)
			continue
		}
		bytes, err := units.ParseStrictBytes(word)
		if err != nil || bytes <= 0 || bytes > 1<<50 {
			var names []string
			for _, m := range kvcache.Models() {
				names = append(names, strconv.Quote(m.Name))
			}
			return nil, fmt.Errorf("--kv-cache must be a size, such as 4GB, or a model, %s, not %q",
				strings.Join(names, ", "), word)
		}
		list = append(list, bench.Cache{Model: word, Bytes: bytes, Page: sizePage})
	}
	return list, nil
}

// divides refuses a number of GPUs over which a server cannot divide the models that are asked for.
func (s *extraSettings) divides() error {
	asked, named := strings.Split(s.kvCache, ","), false
	for _, m := range kvcache.Models() {
		if !slices.ContainsFunc(asked, func(word string) bool {
			word = strings.TrimSpace(word)
			return word == allModels || strings.EqualFold(word, m.Name)
		}) {
			continue
		}
		named = true
		if !m.Divides(s.tensorParallel) {
			return notDivided(s.tensorParallel, m.KVHeads, m.Name)
		}
	}
	if s.kvCache != "" && s.tensorParallel > 1 && !named && !s.model.asked() {
		return fmt.Errorf("--tensor-parallel=%d has no effect on a size: name a model in --kv-cache", s.tensorParallel)
	}
	return nil
}

// pages are the sizes of pages of caches, each once, ascending.
func pages(caches []bench.Cache) (list []int) {
	for _, c := range caches {
		list = append(list, int(c.Page))
	}
	slices.Sort(list)
	return slices.Compact(list)
}
