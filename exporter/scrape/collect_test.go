package scrape_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/expfmt"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/exporter/internal/exportertest"
	"github.com/railscope/railscope/exporter/scrape"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/lane/lanetest"
)

// TestCollect: a scrape of some sources reads and writes these, and what railscope says about itself, but not about
// other sources. A finding that was cleared is gone, in whatever format and however few sources are read.
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
		if format == expfmt.TypeOpenMetrics { // the second: it has been cleared
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

// TestScrapeWait: a scrape waits no longer for a source than its client for the answer.
func TestScrapeWait(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		a, b := exportertest.NewSource("a"), exportertest.NewSource("b")
		release := make(chan struct{})
		b.Reads = func(func(collector.Sample)) error { <-release; return nil }
		s := exportertest.Within(t, 4*time.Second, a, b)
		for _, wait := range []time.Duration{time.Second, time.Hour} {
			start := time.Now()
			body, err := s.Scrape(scrape.Request{Format: expfmt.NewFormat(expfmt.TypeTextPlain), Wait: wait})
			if took := time.Since(start); err != nil || took > time.Second || !strings.Contains(string(body), "a_value") {
				t.Errorf("%v: it took %v, %v", wait, took, err)
			}
		}
		close(release)
	})
}
