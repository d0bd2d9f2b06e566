package sampler

import (
	"math"
	"time"
)

// RecentSeconds is how many seconds [Recent] holds.
const RecentSeconds = 120

// Recent is what a rail carried in one direction in each of the last seconds,
// for the live page: alerts have the counters.
type Recent struct {
	// Rate is in bytes per second, over the last one to two seconds; NaN while
	// there are no samples of them.
	Rate float64

	rates [RecentSeconds]float32 // bytes per second, by second modulo length; NaN: not sampled
	n     int                    // seconds added
	last  int                    // number of the last one
	marks [2]recentMark          // at the second before the last one that had samples, and at that one
	late  int                    // seconds without samples since
}

// recentMark is what an account had counted at a second.
type recentMark struct {
	bytes   uint64
	seconds float64
}

// add adds a second: what the account has counted up to it. Where samples are rarer than seconds, a second without one
// is like the one before.
func (r *Recent) add(bytes uint64, seconds float64, second int, interval time.Duration) {
	if r.n > 0 {
		for missed := min(second-r.last-1, RecentSeconds); missed > 0; missed-- {
			r.push(math.NaN()) // the rail was away
		}
	}
	r.last = second
	last := r.marks[1]
	took, rate := seconds-last.seconds, math.NaN()
	switch {
	case took > 0:
		rate, r.late = float64(bytes-last.bytes)/took, 0
	case r.n > 0 && time.Duration(r.late)*time.Second < interval:
		r.late++
		r.push(float64(r.rates[(r.n-1)%RecentSeconds]))
		return
	}
	r.marks = [2]recentMark{last, {bytes, seconds}}
	r.push(rate)
}

func (r *Recent) push(rate float64) {
	r.rates[r.n%RecentSeconds] = float32(rate)
	r.n++
}

// rateUpTo sets Rate by what the account has counted by now.
func (r *Recent) rateUpTo(bytes uint64, seconds float64) {
	r.Rate = math.NaN()
	if took := seconds - r.marks[0].seconds; took > 0 {
		r.Rate = float64(bytes-r.marks[0].bytes) / took
	}
}

// AppendTo appends the rates of the last seconds, in bytes per second, oldest
// first; NaN where there were no samples.
func (r *Recent) AppendTo(to []float64) []float64 {
	for i := max(0, r.n-RecentSeconds); i < r.n; i++ {
		to = append(to, float64(r.rates[i%RecentSeconds]))
	}
	return to
}
