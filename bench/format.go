package bench

import (
	"strconv"
	"time"
	"unicode/utf8"
)

func decimal(v float64, decimals int) string { return strconv.FormatFloat(v, 'f', decimals, 64) }

func ratio(v float64) string { return decimal(v, 2) }

// gigabits is a rate in Gb/s, with the digits of Mb/s below 1 Gb/s, as software devices have.
func gigabits(bytesPerSecond float64) string {
	v := bytesPerSecond * 8 / 1e9
	if v < 0.995 {
		return decimal(v, 4)
	}
	return decimal(v, 2)
}

// microseconds is a time in µs, in six columns up to a second.
func microseconds(d time.Duration) string {
	v, decimals := float64(d)/1e3, 2
	for limit := 99.995; decimals > 0 && v >= limit; limit *= 10 {
		decimals--
	}
	return decimal(v, decimals)
}

func mebibytes(bytes int64) string { return decimal(float64(bytes)/(1<<20), 1) + " MiB" }

// shorten cuts s to width columns and keeps its end, which distinguishes names of rails.
func shorten(s string, width int) string {
	n := utf8.RuneCountInString(s)
	if n <= width {
		return s
	}
	return "…" + string([]rune(s)[n-width+1:])
}
