package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/railscope/railscope/probe/result"
)

// TestExtraFlags: what the flags of other measurements ask the probe for.
func TestExtraFlags(t *testing.T) {
	for _, tc := range []struct {
		flags  extraSettings
		want   string
		caches int
	}{
		{extraSettings{}, "[]", 0},
		{extraSettings{op: "read"}, "[read[]]", 0},
		{extraSettings{all: true}, "[read[] messages[4096] gpu[] tcp_time[8 4096] bond[] tcp_rail[]]", 0},
		{extraSettings{sweep: "64KiB..256KiB", rails: "0,1"}, "[rails[] sweep[65536 131072 262144]]", 0},
		{extraSettings{kvCache: "models"}, "[read[] kv_cache[16384 18432 32768]]", 24},
		{extraSettings{kvCache: "1GB,4GiB,qwen3-32b"}, "[read[] kv_cache[32768]]", 6},
		{extraSettings{model: modelSettings{layers: 40, heads: 4, headDim: 256, tokens: "1000,2000"}},
			"[read[] kv_cache[32768]]", 2},
		{extraSettings{kvCache: "1GB,models", model: modelSettings{layers: 40, heads: 4, headDim: 64}},
			"[read[] kv_cache[8192 16384 18432 32768]]", 29},
		{extraSettings{queuePairs: "1,2", memory: "cuda_host", paths: 16, switches: map[result.Kind]*bool{
			result.Bidirectional: new(true), result.Loopback: new(true), result.Contention: new(true)}},
			"[bidirectional[] queue_pairs[1 2] loopback[] paths[16] contention[] gpu[]]", 0},
	} {
		if tc.flags.memory == "" {
			tc.flags.memory = "host"
		}
		tc.flags.tensorParallel, tc.flags.model.dtype = 1, new("bf16")
		extras, caches, err := tc.flags.list()
		got := []string{}
		for _, e := range extras {
			got = append(got, fmt.Sprintf("%s%v", e.Kind, e.Values))
			if !slices.Contains(result.Kinds(), e.Kind) {
				t.Errorf("unknown kind %s", e.Kind)
			}
		}
		if text := fmt.Sprint(got); err != nil || text != tc.want || len(caches) != tc.caches {
			t.Errorf("%+v: %s and %d caches, %v; want %s and %d", tc.flags, text, len(caches), err, tc.want, tc.caches)
		}
	}
}

// TestSpelledOut: --sweep and --kv-cache may be without a value, and node_exporter's --collector.NAME is a source.
// What follows -- is another program's.
func TestSpelledOut(t *testing.T) {
	got := spelledOut(strings.Fields("bench --sweep a --kv-cache=1GB --kv-cache --no-collector.gpu " +
		"--collector.process.limit=9 collector.gpu -- mpirun --sweep --collector.gpu"))
	want := strings.Fields("bench --sweep=64KiB..64MiB a --kv-cache=1GB --kv-cache=models --no-source.gpu " +
		"--source.process.limit=9 collector.gpu -- mpirun --sweep --collector.gpu")
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
