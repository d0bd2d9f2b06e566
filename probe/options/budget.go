package options

import (
	"math"
	"time"
)

// Budget limits how much of its rails a node may use for rounds that it asks. A second budget of the same size
// covers the rounds that it answers: these use the other direction.
type Budget struct {
	Share float64 // fraction of each rail's time, for example 0.005
	Bytes int64   // bytes per hour over all rails, instead of Share; 0: Share applies
}

// PerHour returns the time of each rail that the budget grants per hour. rate is the sum over the rails, in bytes
// per second.
func (b Budget) PerHour(rate float64) time.Duration {
	if b.Bytes > 0 {
		return RailTime(b.Bytes, rate)
	}
	return time.Duration(b.Share * float64(time.Hour))
}

// RailTime returns how long the rails, with this total rate, need for the bytes.
func RailTime(bytes int64, rate float64) time.Duration {
	return Seconds(float64(bytes) / rate)
}

// LeasesPerHour is how many leases of the largest size fit into an hour's budget.
const LeasesPerHour = 8

// BudgetFor returns the least budget, as a share of time in steps of 0.1 %, that grants a lease of this rail time.
func BudgetFor(lease time.Duration) float64 {
	return math.Ceil(1000*lease.Seconds()*LeasesPerHour/time.Hour.Seconds()) / 1000
}

// Seconds returns s seconds as a duration that does not overflow.
func Seconds(s float64) time.Duration {
	return time.Duration(min(s*float64(time.Second), float64(math.MaxInt64/2)))
}
