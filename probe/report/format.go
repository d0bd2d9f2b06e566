package report

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// gigabits is a rate in Gb/s; of one below, as software devices have, the Mb/s still tell two apart.
func gigabits(bytesPerSecond float64) string {
	v, decimals := bytesPerSecond*8/1e9, 2
	if v < 0.995 {
		decimals = 4
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

// micros is a time in µs, in six columns up to a second.
func microseconds(d time.Duration) string {
	v, decimals := float64(d)/1e3, 2
	for limit := 99.995; decimals > 0 && v >= limit; limit *= 10 {
		decimals--
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

func mebibytes(bytes int64) string {
	return strconv.FormatFloat(float64(bytes)/(1<<20), 'f', 1, 64) + " MiB"
}

// percent is a part in hundredths, with a decimal where 0 would be a lie.
func percent(ratio float64) string {
	decimals := 0
	if v := ratio * 100; v > 0 && v < 9.5 {
		decimals = 1
	}
	return strconv.FormatFloat(ratio*100, 'f', decimals, 64) + " %"
}

func ratio(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }

// shorten cuts s to width columns. The ends of names tell rails apart, so those are kept.
func shorten(s string, width int) string {
	n := utf8.RuneCountInString(s)
	if n <= width {
		return s
	}
	return "…" + string([]rune(s)[n-width+1:])
}

// list names rails: "rail 0", "rails 0 and 1", "rails 0, 1 and 2".
func railNames(rails []string) string {
	if len(rails) == 1 {
		return "rail " + rails[0]
	}
	last := len(rails) - 1
	return "rails " + strings.Join(rails[:last], ", ") + " and " + rails[last]
}
