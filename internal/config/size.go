package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// units of sizes, the larger before the smaller of the same ending.
var units = []struct {
	suffix string
	bytes  int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"B", 1}, {"", 1},
}

// ParseSize parses a number of bytes: 64MiB, 1GB, 4096.
func ParseSize(s string) (int64, error) {
	for _, u := range units {
		digits, found := strings.CutSuffix(s, u.suffix)
		if !found {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 63)
		if err != nil || n > math.MaxInt64/uint64(u.bytes) {
			break
		}
		return int64(n) * u.bytes, nil
	}
	return 0, fmt.Errorf("%q is not a size; write a whole number with KiB, MiB, GiB, KB, MB, GB or nothing for bytes, such as 64MiB", s)
}

// formatSize prints bytes in the largest unit of which they are a whole number.
func formatSize(bytes int64) string {
	for _, u := range units[:4] {
		if bytes != 0 && bytes%u.bytes == 0 {
			return strconv.FormatInt(bytes/u.bytes, 10) + u.suffix
		}
	}
	return strconv.FormatInt(bytes, 10)
}

// parseBudget parses a size per time and returns the bytes of an hour.
func parseBudget(s string) (int64, error) {
	const form = "%q is not a budget; write a size and /h, such as 8GiB/h"
	size, per, _ := strings.Cut(s, "/")
	bytes, err := ParseSize(size)
	switch {
	case err != nil:
	case per == "h":
		return bytes, nil
	case per == "d":
		return bytes / 24, nil
	case per == "m" && bytes <= math.MaxInt64/60:
		return bytes * 60, nil
	}
	return 0, fmt.Errorf(form, s)
}

func formatBudget(bytes int64) string { return formatSize(bytes) + "/h" }

// formatDuration prints a duration without the parts that are 0.
func formatDuration(d time.Duration) string {
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}
