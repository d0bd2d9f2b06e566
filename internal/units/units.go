// Package units formats figures for people.
package units

import "fmt"

// Gigabits is a rate in Gb/s with four digits.
func Gigabits(bytesPerSecond float64) string { return fmt.Sprintf("%.4g Gb/s", bytesPerSecond*8/1e9) }

// Mebibytes is a size in MiB.
func Mebibytes(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }
