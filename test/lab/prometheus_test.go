//go:build lab

package lab

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Debian's package, unpacked by prepare.sh.
var (
	prometheus = os.Getenv("LAB") + "/prometheus/usr/bin/prometheus"
	promtool   = os.Getenv("LAB") + "/prometheus/usr/bin/promtool"
)

const (
	scrapeInterval = 2 * time.Second
	scrapeFor      = 10 * time.Second
)

// TestPrometheus: a real Prometheus in node 2 scrapes node 1 for 10 s, while rails carry traffic and go down.
func TestPrometheus(t *testing.T) {
	freshRails(t, 2)
	meet(t, 0)
	e := serve(t, 1)
	checkFormat(t, e)

	p := startPrometheus(t, scrapeInterval, scrapeInterval, "", []node{1})
	for end := time.Now().Add(scrapeFor); time.Now().Before(end); {
		burst{rail: 0, messages: 20, size: 64 << 10}.send(t)
		node(1).Run(t, "ip", "link", "set", "eth1", "down")
		e.shows(t, want{`port_up{rail="1"}`: 0})
		node(1).Run(t, "ip", "link", "set", "eth1", "up")
		e.shows(t, want{`port_up{rail="1"}`: 1})
	}

	samples := one(t, "count_over_time(up[30s])")
	ups := one(t, "sum_over_time(up[30s])")
	t.Logf("%v of %v scrapes were good; the longest took %.3f s", ups, samples,
		one(t, "max_over_time(scrape_duration_seconds[30s])"))
	if least := scrapeFor.Seconds()/scrapeInterval.Seconds() - 1; ups != samples || samples < least {
		t.Errorf("up was 1 in %v of %v scrapes, want all of at least %v", ups, samples, least)
	}
	for rail := range 2 {
		if missed := one(t, fmt.Sprintf(`scalar(count_over_time(up[30s])) - `+
			`count_over_time(railscope_port_up{rail="%d"}[30s])`, rail)); missed != 0 {
			t.Errorf("rail %d is missing in %v scrapes", rail, missed)
		}
	}
	if got := one(t, `increase(railscope_port_transmit_bytes_total{rail="0"}[30s])`); got <= 0 {
		t.Errorf("Prometheus saw the bytes of rail 0 rise by %v", got)
	}
	checkTargets(t)
	e.scrape(t)
	p.Stop(t)
	for _, line := range lines(p.Stderr) { // at level warn it logs samples that it dropped
		if line != "" && !strings.Contains(line, "Received SIGTERM") {
			t.Errorf("Prometheus said: %s", line)
		}
	}
}

// startPrometheus returns when node 2's Prometheus has scraped each of the nodes once. It evaluates the rules in
// files that match a pattern, if there is one.
func startPrometheus(t *testing.T, scrape, evaluate time.Duration, rules string, nodes []node,
	flags ...string) *process {
	t.Helper()
	var targets []string
	for _, n := range nodes {
		targets = append(targets, strconv.Quote(n.control()+":10091"))
	}
	node(2).Shell(t, fmt.Sprintf(`cat >/tmp/prometheus.yml <<-end
	global: {scrape_interval: %[1]s, scrape_timeout: %[1]s, evaluation_interval: %[2]s}
	rule_files: [%[3]s]
	scrape_configs: [{job_name: railscope, static_configs: [{targets: [%[4]s]}]}]
end
rm -rf /tmp/prometheus`, scrape, evaluate, rules, strings.Join(targets, ", ")))
	p := node(2).Start(t, append([]string{prometheus, "--config.file=/tmp/prometheus.yml",
		"--storage.tsdb.path=/tmp/prometheus",
		"--web.listen-address=" + node(2).control() + ":9090", "--log.level=warn"}, flags...)...)
	eventually(t, time.Minute, func() error {
		if !p.Running() {
			return fmt.Errorf("Prometheus ended: %w", p.failure())
		}
		if _, err := fetch(api("-/ready")); err != nil {
			return err
		}
		if got := len(query(t, "up == 1")); got != len(nodes) {
			return fmt.Errorf("Prometheus has scraped %d nodes of %d", got, len(nodes))
		}
		return nil
	})
	return p
}

// checkTargets checks that Prometheus reports no errors.
func checkTargets(t *testing.T) {
	t.Helper()
	var targets struct {
		Data struct {
			ActiveTargets []struct{ Health, LastError string }
		}
	}
	answer, err := fetch(api("api/v1/targets"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(answer), &targets); err != nil {
		t.Fatal(err)
	}
	if len(targets.Data.ActiveTargets) != 1 || targets.Data.ActiveTargets[0].Health != "up" ||
		targets.Data.ActiveTargets[0].LastError != "" {
		t.Errorf("targets: %s", answer)
	}
}

// checkFormat runs promtool on a scrape, which must have no complaint.
func checkFormat(t *testing.T, e *exporter) {
	t.Helper()
	text, err := fetch(e.url())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("/out/scrape.txt", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	res, err := node(1).Try("bash", "-c", promtool+" check metrics </out/scrape.txt")
	if said := res.Stdout + res.Stderr; err != nil || said != "" {
		t.Errorf("promtool check metrics: %v\n%s", err, said)
	}
}

func api(path string) string { return "http://" + node(2).control() + ":9090/" + path }

// one is like query, for an expression with one value.
func one(t *testing.T, expr string) float64 {
	t.Helper()
	values := query(t, expr)
	if len(values) != 1 {
		t.Fatalf("%s has %d values, want 1", expr, len(values))
	}
	return values[0]
}

// query sends an instant query to Prometheus and returns the values.
func query(t *testing.T, expr string) (values []float64) {
	t.Helper()
	for _, s := range vector(t, expr) {
		values = append(values, s.value)
	}
	return values
}

// vector sends an instant query to Prometheus and returns the vector.
func vector(t *testing.T, expr string) (all metrics) {
	t.Helper()
	text, err := fetch(api("api/v1/query?query=" + url.QueryEscape(expr)))
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Fatal(err)
	}
	for _, r := range answer.Data.Result {
		v, err := strconv.ParseFloat(fmt.Sprint(r.Value[1]), 64)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, sample{r.Metric["__name__"], r.Metric, v})
	}
	return all
}
