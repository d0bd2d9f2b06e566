package sampler

import (
	"math"
	"time"

	"github.com/railscope/railscope/internal/rail"
)

// The directions, as indices.
const (
	Receive    = rail.Receive
	Transmit   = rail.Transmit
	directions = rail.Directions
)

// Direction names a direction as the label of metrics does.
func Direction(i int) string { return [directions]string{"receive", "transmit"}[i] }

// The reasons for dropped samples, as indices.
const (
	droppedReset = iota // the counter stepped back
	droppedGap          // the file was opened again, or the last reading is too old
	droppedSlow         // the read took so long that its time is unknown
	Reasons             // number of reasons

	counted = Reasons // not dropped: it is a sample
	first   = -1      // nothing to compare it with
)

// DropReason names a reason as the label of metrics does.
func DropReason(i int) string { return [Reasons]string{"reset", "gap", "slow"}[i] }

// account has a rail's sums and outlives the device: nothing steps back. The sampler's mutex protects it.
type account struct {
	capacity float64 // bytes per second; 0 while unknown
	// The last known one: a rail that went down carries nothing of it, one that was never up may be unused.
	lastCapacity float64

	group    rail.Group // by the highest rate so far
	unused   bool       // no job is connected over it, and some are over others of its role
	tally    [directions]Tally
	bytes    [directions]uint64  // seen by samples
	seconds  [directions]float64 // covered by them
	limits   rail.Limits         // as last read
	history  [directions]history
	tcp      [directions]tcpRate
	physical [directions]physicalRate

	own   [directions]uint64 // bytes of own measurements at the last second
	quiet int                // seconds since they changed, or one was under way
}

func (a *account) now(direction int) point {
	return point{a.bytes[direction], a.seconds[direction], a.tally[direction].Busy}
}

type mark struct {
	value uint64
	at    time.Time
	tick  int64
	opens int // of its files, in total
	known bool
}

// advance replaces the mark by a reading, and returns by how much the counter grew in which time, and what the reading
// is. One that cannot be compared with the last one is the start of the next sample.
func (m *mark) advance(now mark, most time.Duration) (grew uint64, took time.Duration, what int) {
	was := *m
	now.known = true
	*m = now
	took = now.at.Sub(was.at)
	switch {
	case !was.known:
		return 0, 0, first
	case now.opens != was.opens || took > most:
		return 0, 0, droppedGap
	case now.value < was.value:
		return 0, 0, droppedReset
	case took <= 0: // the clock is too coarse: the next sample has both
		*m = was
		return 0, 0, first
	}
	return now.value - was.value, took, counted
}

func (a *account) observe(direction int, grew uint64, took time.Duration) (busy bool) {
	seconds := took.Seconds()
	a.bytes[direction] += grew
	a.seconds[direction] += seconds
	if a.capacity <= 0 {
		return false
	}
	u := float64(grew) / seconds / a.capacity
	a.tally[direction].observe(u, seconds)
	return u > BusyAbove
}

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
