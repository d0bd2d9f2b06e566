package scrape_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/expfmt"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/exporter/internal/exportertest"
	"github.com/railscope/railscope/exporter/scrape"
	"github.com/railscope/railscope/exporter/table"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/lane/lanetest"
)

// TestCollect: a scrape of some sources reads only these. It writes their series and railscope's own, without those
// about other sources. A cleared finding is gone in every format, however few sources are read.
func TestCollect(t *testing.T) {
	a, b := exportertest.NewSource("a"), exportertest.NewSource("b")
	reads := 0
	b.Reads = func(func(collector.Sample)) error {
		reads++
		return &collector.Fault{Reason: "io", Err: errors.New("torn")}
	}
	found := []finding.Raised{{Finding: finding.Finding{Check: "port_down", Severity: "critical", Subject: "rail 1"}}}
	s := scrape.New([]collector.Source{a, b}, scrape.Options{Budget: time.Minute, Logger: slog.New(slog.DiscardHandler),
		Process: exportertest.Process(), Findings: func() ([]finding.Raised, int) { return found, 0 }})
	exportertest.Text(t, s)
	for _, format := range []expfmt.FormatType{expfmt.TypeTextPlain, expfmt.TypeOpenMetrics} {
		body, err := s.Scrape(scrape.Request{Format: expfmt.NewFormat(format), Sources: []string{"a"}})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, line := range exportertest.Lines(body, "railscope_a_", "railscope_b_", "railscope_source_", "railscope_finding{",
			"# HELP railscope_b_", "# HELP railscope_source_e", "go_goroutines") {
			if !strings.Contains(line, "_seconds") {
				got = append(got, strings.TrimSuffix(line, ".0"))
			}
		}
		want := []string{"go_goroutines 7", `railscope_a_value{of="x"} 1`,
			`railscope_finding{check="port_down",rail="1",severity="critical",subject="rail 1"} 1`,
			`railscope_source_present{source="a"} 1`, `railscope_source_success{source="a"} 1`}
		if format == expfmt.TypeOpenMetrics { // in the second scrape, the finding has been cleared
			want = append(want[:2:2], want[3:]...)
		}
		if diff := cmp.Diff(want, got); diff != "" || reads != 1 {
			t.Errorf("%v: b was read %d times: %s", format, reads, diff)
		}
		found = nil
	}
	all := exportertest.Lines(exportertest.Text(t, s), "railscope_source_success")
	if len(all) != 2 || reads != 2 {
		t.Errorf("the next scrape of all: %q", all)
	}
}

// TestScrapeWait: a scrape waits for a source no longer than its client waits for the response, which has the
// results up to then. The timeout of one client does not affect others.
func TestScrapeWait(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		a, b := exportertest.NewSource("a"), exportertest.NewSource("b")
		round := 0.
		a.Reads = func(emit func(collector.Sample)) error { round++; emit(a.Sample(round, "x")); return nil }
		b.Reads = func(emit func(collector.Sample)) error {
			time.Sleep(2 * time.Second)
			emit(b.Sample(round, "x"))
			return nil
		}
		s := exportertest.Within(t, 4*time.Second, a, b)
		var clients sync.WaitGroup
		for at, tc := range []struct {
			wait, takes time.Duration
			want        []string
		}{
			{0, 2 * time.Second, []string{"a_value 1", "b_value 1", "a_success 1", "b_success 1"}},
			{time.Nanosecond, time.Nanosecond, []string{"a_value 2", "a_success 1", "b_success 0"}},
			{time.Second, time.Second, []string{"a_value 2", "a_success 1", "b_success 0"}},
			{time.Hour, 2 * time.Second, []string{"a_value 2", "b_value 2", "a_success 1", "b_success 1"}},
		} {
			clients.Go(func() {
				if at > 0 { // in one read after the first
					time.Sleep(3 * time.Second)
				}
				start := time.Now()
				body, err := s.Scrape(scrape.Request{Format: expfmt.NewFormat(expfmt.TypeTextPlain), Wait: tc.wait})
				var got []string
				for _, line := range exportertest.Lines(body, "railscope_a_value", "railscope_b_value",
					"railscope_source_success", "railscope_source_errors") {
					line = strings.TrimPrefix(line, "railscope_")
					line = strings.NewReplacer(`{of="x"}`, "", `source_success{source="`, "", `"}`, "_success").Replace(line)
					got = append(got, line)
				}
				if took := time.Since(start); err != nil || took != tc.takes {
					t.Errorf("waiting %v: it took %v, %v, want %v", tc.wait, took, err, tc.takes)
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("waiting %v: %s", tc.wait, diff)
				}
			})
		}
		time.Sleep(4500 * time.Millisecond)
		s.View(func(series *table.Table, failed map[string]string, _ map[string]time.Time) {
			series.Each("source_success", []string{"source"}, func(values []string, v float64) {
				if v != 1 || len(failed) > 0 {
					t.Errorf("for the page %s has success %v, %v", values[0], v, failed)
				}
			})
		})
		clients.Wait()
	})
}

// TestManyWaits: however many clients scrape, each with another timeout or other sources, a source is read only
// once at a time, and all of them have the result when the read has ended.
func TestManyWaits(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		a, b := exportertest.NewSource("a"), exportertest.NewSource("b")
		reads := 0
		a.Reads = func(emit func(collector.Sample)) error {
			reads++
			time.Sleep(time.Second)
			emit(a.Sample(1, "x"))
			return nil
		}
		s := exportertest.Within(t, 4*time.Second, a, b)
		var clients sync.WaitGroup
		for i := range 200 {
			for _, r := range []scrape.Request{{Wait: 5*time.Second + time.Duration(i)}, {Wait: time.Duration(i + 1)},
				{Sources: []string{"a"}}, {Sources: []string{"a", "b"}, Compressed: i%2 == 0}, {Sources: []string{"b"}}} {
				clients.Go(func() {
					time.Sleep(time.Duration(i) * time.Millisecond)
					start := time.Now()
					r.Format = expfmt.NewFormat(expfmt.TypeTextPlain)
					body, err := s.Scrape(r)
					if took := time.Since(start); err != nil || took > time.Second {
						t.Errorf("%+v: %v, %v", r, took, err)
					}
					if r.Wait > time.Second && !bytes.Contains(body, []byte("\nrailscope_a_value{of=\"x\"} 1\n")) {
						t.Errorf("%+v has no value:\n%s", r, body)
					}
				})
			}
		}
		clients.Wait()
		if reads != 1 {
			t.Errorf("%d reads", reads)
		}
	})
}
