package process

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/collector"
)

// pods returns the labels pod and container of the GPU memory of a source.
func pods(p *Source) []string {
	var list []string
	_ = p.Read(func(s collector.Sample) {
		if s.Metric.Name == "process_gpu_memory_bytes" {
			list = append(list, fmt.Sprintf("%s %s %s", s.Labels[0], s.Labels[1], s.Labels[2]))
		}
	})
	slices.Sort(list)
	return list
}

// TestProcessPodNames: the kubelet's logs name pods and containers; otherwise UID and ID do. A fault is reported
// while logs that name an owner cannot be read.
func TestProcessPodNames(t *testing.T) {
	m := capture(t, "kubernetes")
	p := m.source(0)
	broken := func() bool {
		return slices.ContainsFunc(processLines(p), func(line string) bool { return strings.HasPrefix(line, "fault") })
	}
	if broken() {
		t.Error("a fault of a container without logs")
	}
	if got := pods(p); !slices.Contains(got, "0 default/train-0 trainer") {
		t.Errorf("%q", got)
	}
	logs := filepath.Join(m.dir, "var/log/containers")
	if err := errors.Join(os.Rename(logs, logs+".moved"), os.WriteFile(logs, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	p.names.read = time.Time{} // let the last read expire
	if !broken() {
		t.Error("no fault while a container has no name and logs cannot be read")
	}
	pairs, gpus := m.kernel.qps, m.nvml.gpus
	m.kernel.qps, m.nvml.gpus, p.pairs.last = nil, nil, nil // force the lists to be read again
	if broken() {
		t.Error("a fault of names that are not needed any more")
	}
	m.kernel.qps, m.nvml.gpus = pairs, gpus
	if err := errors.Join(os.Remove(logs), os.Rename(logs+".moved", logs)); err != nil {
		t.Fatal(err)
	}
	for _, log := range []string{"vllm-7d9f_serving_server-" + strings.Repeat("deadbeef", 8),
		"cuda-0_batch_main-" + strings.Repeat("0123456789abcdef", 4)} {
		if err := os.WriteFile(filepath.Join(logs, log+".log"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p.names.read = time.Time{}
	if broken() {
		t.Error("a fault of names that are all known")
	}
	if got := pods(p); !slices.Contains(got, "2 serving/vllm-7d9f server") {
		t.Errorf("%q", got)
	}
}

// TestProcessLimit: the series with the largest values are named, the rest is summed as other, and series near the
// limit do not flap.
func TestProcessLimit(t *testing.T) {
	row := &collector.Metric{Name: "r", Labels: []string{"a", "b"}}
	k := newSeriesKeeper(row)
	flush := func(limit int, values map[string]float64) []string {
		for name, v := range values {
			k.add(v/2, name, "x")
			k.add(v/2, name, "x")
		}
		k.add(math.NaN(), "unknown", "x")
		var got []string
		k.flush(limit, func(s collector.Sample) { got = append(got, fmt.Sprintf("%v%v", s.Labels, s.Value)) })
		return got
	}
	same(t, []string{"[c x]5", "[d x]9", "[other other]3"},
		flush(3, map[string]float64{"a": 1, "b": 2, "c": 5, "d": 9}))
	same(t, []string{"[c x]5", "[d x]9", "[other other]9"},
		flush(3, map[string]float64{"a": 1, "b": 8, "c": 5, "d": 9}))
	same(t, []string{"[b x]11", "[d x]9", "[other other]6"},
		flush(3, map[string]float64{"a": 1, "b": 11, "c": 5, "d": 9}))
	same(t, []string{"[a x]1", "[b x]1", "[c x]1"}, flush(3, map[string]float64{"a": 1, "b": 1, "c": 1}))
	same(t, []string{"[a x]1", "[other other]3"}, flush(2, map[string]float64{"a": 1, "b": 1, "c": 1, "d": 1}))
	same(t, []string{"[other other]2"}, flush(1, map[string]float64{"a": 1, "b": 1}))
	same(t, nil, flush(1, nil))
	// The owners that a dump has already summed are part of the one series other.
	summed := func(limit int, values map[string]float64) []string {
		k.add(100, k.overflow...)
		return flush(limit, values)
	}
	same(t, []string{"[c x]5", "[d x]9", "[other other]103"},
		summed(3, map[string]float64{"a": 1, "b": 2, "c": 5, "d": 9}))
	same(t, []string{"[c x]5", "[d x]9", "[other other]100"}, summed(3, map[string]float64{"c": 5, "d": 9}))
	same(t, []string{"[d x]9", "[other other]105"}, summed(2, map[string]float64{"c": 5, "d": 9}))
	same(t, []string{"[other other]100"}, summed(2, nil))
}
