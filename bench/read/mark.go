package read

import (
	"fmt"
	"strings"
	"time"

	"github.com/railscope/railscope/bench/grid"
)

// Rail is a rail of this node, to compare results with.
type Rail struct {
	Device string
	// LineRate is the maximum rate in bytes per second, only a share where others use its port or PCIe link; 0 if
	// unknown.
	LineRate float64
}

// roundedUp is the tolerance above a line rate: line rates are nominal, and tools round.
const roundedUp = 1.005

// otherUnit is the factor by which a size divided by its latency exceeds the rate of the row if a unit is wrong.
const otherUnit = 10

// Mark marks impossible figures: rates above the line rate, and sizes that could arrive within the latency only at more
// than the line rate or 10 times the row's rate. lineRate applies to every result, in bytes per second; 0 selects the
// line rate of the result's rail, if known.
func Mark(results []Result, lineRate float64, rails []Rail) {
	for i := range results {
		r := &results[i]
		limit, of := lineRate, "the line rate"
		if limit == 0 {
			limit, of = lineRateOf(r.Rail, rails), "the line rate of "+r.Rail
		}
		limit *= max(r.lanes, 1)
		if rate, name := r.judged(); limit > 0 && rate > limit*roundedUp {
			r.Marks = append(r.Marks, fmt.Sprintf("%s of %s is above %s, %s", name, grid.GigabitsPerSecond(rate), of,
				grid.GigabitsPerSecond(limit)))
		}
		r.markLatency(limit, of)
		r.markOrder()
	}
}

// markOrder marks times in the wrong order, such as a minimum above the average: units or runs are mixed.
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

// judged returns the rate on the wire. For collectives it is the bus bandwidth, since the other rate counts bytes that
// stay on the node.
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
		grid.GigabitsPerSecond(needed))
	switch {
	case limit > 0 && r.BusRate == nil && needed > limit*roundedUp:
		r.Marks = append(r.Marks, text+", above "+of+", "+grid.GigabitsPerSecond(limit))
	case r.Rate != nil && *r.Rate > 0 && needed > otherUnit**r.Rate:
		r.Marks = append(r.Marks, fmt.Sprintf("%s, %.3g times the rate in the same row", text, needed / *r.Rate))
	}
}

// lineRateOf returns the sum over the devices; 0 if one is unknown.
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

// duration is seconds within what a Duration can hold.
func duration(seconds float64) time.Duration {
	return time.Duration(min(max(seconds, -1e9), 1e9) * 1e9)
}

// mebibytes formats a size in the largest unit that divides it.
func mebibytes(n int64) string {
	for _, unit := range []string{"B", "KiB", "MiB", "GiB"} {
		if n < 1024 || n%1024 != 0 || unit == "GiB" {
			return fmt.Sprintf("%d %s", n, unit)
		}
		n /= 1024
	}
	return ""
}
