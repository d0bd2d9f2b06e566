package sampler

import (
	"slices"
	"time"

	"github.com/railscope/railscope/internal/rail"
)

// windowPoints is how many points back rails_imbalance_ratio looks: a second
// each, or as many seconds as make the window two samples long.
const windowPoints = 10

// pointSeconds is the time between two points.
func pointSeconds(interval time.Duration) int {
	return max(1, int((2*interval+windowPoints*time.Second-1)/(windowPoints*time.Second)))
}

// ImbalancedAbove is by how much the busiest rail may exceed the mean of all
// before they count as imbalanced. It is not the ratio itself, because of that
// the same loss is less the more rails there are.
const ImbalancedAbove = 0.1

// ImbalancedBelow is the part of the busiest rail's load below which another one
// is left behind: of eight or more rails a slow one, and of a dozen one that
// carries nothing, does not bring the mean down enough to be seen by it.
const ImbalancedBelow = 0.75

// window is what a rail carried up to each of the last points.
type window struct {
	points [windowPoints + 1]point
	n      int // points taken in
	last   int // second of the last one
}

type point struct {
	bytes   uint64
	seconds float64 // covered by samples
	busy    float64 // of these, busy
}

// push takes in the point of a second, the one before being so many seconds ago.
// Where it is not the rail was away, and what it carried before is of no window
// of now.
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

// Set is what all rails together came to in one direction.
type Set struct {
	Known      bool    // the capacity of a rail is known, or was; otherwise nothing below is
	Active     int     // rails that were busy in the window
	Busy       float64 // seconds in which any rail was
	Imbalanced float64 // of these, seconds in which the window was imbalanced
	Imbalance  float64 // over the window
	Balanced   bool    // Imbalance is known: at least two rails, and one was busy
}

// judge looks at the rails' windows. capacity is the last that was known of each:
// a rail that went down carries nothing of what it could, and that is what alerts
// are to see; one that has not been up was perhaps never meant to be. load is
// memory for it.
func (s *Set) judge(direction int, capacity []float64, windows []*[directions]window, load []float64) (imbalanced bool) {
	s.Known, s.Active, s.Balanced, s.Imbalance = false, 0, false, 0
	load = load[:0]
	busy := false
	for i, c := range capacity {
		w := windows[i][direction].over()
		if c <= 0 {
			continue // what it could carry is not known, so neither is its share
		}
		s.Known = true
		if w.seconds <= 0 {
			continue // stuck, or just found
		}
		load = append(load, float64(w.bytes)/w.seconds/c)
		if w.busy > 0 {
			s.Active++
			busy = true
		}
	}
	if !busy || len(load) < 2 {
		return false
	}
	s.Balanced, s.Imbalance = true, rail.Imbalance(load)
	return s.Imbalance*float64(len(load)-1) > ImbalancedAbove || slices.Min(load) < ImbalancedBelow*slices.Max(load)
}
