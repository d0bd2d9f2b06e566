package scrape_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/exporter/internal/exportertest"
	"github.com/railscope/railscope/exporter/scrape"
	"github.com/railscope/railscope/internal/lane/lanetest"
)

// TestErrorsOfDevicesGo: the errors of a device are exported until a day after the last one, with or without
// scrapes. Errors of the whole source stay.
func TestErrorsOfDevicesGo(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		f := exportertest.NewSource("a")
		failing := []string{"eth0", "veth1", ""}
		f.Reads = func(func(collector.Sample)) error {
			var errs []error
			for _, d := range failing {
				errs = append(errs, &collector.Fault{Device: d, Reason: "io", Err: errors.New("EIO")})
			}
			return errors.Join(errs...)
		}
		s := exportertest.Scraper(t, f)
		counted := func(after time.Duration, want ...string) {
			t.Helper()
			for end := time.Now().Add(after); time.Now().Before(end); time.Sleep(time.Minute) {
				exportertest.Text(t, s)
			}
			got := exportertest.Lines(exportertest.Text(t, s), "railscope_source_errors_total")
			for i, line := range got {
				_, line, _ = strings.Cut(line, `device="`)
				got[i], _, _ = strings.Cut(line, `"`)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("counted devices (-want +got):\n%s", diff)
			}
		}
		counted(0, "", "eth0", "veth1")
		failing = []string{"eth0"}
		counted(24*time.Hour-time.Minute, "", "eth0", "veth1")
		counted(2*time.Minute, "", "eth0")
		failing = nil
		counted(time.Hour, "", "eth0")
		time.Sleep(24 * time.Hour) // no scrapes
		counted(0, "")
	})
}

// TestErrorsBounded: the number of series is bounded even if the number of device names is not. A device that keeps
// failing keeps its count.
func TestErrorsBounded(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		f := exportertest.NewSource("a")
		n := 0
		f.Reads = func(emit func(collector.Sample)) error {
			errs := []error{&collector.Fault{Device: "eth0", Reason: "io", Err: errors.New("EIO")},
				&collector.Fault{Reason: "timeout", Err: errors.New("late")}}
			for range 100 {
				n++
				errs = append(errs, &collector.Fault{Device: fmt.Sprint("veth", n), Reason: "io",
					Err: errors.New("EIO")})
			}
			return errors.Join(errs...)
		}
		s := exportertest.Scraper(t, f)
		for range 20 {
			exportertest.Text(t, s)
			time.Sleep(time.Second)
		}
		text := string(exportertest.Text(t, s))
		if got := len(exportertest.Lines([]byte(text), "railscope_source_errors_total")); got != scrape.FaultsMost+2 {
			t.Errorf("%d series, want %d", got, scrape.FaultsMost+2)
		}
		for _, want := range []string{`device="eth0",reason="io",source="a"} 21`,
			fmt.Sprintf(`device="other",reason="io",source="a"} %d`, 21*101-scrape.FaultsMost-20),
			`device="",reason="timeout",source="a"} 21`} {
			if !strings.Contains(text, want) {
				t.Errorf("no %s", want)
			}
		}
	})
}
