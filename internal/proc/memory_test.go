package proc

import (
	"testing"

	"github.com/railscope/railscope/internal/sysfs"
)

func TestMemory(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       Memory
		reason     string // empty: no error
	}{
		{"a DGX Spark", "MemTotal:       125512344 kB\nMemFree:         4120512 kB\nMemAvailable:   76512000 kB\n",
			Memory{125512344 << 10, 76512000 << 10}, ""},
		{"another order, no last newline", "MemAvailable: 1 kB\nMemTotal: 2 kB", Memory{2 << 10, 1 << 10}, ""},
		{"the greatest", "MemTotal: 18014398509481983 kB\nMemAvailable: 0 kB\n", Memory{1<<64 - 1<<10, 0}, ""},
		{"too great", "MemTotal: 18014398509481984 kB\nMemAvailable: 0 kB\n", Memory{}, sysfs.ReasonRange},
		{"far too great", "MemTotal: 99999999999999999999999 kB\nMemAvailable: 0 kB\n", Memory{}, sysfs.ReasonRange},
		{"before Linux 3.14", "MemTotal: 2 kB\nMemFree: 1 kB\n", Memory{}, sysfs.ReasonInvalid},
		{"more available than there is", "MemTotal: 2 kB\nMemAvailable: 3 kB\n", Memory{}, sysfs.ReasonInvalid},
		{"none", "MemTotal: 0 kB\nMemAvailable: 0 kB\n", Memory{}, sysfs.ReasonInvalid},
		{"no number", "MemTotal: kB\nMemAvailable: 0 kB\n", Memory{}, sysfs.ReasonInvalid},
		{"an empty number", "MemTotal:  kB\nMemAvailable: 0 kB\n", Memory{}, sysfs.ReasonInvalid},
		{"negative", "MemTotal: -2 kB\nMemAvailable: 0 kB\n", Memory{}, sysfs.ReasonInvalid},
		{"another unit", "MemTotal: 2 MB\nMemAvailable: 0 kB\n", Memory{}, sysfs.ReasonInvalid},
		{"another name", "OldMemTotal: 2 kB\nMemAvailable: 0 kB\n", Memory{}, sysfs.ReasonInvalid},
		{"empty", "", Memory{}, sysfs.ReasonInvalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ReadMemory(procfsWith(t, "meminfo", tt.text))
			reason := ""
			if err != nil {
				reason = sysfs.Reason(err)
			}
			if got != tt.want || reason != tt.reason {
				t.Errorf("ReadMemory = %+v, %v; want %+v, reason %q", got, err, tt.want, tt.reason)
			}
		})
	}
}
