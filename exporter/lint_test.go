package exporter

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/sysfstest"
)

var validName = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)

// notBase are units that a name must not have because a base unit exists for them.
var notBase = []string{"milliseconds", "microseconds", "nanoseconds", "ms", "us", "secs", "millis", "kilobytes",
	"megabytes", "bits", "mbps", "gbps", "percent", "minutes", "hours"}

// saysKind reports whether a metric has a kind in its name, which promtool check metrics refuses.
func saysKind(name string) bool {
	return slices.ContainsFunc([]string{"counter", "gauge", "histogram", "summary"}, func(kind string) bool {
		return strings.Contains(name+"_", "_"+kind+"_")
	})
}

// lint checks rows against the rules of the Prometheus documentation and of this project, and returns all
// violations, joined.
func lint(rows []*collector.Metric) error {
	var errs []error
	names := map[string]bool{}
	for _, m := range rows {
		bad := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("metric %s: "+format, append([]any{m.Name}, args...)...))
		}
		if names[m.Name] {
			bad("there are two rows of this name")
		}
		names[m.Name] = true
		if !validName.MatchString(m.Name) {
			bad("not a name in lower snake case")
		}
		if isTotal := strings.HasSuffix(m.Name, "_total"); isTotal != (m.Kind == collector.Counter) {
			bad("_total belongs to counters, to all and only to them")
		}
		if saysKind(m.Name) {
			bad("says its kind in its name")
		}
		if m.Help == "" || !strings.HasSuffix(m.Help, ".") {
			bad("the help is empty or no sentence")
		}
		if m.Ref == "" {
			bad("no reference to where its meaning is written")
		}
		for word := range strings.SplitSeq(m.Name, "_") {
			if slices.Contains(notBase, word) {
				bad("%s is not a base unit", word)
			}
		}
		for i, l := range m.Labels {
			if !validName.MatchString(l) || slices.Contains(m.Labels[:i], l) {
				bad("label %q is not a name or there twice", l)
			}
			if l == "le" || l == "quantile" {
				bad("label %q belongs to the parts of histograms and summaries", l)
			}
		}
	}
	return errors.Join(errs...)
}

// TestRows: every row of every source follows the rules.
func TestRows(t *testing.T) {
	s := everySource(t, sysfstest.Root{Dir: t.TempDir()})
	rows := s.OwnRows()
	for _, src := range s.Sources() {
		rows = append(rows, src.Metrics()...)
	}
	if err := lint(rows); err != nil {
		t.Error(err)
	}
}

// TestGoldenNames: no metric of an exposition, whoever adds it, has a kind in its name.
func TestGoldenNames(t *testing.T) {
	goldens, err := filepath.Glob("testdata/*.prom")
	if err != nil || len(goldens) == 0 {
		t.Fatalf("no goldens: %v", err)
	}
	for _, golden := range goldens {
		text, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if of := strings.Fields(line); len(of) == 4 && of[1] == "TYPE" && saysKind(of[2]) {
				t.Errorf("%s: %s says its kind in its name", golden, of[2])
			}
		}
	}
}

func TestLint(t *testing.T) {
	good := collector.Metric{Name: "good_bytes_total", Help: "Good.", Ref: "here", Kind: collector.Counter,
		Labels: []string{"rail"}}
	spoil := func(change func(*collector.Metric)) *collector.Metric {
		m := good
		change(&m)
		return &m
	}
	for name, tc := range map[string]struct {
		row *collector.Metric
		ok  bool
	}{
		"good":                   {&good, true},
		"upper case":             {spoil(func(m *collector.Metric) { m.Name = "Good_total" }), false},
		"counter without total":  {spoil(func(m *collector.Metric) { m.Name = "good_bytes" }), false},
		"gauge with total":       {spoil(func(m *collector.Metric) { m.Kind = collector.Gauge }), false},
		"a kind in its name":     {spoil(func(m *collector.Metric) { m.Name = "good_counter_errors_total" }), false},
		"a kind at the end":      {&collector.Metric{Name: "good_gauge", Help: "Good.", Ref: "here"}, false},
		"no help":                {spoil(func(m *collector.Metric) { m.Help = "" }), false},
		"help without full stop": {spoil(func(m *collector.Metric) { m.Help = "Good" }), false},
		"no reference":           {spoil(func(m *collector.Metric) { m.Ref = "" }), false},
		"milliseconds":           {spoil(func(m *collector.Metric) { m.Name = "good_milliseconds_total" }), false},
		"label of a histogram":   {spoil(func(m *collector.Metric) { m.Labels = []string{"le"} }), false},
		"label twice":            {spoil(func(m *collector.Metric) { m.Labels = []string{"rail", "rail"} }), false},
	} {
		if err := lint([]*collector.Metric{tc.row}); (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	if lint([]*collector.Metric{&good, &good}) == nil {
		t.Error("two rows of one name were let pass")
	}
}
