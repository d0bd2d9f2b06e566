package main

import (
	"fmt"
	"hash/fnv"
	"math"

	ours "github.com/railscope/railscope/internal/rail"
)

// What happens to the fleet, by node, counted from 1. Times are minutes before
// the end.
const (
	slow, slowRail, slowSince             = 3, 5, 25.0  // a rail that gives a third of what it should, with a bad cable
	congested, congestedSince             = 5, 40.0     // its switch marks and pauses
	fallen, fallenSince                   = 7, 18.0     // its job goes by TCP, and so do probes of it
	full                                  = 9           // a GPU without memory left
	dead, deadRail, deadSince             = 10, 2, 12.0 // a rail without a link
	misbound, misboundRail, misboundSince = 12, 1, 33.0 // addresses on another interface
	goneSince                             = 20.0        // the last node does not answer any more
	restartFrom, restartTo                = 45.0, 42.0  // the job of the first eight nodes starts again

	rails    = 8
	capacity = 50e9 // bytes per second
	memory   = 80 << 30
)

// before is how many minutes t is before the end; in a sound world nothing has begun.
func (w *world) before(t float64) float64 {
	if w.sound {
		return math.MaxFloat64
	}
	return (w.lasts - t) / 60
}

// noise is between -1 and 1, the same for the same words.
func noise(words ...any) float64 {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, words...)
	return float64(h.Sum64()%20001)/10000 - 1
}

// job is how much of its rails a node's job wants to use.
func (w *world) job(node int, t float64) float64 {
	b := w.before(t)
	wave := 0.05*math.Sin(t/90) + 0.04*noise("job", node, int(t/30))
	switch {
	case node <= 8 && b < restartFrom && b > restartTo:
		return 0
	case node <= 8:
		return 0.58 + wave
	case node <= 12:
		return 0.31 + wave
	}
	return 0.0004 * (1 + noise("idle", node, int(t/30)))
}

// load is what a rail carries of what it could: a rail that is slow holds up the
// others of its node, and the job with them.
func (w *world) load(node, rail int, t float64) float64 {
	b, u := w.before(t), w.job(node, t)
	if node <= 8 && b < slowSince && u > 0.1 {
		u *= 0.8
	}
	switch {
	case node == slow && rail == slowRail && b < slowSince:
		u = math.Min(u, 0.3+0.02*noise("slow", int(t)))
	case node == dead && b < deadSince && rail == deadRail:
		return 0
	case node == dead && b < deadSince:
		u *= 8.0 / 7
	case node == fallen && b < fallenSince:
		return 0
	}
	return math.Max(0, u*(1+0.02*noise("rail", node, rail, int(t/30))))
}

// tcp is what a rail's interface carries that is not RDMA.
func (w *world) tcp(node int, t float64) float64 {
	if node == fallen && w.before(t) < fallenSince {
		return capacity * 0.05 * (1 + 0.2*noise("tcp", int(t/30)))
	}
	return 2e5 * (1 + 0.5*noise("ssh", node, int(t/30)))
}

// imbalance is that of all rails, which are of one group.
func (w *world) imbalance(node int, t float64) float64 {
	loads := make([]ours.Load, rails)
	for r := range loads {
		loads[r] = ours.Load{Rate: w.load(node, r, t), Capacity: 1}
	}
	imbalance, _ := ours.Imbalance(loads)
	return imbalance
}

func (w *world) up(node, rail int, t float64) bool {
	return node != dead || rail != deadRail || w.before(t) > deadSince
}

// Rounds of the probe: a pair of which one end has fallen goes by TCP.

func (w *world) byTCP(from, to int, t float64) bool {
	return (from == fallen || to == fallen) && w.before(t) < fallenSince
}

// gives is what a rail of a pair gives, of its capacity.
func (w *world) gives(from, to, rail int, t float64) float64 {
	minute := int(t / 60)
	for _, node := range []int{from, to} {
		switch {
		case node == dead && !w.up(node, rail, t):
			return 0
		case node == slow && rail == slowRail && w.before(t) < slowSince:
			return 0.33 + 0.01*noise(from, to, rail, minute)
		}
	}
	return 0.94 + 0.015*noise(from, to, rail, minute)
}

// microseconds is the round trip of a pair: nodes 1 to 8 are behind one switch,
// the others behind another, and one is congested.
func (w *world) microseconds(from, to int, t float64) float64 {
	us := 3.1
	if (from <= 8) != (to <= 8) {
		us = 6.4
	}
	if (from == congested || to == congested) && w.before(t) < congestedSince {
		us *= 3
	}
	return us
}
