package sampler

import (
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
	tally    [directions]Tally
	bytes    [directions]uint64  // seen by samples
	seconds  [directions]float64 // covered by them
	limits   rail.Limits         // as last read
	history  [directions]history
	reach    reach
	tcp      [directions]tcpRate
	physical [directions]physicalRate
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
