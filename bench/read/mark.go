package read

import (
	"fmt"
	"strings"
	"time"

	"github.com/railscope/railscope/bench/grid"
)

// Rail is a rail of this node, beside which results are set.
type Rail struct {
	Device   string
	LineRate float64 // bytes per second; 0: unknown
}

// Line rates are nominal, and tools round: 0.5 % above is not marked.
const roundedUp = 1.005

// otherUnit is by how much a size and its latency exceed the rate of the same row if one of them has another unit.
const otherUnit = 10

// Mark marks what is impossible: rates above the line rate, and sizes that would need more than it, or ten times the
// rate in the same row, to arrive within the latency. LineRate is that of every result; 0: that of its rail, if it
// is known.
func Mark(results []Result, lineRate float64, rails []Rail) {
	for i := range results {
		r := &results[i]
		limit, of := lineRate, "the line rate"
		if limit == 0 {
			limit, of = lineRateOf(r.Rail, rails), "the line rate of "+r.Rail
		}
		limit *= max(r.lanes, 1)
		if rate, name := r.judged(); limit > 0 && rate > limit*roundedUp {
			r.Marks = append(r.Marks, fmt.Sprintf("%s of %s is above %s, %s", name, gigabits(rate), of, gigabits(limit)))
		}
		r.markLatency(limit, of)
		r.markOrder()
	}
}

// markOrder marks a time that is above one that it cannot exceed: in different units, or of different runs.
func (r *Result) markOrder() {
	l := r.Latency
	if l == nil {
		return
	}
	type named struct {
		name string
		v    *float64
	}
	for _, pair := range [][2]named{{{"min", l.Min}, {"avg", l.Avg}}, {{"min", l.Min}, {"P50", l.P50}},
		{{"P50", l.P50}, {"P99", l.P99}}, {{"P99", l.P99}, {"max", l.Max}}, {{"avg", l.Avg}, {"max", l.Max}}} {
		low, high := pair[0], pair[1]
		if low.v == nil || high.v == nil || *low.v <= *high.v*roundedUp+2*r.rounding {
			continue
		}
		r.Marks = append(r.Marks, fmt.Sprintf("%s of %s µs is above %s of %s µs", low.name,
			grid.Microseconds(duration(*low.v)), high.name, grid.Microseconds(duration(*high.v))))
	}
}

// judged is the rate on the wire: of collectives the bus bandwidth, since the other one counts bytes that stay.
func (r *Result) judged() (rate float64, name string) {
	switch {
	case r.BusRate != nil:
		return *r.BusRate, "bus bandwidth"
	case r.Rate != nil:
		return *r.Rate, "rate"
	}
	return 0, ""
}

func (r *Result) markLatency(limit float64, of string) {
	l := r.Latency
	if l == nil || r.Bytes == nil {
		return
	}
	seconds := l.Avg
	for _, other := range []*float64{l.P50, l.Min} {
		if seconds == nil {
			seconds = other
		}
	}
	if seconds == nil || *seconds < 0 || *seconds+r.rounding <= 0 {
		return
	}
	needed := float64(*r.Bytes) / (*seconds + r.rounding)
	text := fmt.Sprintf("%s in %s µs would be %s", mebibytes(*r.Bytes), grid.Microseconds(duration(*seconds)),
		gigabits(needed))
	switch {
	case limit > 0 && r.BusRate == nil && needed > limit*roundedUp:
		r.Marks = append(r.Marks, text+", above "+of+", "+gigabits(limit))
	case r.Rate != nil && *r.Rate > 0 && needed > otherUnit**r.Rate:
		r.Marks = append(r.Marks, fmt.Sprintf("%s, %.3g times the rate in the same row", text, needed / *r.Rate))
	}
}

// lineRateOf is the sum over the devices; 0 if one is unknown.
func lineRateOf(devices string, rails []Rail) (sum float64) {
	for device := range strings.SplitSeq(devices, ",") {
		found := 0.0
		for _, r := range rails {
			if r.Device == device {
				found = max(found, r.LineRate)
			}
		}
		if found == 0 {
			return 0
		}
		sum += found
	}
	return sum
}

func gigabits(bytesPerSecond float64) string {
	if bytesPerSecond >= 1e12 {
		return grid.Decimal(bytesPerSecond*8/1e9, 0) + " Gb/s"
	}
	return grid.Gigabits(bytesPerSecond) + " Gb/s"
}

// duration is seconds within what a Duration can hold.
func duration(seconds float64) time.Duration {
	return time.Duration(min(max(seconds, -1e9), 1e9) * 1e9)
}

// mebibytes is a size in the largest unit that divides it.
func mebibytes(n int64) string {
	for _, unit := range []string{"B", "KiB", "MiB", "GiB"} {
		if n < 1024 || n%1024 != 0 || unit == "GiB" {
			return fmt.Sprintf("%d %s", n, unit)
		}
		n /= 1024
	}
	return ""
}
