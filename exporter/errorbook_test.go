package exporter

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/lane/lanetest"
)

// TestErrorsOfDevicesGo: the errors of a device are counted as long as it is
// there, whether or not it still fails, and for an hour after.
func TestErrorsOfDevicesGo(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		f := newFake("a")
		f.row.Labels = []string{"device"}
		var present, failing []string
		f.read = func(emit func(collector.Sample)) error {
			var errs []error
			for _, d := range present {
				emit(f.sample(1, d))
			}
			for _, d := range failing {
				errs = append(errs, &collector.Fault{Device: d, Reason: "io", Err: errors.New("EIO")})
			}
			return errors.Join(errs...)
		}
		s := testScraper(t, []collector.Source{f})
		counted := func(after time.Duration, want string) {
			t.Helper()
			for end := time.Now().Add(after); time.Now().Before(end); time.Sleep(15 * time.Second) {
				s.Text()
			}
			var got []string
			for _, line := range lines(s.Text(), "railscope_source_errors_total") {
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

// TestErrorsBounded: names without end are no series without end, and what is
// there is not forgotten for them.
func TestErrorsBounded(t *testing.T) {
	lanetest.Test(t, func(t *testing.T) {
		f := newFake("a")
		n := 0
		f.read = func(emit func(collector.Sample)) error {
			errs := []error{&collector.Fault{Device: "eth0", Reason: "io", Err: errors.New("EIO")}, &collector.Fault{Reason: "timeout", Err: errors.New("late")}}
			for range 100 {
				n++
				errs = append(errs, &collector.Fault{Device: fmt.Sprint("veth", n), Reason: "io", Err: errors.New("EIO")})
			}
			return errors.Join(errs...)
		}
		s := testScraper(t, []collector.Source{f})
		for range 20 {
			s.Text()
			time.Sleep(time.Second)
		}
		text := string(s.Text())
		if got := len(lines([]byte(text), "railscope_source_errors_total")); got != errorsMost+1 {
			t.Errorf("%d series, want %d", got, errorsMost+1)
		}
		for _, want := range []string{`device="eth0",reason="io",source="a"} 21`, `device="",reason="timeout",source="a"} 21`} {
			if !strings.Contains(text, want) {
				t.Errorf("no %s", want)
			}
		}
	})
}
