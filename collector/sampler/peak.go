package sampler

import "time"

// Windows of peaks, as indices.
const (
	PeakSecond  = iota // 1 s, or the time between two samples if that is longer
	PeakTenth          // 100 ms; nothing where samples cover a longer time
	PeakWindows        // number of windows
)

// PeakWindow returns the label value of a window.
func PeakWindow(i int) string { return [PeakWindows]string{"1s", "100ms"}[i] }

// peakMinutes is the time for which peaks are kept, in minutes.
const peakMinutes = 60

// tenth is the window of [PeakTenth]. Samples that together cover 5 % less are one, because reads are not exactly
// periodic.
const tenth = 100 * time.Millisecond

// Peak is the highest rate of a rail in one direction in the last hour, without own measurements. A window in which the
// rail was not busy has none.
type Peak struct {
	Rate float64   // bytes per second; 0: there was no traffic
	At   time.Time // end of the second in which it was
}

// peaks holds the highest rates of the last hour.
type peaks struct {
	minutes [PeakWindows][peakMinutes + 1]Peak // by minute modulo length

	from    point // start of the present second
	begun   bool  // from is set
	grew    uint64
	took    time.Duration // time that grew covers
	pending float64       // highest rate over 100 ms since the last second
}

// sample adds a sample.
func (p *peaks) sample(grew uint64, took time.Duration) {
	p.grew, p.took = p.grew+grew, p.took+took
	if p.took < tenth-tenth/20 {
		return
	}
	if p.took <= 2*tenth {
		p.pending = max(p.pending, float64(p.grew)/p.took.Seconds())
	}
	p.grew, p.took = 0, 0
}

// second ends a second, in which the rail had the capacity, or 0. A rate above limit is one that the rail cannot carry:
// its time is wrong. What was read while own measurements were under way, or had bytes missing, is dropped.
func (p *peaks) second(now point, capacity, limit float64, at time.Time) {
	pending := p.pending
	p.pending = 0
	if !now.settled {
		p.begun = false
		return
	}
	if pending > BusyAbove*capacity && pending <= limit {
		p.add(PeakTenth, Peak{pending, at})
	}
	since := now.since(&p.from)
	if p.begun && since.seconds < 0.95 {
		return
	}
	if bytes, busy := since.real(capacity); p.begun && busy {
		if rate := bytes / since.seconds; rate <= limit {
			p.add(PeakSecond, Peak{rate, at})
		}
	}
	p.from, p.begun = now, true
}

func (p *peaks) add(window int, peak Peak) {
	minute := &p.minutes[window][peak.At.Unix()/60%(peakMinutes+1)]
	if peak.At.Sub(minute.At) >= time.Minute || peak.Rate > minute.Rate {
		*minute = peak
	}
}

// highest returns the highest rate of the last hour.
func (p *peaks) highest(window int, now time.Time) (highest Peak) {
	for _, peak := range p.minutes[window] {
		if peak.Rate > highest.Rate && now.Sub(peak.At) < peakMinutes*time.Minute {
			highest = peak
		}
	}
	return highest
}
