//go:build lab

package lab

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// roundTime exceeds the duration of any round here, including all its timeouts.
const roundTime = 100 * time.Second

// small are the flags of rounds in tests that do not measure speed.
var small = []string{"--latency-samples=50", "--burst=1ms"}

// longBursts makes each burst last 2 to 3 s at the rates of the lab: 64 writes of 144 KiB, and 3 s at most.
const longBursts = "--burst=30ms"

// report is the part of `railscope bench --format=json` that tests use.
type report struct {
	Outcome   string
	Transport string
	Reason    string
	Detail    string
	Verified  bool
	Striped   float64 `json:"stealing_bytes_per_second"`
	Static    float64 `json:"static_bytes_per_second"`
	Imbalance float64 `json:"imbalance_ratio"`
	Scaling   float64 `json:"scaling_ratio"`
	Skew      float64 `json:"finish_skew_ratio"`
	TCP       float64 `json:"tcp_bytes_per_second"`
	Duration  float64 `json:"duration_seconds"`
	Rails     []struct {
		Rail    string
		PathMTU int `json:"path_mtu_bytes"`
		Latency struct {
			Samples       int
			Min, P50, P99 float64
		} `json:"latency_seconds"`
		Solo         float64 `json:"solo_bytes_per_second"`
		StripedBytes int64   `json:"stealing_bytes"`
		Striped      float64 `json:"stealing_bytes_per_second"`
		CounterBytes int64   `json:"counter_bytes"`
		Loss         *struct {
			Retransmits, Packets int64
			PeerEvents           *int64 `json:"peer_events"`
		}
		Failure    *fault
		NotStriped *fault `json:"striped_failure"`
	}
	Failures []fault
	Findings []finding
	Extras   []extra

	code   int    // exit code
	stderr string // standard error
}

type finding struct {
	Check, Severity, Subject, Evidence string
	Fix                                []string
}

type fault struct{ Rail, Stage, Reason, Detail string }

func (f fault) String() string {
	return fmt.Sprintf("rail %q: %s: %s: %s", f.Rail, f.Stage, f.Reason, f.Detail)
}

func (r report) String() string {
	return fmt.Sprintf("%s by %s in %.1f s, exit code %d, %q %q, failures %v %s", r.Outcome, r.Transport, r.Duration,
		r.code, r.Reason, r.Detail, r.Failures, r.stderr)
}

// config writes a configuration with a probe for a node, one key per line, and returns the flag that names it.
func config(t *testing.T, n node, keys ...string) string {
	t.Helper()
	if !slices.ContainsFunc(keys, func(k string) bool { return strings.HasPrefix(k, "events:") }) {
		keys = append(keys, "events: false") // one worker process, and no device that stays open
	}
	file := fmt.Sprintf("/out/probe%d.yaml", n)
	for path, text := range map[string]string{"/out/token": "sesame\n",
		file: "probe:\n  " + strings.Join(keys, "\n  ") + "\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return "--config.file=" + file
}

// Keys that a configuration needs to answer, and to be answered.
const (
	listens   = "listen: 0.0.0.0:10092"
	withToken = "token_file: /out/token"
	target    = "192.168.200.2:10092" // the peer as a label value
)

// answer makes node 2 answer probes until the test ends. Then nothing of any round may be left in either node, and
// railscope must still serve.
func answer(t *testing.T, keys ...string) *exporter {
	t.Helper()
	e := serve(t, 2, config(t, 2, append([]string{listens, withToken}, keys...)...), "--log.level=debug")
	t.Cleanup(func() { leavesNothing(t, e) })
	return e
}

// leavesNothing waits until there is neither a lease nor a queue pair, region, completion queue, protection domain
// or open device that is not the kernel's own.
func leavesNothing(t *testing.T, e *exporter) {
	t.Helper()
	e.shows(t, want{"probe_leases": 0})
	for _, n := range []node{1, 2} {
		eventually(t, linkTime, func() error { return n.unused(t) })
	}
}

func (n node) unused(t *testing.T) error {
	for _, line := range lines(n.Run(t, "rdma", "resource", "show")) {
		if line != "" && !strings.Contains(line, " pd 1 cq 1 qp 1 cm_id 0 mr 0 ctx 0") {
			return fmt.Errorf("node %d: something is left: %s", n, line)
		}
	}
	return nil
}

// bench makes one round from node 1 to node 2, which answers.
func bench(t *testing.T, flags ...string) report {
	t.Helper()
	return ended(t, startBench(t, flags...))
}

// startBench starts one round; ended waits for its end.
func startBench(t *testing.T, flags ...string) *process {
	t.Helper()
	argv := []string{railscope, "bench", node(2).control(), "--token-file=/out/token", "--timeout=90s"}
	if !slices.Contains(flags, "--format=table") {
		argv = append(argv, "--format=json")
	}
	return node(1).Start(t, append(argv, flags...)...)
}

func ended(t *testing.T, p *process) report {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(roundTime):
		t.Fatalf("node %d: bench still runs after %v", p.node, roundTime)
	}
	r := report{code: p.RC, stderr: p.Stderr}
	if err := json.Unmarshal([]byte(p.Stdout), &r); err != nil {
		t.Fatalf("bench printed no report: %v; %v", err, p.failure())
	}
	t.Log(r)
	return r
}

// is checks outcome, transport and reason of a round.
func (r report) is(t *testing.T, outcome, transport, reason string) {
	t.Helper()
	if r.Outcome != outcome || r.Transport != transport || r.Reason != reason || !r.exits() || r.Verified !=
		(transport != "none") {
		t.Errorf("want %s by %s, reason %q, its exit code, and verified; got: %v", outcome, transport, reason, r)
	}
}

// exits reports whether the exit code is that of the outcome. A good round of which a burst was disturbed, as on
// emulated processors, is incomplete: 3.
func (r report) exits() bool {
	if r.Outcome == "ok" {
		return r.code == 0 || r.code == 3
	}
	return r.code == 1
}

// byRDMA reports whether a round used RDMA over all rails, at any speed: without shaping, two processors decide how
// even they are.
func (r report) byRDMA() bool {
	return (r.Outcome == "ok" || r.Outcome == "degraded") && r.exits() && r.Transport == "rdma" && r.Verified &&
		len(r.Failures) == 0
}

// worked checks that the round used RDMA over all rails.
func (r report) worked(t *testing.T) {
	t.Helper()
	if !r.byRDMA() {
		t.Errorf("want a round by RDMA over all rails; got: %v", r)
	}
}

// found checks that the report has a finding of a check.
func (r report) found(t *testing.T, check, subject string) {
	t.Helper()
	for _, f := range r.Findings {
		if f.Check == check && f.Subject == subject && f.Severity != "info" && f.Evidence != "" && len(f.Fix) > 0 {
			return
		}
	}
	t.Errorf("want %s of %s; got: %+v", check, subject, r.Findings)
}

// has checks that the report has a failure with these values.
func (r report) has(t *testing.T, rail, stage string, reasons ...string) {
	t.Helper()
	if !slices.ContainsFunc(r.Failures, func(f fault) bool {
		return f.Rail == rail && f.Stage == stage && slices.Contains(reasons, f.Reason)
	}) {
		t.Errorf("want a failure of rail %q at %s: %v; got: %v", rail, stage, reasons, r.Failures)
	}
}

// sent returns the number of bytes that a node has sent over a rail.
func (n node) sent(t *testing.T, rail int) int {
	t.Helper()
	v, err := strconv.Atoi(strings.TrimSpace(n.Run(t, "cat", fmt.Sprintf("/sys/class/net/eth%d/statistics/tx_bytes",
		rail))))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// carries waits until node 1 has sent that many bytes over a rail since before, while the round runs.
func carries(t *testing.T, p *process, rail, before, bytes int) {
	t.Helper()
	eventually(t, roundTime, func() error {
		if !p.Running() {
			t.Fatalf("the round ended before: %s%s", p.Stdout, p.Stderr)
		}
		if sent := node(1).sent(t, rail) - before; sent < bytes {
			return fmt.Errorf("rail %d carried %d bytes of %d", rail, sent, bytes)
		}
		return nil
	})
}

// workerOf returns the process in which an exporter or a bench uses libibverbs.
func workerOf(t *testing.T, p *process) string {
	t.Helper()
	return strings.TrimSpace(p.node.Run(t, "pgrep", "-P", strconv.Itoa(p.PID)))
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// quiet returns a value from a moment in which the emulated CPUs were not late.
func quiet(v []float64) float64 { return slices.Sorted(slices.Values(v))[1] }

// probed waits until that many more rounds were made, and a scrape shows what is expected.
func (e *exporter) probed(t *testing.T, rounds int, w want) metrics {
	t.Helper()
	start := e.scrape(t).rounds()
	var m metrics
	eventually(t, roundTime, func() error {
		m = e.scrape(t)
		if made := m.rounds() - start; made < rounds {
			return fmt.Errorf("%d of %d rounds", made, rounds)
		}
		return w.check(m)
	})
	return m
}

// rounds returns the number of rounds of an exporter.
func (e *exporter) rounds(t *testing.T) int {
	t.Helper()
	return e.scrape(t).rounds()
}

// rounds returns the number of rounds.
func (m metrics) rounds() (n int) {
	for _, s := range m.find("probe_rounds_total") {
		n += int(s.value)
	}
	return n
}
