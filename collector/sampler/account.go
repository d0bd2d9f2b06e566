package sampler

import (
	"math"
	"sync"
	"sync/atomic"
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

// The reasons for which a sample is dropped, as indices.
const (
	droppedReset = iota // the counter stepped back
	droppedGap          // the first after the device was gone, or could not be read for long
	droppedSlow         // the read took so long that its moment is not known
	Reasons             // how many these are
)

// DropReason names a reason as the label of metrics does.
func DropReason(i int) string { return [Reasons]string{"reset", "gap", "slow"}[i] }

// account holds the sums of a rail's samples. It outlives the device: one that vanishes and comes back goes on where it
// was, and nothing steps back.
type account struct {
	capacity atomic.Uint64 // bits of a float64, bytes per second; 0 while unknown

	mu      sync.Mutex // protects all following fields
	tally   [directions]Tally
	bytes   [directions]uint64  // seen by samples
	seconds [directions]float64 // that these cover
	recent  [directions]Recent
	limits  rail.Limits // as last read
}

func (a *account) setCapacity(c float64) { a.capacity.Store(math.Float64bits(c)) }
func (a *account) knownCapacity() float64 {
	return math.Float64frombits(a.capacity.Load())
}

// mark is the last reading of a counter.
type mark struct {
	value uint64
	at    time.Time
	tick  int64
	opens int // of its files, all together
	known bool
}

// outcome is what became of a reading.
type outcome int

const (
	first   outcome = iota // nothing to compare it with
	counted                // a sample
	reset                  // the counter stepped back
	gap                    // too long after the one before, or of a file opened anew
)

// advance replaces the mark by a reading and returns by how much the counter grew, in which time. A reading that cannot
// be compared with the one before is where the next sample begins.
func (m *mark) advance(now mark, most time.Duration) (grew uint64, took time.Duration, what outcome) {
	was := *m
	now.known = true
	*m = now
	took = now.at.Sub(was.at)
	switch {
	case !was.known:
		return 0, 0, first
	case now.opens != was.opens || took > most:
		return 0, 0, gap
	case now.value < was.value:
		return 0, 0, reset
	case took <= 0: // a clock too coarse for it: the next sample has both
		*m = was
		return 0, 0, first
	}
	return now.value - was.value, took, counted
}

// observe adds a sample, and reports whether the rail was busy in it.
func (a *account) observe(direction int, grew uint64, took time.Duration) (busy bool) {
	seconds, capacity := took.Seconds(), a.knownCapacity()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.bytes[direction] += grew
	a.seconds[direction] += seconds
	if capacity <= 0 {
		return false
	}
	u := float64(grew) / seconds / capacity
	a.tally[direction].observe(u, seconds)
	return u > BusyAbove
}
