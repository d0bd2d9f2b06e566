//go:build lab

package lab

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// step is one step of a job: the same number of messages over both rails, at once. It returns the time that the slower
// rail needed, by what the benchmark says of its own transfer.
func step(t *testing.T, messages int) time.Duration {
	t.Helper()
	slowest := time.Duration(0)
	var ends []func() float64
	b := burst{size: 64 << 10, depth: 8, messages: messages}
	for b.rail = range 2 {
		ends = append(ends, b.start(t))
	}
	for _, end := range ends {
		took := time.Duration(float64(messages*b.size) / end() * float64(time.Second))
		slowest = max(slowest, took)
	}
	return slowest
}

// TestJobInSteps measures the steps of a job over both rails with and without the probe beside it, in turn, and which
// signal names a rail that is cut to a third meanwhile. It checks no time: the nodes are emulated. The counters of
// Soft-RoCE are updated every 2 s, so no burst is made in a gap here.
func TestJobInSteps(t *testing.T) {
	onlyLong(t)
	freshRails(t, 2)
	meet(t, 0, 1)
	for rail := range 2 {
		limit(t, rail, shape)
	}
	const messages, perBlock, blocks = 120, 12, 8
	// Soft-RoCE says 10 Gb/s: above this share of it, the shaped rails are busy while a step lasts.
	const shy = "busy_above: 0.0005"
	answer(t, "interval: 10s", shy)
	times := map[bool][]time.Duration{}
	begin := time.Now()
	for block := range blocks {
		beside := block%2 == 1
		var e *exporter
		if beside {
			e = serve(t, 1, config(t, 1, withToken, "peers: [192.168.200.2]", "interval: 10s", shy))
			e.probed(t, 0, want{})
		}
		for range perBlock {
			times[beside] = append(times[beside], step(t, messages))
		}
		if beside {
			m := e.scrape(t)
			t.Logf("rounds: reached %v, ok %v, skipped %v; bursts not made: %v",
				m.must(t, `probe_rounds_total{result="reached"}`), m.must(t, `probe_rounds_total{result="ok"}`),
				m.must(t, `probe_rounds_total{result="skipped"}`), m.find(`probe_bursts_skipped_total`))
			e.process.Stop(t)
			e.replaced = true
		}
	}
	for _, beside := range []bool{false, true} {
		list := times[beside]
		slices.Sort(list)
		t.Logf("beside the probe: %v; %d steps: median %v, 90 %% %v, worst %v", beside, len(list), list[len(list)/2],
			list[len(list)*9/10], list[len(list)-1])
	}
	t.Logf("in %v", time.Since(begin).Round(time.Second))

	e := serve(t, 1, config(t, 1, withToken, "peers: [192.168.200.2]", "interval: 10s", shy))
	for range 3 {
		step(t, messages)
	}
	var rate int
	if _, err := fmt.Sscanf(shape, "%dmbit", &rate); err != nil {
		t.Fatal(shape, err)
	}
	limit(t, 1, fmt.Sprintf("%dkbit", rate*1000/3))
	cut, seen := time.Now(), map[string]time.Duration{}
	for time.Since(cut) < 7*time.Minute {
		step(t, messages)
		for _, s := range e.scrape(t) {
			if strings.TrimPrefix(s.name, "railscope_") == "finding" && s.value == 1 {
				key := s.labels["check"] + " " + s.labels["subject"]
				if _, known := seen[key]; !known {
					seen[key] = time.Since(cut).Round(time.Second)
				}
			}
		}
	}
	t.Logf("a rail cut to a third: %v", seen)
}
