package sampler

import (
	"slices"

	"github.com/railscope/railscope/internal/rail"
)

// Set sums up all rails in one direction.
type Set struct {
	Known      bool    // the capacity of a rail is or was known; if not, nothing below is
	Active     int     // rails that were busy in the window
	Busy       float64 // seconds in which any rail was
	Imbalanced float64 // of these, seconds in which the window was imbalanced
	Imbalance  float64 // over the window, of the worst group of rails
	Balanced   bool    // Imbalance is known: a group of two rails or more was busy
}

// reach is the last known capacity: a rail that went down carries nothing of it, one that was never up may be unused.
type reach struct {
	capacity float64    // bytes per second; 0 unknown
	group    rail.Group // by the highest rate so far
}

// judge compares what rails carried in a window of seconds, except in groups without a busy rail: stray packets.
func (s *Set) judge(direction int, accounts []*account, window int) (imbalanced bool) {
	s.Known, s.Active, s.Balanced, s.Imbalance = false, 0, false, 0
	loads, busy := make([]rail.Load, 0, len(accounts)), map[rail.Group]bool{}
	for _, a := range accounts {
		if a.reach.capacity <= 0 {
			continue // without a capacity it has no share
		}
		s.Known = true
		w := a.history[direction].over(window)
		if w.seconds <= 0 {
			continue // it hangs, or has just been found
		}
		group := a.reach.group
		loads = append(loads, rail.Load{Group: group, Rate: float64(w.bytes) / w.seconds, Capacity: a.reach.capacity})
		if w.busy > 0 {
			s.Active++
			busy[group] = true
		}
	}
	loads = slices.DeleteFunc(loads, func(l rail.Load) bool { return !busy[l.Group] })
	s.Imbalance, s.Balanced = rail.Imbalance(loads)
	return s.Imbalance > rail.ImbalancedAbove
}

// union measures how long any rail was busy, by a mark per tick in a ring. The sampler's mutex protects it.
type union struct {
	ticks   []uint8 // by tick modulo length: a bit for each direction
	counted int64   // the last tick that is counted
}

func (u *union) mark(direction int, from, to int64) {
	n := int64(len(u.ticks))
	for t := max(from, u.counted) + 1; t <= min(to, u.counted+n); t++ {
		u.ticks[t%n] |= 1 << direction
	}
}

func (u *union) count(to int64) (busy [directions]int64) {
	n := int64(len(u.ticks))
	for t := u.counted + 1; t <= min(to, u.counted+n); t++ {
		for d := range busy {
			busy[d] += int64(u.ticks[t%n] >> d & 1)
		}
		u.ticks[t%n] = 0
	}
	u.counted = max(u.counted, to)
	return busy
}
