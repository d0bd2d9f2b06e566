//go:build lab

package lab

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// long enables tests that take longer than CI allows. run.sh writes "test." before every flag.
var long = flag.Bool("test.long", false,
	"ten minutes of health by the rules as they are shipped, every fault, and what takes long")

// onlyLong skips a test that a shorter test also covers, or that measures for long.
func onlyLong(t *testing.T) {
	t.Helper()
	if !*long {
		t.Skip("only with -long")
	}
}

// healthyFor is the time for which two healthy nodes must not fire an alert.
var healthyFor = flag.Duration("test.healthy", 10*time.Minute, "how long TestAlertsHealthy watches")

// A minute of hastened rules is a second. railscope's own times are unchanged.
const minute = time.Second

// terms are the settings of a watch: the rate to which both rails are shaped, how the nodes probe each other, and
// how Prometheus scrapes and evaluates.
type terms struct {
	rate             string
	probe            []string // keys of the configuration
	scrape, evaluate time.Duration
	rules            string // pattern of rule files
	flags            []string
}

// shipped returns the terms of docs/alerts.md. A probe gives way to other traffic at the default fraction of what a
// rail carries: 1/5 of 30 Mbit/s here, not of the 2.5 Gb/s that RDMA takes for its capacity.
func shipped() terms {
	return terms{shape, []string{"busy_above: 0.0024"}, 15 * time.Second, 15 * time.Second, "/out/rules/*.yml", nil}
}

// hastened returns terms in which a minute is a second. Rails carry so little that emulated CPUs, which others also
// use, are not the limit. All rounds are full ones, because a solo is valid until the next one and a single solo
// proves nothing. They are short enough for two of them in each interval.
func hastened(t *testing.T) terms {
	return terms{"12mbit", []string{"busy_above: 0.001", "interval: 8s", "burst: 2ms", "depth: 8",
		"latency_samples: 50", "solo_every: 1", "budget: 64GiB/h"}, 2 * time.Second, minute, hasten(t),
		[]string{"--query.lookback-delta=5s"}}
}

// watch is two nodes with all of railscope enabled that probe each other, and a Prometheus in node 2 that scrapes
// both and evaluates the rules.
type watch struct {
	terms
	t         *testing.T // everything ends with this test
	exporters [3]*exporter
	since     time.Time
}

// startWatch shapes both rails equally, starts railscope in both nodes, and Prometheus.
func startWatch(t *testing.T, c terms) *watch {
	t.Helper()
	freshRails(t, 2)
	slowRails(t)
	for _, n := range []node{1, 2} {
		n.Shell(t, "ip link set eth0 mtu 16000; mkdir -p /tmp/nccl") // as in TestSamplerFallback
	}
	meet(t, 0, 1)
	w := &watch{terms: c, t: t}
	for _, n := range []node{1, 2} {
		limit(t, int(n)-1, c.rate)
		w.start(t, n)
	}
	startPrometheus(t, c.scrape, c.evaluate, c.rules, []node{1, 2}, c.flags...)
	eventually(t, commandTime, func() error { // hastened rules report a missing railscope two seconds after the start
		if n := len(vector(t, "up == 1")); n != 2 {
			return fmt.Errorf("Prometheus has scraped %d nodes of 2", n)
		}
		return nil
	})
	w.quiet(t)
	w.since = time.Now()
	return w
}

// start starts railscope in a node, optionally after a command.
func (w *watch) start(t *testing.T, n node, before ...string) {
	t.Helper()
	argv := append(before, railscope, "serve", w.config(t, n), "--source.nccl", "--nccl.log=/tmp/nccl/*.log",
		"--log.level=debug")
	e := &exporter{node: n, process: n.Start(w.t, argv...)}
	w.exporters[n] = e
	w.t.Cleanup(func() {
		if w.exporters[n] != e {
			return // it was meant to end earlier
		}
		e.scrape(w.t)
		if said := w.stop(w.t, n); w.t.Failed() {
			w.t.Logf("node %d: railscope said:\n%s", n, said)
		}
	})
	eventually(t, commandTime, func() error {
		if !e.process.Running() {
			return fmt.Errorf("node %d: railscope ended: %w", n, e.process.failure())
		}
		_, err := fetch(e.url())
		return err
	})
}

func (w *watch) config(t *testing.T, n node) string {
	t.Helper()
	return config(t, n, append([]string{listens, withToken, "peers: [" + node(3-n).control() + "]"}, w.probe...)...)
}

// stop ends railscope in a node and returns its output.
func (w *watch) stop(t *testing.T, n node) string {
	t.Helper()
	e := w.exporters[n]
	e.process.Stop(t)
	return e.process.Stderr
}

// restart is stop and start.
func (w *watch) restart(t *testing.T, n node, before ...string) {
	t.Helper()
	w.stop(t, n)
	w.start(t, n, before...)
}

// probed waits until both nodes have probed each other by RDMA, over each rail.
func (w *watch) probed(t *testing.T) {
	t.Helper()
	for _, n := range []node{1, 2} {
		w.exporters[n].probed(t, 1,
			want{`probe_transport{transport="rdma"}`: 1,
				`probe_rail_goodput_bytes_per_second{rail="0",mode="solo"}`: some,
				`probe_rail_goodput_bytes_per_second{rail="1",mode="solo"}`: some})
	}
}

// alerts returns the alerts that were in a state since, in the format of the tables: severity, name without
// Railscope, node.
func (w *watch) alerts(t *testing.T, state string, since time.Time) (all []string) {
	t.Helper()
	for _, s := range w.history(t, state, since) {
		all = append(all, written(s.labels))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// history returns the alerts that were in a state since, and the number of evaluations, except RailscopeFinding:
// links of the lab went down before, and MTUs differ on purpose.
func (w *watch) history(t *testing.T, state string, since time.Time) metrics {
	t.Helper()
	return vector(t, fmt.Sprintf(`count_over_time(ALERTS{alertname!="RailscopeFinding",alertstate=%q}[%ds])`, state,
		max(1, int(time.Since(since).Seconds()))))
}

func written(alert map[string]string) string {
	node := regexp.MustCompile(`\d:10091$`).FindString(alert["instance"])
	return strings.TrimSpace(fmt.Sprintf("%s %s %.1s", alert["severity"],
		strings.TrimPrefix(alert["alertname"], "Railscope"), node))
}

// quiet waits until no alert is left, not even a pending one.
func (w *watch) quiet(t *testing.T) {
	t.Helper()
	eventually(t, 3*time.Minute, func() error {
		var left []string
		for _, s := range vector(t, `ALERTS{alertname!="RailscopeFinding"}`) {
			left = append(left, s.labels["alertstate"]+" "+written(s.labels))
		}
		if left != nil {
			return fmt.Errorf("there still are: %s", strings.Join(left, ", "))
		}
		return nil
	})
}

// bad fails if rules could not be evaluated.
func (w *watch) bad(t *testing.T) {
	t.Helper()
	for _, s := range vector(t, `prometheus_rule_evaluation_failures_total > 0`) {
		t.Errorf("rules that could not be evaluated: %v %v", s.labels, s.value)
	}
}

// TestAlertsHealthy: two healthy nodes with traffic like a training job, equal bursts on both rails with idle times
// between them, have no finding, and no alert fires by the rules as shipped.
func TestAlertsHealthy(t *testing.T) {
	if !*long {
		t.Skip("ten minutes: -long; TestAlertsFaults begins with hastened ones")
	}
	w := startWatch(t, shipped())
	w.train(t, *healthyFor)
	for n := 1; n <= 2; n++ {
		if w.exporters[n].rounds(t) < 8 {
			t.Errorf("node %d: %d rounds in %v prove little", n, w.exporters[n].rounds(t), *healthyFor)
		}
	}
	// The lab's rails differ: startWatch gives one of them a larger MTU.
	const found = `count_over_time(railscope_finding{severity!="info",check!="mtu_unlike"}[%.0fs])`
	for _, s := range vector(t, fmt.Sprintf(found, time.Since(w.since).Seconds())) {
		t.Errorf("found in %v scrapes: %v", s.value, s.labels)
	}
	w.healthy(t)
}

// train sends equal bursts over both rails like a training job: 5 s of traffic, and then none for up to 6 s.
func (w *watch) train(t *testing.T, long time.Duration) {
	t.Helper()
	job := startFlow(t, 0, 1)
	defer job.stop()
	before, bursts := [2]int{node(1).sent(t, 0), node(1).sent(t, 1)}, 0
	for end := time.Now().Add(long); time.Now().Before(end); bursts++ {
		job.signal(t, "CONT")
		time.Sleep(min(time.Until(end), 5*time.Second))
		job.signal(t, "STOP")
		time.Sleep(min(time.Until(end), time.Duration(bursts%4)*2*time.Second))
	}
	for rail := range 2 {
		mb := float64(node(1).sent(t, rail)-before[rail]) / 1e6
		t.Logf("rail %d: %d bursts of %.1f MB in %v", rail, bursts, mb/float64(bursts), long)
		if mb/long.Seconds() < 0.3 {
			t.Errorf("rail %d carried %.1f MB in %v: that nothing fires proves little", rail, mb, long)
		}
	}
}

// healthy checks that no alert has fired since the watch began. With rules that are not hastened, no alert may have
// been pending for more than half of its waiting time. It logs the pending ones.
func (w *watch) healthy(t *testing.T) {
	t.Helper()
	w.bad(t)
	fired := w.alerts(t, "firing", w.since)
	if w.evaluate == minute { // hastened rules
		slow := w.slowRounds(t)
		fired = slices.DeleteFunc(fired, func(alert string) bool {
			return starved(alert) || slow && strings.Contains(alert, " ProbeFailing ")
		})
	}
	if len(fired) > 0 {
		t.Errorf("healthy nodes fire: %s", strings.Join(fired, ", "))
	}
	after := map[string]time.Duration{}
	var rules struct {
		Data struct {
			Groups []struct {
				Rules []struct {
					Name     string
					Type     string
					Duration float64
				}
			}
		}
	}
	text, err := fetch(api("api/v1/rules"))
	if err == nil {
		err = json.Unmarshal([]byte(text), &rules)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range rules.Data.Groups {
		for _, r := range g.Rules {
			if r.Type == "alerting" {
				after[r.Name] = time.Duration(r.Duration * float64(time.Second))
			}
		}
	}
	if len(after) < 26 {
		t.Errorf("Prometheus has only %d alerts", len(after))
	}
	pended := w.history(t, "pending", w.since)
	for _, s := range pended {
		pending, due := time.Duration(s.value)*w.evaluate, after[s.labels["alertname"]]
		t.Logf("pended: %s rail %s, for %v in all; it fires after %v", written(s.labels), s.labels["rail"],
			pending, due)
		if w.evaluate != minute && pending > max(due/2, 2*w.evaluate) {
			t.Errorf("%s pended for %v of healthy nodes' time, and would fire after %v", written(s.labels),
				pending, due)
		}
	}
	t.Logf("%d alerts watched for %.0f s: none fired, %d pended", len(after), time.Since(w.since).Seconds(),
		len(pended))
}

// slowRounds reports whether a round of healthy nodes did not finish within its time, because the emulated CPUs were
// starved: with hastened rules a second of that is a minute.
func (w *watch) slowRounds(t *testing.T) bool {
	t.Helper()
	list := vector(t, fmt.Sprintf(`max_over_time(railscope_probe_failures_total{stage="release",reason="timeout"}[%ds]) > 0`,
		max(1, int(time.Since(w.since).Seconds()))))
	for _, s := range list {
		t.Logf("%v rounds took too long: %v", s.value, s.labels)
	}
	return len(list) > 0
}

// hasten rewrites the shipped rules with a second for every minute, and returns the pattern of their files.
func hasten(t *testing.T) string {
	t.Helper()
	duration := regexp.MustCompile(`(\[|for: |interval: |offset )(\d+)([mhd])\b`)
	units := map[string]time.Duration{"m": minute, "h": 60 * minute, "d": 24 * 60 * minute}
	files, err := filepath.Glob("/out/rules/*.yml")
	if err != nil || len(files) != 3 {
		t.Fatalf("rules: %v, %v", files, err)
	}
	if err := os.MkdirAll("/out/hastened", 0o755); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		hastened := duration.ReplaceAllStringFunc(string(text), func(s string) string {
			m := duration.FindStringSubmatch(s)
			var n int
			fmt.Sscan(m[2], &n)
			return fmt.Sprintf("%s%ds", m[1], int(math.Round((time.Duration(n) * units[m[3]]).Seconds())))
		})
		hastened = strings.NewReplacer("vector(600)", "vector(10)", "_seconds < 900", "_seconds < 15", "\"} < 2400",
			"\"} < 40", "86400 *", "1440 *", "time() - 86400", "time() - 1440", "time() - 300", "time() - 5").
			Replace(hastened)
		all.WriteString(hastened)
		if err := os.WriteFile(filepath.Join("/out/hastened", filepath.Base(file)), []byte(hastened),
			0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, holds := range []string{"[30s]", "for: 5s", "interval: 4s", "[120s]", "offset 15s", "_seconds < 15\n",
		"\"} < 40\n", "vector(10)", "time() - 5 > time() - 1440"} {
		if !strings.Contains(all.String(), holds) {
			t.Fatalf("hastened rules have no %q", holds)
		}
	}
	return "/out/hastened/*.yml"
}
