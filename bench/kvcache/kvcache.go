// Package kvcache computes the size of models' KV caches, and of the pages in which a server moves them.
package kvcache

import "cmp"

// Kinds of attention.
const (
	GQA    = "gqa"    // keys and values of a few heads, shared by groups of query heads
	MLA    = "mla"    // one compressed vector per token, shared by all heads
	Window = "window" // like gqa, but some layers keep only the last tokens
)

const (
	bf16Bytes  = 2
	pageTokens = 16 // tokens per page: the block size of vLLM
)

// Model has the figures of a model's published configuration that determine the size of its cache.
type Model struct {
	Name, Kind, Source string
	Layers             int
	KVHeads, HeadDim   int // gqa only
	Latent             int // mla only: elements per token and layer
	WindowLayers       int // layers that keep at most WindowTokens
	WindowTokens       int64
	Element            int // bytes of an element; 0: bf16
}

// Models returns the known models. Source is the file config.json of the model on Hugging Face.
func Models() []Model {
	const hf = "huggingface.co/"
	return []Model{
		{Name: "Llama 3 8B", Kind: GQA, Source: hf + "meta-llama/Meta-Llama-3-8B", Layers: 32, KVHeads: 8,
			HeadDim: 128},
		{Name: "Llama 3 70B", Kind: GQA, Source: hf + "meta-llama/Meta-Llama-3-70B", Layers: 80, KVHeads: 8,
			HeadDim: 128},
		{Name: "Llama 3.1 405B", Kind: GQA, Source: hf + "meta-llama/Llama-3.1-405B", Layers: 126, KVHeads: 8,
			HeadDim: 128},
		{Name: "Qwen3-32B", Kind: GQA, Source: hf + "Qwen/Qwen3-32B", Layers: 64, KVHeads: 8, HeadDim: 128},
		{Name: "DeepSeek-V3", Kind: MLA, Source: hf + "deepseek-ai/DeepSeek-V3", Layers: 61, Latent: 512 + 64},
		{Name: "gpt-oss-120b", Kind: Window, Source: hf + "openai/gpt-oss-120b", Layers: 36, KVHeads: 8, HeadDim: 64,
			WindowLayers: 18, WindowTokens: 128},
	}
}

// Contexts returns the context lengths that are shown, in tokens.
func Contexts() []int64 { return []int64{1 << 10, 8 << 10, 32 << 10, 128 << 10} }

func (m Model) element() int64 { return int64(cmp.Or(m.Element, bf16Bytes)) }

// layer returns the bytes of one token in one layer: of keys and values, or of the compressed vector.
func (m Model) layer() int64 {
	if m.Kind == MLA {
		return int64(m.Latent) * m.element()
	}
	return 2 * int64(m.KVHeads) * int64(m.HeadDim) * m.element()
}

// Divides reports whether a server can shard the model over so many GPUs: each holds the same number of heads, or each
// head is held by the same number of GPUs. What all heads share is held by each.
func (m Model) Divides(gpus int) bool {
	return m.Kind == MLA || m.KVHeads%gpus == 0 || gpus%m.KVHeads == 0
}

// PerToken is what a token takes in all layers of one copy, in bytes, within the window of those that have one.
func (m Model) PerToken() int64 { return int64(m.Layers) * m.layer() }

// copies returns how often a node holds the cache if it shards the model over this many GPUs. Heads are divided among
// GPUs, and replicated if there are more GPUs than heads. A vector that all heads share is held by each GPU.
func (m Model) copies(gpus int) int64 {
	if m.Kind == MLA {
		return int64(gpus)
	}
	return int64(max(1, gpus/m.KVHeads))
}

// Bytes returns the bytes of a context's cache on one node that shards the model over this many GPUs.
func (m Model) Bytes(tokens int64, gpus int) int64 {
	full := int64(m.Layers-m.WindowLayers) * tokens
	return m.copies(gpus) * m.layer() * (full + int64(m.WindowLayers)*min(tokens, m.WindowTokens))
}

// Page returns the bytes that a server moves at a time: 16 tokens of the keys, or of the values, of one layer on one
// GPU.
func (m Model) Page(gpus int) int64 {
	if m.Kind == MLA {
		return pageTokens * m.layer()
	}
	heads := max(1, m.KVHeads/gpus)
	return pageTokens * int64(heads) * int64(m.HeadDim) * m.element()
}
