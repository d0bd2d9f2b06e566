package sampler

import (
	"time"

	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/stats"
)

// Thresholds of a lag.
const (
	lagBelow   = 0.5  // share of the peak of its equals up to which a rail lags
	lagMinPeak = 0.2  // share of the capacity below which the peak of the equals says nothing
	lagMinutes = 5    // consecutive minutes that can be compared after which a rail lags
	minSettled = 50.0 // seconds of a minute that samples must cover
)

// Lag says that a rail never went faster than half of the rate that its equals reached, while it carried as many bytes
// for the same jobs: something on its path limits it. Zero: no such evidence.
type Lag struct {
	Rate   float64 // highest rate of the rail, bytes per second
	Equals float64 // median of the highest rates of its equals, bytes per second
}

// lag is the state of the comparison of a rail in one direction.
type lag struct {
	streak int // consecutive minutes in which it lagged
	last   time.Time
	Lag
}

// verdict returns the lag, if there is enough evidence in the last hour.
func (l *lag) verdict(now time.Time) Lag {
	if l.streak < lagMinutes || now.Sub(l.last) >= peakMinutes*time.Minute {
		return Lag{}
	}
	return l.Lag
}

// note adds a minute in which the rail could be compared. A rail that reached more than half of the rate of its equals
// once does not lag.
func (l *lag) note(minute Lag, now time.Time) {
	lags := minute.Rate <= lagBelow*minute.Equals
	if !lags || now.Sub(l.last) >= peakMinutes*time.Minute {
		*l = lag{}
	}
	if !lags {
		return
	}
	l.streak, l.last = l.streak+1, now
	l.Rate, l.Equals = max(l.Rate, minute.Rate), minute.Equals
}

// noteJobs notes the jobs that are connected over the rail in a second.
func (u *use) noteJobs(second int, jobs string) {
	if jobs != u.jobs || u.jobsFrom == 0 {
		u.jobs, u.jobsFrom = jobs, second
	}
}

// forgetLags drops the evidence against a rail whose link has changed: it may have been repaired.
func (a *account) forgetLags() {
	for d := range a.history {
		a.history[d].lag = lag{}
	}
}

// carriedMinute is what a rail carried in one direction in the last minute.
type carriedMinute struct {
	of    *lag
	equal struct { // what equals have in common
		group rail.Group
		jobs  string
	}
	capacity float64
	rate     float64              // mean, bytes per second
	peaks    [PeakWindows]float64 // bytes per second; 0: none
}

// minuteLocked compares what rails carried in the last whole minute.
func (s *Sampler) minuteLocked(accounts []*account) {
	now := time.Now()
	minute := now.Unix() / 60
	if minute == s.minute {
		return
	}
	s.minute = minute
	for d := range directions {
		var all []carriedMinute
		for _, a := range accounts {
			if m, ok := a.lastMinute(d, s.seconds, minute-1); ok {
				all = append(all, m)
			}
		}
		for i := range all {
			if l, comparable := all[i].against(all); comparable {
				all[i].of.note(l, now)
			}
		}
	}
}

// lastMinute returns what the rail carried in the minute that ends now. ok is false if it was not busy, is not used by
// the jobs that use others, or they came or went in that minute.
func (a *account) lastMinute(direction, second int, minute int64) (m carriedMinute, ok bool) {
	h := &a.history[direction]
	carried, settled := h.settledOver(60)
	if !settled || a.unused || a.lastCapacity <= 0 || carried.seconds < minSettled || second-a.jobsFrom < 60 {
		return m, false
	}
	bytes, busy := carried.real(a.lastCapacity)
	m = carriedMinute{of: &h.lag, capacity: a.lastCapacity, rate: bytes / carried.seconds}
	m.equal.group, m.equal.jobs = a.group, a.jobs
	for w := range m.peaks {
		if p := h.peaks.minutes[w][minute%(peakMinutes+1)]; p.At.Unix()/60 == minute {
			m.peaks[w] = p.Rate
		}
	}
	return m, busy && m.peaks[PeakSecond] > 0
}

// against compares the rail with its equals: rails of its group that the same jobs use. They can be compared if it
// carried as much as they did. A rail that carried less may have had less to carry, which the shares of traffic say.
func (m *carriedMinute) against(all []carriedMinute) (l Lag, comparable bool) {
	var rates []float64
	var peaks [PeakWindows][]float64
	for i := range all {
		o := &all[i]
		if o == m || o.equal != m.equal {
			continue
		}
		rates = append(rates, o.rate)
		for w, peak := range o.peaks {
			if peak > 0 {
				peaks[w] = append(peaks[w], peak)
			}
		}
	}
	if len(rates) == 0 {
		return l, false
	}
	window := PeakSecond
	if m.peaks[PeakTenth] > 0 && len(peaks[PeakTenth]) == len(rates) {
		window = PeakTenth
	}
	const even = 1 - rail.ImbalancedAbove
	rate := stats.Median(rates)
	l = Lag{Rate: m.peaks[window], Equals: stats.Median(peaks[window])}
	return l, m.rate >= even*rate && rate >= even*m.rate && max(l.Rate, l.Equals) >= lagMinPeak*m.capacity
}
