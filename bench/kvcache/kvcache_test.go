package kvcache

import "testing"

// TestPerToken compares the bytes per token in bf16 with the models' configurations.
func TestPerToken(t *testing.T) {
	want := map[string]int64{"Llama 3 8B": 128 << 10, "Llama 3 70B": 320 << 10, "Llama 3.1 405B": 504 << 10,
		"Qwen3-32B": 256 << 10, "DeepSeek-V3": 70_272, "gpt-oss-120b": 73_728}
	for _, m := range Models() {
		if got := m.PerToken(); got != want[m.Name] || m.Source == "" {
			t.Errorf("%s: %d bytes per token, want %d; %q", m.Name, got, want[m.Name], m.Source)
		}
		delete(want, m.Name)
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
}

func TestBytes(t *testing.T) {
	models := map[string]Model{}
	for _, m := range Models() {
		models[m.Name] = m
	}
	models["fp8"] = Model{Kind: GQA, Layers: 32, KVHeads: 8, HeadDim: 128, Element: 1}
	for _, tc := range []struct {
		model       string
		tokens      int64
		gpus        int
		bytes, page int64
	}{
		{"Llama 3 8B", 8192, 1, 1 << 30, 32 << 10},
		{"Llama 3 8B", 8192, 8, 1 << 30, 4 << 10},  // divided among GPUs; the node holds one copy
		{"Llama 3 8B", 8192, 16, 2 << 30, 4 << 10}, // two GPUs share a head
		{"fp8", 8192, 1, 1 << 29, 16 << 10},
		{"Llama 3 70B", 1024, 4, 320 << 20, 8 << 10},
		{"DeepSeek-V3", 1024, 1, 71_958_528, 18_432},
		{"DeepSeek-V3", 1024, 8, 8 * 71_958_528, 18_432}, // each GPU has a copy
		{"gpt-oss-120b", 128, 1, 128 * 73_728, 16 << 10},
		{"gpt-oss-120b", 1024, 1, (1024 + 128) * 18 * 2048, 16 << 10}, // half of the layers keep 128 tokens
	} {
		m := models[tc.model]
		if got, page := m.Bytes(tc.tokens, tc.gpus), m.Page(tc.gpus); got != tc.bytes || page != tc.page {
			t.Errorf("%s, %d tokens, %d GPUs: %d in pages of %d, want %d in %d", tc.model, tc.tokens, tc.gpus, got, page,
				tc.bytes, tc.page)
		}
	}
}
