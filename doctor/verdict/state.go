package verdict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/proof"
	"github.com/railscope/railscope/internal/status"
)

// Time limits of what counts: the age of an examination, and the age of a reading of hard facts.
const (
	staleAfter = 5 * time.Minute
	hardFresh  = 2 * time.Second
)

// State is what is known about a node.
type State struct {
	Source      string // origin of the knowledge, for people
	At          time.Time
	Rails       status.Rails
	Down        []DownRail
	Maintenance bool
	Found       []finding.Finding
	Round       []finding.Finding // findings of a round that was asked for
	Peers       int               // peers that the node probes
	Proofs      []Proof           // last evidence of what each rail in use can carry; empty if none is known
	Unknown     string            // reason why nothing, or not everything, is known
}

// Proof is the last evidence of what a rail can carry.
type Proof struct {
	Rail         string `json:"rail"`
	*proof.Proof        // nil: none
}

// proofs returns the proof of each rail that is in use, or nothing if no rail has one.
func proofs(s *status.Status) (list []Proof) {
	known := false
	for _, r := range s.Rails {
		if !r.Unused {
			list, known = append(list, Proof{r.Name, r.Proof}), known || r.Proof != nil
		}
	}
	if !known {
		return nil
	}
	return list
}

// DownRail is a rail that is not up, although it is in use.
type DownRail struct {
	Name     string
	Silenced bool // silenced by an operator
}

// FromStatus returns the state of a node from the status of the railscope that runs on it.
func FromStatus(at *status.Status) State {
	s := State{At: at.At, Rails: at.Count(), Down: downRails(at), Maintenance: at.Maintenance, Found: Standing(at),
		Peers: len(at.Peers), Proofs: proofs(at), Unknown: unknownState(at)}
	if s.Unknown != "" { // the findings may be too old: their faults may have been fixed
		now := at.Examination.Hard != nil && at.At.Sub(*at.Examination.Hard) < hardFresh
		s.Found = slices.DeleteFunc(s.Found, func(f finding.Finding) bool {
			return !f.Peer() && !(now && check.Hard(f.Check))
		})
	}
	s.Unknown = cmp.Or(s.Unknown, unreadRails(at))
	return s
}

// FromFacts returns the state of the node with these facts. It judges the node, not the limits of this process,
// unless sel names their checks: see [check.Check.Own].
func FromFacts(f *facts.Facts, sel Selection, hidden []finding.Silence) (s State) {
	for i := range f.Rails {
		switch r := &f.Rails[i]; {
		case r.Unused:
			s.Rails.Unused++
		case r.Active() && r.Uncounted:
			s.Rails.NotMeasured++
			fallthrough
		case r.Active():
			s.Rails.Up++
			fallthrough
		default:
			s.Rails.All++
		}
	}
	found := check.Node(f, func(c check.Check) bool { return !c.Own() || slices.Contains(sel.Only, c.ID) })
	silenced := func(f finding.Finding) bool {
		return slices.ContainsFunc(hidden, func(one finding.Silence) bool { return one.Covers(f, time.Now()) })
	}
	for _, r := range f.Judged() {
		if r.StateID != 0 && !r.Active() {
			s.Down = append(s.Down, DownRail{r.Name, slices.ContainsFunc(found, func(f finding.Finding) bool {
				return silenced(f) && explainsDown(f, r.Name)
			})})
		}
	}
	s.Found = slices.DeleteFunc(found, silenced)
	return s
}

// downRails returns the rails of a status that are not up.
func downRails(s *status.Status) (list []DownRail) {
	for _, r := range s.Rails {
		if r.Up == nil || *r.Up || r.Unused {
			continue
		}
		silenced := slices.ContainsFunc(s.Findings, func(f finding.Raised) bool {
			return f.Silenced != "" && f.Rail() == r.Name && explainsDown(f.Finding, r.Name)
		})
		list = append(list, DownRail{r.Name, silenced})
	}
	return list
}

// explainsDown reports whether a finding explains why a rail is not up. A member of a bond is judged with its bond.
func explainsDown(f finding.Finding, rail string) bool {
	return !f.Recovering && (f.Severity == finding.Critical && strings.HasPrefix(f.Subject, "bond ") ||
		f.Rail() == rail && slices.Contains([]string{"port_down", "netdev_down", "half_unused"}, f.Check))
}

// unknownState returns why a status does not show the state of the node, or empty.
func unknownState(s *status.Status) string {
	switch e := s.Examination; {
	case !s.Examined() || e.At == nil:
		return "railscope has not examined the node yet"
	case e.Error != nil:
		return "the last examination failed: " + *e.Error
	case s.At.Sub(*e.At) > staleAfter:
		return fmt.Sprintf("the last examination ended %v ago", s.At.Sub(*e.At).Round(time.Second))
	}
	return ""
}

// unreadRails returns why some rails are not judged, or empty.
func unreadRails(s *status.Status) string {
	for _, r := range s.Rails {
		if r.Up == nil {
			return fmt.Sprintf("rail %s: its state could not be read", r.Name)
		}
	}
	return ""
}

// Standing returns the findings of a running railscope, including recovering ones, without silenced ones. running
// may be nil.
func Standing(running *status.Status) (list []finding.Finding) {
	if running == nil {
		return nil
	}
	for _, f := range running.Findings {
		if f.Silenced == "" {
			list = append(list, f.Finding)
		}
	}
	return list
}
