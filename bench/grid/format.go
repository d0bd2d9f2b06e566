package grid

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Decimal is v with so many decimals.
func Decimal(v float64, decimals int) string { return strconv.FormatFloat(v, 'f', decimals, 64) }

// Ratio is a quotient.
func Ratio(v float64) string { return Decimal(v, 2) }

// Gigabits is a rate in Gb/s, with the digits of Mb/s below 1 Gb/s, as software devices have.
func Gigabits(bytesPerSecond float64) string {
	v := bytesPerSecond * 8 / 1e9
	if v < 0.995 {
		return Decimal(v, 4)
	}
	return Decimal(v, 2)
}

// Microseconds is a time in µs, in six columns up to a second.
func Microseconds(d time.Duration) string {
	v, decimals := float64(d)/1e3, 2
	for limit := 99.995; decimals > 0 && v >= limit; limit *= 10 {
		decimals--
	}
	return Decimal(v, decimals)
}

// Mebibytes is a size in MiB.
func Mebibytes(bytes int64) string { return Decimal(float64(bytes)/(1<<20), 1) + " MiB" }

// Shorten cuts s to width columns and keeps its end, which distinguishes names of rails.
func Shorten(s string, width int) string {
	n := utf8.RuneCountInString(s)
	if n <= width {
		return s
	}
	return "…" + string([]rune(s)[n-width+1:])
}

// Size is a number of bytes as a person writes it: 64 KiB, 1 MiB.
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

// ThreeDigits is a time in seconds with three digits that count.
func ThreeDigits(seconds float64) string {
	decimals := 4
	for limit := 0.1; decimals > 0 && seconds >= limit; limit *= 10 {
		decimals--
	}
	return Decimal(seconds, decimals)
}
