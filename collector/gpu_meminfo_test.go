package collector

import (
	"errors"
	"testing"

	"github.com/railscope/railscope/internal/sysfs"
)

func TestMeminfo(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       meminfo
		reason     string // empty: no error
	}{
		{"a DGX Spark", "MemTotal:       125512344 kB\nMemFree:         4120512 kB\nMemAvailable:   76512000 kB\n", meminfo{125512344 << 10, 76512000 << 10}, ""},
		{"another order, no last newline", "MemAvailable: 1 kB\nMemTotal: 2 kB", meminfo{2 << 10, 1 << 10}, ""},
		{"the greatest", "MemTotal: 18014398509481983 kB\nMemAvailable: 0 kB\n", meminfo{1<<64 - 1<<10, 0}, ""},
		{"too great", "MemTotal: 18014398509481984 kB\nMemAvailable: 0 kB\n", meminfo{}, sysfs.ReasonRange},
		{"far too great", "MemTotal: 99999999999999999999999 kB\nMemAvailable: 0 kB\n", meminfo{}, sysfs.ReasonRange},
		{"before Linux 3.14", "MemTotal: 2 kB\nMemFree: 1 kB\n", meminfo{}, sysfs.ReasonInvalid},
		{"more available than there is", "MemTotal: 2 kB\nMemAvailable: 3 kB\n", meminfo{}, sysfs.ReasonInvalid},
		{"none", "MemTotal: 0 kB\nMemAvailable: 0 kB\n", meminfo{}, sysfs.ReasonInvalid},
		{"no number", "MemTotal: kB\nMemAvailable: 0 kB\n", meminfo{}, sysfs.ReasonInvalid},
		{"an empty number", "MemTotal:  kB\nMemAvailable: 0 kB\n", meminfo{}, sysfs.ReasonInvalid},
		{"negative", "MemTotal: -2 kB\nMemAvailable: 0 kB\n", meminfo{}, sysfs.ReasonInvalid},
		{"another unit", "MemTotal: 2 MB\nMemAvailable: 0 kB\n", meminfo{}, sysfs.ReasonInvalid},
		{"another name", "OldMemTotal: 2 kB\nMemAvailable: 0 kB\n", meminfo{}, sysfs.ReasonInvalid},
		{"empty", "", meminfo{}, sysfs.ReasonInvalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseMeminfo([]byte(tt.text))
			reason := ""
			if err != nil {
				reason = sysfs.Reason(err)
			}
			if got != tt.want || reason != tt.reason {
				t.Errorf("parseMeminfo = %+v, %v; want %+v, reason %q", got, err, tt.want, tt.reason)
			}
		})
	}
}

// FuzzMeminfo: no panic, no value beside an error, no more available than total.
func FuzzMeminfo(f *testing.F) {
	f.Add([]byte("MemTotal:       125512344 kB\nMemFree:         4120512 kB\nMemAvailable:   76512000 kB\n"))
	f.Add([]byte("MemTotal: 18014398509481984 kB\nMemAvailable: N/A\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseMeminfo(b)
		var e *sysfs.Error
		switch {
		case err != nil && m != (meminfo{}):
			t.Errorf("%+v beside %v", m, err)
		case err != nil && !errors.As(err, &e):
			t.Errorf("%T", err)
		case err == nil && (m.total == 0 || m.available > m.total || m.total%1024 != 0):
			t.Errorf("%+v", m)
		}
	})
}
