package sampler

import (
	"math"
	"time"

	"github.com/railscope/railscope/internal/rail"
)

// Indices of the directions.
const (
	Receive    = rail.Receive
	Transmit   = rail.Transmit
	directions = rail.Directions
)

// Direction returns the label value of a direction.
func Direction(i int) string { return [directions]string{"receive", "transmit"}[i] }

// Reasons for dropped samples, as indices.
const (
	droppedReset = iota // the counter decreased
	droppedGap          // the file was reopened, or the last reading is too old
	droppedSlow         // the read took so long that its time is unknown
	Reasons             // number of reasons

	counted = Reasons // not dropped: it is a sample
	first   = -1      // no earlier reading to compare with
)

// DropReason returns the label value of a reason.
func DropReason(i int) string { return [Reasons]string{"reset", "gap", "slow"}[i] }

// account holds a rail's sums. It outlives the device, so that no sum decreases. The sampler's mutex protects it.
type account struct {
	capacity float64 // bytes per second; 0 if unknown
	// The last known capacity. A rail that went down keeps it and carries nothing; a rail that was never up may be
	// unused.
	lastCapacity float64

	name  string
	group rail.Group // determined by the highest rate so far
	use
	tally    [directions]Tally
	bytes    [directions]uint64  // total of the samples
	seconds  [directions]float64 // time that the samples cover
	limits   rail.Limits         // limits of the last read
	history  [directions]history
	tcp      [directions]tcpRate
	physical [directions]physicalRate

	own   [directions]uint64 // bytes of own measurements at the last second
	quiet int                // seconds since they changed or a measurement ran

	// length of the shortest sample if the counters are updated less often than they are read; else 0
	window time.Duration
}

// use says which jobs use a rail.
type use struct {
	unused   bool   // no job is connected over it, but jobs are connected over other rails of its role
	jobs     string // jobs that are connected over it; empty if there are none or they are not known
	jobsFrom int    // second since which jobs has not changed
}

// lag returns how long bytes may be missing in the samples because the counters are updated rarely.
func (a *account) lag() time.Duration { return 2 * a.window }

func (a *account) now(direction int) point {
	return point{bytes: a.bytes[direction], seconds: a.seconds[direction], busy: a.tally[direction].Busy}
}

type mark struct {
	value uint64
	at    time.Time
	tick  int64
	opens int // number of opens of its files, in total
	known bool
}

// advance replaces the mark by a reading, and returns by how much the counter grew in which time, and the kind of
// the reading. A reading that cannot be compared with the last one starts the next sample.
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
	case took <= 0: // the clock is too coarse: the next sample includes this one
		*m = was
		return 0, 0, first
	}
	return now.value - was.value, took, counted
}

func (a *account) observe(direction int, s sample) (busy, stalled bool) {
	seconds := s.took.Seconds()
	a.bytes[direction] += s.grew
	a.seconds[direction] += seconds
	if a.capacity <= 0 {
		a.history[direction].peaks.sample(s.grew, s.took)
		return false, false
	}
	u := float64(s.grew) / seconds / a.capacity
	if u > impossibleAbove && s.still > s.took { // the bytes also belong to the time in which the counter stalled
		u, stalled = u*seconds/s.still.Seconds(), true
		s.took = s.still
	}
	a.history[direction].peaks.sample(s.grew, s.took)
	a.tally[direction].observe(u, seconds)
	return u > BusyAbove, stalled
}

// impossible returns the rate above which the time of samples must be wrong.
func (a *account) impossible() float64 {
	if most := max(a.lastCapacity, a.limits.Rate); most > 0 {
		return impossibleAbove * most
	}
	return math.Inf(1)
}

// impossibleAbove is a share of the capacity that a rail cannot carry, even with errors of the measured time.
const impossibleAbove = 1.1

// Shares of the capacity above which a rail counts as busy and as saturated.
const (
	BusyAbove      = 0.01
	SaturatedAbove = 0.95
)

// Tally has the sums of the samples of a rail in one direction.
type Tally struct {
	Samples         uint64    // number of samples with a known utilization
	Utilization     Histogram // histogram of their utilization; nil without Options.Histogram
	Busy, Saturated float64   // seconds
}

// Histogram counts utilizations in buckets, while others may read it.
type Histogram interface{ Observe(utilization float64) }

func (t *Tally) observe(u, seconds float64) {
	t.Samples++
	if t.Utilization != nil {
		t.Utilization.Observe(u)
	}
	if u > BusyAbove {
		t.Busy += seconds
	}
	if u > SaturatedAbove {
		t.Saturated += seconds
	}
}
