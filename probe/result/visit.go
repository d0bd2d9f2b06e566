package result

import (
	"cmp"

	"github.com/railscope/railscope/probe/internal/failure"
)

// Visit is what a node found when it tried its rails with a peer for a gate.
type Visit struct {
	Peer      string      `json:"peer"`      // name that the peer reports; empty: it was not reached
	Transport Transport   `json:"transport"` // RDMA if a rail carries it, TCP if only that reaches the peer, else none
	Failure   *Failure    `json:"failure,omitempty"`
	Rails     []VisitRail `json:"rails"` // rails with a partner
	// OfRailscope is set if RDMA was not used because railscope lacks something at one end: jobs may work.
	OfRailscope bool `json:"of_railscope,omitempty"`
}

// VisitRail is what a node found of one rail.
type VisitRail struct {
	Rail        string   `json:"rail"`
	Leaf        string   `json:"leaf,omitempty"`    // switch that it is connected to; empty: not known
	Failure     *Failure `json:"failure,omitempty"` // why it carries no RDMA; nil: it does
	Left        *Failure `json:"left,omitempty"`    // why its rate was not measured; nil: it was, or nobody asked
	Goodput     *float64 `json:"goodput,omitempty"` // alone, in bytes per second; nil: not measured
	Expected    *float64 `json:"expected,omitempty"`
	Retransmits *uint64  `json:"retransmits,omitempty"` // in this visit; nil: unknown
}

// NewVisit returns what a round came to. With burst, rates were asked for.
func NewVisit(r Result, burst bool) Visit {
	v := Visit{Peer: r.PeerNode, Transport: r.Transport, Rails: []VisitRail{}, OfRailscope: r.OfRailscope()}
	if r.Corrupted() {
		return v.corrupted(r)
	}
	if r.Transport != RDMA {
		v.Failure = &Failure{Reason: r.Reason, Detail: r.Detail}
		if len(r.Failures) > 0 {
			v.Failure.Stage = r.Failures[len(r.Failures)-1].Stage
		}
		return v
	}
	for i := range r.Rails {
		one := &r.Rails[i]
		if one.PeerRail == "" {
			continue // the peer has no such rail: nothing was tried
		}
		out := VisitRail{Rail: one.Rail, Failure: one.Failure, Expected: one.Expected}
		if one.Loss != nil {
			out.Retransmits = &one.Loss.Retransmits
		}
		if goodput, ok := one.Goodput(); ok && one.Failure == nil && !one.BesideOthers(&r) {
			out.Goodput = &goodput
		} else if burst && one.Failure == nil {
			out.Left = cmp.Or(one.Left, one.SoloFailure, r.StripedFailure)
		}
		v.Rails = append(v.Rails, out)
	}
	for _, m := range r.Missing {
		if m.Certain() {
			v.Rails = append(v.Rails, VisitRail{Rail: m.Rail, Failure: &Failure{Stage: failure.StageHello,
				Reason: failure.NoDevice, Detail: m.String() + " is missing: " + m.Detail}})
		}
	}
	return v
}

// corrupted returns the visit of a round whose data arrived wrong. Where it does not say over which rail, all are bad.
func (v Visit) corrupted(r Result) Visit {
	v.Transport = RDMA
	why := Failure{Stage: failure.StageVerify, Reason: failure.DataMismatch, Detail: r.Detail}
	for _, f := range r.Failures {
		if f.Reason == failure.DataMismatch {
			why = f
		}
	}
	for i := range r.Rails {
		if one := &r.Rails[i]; one.PeerRail != "" {
			out := VisitRail{Rail: one.Rail, Failure: one.Failure}
			if why.Rail == "" || why.Rail == one.Rail {
				out.Failure = &why
			}
			v.Rails = append(v.Rails, out)
		}
	}
	return v
}
