package inventory

import (
	"net/netip"
	"strconv"
)

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func number(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

func numa(n int) string {
	if n < 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

// gigabits prints bytes per second as people name rates.
func gigabits(bytesPerSecond float64) string {
	if bytesPerSecond == 0 {
		return "-"
	}
	return strconv.FormatFloat(bytesPerSecond*8/1e9, 'f', 1, 64) + " Gb/s"
}

// address prints a GID as the IP address that it holds.
func address(gid string) string {
	a, err := netip.ParseAddr(gid)
	if err != nil {
		return gid
	}
	return a.Unmap().String()
}
