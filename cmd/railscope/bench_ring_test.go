package main

import (
	"strings"
	"testing"
)

// TestReduceBytes: the size of an all-reduce, given or of a model's gradients.
func TestReduceBytes(t *testing.T) {
	for _, tc := range []struct {
		flags ringSettings
		want  int64
	}{
		{ringSettings{allReduce: "1GiB"}, 1 << 30},
		{ringSettings{allReduce: "2GB", model: "7B"}, 2e9},
		{ringSettings{model: "7B", dtype: "bf16"}, 14e9},
		{ringSettings{model: "350m", dtype: "fp32"}, 1.4e9},
		{ringSettings{model: "1000", dtype: "fp8"}, 1000},
		{ringSettings{allReduce: "much"}, 0}, {ringSettings{allReduce: "0B"}, 0}, {ringSettings{model: "B", dtype: "fp8"}, 0},
		{ringSettings{model: "-7B", dtype: "fp8"}, 0}, {ringSettings{model: "1e30T", dtype: "fp8"}, 0},
		{ringSettings{model: "NaN", dtype: "fp8"}, 0},
	} {
		if got, err := tc.flags.bytes(); got != tc.want || (err == nil) != (tc.want > 0) {
			t.Errorf("%+v: %d, %v", tc.flags, got, err)
		}
	}
}

// TestRingFlags: what only a benchmark of one peer has is refused before anything is measured.
func TestRingFlags(t *testing.T) {
	for flag, want := range map[string]string{
		"--save=x": "--save", "--compare=x": "--compare", "--plot=x.svg": "--plot", "--format=csv": "not as csv",
		"--burst=5ms": "--burst", "--timeout=1m": "--timeout", "--sweep": "--sweep", "--op=read": "--all", "--all": "--all",
		"--kv-cache=1GB": "--kv-cache",
	} {
		cmd := command(t, nil, "bench", "a", "b", "--all-reduce=1GiB", flag)
		out, err := cmd.CombinedOutput()
		if err == nil || cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, %q", flag, err, out)
		}
	}
}
