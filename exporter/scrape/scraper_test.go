package scrape_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/railscope/railscope/internal/lane/lanetest"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/exporter/internal/exportertest"
	"github.com/railscope/railscope/exporter/scrape"
	"github.com/railscope/railscope/internal/nodefact"
	"github.com/railscope/railscope/internal/sysfs"
)

// TestHealth: source_present, source_success and source_errors_total for every outcome of a read.
func TestHealth(t *testing.T) {
	for _, tc := range []struct {
		name string
		read func(f *exportertest.Source) func(emit func(collector.Sample)) error
		want []string
	}{
		{"all is well", func(f *exportertest.Source) func(func(collector.Sample)) error { return f.Reads }, []string{
			`railscope_a_value{of="x"} 1`,
			`railscope_source_present{source="a"} 1`, `railscope_source_success{source="a"} 1`}},
		{"no such hardware", func(*exportertest.Source) func(func(collector.Sample)) error {
			return func(func(collector.Sample)) error { return fmt.Errorf("no rail: %w", collector.ErrAbsent) }
		}, []string{
			`railscope_source_present{source="a"} 0`, `railscope_source_success{source="a"} 1`}},
		{"one device fails, the other does not", func(f *exportertest.Source) func(func(collector.Sample)) error {
			return func(emit func(collector.Sample)) error {
				emit(f.Sample(7, "good"))
				return errors.Join(&collector.Fault{Device: "bad", Reason: sysfs.ReasonInvalid, Err: errors.New("N/A")},
					&collector.Fault{Device: "bad", Reason: sysfs.ReasonInvalid, Err: errors.New("N/A")})
			}
		}, []string{
			`railscope_a_value{of="good"} 7`,
			`railscope_source_errors_total{device="bad",reason="invalid",source="a"} 2`,
			`railscope_source_present{source="a"} 1`, `railscope_source_success{source="a"} 0`}},
		{"an answer that is expected", func(f *exportertest.Source) func(func(collector.Sample)) error {
			return func(emit func(collector.Sample)) error {
				emit(f.Sample(7, "good"))
				return &collector.Fault{Device: "vf", Reason: sysfs.ReasonUnsupported, Expected: true,
					Err: errors.New("EINVAL")}
			}
		}, []string{
			`railscope_a_value{of="good"} 7`,
			`railscope_source_errors_total{device="vf",reason="unsupported",source="a"} 1`,
			`railscope_source_present{source="a"} 1`, `railscope_source_success{source="a"} 1`}},
		{"a panic", func(*exportertest.Source) func(func(collector.Sample)) error {
			return func(func(collector.Sample)) error { panic("ouch") }
		}, []string{
			`railscope_source_errors_total{device="",reason="panic",source="a"} 1`,
			`railscope_source_present{source="a"} 1`, `railscope_source_success{source="a"} 0`}},
		{"a series emitted twice", func(f *exportertest.Source) func(func(collector.Sample)) error {
			return func(emit func(collector.Sample)) error {
				emit(f.Sample(1, "x"))
				emit(f.Sample(2, "x"))
				return nil
			}
		}, []string{
			`railscope_a_value{of="x"} 1`,
			`railscope_source_errors_total{device="",reason="duplicate",source="a"} 1`,
			`railscope_source_present{source="a"} 1`, `railscope_source_success{source="a"} 0`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := exportertest.NewSource("a")
			f.Reads = tc.read(f)
			got := exportertest.Lines(exportertest.Text(t, exportertest.Scraper(t, f)), "railscope_a_",
				"railscope_source_errors", "railscope_source_present", "railscope_source_success")
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestStuckSource: a source that hangs loses its own series and costs one budget, once.
func TestStuckSource(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		stuck, well, release := exportertest.NewSource("stuck"), exportertest.NewSource("well"), make(chan struct{})
		answer := stuck.Reads
		stuck.Reads = func(emit func(collector.Sample)) error { <-release; return answer(emit) }
		const budget = 5 * time.Second
		s := exportertest.Within(t, budget, stuck, well)
		scrape := func(took time.Duration, want ...string) {
			t.Helper()
			start := time.Now()
			text := exportertest.Text(t, s)
			if got := time.Since(start); got != took {
				t.Errorf("the scrape took %v, not %v", got, took)
			}
			got := exportertest.Lines(text, "railscope_stuck_", "railscope_well_", "railscope_source_success",
				"railscope_source_errors")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		}
		scrape(budget, `railscope_source_errors_total{device="",reason="timeout",source="stuck"} 1`,
			`railscope_source_success{source="stuck"} 0`, `railscope_source_success{source="well"} 1`,
			`railscope_well_value{of="x"} 1`)
		scrape(0, `railscope_source_errors_total{device="",reason="timeout",source="stuck"} 2`,
			`railscope_source_success{source="stuck"} 0`, `railscope_source_success{source="well"} 1`,
			`railscope_well_value{of="x"} 1`)
		close(release)
		synctest.Wait()
		scrape(0, `railscope_source_errors_total{device="",reason="timeout",source="stuck"} 2`,
			`railscope_source_success{source="stuck"} 1`, `railscope_source_success{source="well"} 1`,
			`railscope_stuck_value{of="x"} 1`, `railscope_well_value{of="x"} 1`)
	})
}

// TestConcurrentScrapes: overlapping scrapes share one read and one response.
func TestConcurrentScrapes(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		f, reads := exportertest.NewSource("a"), 0
		f.Reads = func(emit func(collector.Sample)) error {
			reads++ // -race detects two concurrent reads
			time.Sleep(time.Second)
			emit(f.Sample(float64(reads), "x"))
			return nil
		}
		s := exportertest.Scraper(t, f)
		var wg sync.WaitGroup
		texts := make([][]byte, 8)
		for i := range texts {
			wg.Go(func() { texts[i] = exportertest.Text(t, s) })
		}
		wg.Wait()
		for _, text := range texts {
			if !bytes.Equal(text, texts[0]) {
				t.Error("scrapes that overlapped got different answers")
			}
		}
		if reads != 1 {
			t.Errorf("8 scrapes at once made %d reads", reads)
		}
	})
}

// TestFaultsAreLoggedOnce: a fault is logged once when it begins and once when it is over.
func TestFaultsAreLoggedOnce(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		f, broken := exportertest.NewSource("a"), true
		f.Reads = func(func(collector.Sample)) error {
			if !broken {
				return nil
			}
			return errors.Join(&collector.Fault{Device: "d", Reason: "io", Err: errors.New("EIO at one file")},
				&collector.Fault{Device: "d", Reason: "io", Err: errors.New("EIO at another")})
		}
		s := scrape.New([]collector.Source{f}, scrape.Options{Budget: time.Second, Process: exportertest.Process(),
			Logger: slog.New(slog.NewTextHandler(&out,
				&slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
					if a.Key == slog.TimeKey {
						return slog.Attr{}
					}
					return a
				}}))})
		for minute := range 20 {
			broken = minute < 10
			exportertest.Text(t, s)
			time.Sleep(time.Minute)
		}
		want := `level=WARN msg="Read failed (logged once until it changes)" collector=a device=d reason=io ` +
			`expected=false err="d: EIO at one file"` + "\n" +
			`level=INFO msg="Read succeeds again" collector=a device=d reason=io` + "\n"
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("20 scrapes, 10 of them broken (-want +got):\n%s", diff)
		}
	})
}

// TestDemo: railscope_demo exists only for simulated data.
// TestFacts: what the node should have in common with others.
func TestFacts(t *testing.T) {
	s := scrape.New(nil, scrape.Options{Budget: time.Second, Logger: slog.New(slog.DiscardHandler),
		Facts: func() []nodefact.Fact { return []nodefact.Fact{{Subject: "kernel", Value: "6.8"}} }})
	want := []string{`railscope_node_fact_info{subject="kernel",value="6.8"} 1`}
	if diff := cmp.Diff(want, exportertest.Lines(exportertest.Text(t, s), "railscope_node_fact_info")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDemo(t *testing.T) {
	for demo, want := range map[bool][]string{true: {"railscope_demo 1"}, false: nil} {
		s := scrape.New(nil, scrape.Options{Budget: time.Second, Logger: slog.New(slog.DiscardHandler),
			Info: scrape.Info{Demo: demo}})
		if diff := cmp.Diff(want, exportertest.Lines(exportertest.Text(t, s), "railscope_demo")); diff != "" {
			t.Errorf("demo %v (-want +got):\n%s", demo, diff)
		}
	}
}
