//go:build lab

package lab

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/bench/suite"
)

// suiteLimit is the maximum time of all benchmarks of the suite here.
const suiteLimit = 2 * time.Minute

// benchSuite runs bench with flags of its suite, including their timeout.
func benchSuite(t *testing.T, flags ...string) (suite.Suite, *process) {
	t.Helper()
	argv := append([]string{railscope, "bench", node(2).control(), "--token-file=/out/token", "--format=json"}, flags...)
	p := node(1).Start(t, argv...)
	begin := time.Now()
	select {
	case <-p.ended:
	case <-time.After(10 * time.Minute):
		t.Fatalf("%q still runs", flags)
	}
	if err := os.WriteFile("/out/bench.json", []byte(p.Stdout), 0o644); err != nil { // for reports
		t.Error(err)
	}
	t.Logf("%q took %v, exit code %d %s", flags, time.Since(begin).Round(time.Second), p.RC, p.Stderr)
	var s suite.Suite
	if err := json.Unmarshal([]byte(p.Stdout), &s); err != nil {
		t.Fatalf("%v; %v", err, p.failure())
	}
	for _, row := range append(s.Rows, s.Sweep...) {
		text := row.Failure
		if row.Goodput != nil {
			text = fmt.Sprintf("%.4f MB/s %s", *row.Goodput/1e6, row.Failure)
		}
		for _, l := range row.Latency {
			text += fmt.Sprintf("; %d B: %d × %.1f, P50 %.1f, P95 %.1f, P99 %.1f µs", l.Bytes, l.Samples, l.Mean*1e6, l.P50*1e6,
				l.P95*1e6, l.P99*1e6)
		}
		t.Logf("%-30s %s", row.Name, text)
	}
	for _, n := range s.Notes {
		t.Log(n)
	}
	return s, p
}

// suiteRow returns the row with a name.
func suiteRow(t *testing.T, rows []suite.Row, name string) suite.Row {
	t.Helper()
	for _, r := range rows {
		if r.Name == name {
			return r
		}
	}
	t.Errorf("no row %q", name)
	return suite.Row{}
}

// TestBenchAll: the table of the tutorials in one run, with what the ports counted, a sweep and a KV cache.
func TestBenchAll(t *testing.T) {
	freshRails(t, 2)
	meet(t, 0, 1)
	for i := range 2 {
		limit(t, i, shape)
	}
	answer(t)
	s, p := benchSuite(t, "--all", "--sweep=64KiB..128KiB", "--kv-cache=1MB")
	if p.RC != 0 || !s.Good {
		t.Errorf("exit code %d, good %v: %s", p.RC, s.Good, s.Verdict)
	}
	if s.Rows[0].Transport != "tcp" { // on a busy machine, one of the two may have no value within its 200 ms
		t.Errorf("no row by TCP: %+v", s.Rows)
	}
	for _, name := range []string{"rail 0, WRITE", "rail 1, WRITE", "all rails, WRITE",
		"rail 0, READ", "rail 1, READ", "all rails, READ"} {
		row := suiteRow(t, s.Rows, name)
		if row.Goodput == nil || row.Speedup == nil || row.Failure != "" {
			t.Errorf("%s: no figure: %+v", name, row)
		}
		for _, part := range row.PerRail {
			if part.CounterBytes == nil || *part.CounterBytes <= 0 {
				t.Errorf("%s: rail %s counted nothing", name, part.Rail)
			}
		}
	}
	if len(s.Sweep) != 2 || len(s.KVCache) != 3 {
		t.Errorf("%d sizes, %d caches", len(s.Sweep), len(s.KVCache))
	}
	for _, row := range s.Sweep {
		if row.Goodput == nil || len(row.Latency) != 1 || row.Latency[0].Bytes != row.Size || len(row.Rails) != 2 {
			t.Errorf("%s: %+v", row.Name, row)
		}
	}
	for _, c := range s.KVCache {
		if c.Seconds == nil {
			if c.Row != "TCP" { // on a busy machine, TCP may have no value
				t.Errorf("%+v", c)
			}
			continue
		}
		t.Logf("%s over %s: %.3f s, %.2f of large messages", c.Model, c.Row, *c.Seconds, *c.Headline)
	}
}

// TestBenchTime: --all takes less than two minutes on two rails, and its goodput equals that of ib_write_bw.
func TestBenchTime(t *testing.T) {
	onlyLong(t) // TestProbeGoodput compares with ib_write_bw
	freshRails(t, 2)
	meet(t, 0, 1)
	for i := range 2 {
		limit(t, i, shape)
	}
	answer(t)
	var theirs, ours [2]float64
	for try := 1; try <= 3; try++ { // other load on the machine can only make either slower
		begin := time.Now()
		s, _ := benchSuite(t, "--all")
		if took := time.Since(begin); took > suiteLimit {
			t.Errorf("--all took %v", took)
		}
		good := true
		for i := range 2 {
			if row := suiteRow(t, s.Rows, fmt.Sprintf("rail %d, WRITE", i)); row.Goodput != nil {
				ours[i] = max(ours[i], *row.Goodput)
			}
			theirs[i] = max(theirs[i], threeSeconds(i, shape).send(t))
			off := ours[i]/theirs[i] - 1
			t.Logf("rail %d: %.4f of ib_write_bw", i, ours[i]/theirs[i])
			good = good && off > -0.03 && off < 0.03
		}
		if good {
			return
		}
	}
	t.Error("more than 3 % off ib_write_bw")
}

// TestBenchCompare: a rail that is shaped after a run was saved is worse, and the other one is not.
func TestBenchCompare(t *testing.T) {
	onlyLong(t) // TestCompare of bench/suite covers it
	freshRails(t, 2)
	meet(t, 0, 1)
	for i := range 2 {
		limit(t, i, shape)
	}
	answer(t)
	const saved = "/out/saved.json"
	benchSuite(t, "--save="+saved)
	if _, err := os.Stat(filepath.Clean(saved)); err != nil {
		t.Error(err)
	}
	limit(t, 1, "20mbit")
	s, p := benchSuite(t, "--compare="+saved)
	worse := ""
	for _, c := range s.Compared {
		t.Logf("%+v", c)
		if c.Worse() {
			worse += c.Name + "; "
		}
	}
	if p.RC != 1 || !strings.Contains(worse, "rail 1, WRITE") || strings.Contains(worse, "rail 0, WRITE") {
		t.Errorf("exit code %d, worse: %s", p.RC, worse)
	}
}

// TestRing: two nodes stream to each other concurrently. A node that does not allow it does not take part.
func TestRing(t *testing.T) {
	onlyLong(t) // TestRingOfThree of probe covers it
	freshRails(t, 2)
	meet(t, 0, 1)
	for i := range 2 {
		limit(t, i, shape)
	}
	for _, n := range []node{1, 2} {
		keys := []string{listens, withToken, fmt.Sprintf("peers: [%s]", (3 - n).control()), "interval: 24h",
			"allow_ring: true"}
		serve(t, n, config(t, n, keys...))
	}
	p := node(1).Start(t, railscope, "bench", node(1).control(), node(2).control(), "--token-file=/out/token",
		"--all-reduce=1MB", "--format=json")
	select {
	case <-p.ended:
	case <-time.After(5 * time.Minute):
		t.Fatal("the ring still runs")
	}
	t.Logf("exit code %d %s%s", p.RC, p.Stdout, p.Stderr)
	var r struct {
		Seconds   float64
		Predicted float64 `json:"predicted_seconds"`
	}
	if err := json.Unmarshal([]byte(p.Stdout), &r); err != nil || p.RC != 0 || r.Seconds <= 0 || r.Predicted <= 0 {
		t.Errorf("%v, %+v", err, r)
	}
}
