// Package kvcache knows how large the KV caches of models are, and in which pages a server moves them.
package kvcache

// Kinds of attention.
const (
	GQA    = "gqa"    // keys and values of a few heads, shared by groups of query heads
	MLA    = "mla"    // one compressed vector per token, the same for all heads
	Window = "window" // as gqa, and part of the layers keep the last tokens only
)

const (
	elementBytes = 2  // bf16
	pageTokens   = 16 // of a page: the block size of vLLM
)

// Model is what decides the size of a cache: the figures of the model's published configuration.
type Model struct {
	Name, Kind, Source string
	Layers             int
	KVHeads, HeadDim   int // of gqa
	Latent             int // of mla: elements per token and layer
	WindowLayers       int // that keep no more than WindowTokens
	WindowTokens       int64
}

// Models are those that are known by name. Source is the file config.json of the model on Hugging Face.
func Models() []Model {
	const hf = "huggingface.co/"
	return []Model{
		{Name: "Llama 3 8B", Kind: GQA, Source: hf + "meta-llama/Meta-Llama-3-8B", Layers: 32, KVHeads: 8, HeadDim: 128},
		{Name: "Llama 3 70B", Kind: GQA, Source: hf + "meta-llama/Meta-Llama-3-70B", Layers: 80, KVHeads: 8, HeadDim: 128},
		{Name: "Llama 3.1 405B", Kind: GQA, Source: hf + "meta-llama/Llama-3.1-405B", Layers: 126, KVHeads: 8, HeadDim: 128},
		{Name: "Qwen3-32B", Kind: GQA, Source: hf + "Qwen/Qwen3-32B", Layers: 64, KVHeads: 8, HeadDim: 128},
		{Name: "DeepSeek-V3", Kind: MLA, Source: hf + "deepseek-ai/DeepSeek-V3", Layers: 61, Latent: 512 + 64},
		{Name: "gpt-oss-120b", Kind: Window, Source: hf + "openai/gpt-oss-120b", Layers: 36, KVHeads: 8, HeadDim: 64,
			WindowLayers: 18, WindowTokens: 128},
	}
}

// Contexts are the lengths that are shown, in tokens.
func Contexts() []int64 { return []int64{1 << 10, 8 << 10, 32 << 10, 128 << 10} }

// layer is what one token takes in one layer, in bytes: of keys and values, or of the compressed vector.
func (m Model) layer() int64 {
	if m.Kind == MLA {
		return int64(m.Latent) * elementBytes
	}
	return 2 * int64(m.KVHeads) * int64(m.HeadDim) * elementBytes
}

// PerToken is what a token takes in all layers of one copy, in bytes, within the window of those that have one.
func (m Model) PerToken() int64 { return int64(m.Layers) * m.layer() }

// copies is how often a node holds the cache if it shards the model over so many GPUs: heads are divided, and with more
// GPUs than heads held several times; what all heads share is held by each GPU.
func (m Model) copies(gpus int) int64 {
	if m.Kind == MLA {
		return int64(gpus)
	}
	return int64(max(1, gpus/m.KVHeads))
}

// Bytes is the cache of a context on one node that shards the model over so many GPUs.
func (m Model) Bytes(tokens int64, gpus int) int64 {
	full := int64(m.Layers-m.WindowLayers) * tokens
	return m.copies(gpus) * m.layer() * (full + int64(m.WindowLayers)*min(tokens, m.WindowTokens))
}

// Page is what a server moves at a time, in bytes: 16 tokens of the keys, or of the values, of one layer on one GPU.
func (m Model) Page(gpus int) int64 {
	if m.Kind == MLA {
		return pageTokens * m.layer()
	}
	heads := max(1, m.KVHeads/gpus)
	return pageTokens * int64(heads) * int64(m.HeadDim) * elementBytes
}
