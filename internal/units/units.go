// Package units formats figures for people.
package units

import (
	"fmt"
	"time"
)

// Gigabits is a rate in Gb/s with four digits.
func Gigabits(bytesPerSecond float64) string { return fmt.Sprintf("%.4g Gb/s", bytesPerSecond*8/1e9) }

// Mebibytes is a size in MiB.
func Mebibytes(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

// Span returns a time in its two largest units: "40 s", "12 min", "3 h 5 min", "2 d 4 h". A negative one is 0.
func Span(d time.Duration) string {
	d = max(0, d)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 24*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d d %d h", int(d.Hours())/24, int(d.Hours())%24)
}
