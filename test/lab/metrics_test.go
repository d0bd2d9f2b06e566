//go:build lab

package lab

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// sample is one line of an exposition.
type sample struct {
	name   string
	labels map[string]string
	value  float64
}

type metrics []sample

// Special expectations for a series: it does not exist, or it has any value.
var (
	gone = math.NaN()
	some = math.Inf(1)
)

// fetch gets a URL, which must answer with 200.
func fetch(url string) (string, error) {
	client := http.Client{Timeout: commandTime}
	resp, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s: %s", url, resp.Status, body)
	}
	return string(body), nil
}

// parse reads the Prometheus text format.
func parse(text string) (metrics, error) {
	var all metrics
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		s, rest, err := parseSeries(line)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		value, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
		s.value, err = strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		all = append(all, s)
	}
	return all, nil
}

// parseSeries parses name{label="value",…} and returns the rest of the text.
func parseSeries(text string) (s sample, rest string, err error) {
	s.labels = map[string]string{}
	end := strings.IndexAny(text, "{ ")
	if end < 0 {
		s.name = text
		return s, "", nil
	}
	s.name, rest = text[:end], text[end:]
	if rest[0] != '{' {
		return s, rest, nil
	}
	for rest = rest[1:]; ; {
		rest = strings.TrimLeft(rest, ", ")
		if strings.HasPrefix(rest, "}") {
			return s, rest[1:], nil
		}
		label, quoted, ok := strings.Cut(rest, "=")
		if !ok {
			return s, rest, fmt.Errorf("labels do not end")
		}
		literal, err := strconv.QuotedPrefix(quoted)
		if err != nil {
			return s, rest, fmt.Errorf("label %s: %w", label, err)
		}
		s.labels[label], err = strconv.Unquote(literal)
		if err != nil {
			return s, rest, fmt.Errorf("label %s: %w", label, err)
		}
		rest = quoted[len(literal):]
	}
}

// find returns the samples that have the selector's name, without railscope_, and all of its labels; they may have
// others.
func (m metrics) find(selector string) metrics {
	want, _, err := parseSeries(selector)
	if err != nil {
		panic(fmt.Sprintf("selector %s: %v", selector, err))
	}
	var found metrics
next:
	for _, s := range m {
		if s.name != "railscope_"+want.name {
			continue
		}
		for label, value := range want.labels {
			if s.labels[label] != value {
				continue next
			}
		}
		found = append(found, s)
	}
	return found
}

// value returns the value of the only series that the selector finds.
func (m metrics) value(selector string) (float64, error) {
	found := m.find(selector)
	if len(found) != 1 {
		return 0, fmt.Errorf("%d series for %s, want 1", len(found), selector)
	}
	return found[0].value, nil
}

// must is like value, for a series that must exist.
func (m metrics) must(t testing.TB, selector string) float64 {
	t.Helper()
	v, err := m.value(selector)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// want is the expected content of a scrape: the values of series by selector, gone for a series that must not
// exist.
type want map[string]float64

// check returns an error for what m does not show.
func (w want) check(m metrics) error {
	var wrong []string
	for selector, value := range w {
		if math.IsNaN(value) {
			if found := m.find(selector); len(found) > 0 {
				wrong = append(wrong, fmt.Sprintf("%s is still there", selector))
			}
			continue
		}
		if got, err := m.value(selector); err != nil {
			wrong = append(wrong, err.Error())
		} else if got != value && value != some {
			wrong = append(wrong, fmt.Sprintf("%s is %v, want %v", selector, got, value))
		}
	}
	if wrong != nil {
		return fmt.Errorf("%s", strings.Join(wrong, "; "))
	}
	return nil
}

// exporter is a `railscope serve` in one of the nodes.
type exporter struct {
	node     node
	process  *process
	replaced bool // set by restart
}

// serve starts railscope in a node and waits until it answers. When the test ends it must be the same process,
// still answer, and stop when asked to.
func serve(t *testing.T, n node, flags ...string) *exporter {
	t.Helper()
	e := launch(t, n, flags...)
	t.Cleanup(func() {
		if e.replaced {
			return
		}
		e.scrape(t)
		e.process.Stop(t)
		if t.Failed() {
			t.Logf("node %d: railscope said:\n%s", n, e.process.Stderr)
		}
	})
	return e
}

// launch starts railscope in a node and waits until it answers. The test must end it.
func launch(t *testing.T, n node, flags ...string) *exporter {
	t.Helper()
	e := &exporter{node: n, process: n.Start(t, append([]string{railscope, "serve"}, flags...)...)}
	eventually(t, commandTime, func() error {
		if !e.process.Running() {
			return fmt.Errorf("node %d: railscope ended: %w", n, e.process.failure())
		}
		_, err := fetch(e.url())
		return err
	})
	return e
}

// restart replaces this exporter by a new one, which reads all facts at once, including GIDs, and not every 30 s.
func (e *exporter) restart(t *testing.T, flags ...string) *exporter {
	t.Helper()
	e.process.Stop(t)
	e.replaced = true
	return serve(t, e.node, flags...)
}

func (e *exporter) url() string { return "http://" + e.node.control() + ":10091/metrics" }

// scrape returns a scrape, which must succeed and come from the process that the test started.
func (e *exporter) scrape(t testing.TB) metrics {
	t.Helper()
	if !e.process.Running() {
		t.Fatalf("node %d: railscope ended: %v", e.node, e.process.failure())
	}
	text, err := fetch(e.url())
	if err != nil {
		t.Fatal(err)
	}
	m, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// shows waits until a scrape shows all that is expected, and returns it.
func (e *exporter) shows(t testing.TB, w want) metrics {
	t.Helper()
	var m metrics
	eventually(t, linkTime, func() error {
		m = e.scrape(t)
		return w.check(m)
	})
	return m
}
