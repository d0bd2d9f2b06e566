package sampler

import "math"

// Shares of the capacity above which a rail counts as busy and as saturated.
const (
	BusyAbove      = 0.01
	SaturatedAbove = 0.95
)

// The native buckets: eight per doubling (schema 3 of Prometheus' native histograms), from NativeZeroThreshold up to 4.
// The last one also has higher values: one of two functions that share a port can reach 2.
const (
	NativeSchema        = 3
	NativeZeroThreshold = 1. / 1024
	NativeFirst         = -79 // index of the first bucket, (2^(-80/8), 2^(-79/8)]
	nativeCount         = 96
)

// ClassicBounds are the upper bounds of the classic buckets.
func ClassicBounds() []float64 { return classicBounds[:] }

var classicBounds = [...]float64{BusyAbove, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, SaturatedAbove}

// nativeBounds are the bounds of the eight buckets of (0.5, 1], 2^(i/8-1), with client_golang's digits.
var nativeBounds = [...]float64{0.5, 0.5452538663326288, 0.5946035575013605, 0.6484197773255048,
	0.7071067811865475, 0.7711054127039704, 0.8408964152537144, 0.9170040432046711}

// Tally has the sums of the samples of a rail in one direction.
type Tally struct {
	Samples         uint64                         // of known utilization
	Sum             float64                        // of their utilizations
	Classic         [len(classicBounds) + 1]uint64 // samples in each bucket, not cumulative; the last is +Inf
	Zero            uint64                         // up to NativeZeroThreshold
	Native          [nativeCount]uint64            // from NativeFirst on
	Busy, Saturated float64                        // seconds
}

func (t *Tally) observe(u, seconds float64) {
	t.Samples++
	t.Sum += u
	i := 0
	for i < len(classicBounds) && u > classicBounds[i] {
		i++
	}
	t.Classic[i]++
	if u > NativeZeroThreshold {
		t.Native[nativeBucket(u)]++
	} else {
		t.Zero++
	}
	if u > BusyAbove {
		t.Busy += seconds
	}
	if u > SaturatedAbove {
		t.Saturated += seconds
	}
}

// nativeBucket is the index of the bucket of u, above the zero threshold: bucket i of Prometheus reaches from
// 2^((i-1)/8), exclusive, to 2^(i/8).
func nativeBucket(u float64) int {
	frac, exp := math.Frexp(u)
	key := (exp - 1) * len(nativeBounds)
	for _, bound := range nativeBounds {
		if frac <= bound {
			break
		}
		key++
	}
	return min(key-NativeFirst, nativeCount-1)
}
