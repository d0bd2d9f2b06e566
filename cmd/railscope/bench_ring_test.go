package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/bench"
	"github.com/railscope/railscope/bench/suite"
	"github.com/railscope/railscope/probe/result"
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
		"--save=/no/such/dir/x": "--save", "--compare=/no/such/x": "--compare", "--plot=x.pdf": "--plot",
		"--burst=5ms": "--burst", "--timeout=1m": "--timeout", "--sweep": "--sweep", "--op=read": "--all", "--all": "--all",
		"--kv-cache=1GB": "--kv-cache", "--rails=0,1": "--rails", "--report=x.pdf": "--report", "--model=7B": "--model",
		"--dtype=fp8": "--dtype",
	} {
		cmd := command(t, nil, "bench", "a", "b", "--all-reduce=1GiB", flag)
		out, err := cmd.CombinedOutput()
		if err == nil || cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, %q", flag, err, out)
		}
	}
}

// TestRingFiles: a ring is saved, compared with a saved one and drawn, as a benchmark of one peer is; one that was not
// measured is not saved, and neither is compared with the other.
func TestRingFiles(t *testing.T) {
	dir := t.TempDir()
	ring := func(gigabits float64) suite.Suite {
		member := func(node, to string) result.RingMember {
			return result.RingMember{Node: node, Successor: to, Rails: 2, AllRails: 2, Alone: new(190 * 125e6),
				Together: new(gigabits * 125e6), TCP: new(12 * 125e6)}
		}
		r := result.RingResult{Members: []result.RingMember{member("a:1", "b:1"), member("b:1", "a:1")}}
		if gigabits == 0 {
			r.Members[1].Together = nil
		}
		return bench.Ring([]result.RingResult{r, r}, bench.RingOptions{Start: time.Unix(1e9, 0), Bytes: 1 << 30})
	}
	s := benchSettings{save: filepath.Join(dir, "ring.json"), format: "csv", ring: ringSettings{allReduce: "1GiB"}}
	var out bytes.Buffer
	if err := s.writeRing(t.Context(), &out, ring(0)); err == nil || !strings.Contains(err.Error(), "not written") {
		t.Errorf("not measured: %v", err)
	}
	if _, err := os.Stat(s.save); err == nil {
		t.Error("a ring that was not measured is saved")
	}
	if err := s.writeRing(t.Context(), &out, ring(180)); err != nil ||
		!strings.Contains(out.String(), "bus bandwidth") {
		t.Fatalf("%v, %s", err, &out)
	}
	s.compare, s.save = s.save, ""
	before, err := s.readSaved()
	if err != nil || before.Bus == nil || *before.Bus != 180*125e6 {
		t.Fatalf("%+v, %v", before, err)
	}
	for gigabits, worse := range map[float64]bool{179: false, 150: true} {
		now := ring(gigabits)
		now.Compared = suite.Compare(*before, now)
		if err := ringError(now); (err != nil) != worse {
			t.Errorf("%v of 180 Gb/s: %v", gigabits, err)
		}
	}
	s.ring = ringSettings{}
	if _, err := s.readSaved(); err == nil ||
		!strings.Contains(err.Error(), "a ring, and this benchmark is of one peer") {
		t.Errorf("a peer compared with a ring: %v", err)
	}
}
