package result

import (
	"slices"
)

// MissingRail is a rail that one end of a pair lacks.
type MissingRail struct {
	Rail   string // this node's rail that is missing, or whose partner is missing
	Device string // former device of the missing rail; empty: unknown
	Peer   bool   // the peer lacks it
	Known  bool   // the end had it before; else only its interface exists
	Role   string // see [rail.Rail]; empty: unknown
	Detail string // evidence, for people
}

// Certain reports whether a rail is certainly missing: the end had it before, or the other end has one of a known
// role there. Otherwise the interface may be an ordinary one.
func (m MissingRail) Certain() bool { return m.Known || m.Role != "" }

// LacksRail reports whether an end certainly lacks a rail.
func (r Result) LacksRail() bool { return slices.ContainsFunc(r.Missing, MissingRail.Certain) }

// String returns the rail and the end that lacks it.
func (m MissingRail) String() string {
	s := "rail " + m.Rail
	if m.Peer {
		s = "the peer's rail for " + s
	}
	if m.Device != "" {
		s += " (" + m.Device + ")"
	}
	return s
}
