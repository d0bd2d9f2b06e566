package fleetgen

import (
	"fmt"
	"hash/fnv"
	"math"
	"strconv"
)

// Events of a story, by node, counted from 1. Times are minutes before the end.
const (
	slow, slowRail, slowSince             = 3, 5, 25.0  // a rail with 1/3 of its goodput and a bad cable
	congested, congestedSince             = 5, 40.0     // its switch marks packets and sends pause frames
	fallen, fallenSince                   = 7, 18.0     // its job falls back to TCP, and so do its probes
	full                                  = 9           // a GPU without free memory
	dead, deadRail, deadSince             = 10, 2, 12.0 // a rail without a link
	misbound, misboundRail, misboundSince = 12, 1, 33.0 // addresses on another interface
	goneSince                             = 20.0        // the last node no longer answers
	restartFrom, restartTo                = 45.0, 42.0  // the job of the first eight nodes restarts
)

// Story is the world of the dashboards' pictures: busy nodes, and faults one after another. It is for looking at
// dashboards, not for testing them. With fewer than 13 nodes some faults have no node.
type Story struct {
	World // values that the story does not change
	Nodes int
	Lasts float64 // seconds
	Sound bool    // without faults
}

// before returns how many minutes t is before the end; in a sound world no fault ever begins.
func (w Story) before(t float64) float64 {
	if w.Sound {
		return math.MaxFloat64
	}
	return (w.Lasts - t) / 60
}

// The methods of World.

// Noise is derived from a hash of the words.
func (Story) Noise(words ...any) float64 {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, words...)
	return float64(h.Sum64()%20001)/10000 - 1
}

// Gone is true for the last node.
func (w Story) Gone(n int, t float64) bool {
	return n == w.Nodes && w.Nodes > 2 && w.before(t) <= goneSince
}

// job returns how much of its rails a node's job would use.
func (w Story) job(node int, t float64) float64 {
	b := w.before(t)
	wave := 0.05*math.Sin(t/90) + 0.04*w.Noise("job", node, int(t/30))
	switch {
	case node <= 8 && b < restartFrom && b > restartTo:
		return 0
	case node <= 8:
		return 0.58 + wave
	case node <= 12:
		return 0.31 + wave
	}
	return 0.0004 * (1 + w.Noise("idle", node, int(t/30)))
}

// Load is lower with a slow rail on the node: it delays the other rails, and with them the whole job.
func (w Story) Load(node, rail int, t float64) float64 {
	b, u := w.before(t), w.job(node, t)
	if node <= 8 && b < slowSince && u > 0.1 {
		u *= 0.8
	}
	switch {
	case node == slow && rail == slowRail && b < slowSince:
		u = math.Min(u, 0.3+0.02*w.Noise("slow", int(t)))
	case node == dead && b < deadSince && rail == deadRail:
		return 0
	case node == dead && b < deadSince:
		u *= 8.0 / 7
	case node == fallen && b < fallenSince:
		return 0
	}
	return math.Max(0, u*(1+0.02*w.Noise("rail", node, rail, int(t/30))))
}

// TCP is high if a job has fallen back to it.
func (w Story) TCP(node int, t float64) float64 {
	if w.Suspected(node, t) {
		return w.Capacity(0) * 0.05 * (1 + 0.2*w.Noise("tcp", int(t/30)))
	}
	return 2e5 * (1 + 0.5*w.Noise("ssh", node, int(t/30)))
}

// Suspected is true for the job that has fallen back.
func (w Story) Suspected(node int, t float64) bool {
	return node == fallen && w.before(t) < fallenSince
}

// Marked returns the packets that the congested switch marks.
func (w Story) Marked(node, rail int, t float64) float64 {
	if node == congested && w.before(t) < congestedSince {
		return 9000 * (1 + 0.3*w.Noise("cnp", rail, int(t/30)))
	}
	return 60 * w.job(node, t) * (1 + 0.5*w.Noise("cnp", node, rail, int(t/30)))
}

// Errors are those of the bad cable.
func (w Story) Errors(node, rail int, t float64) float64 {
	return flag01(node == slow && rail == slowRail && w.before(t) < slowSince) * (1 + 0.3*w.Noise("bad", int(t/30)))
}

// PortUp is false for the rail without a link.
func (w Story) PortUp(node, rail int, t float64) bool {
	return node != dead || rail != deadRail || w.before(t) > deadSince
}

// Misbound is true for one rail.
func (w Story) Misbound(node, rail int, t float64) bool {
	return node == misbound && rail == misboundRail && w.before(t) < misboundSince
}

// GPUFree decreases until one GPU is full.
func (w Story) GPUFree(node, gpu int, t float64) float64 {
	used := 0.08
	if w.Load(node, 0, t) > 0.05 {
		used = 0.8 + 0.03*math.Sin(t/40+float64(gpu))
	}
	if node == full && gpu == 3 && !w.Sound {
		used = math.Min(0.992, 0.8+t/w.Lasts*0.2)
	}
	return 1 - used
}

// Transport is TCP from and to the node that has fallen back, and none for the one that is gone.
func (w Story) Transport(from, to int, t float64) string {
	switch {
	case w.Gone(to, t):
		return "none"
	case (from == fallen || to == fallen) && w.before(t) < fallenSince:
		return "tcp"
	}
	return "rdma"
}

// Path is slow or dead if either end is.
func (w Story) Path(from, to, rail int, t float64) (float64, bool) {
	minute := int(t / 60)
	for _, node := range []int{from, to} {
		switch {
		case node == dead && !w.PortUp(node, rail, t):
			return 0, true
		case node == slow && rail == slowRail && w.before(t) < slowSince:
			return 0.33 + 0.01*w.Noise(from, to, rail, minute), true
		}
	}
	return usual + 0.015*w.Noise(from, to, rail, minute), true
}

// RoundTrip is short behind one switch, as for nodes 1 to 8, and long through the congested one.
func (w Story) RoundTrip(from, to int, t float64) float64 {
	us := 3.1
	if (from <= 8) != (to <= 8) {
		us = 6.4
	}
	if (from == congested || to == congested) && w.before(t) < congestedSince {
		us *= 3
	}
	return us
}

// Findings are raised by the checks of a node, 2 minutes after the fault.
func (w Story) Findings(n int) (list []Finding) {
	for _, f := range []struct {
		check, severity string
		node, rail      int
		since           float64
	}{
		{"link_errors", "warning", slow, slowRail, slowSince},
		{"lossy_rail", "warning", slow, slowRail, slowSince},
		{"goodput_below_expected", "critical", slow, slowRail, slowSince},
		{"port_down", "critical", dead, deadRail, deadSince},
		{"gid_misbound", "critical", misbound, misboundRail, misboundSince},
	} {
		if f.node == n {
			list = append(list, Finding{Check: f.check, Severity: f.severity, Subject: fmt.Sprint("rail ", f.rail),
				Rail: strconv.Itoa(f.rail), When: func(t float64) bool { return w.before(t) < f.since-2 }})
		}
	}
	return list
}
