package sampler

import (
	"slices"
	"time"

	"github.com/railscope/railscope/internal/rail"
)

// windowPoints is how many points back rails_imbalance_ratio reaches: a second
// each, or as many seconds as make the window two samples long.
const windowPoints = 10

// pointSeconds is the time between two points.
func pointSeconds(interval time.Duration) int {
	return max(1, int((2*interval+windowPoints*time.Second-1)/(windowPoints*time.Second)))
}

// window is what a rail carried up to each of the last points.
type window struct {
	points [windowPoints + 1]point
	n      int // points added
	last   int // second of the last one
}

type point struct {
	bytes   uint64
	seconds float64 // covered by samples
	busy    float64 // of these, busy
}

// push adds the point of a second. Where the one before is not as many seconds ago as it should be, the rail was away,
// and what it carried before belongs to no window of now.
func (w *window) push(p point, second, apart int) {
	if second-w.last != apart {
		w.n = 0
	}
	w.last = second
	w.points[w.n%len(w.points)] = p
	w.n++
}

// over returns what came in the window.
func (w *window) over() point {
	if w.n == 0 {
		return point{}
	}
	last := w.points[(w.n-1)%len(w.points)]
	oldest := w.points[0]
	if w.n > len(w.points) {
		oldest = w.points[w.n%len(w.points)]
	}
	return point{last.bytes - oldest.bytes, last.seconds - oldest.seconds, last.busy - oldest.busy}
}

// Set sums up all rails in one direction.
type Set struct {
	Known      bool    // the capacity of a rail is known, or was; otherwise nothing below is
	Active     int     // rails that were busy in the window
	Busy       float64 // seconds in which any rail was
	Imbalanced float64 // of these, seconds in which the window was imbalanced
	Imbalance  float64 // over the window, of the worst group of rails
	Balanced   bool    // Imbalance is known: a group of two rails or more was busy
}

// reach is the last that was known of what a rail can carry. A rail that went
// down carries nothing of it, and that is what alerts are to see; one that has
// not been up was perhaps never meant to be.
type reach struct {
	capacity float64    // bytes per second; 0 unknown
	group    rail.Group // by the greatest rate that it has had
}

// update records what a rail can carry now.
func (r *reach) update(capacity, rate float64) {
	if capacity > 0 {
		r.capacity = capacity
	}
	r.group.Rate = max(r.group.Rate, rate)
}

// judge compares the rails' windows. A group in which no rail was busy is not
// judged: stray packets of an idle node are no imbalance.
func (s *Set) judge(direction int, reaches []*reach, windows []*[directions]window) (imbalanced bool) {
	s.Known, s.Active, s.Balanced, s.Imbalance = false, 0, false, 0
	loads, busy := make([]rail.Load, 0, len(reaches)), map[rail.Group]bool{}
	for i, r := range reaches {
		w := windows[i][direction].over()
		if r.capacity <= 0 {
			continue // what it could carry is not known, so neither is its share
		}
		s.Known = true
		if w.seconds <= 0 {
			continue // stuck, or just found
		}
		loads = append(loads, rail.Load{Group: r.group, Rate: float64(w.bytes) / w.seconds, Capacity: r.capacity})
		if w.busy > 0 {
			s.Active++
			busy[r.group] = true
		}
	}
	loads = slices.DeleteFunc(loads, func(l rail.Load) bool { return !busy[l.Group] })
	s.Imbalance, s.Balanced = rail.Imbalance(loads)
	return s.Imbalance > rail.ImbalancedAbove
}
