package grid

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Decimal formats v with this number of decimals.
func Decimal(v float64, decimals int) string { return strconv.FormatFloat(v, 'f', decimals, 64) }

// Ratio formats a quotient.
func Ratio(v float64) string { return Decimal(v, 2) }

// Gigabits formats a rate in Gb/s. Below 1 Gb/s, as for software devices, it has more digits.
func Gigabits(bytesPerSecond float64) string {
	v := bytesPerSecond * 8 / 1e9
	switch {
	case v < 0.995:
		return Decimal(v, 4)
	case v >= 8000: // higher than any line rate
		return Decimal(v, 0)
	}
	return Decimal(v, 2)
}

// GigabitsPerSecond formats a rate with its unit.
func GigabitsPerSecond(bytesPerSecond float64) string { return Gigabits(bytesPerSecond) + " Gb/s" }

// Microseconds formats a time in µs. Up to one second, it needs six columns.
func Microseconds(d time.Duration) string {
	v, decimals := float64(d)/1e3, 2
	for limit := 99.995; decimals > 0 && v >= limit; limit *= 10 {
		decimals--
	}
	return Decimal(v, decimals)
}

// Shorten truncates s to width columns and keeps its end, which distinguishes names of rails.
func Shorten(s string, width int) string {
	n := utf8.RuneCountInString(s)
	if n <= width {
		return s
	}
	return "…" + string([]rune(s)[n-width+1:])
}

// Size formats a number of bytes with a unit: 64 KiB, 1 MiB.
func Size(bytes int64) string {
	for _, unit := range []struct {
		size int64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if bytes >= unit.size {
			text := strconv.FormatFloat(float64(bytes)/float64(unit.size), 'f', 2, 64)
			return strings.TrimSuffix(strings.TrimRight(text, "0"), ".") + " " + unit.name
		}
	}
	return strconv.FormatInt(bytes, 10) + " B"
}

// ThreeDigits formats a time in seconds with three significant digits.
func ThreeDigits(seconds float64) string {
	decimals := 4
	for limit := 0.1; decimals > 0 && seconds >= limit; limit *= 10 {
		decimals--
	}
	return Decimal(seconds, decimals)
}
