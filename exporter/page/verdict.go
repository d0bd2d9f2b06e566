package page

import (
	"fmt"
	"strings"

	"github.com/railscope/railscope/internal/rail"
)

// judge says the node in one sentence: what is worst, or that all is well.
func (s *Snapshot) judge() {
	var bad, warn, last []string
	for _, n := range s.Notes {
		if n.Level == Bad {
			bad = append(bad, n.Text)
		} else {
			last = append(last, n.Text)
		}
	}
	if down := s.downRails(); down != "" {
		bad = append([]string{down}, bad...)
	}
	for _, r := range s.Rails {
		for _, n := range r.Notes {
			if n.Level == Bad && (r.Up || !r.Known) {
				bad = append(bad, "rail "+r.Name+": "+n.Text)
			} else if n.Level == Warn {
				warn = append(warn, "rail "+r.Name+": "+n.Text)
			}
		}
	}
	failing, degraded := s.failingPeers()
	bad, warn = append(bad, failing...), append(warn, degraded...)
	warn = append(warn, s.bondNotes()...)
	if uneven := s.uneven(); uneven != "" {
		warn = append(warn, uneven)
	}
	if n := s.faults(); n > 0 {
		warn = append(warn, plural(n, "fault")+" found by doctor")
	}
	warn = append(warn, last...)
	switch {
	case len(bad) > 0:
		s.Verdict = Verdict{Bad, bad[0] + more(len(bad)+len(warn)-1)}
	case len(s.Rails) == 0:
		s.Verdict = Verdict{Idle, s.NoRails}
	case len(warn) > 0:
		s.Verdict = Verdict{Warn, s.upRails() + ", but " + warn[0] + more(len(warn)-1)}
	case s.busy():
		s.Verdict = Verdict{Good, s.upRails() + s.evenly()}
	case s.Balance[Receive].Judged:
		s.Verdict = Verdict{Good, s.upRails() + ", idle"}
	default:
		s.Verdict = Verdict{Good, s.upRails()}
	}
}

func more(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf("; %d more below", n)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func (s *Snapshot) downRails() string {
	var names []string
	for _, r := range s.Rails {
		if r.Known && !r.Up {
			names = append(names, r.Name)
		}
	}
	switch {
	case len(names) == 0:
		return ""
	case len(names) == len(s.Rails):
		return "no rail is up"
	case len(names) == 1:
		return "rail " + names[0] + " is down"
	}
	return "rails " + strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1] + " are down"
}

func (s *Snapshot) upRails() string {
	n := 0
	for _, r := range s.Rails {
		if r.Up {
			n++
		}
	}
	return plural(n, "rail") + " up"
}

func (s *Snapshot) busy() bool {
	for _, b := range s.Balance {
		if b.Active != nil && *b.Active > 0 {
			return true
		}
	}
	return false
}

func (s *Snapshot) evenly() string {
	for _, b := range s.Balance {
		if b.Imbalance != nil {
			return ", even"
		}
	}
	return ", busy"
}

// uneven says in which direction the rails are, without the figure, which stands
// below: the verdict is read out whenever it changes.
func (s *Snapshot) uneven() string {
	for d, b := range s.Balance {
		if b.Imbalance != nil && *b.Imbalance > rail.ImbalancedAbove {
			return [2]string{"receiving", "transmitting"}[d] + " is uneven"
		}
	}
	return ""
}

// failingPeers are the peers whose last round did not go by RDMA, and those whose
// did with a rail that is dead or slow.
func (s *Snapshot) failingPeers() (failing, degraded []string) {
	for _, p := range s.Peers {
		for _, r := range p.Rounds { // latest first
			if r.Outcome == "skipped" {
				continue
			}
			switch r.Outcome {
			case "fallback":
				failing = append(failing, "peer "+p.Name+" is reached by TCP only: "+r.Reason)
			case "failed":
				failing = append(failing, "the probe of peer "+p.Name+" fails: "+r.Reason)
			case "degraded":
				degraded = append(degraded, "RDMA to peer "+p.Name+" is degraded")
			}
			break
		}
	}
	return failing, degraded
}

func (s *Snapshot) bondNotes() (list []string) {
	for _, b := range s.Bonds {
		if b.Up != nil && *b.Up == 0 {
			list = append(list, "bond "+b.Name+" is down")
			continue
		}
		for _, m := range b.Members {
			if m.Up != nil && *m.Up == 0 {
				list = append(list, "member "+m.Name+" of "+b.Name+" is down")
			}
		}
	}
	return list
}

func (s *Snapshot) faults() (n int) {
	for _, f := range s.Exam.Findings {
		if f.Fault {
			n++
		}
	}
	return n
}
