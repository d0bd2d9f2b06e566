package scrape_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/exporter/internal/exportertest"
	"github.com/railscope/railscope/exporter/scrape"
	"github.com/railscope/railscope/internal/lane/lanetest"
)

// TestErrorsOfDevicesGo: the errors of a device are counted as long as it is
// there, whether or not it still fails, and for an hour after.
func TestErrorsOfDevicesGo(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		f := exportertest.NewSource("a")
		f.Row.Labels = []string{"device"}
		var present, failing []string
		f.Reads = func(emit func(collector.Sample)) error {
			var errs []error
			for _, d := range present {
				emit(f.Sample(1, d))
			}
			for _, d := range failing {
				errs = append(errs, &collector.Fault{Device: d, Reason: "io", Err: errors.New("EIO")})
			}
			return errors.Join(errs...)
		}
		s := exportertest.Scraper(t, f)
		counted := func(after time.Duration, want string) {
			t.Helper()
			for end := time.Now().Add(after); time.Now().Before(end); time.Sleep(15 * time.Second) {
				exportertest.Text(t, s)
			}
			var got []string
			for _, line := range exportertest.Lines(exportertest.Text(t, s), "railscope_source_errors_total") {
				_, device, _ := strings.Cut(line, `device="`)
				device, _, _ = strings.Cut(device, `"`)
				got = append(got, device)
			}
			if strings.Join(got, " ") != want {
				t.Errorf("counted of %q, want %s", got, want)
			}
		}
		present, failing = []string{"eth0", "veth1"}, []string{"eth0", "veth1", "gone"}
		counted(0, "eth0 gone veth1")
		failing = nil
		counted(59*time.Minute, "eth0 gone veth1")
		counted(2*time.Minute, "eth0 veth1")
		present = []string{"eth0"}
		counted(30*time.Minute, "eth0 veth1")
		present, failing = []string{"lo"}, []string{"eth0"} // it hangs, and is there
		counted(31*time.Minute, "eth0")
		failing = nil
		time.Sleep(24 * time.Hour) // nobody scrapes
		present = []string{"eth0"}
		counted(0, "eth0")
		counted(24*time.Hour, "eth0")
	})
}

// TestErrorsOfWhatIsThere: what names a device in a fault may be called otherwise in
// the series, and a series may name a device that is not there.
func TestErrorsOfWhatIsThere(t *testing.T) {
	for name, tt := range map[string]struct {
		metric string
		labels map[string]string // of the one series that the source has afterwards, if any
		absent bool              // the source has no hardware any more
		device string
		kept   bool
	}{
		"a GPU goes by its number": {metric: "gpu_info", labels: map[string]string{"gpu": "0"},
			device: "gpu0", kept: true},
		"another GPU": {metric: "gpu_info", labels: map[string]string{"gpu": "1"},
			device: "gpu0"},
		"series that name no device": {metric: "gpudirect_info", labels: map[string]string{"mode": "none"},
			device: "0000:1a:00.0", kept: true},
		"the last rail is missing": {metric: "rail_missing_info",
			labels: map[string]string{"device": "mlx5_3"}, absent: true, device: "mlx5_3"},
		"the source has no hardware anymore": {metric: "rail_info", absent: true, device: "mlx5_3"},
	} {
		t.Run(name, func(t *testing.T) {
			lanetest.Test(t, func(t *testing.T) {
				f := exportertest.NewSource("a")
				f.Row.Name, f.Row.Labels = tt.metric, nil
				var values []string
				for l, v := range tt.labels {
					f.Row.Labels, values = append(f.Row.Labels, l), append(values, v)
				}
				failing := true
				f.Reads = func(emit func(collector.Sample)) error {
					if failing {
						return &collector.Fault{Device: tt.device, Reason: "io", Err: errors.New("EIO")}
					}
					if tt.labels != nil {
						emit(collector.Sample{Metric: f.Row, Labels: values, Value: 1})
					}
					if tt.absent {
						return collector.ErrAbsent
					}
					return nil
				}
				s := exportertest.Scraper(t, f)
				exportertest.Text(t, s)
				failing = false
				for end := time.Now().Add(3 * time.Hour); time.Now().Before(end); time.Sleep(15 * time.Second) {
					exportertest.Text(t, s)
				}
				if kept := len(exportertest.Lines(exportertest.Text(t, s),
					"railscope_source_errors_total")) == 1; kept != tt.kept {
					t.Errorf("the errors of %s are kept: %v, want %v: %s", tt.device, kept, tt.kept,
						exportertest.Lines(exportertest.Text(t, s), "railscope_source_errors_total"))
				}
			})
		})
	}
}

// TestErrorsBounded: names without end are no series without end, and what is
// there is not forgotten for them.
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
		if got := len(exportertest.Lines([]byte(text), "railscope_source_errors_total")); got != scrape.ErrorsMost+1 {
			t.Errorf("%d series, want %d", got, scrape.ErrorsMost+1)
		}
		for _, want := range []string{`device="eth0",reason="io",source="a"} 21`,
			`device="",reason="timeout",source="a"} 21`} {
			if !strings.Contains(text, want) {
				t.Errorf("no %s", want)
			}
		}
	})
}
