package scrape_test

import (
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/exporter/internal/exportertest"
	"github.com/railscope/railscope/exporter/table"
	"github.com/railscope/railscope/internal/lane/lanetest"
)

// TestUpdate: an update reads some sources; the other series are from the last read of their source.
func TestUpdate(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		a, b := exportertest.NewSource("a"), exportertest.NewSource("b")
		value, reads := 1., map[string]*atomic.Int64{"a": {}, "b": {}} // sources are read concurrently
		for _, f := range []*exportertest.Source{a, b} {
			f.Reads = func(emit func(collector.Sample)) error {
				reads[f.Called].Add(1)
				emit(f.Sample(value, "x"))
				if value == 2 {
					emit(f.Sample(value, "y"))
				}
				return nil
			}
		}
		s := exportertest.Scraper(t, a, b)
		look := func(names ...string) (got []string, why map[string]string) {
			s.Update(names, 0, func(series *table.Table, failed map[string]string) {
				for _, row := range []string{"a_value", "b_value", "source_success"} {
					labels := []string{"of"}
					if row == "source_success" {
						labels = []string{"source"}
					}
					if !series.Each(row, labels, func(l []string, v float64) {
						got = append(got, fmt.Sprintf("%s %s %v", row, l[0], v))
					}) {
						t.Errorf("there is no %s", row)
					}
				}
				if series.Each("a_valu", nil, nil) || series.Each("a_value", []string{"off"}, nil) {
					t.Error("rows and labels that are not there")
				}
				why = maps.Clone(failed)
			})
			return got, why
		}
		check := func(what string, got, want []string) {
			t.Helper()
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
		}
		got, _ := look("a", "none such")
		check("one, before any scrape", got, []string{"a_value x 1", "source_success a 1"})
		exportertest.Text(t, s)
		value = 2
		got, _ = look("a")
		check("one anew", got, []string{"a_value x 2", "a_value y 2", "b_value x 1", "source_success a 1",
			"source_success b 1"})
		value = 3
		got, _ = look("a", "b")
		check("a series that went", got, []string{"a_value x 3", "b_value x 3", "source_success a 1",
			"source_success b 1"})
		b.Reads = func(func(collector.Sample)) error { return errors.New("read b: torn off\nstack") }
		got, why := look("b")
		check("one that fails", got, []string{"a_value x 3", "source_success a 1", "source_success b 0"})
		if !cmp.Equal(why, map[string]string{"b": "io"}) {
			t.Errorf("why: %v", why)
		}
		if got := exportertest.Lines(exportertest.Text(t, s), "railscope_a_value", "railscope_b_value"); !cmp.Equal(got,
			[]string{`railscope_a_value{of="x"} 3`}) {
			t.Errorf("the scrape after that: %q", got)
		}
		b.Reads = func(emit func(collector.Sample)) error { emit(b.Sample(4, "x")); return nil }
		got, why = look("b")
		check("one that works again", got, []string{"a_value x 3", "b_value x 4", "source_success a 1",
			"source_success b 1"})
		if len(why) > 0 {
			t.Errorf("it works, and yet: %v", why)
		}
		if reads["a"].Load() != 5 {
			t.Errorf("a was read %d times, want 5", reads["a"].Load())
		}
	})
}
