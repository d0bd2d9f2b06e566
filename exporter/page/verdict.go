package page

import (
	"fmt"
	"slices"
	"strings"

	"github.com/railscope/railscope/internal/rail"
)

// judge sums up what the series, the rounds and doctor report: the node in one sentence, which is the worst of it or
// that all is well. It has no checks of its own. What doctor found about a rail is shown with the rail.
func (s *Snapshot) judge() {
	problems := slices.Concat(s.railProblems(), s.notes(Bad), s.peerProblems(), s.bondProblems(), s.imbalanceProblem(),
		s.doctorProblems(), s.notes(Warn))
	var bad, warn []string
	for _, p := range problems {
		if p.Level == Bad {
			bad = append(bad, p.Text)
		} else {
			warn = append(warn, p.Text)
		}
	}
	switch {
	case len(bad) > 0:
		s.Verdict = Verdict{Bad, bad[0] + more(len(problems)-1)}
	case len(s.Rails) == 0:
		s.Verdict = Verdict{Idle, s.NoRails}
	case len(warn) > 0:
		s.Verdict = Verdict{Warn, s.upRails() + ", but " + warn[0] + more(len(problems)-1)}
	default:
		s.Verdict = Verdict{Good, s.upRails() + s.load()}
	}
	s.attachFindings()
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

func (s *Snapshot) upRails() string {
	n := 0
	for _, r := range s.Rails {
		if r.Up {
			n++
		}
	}
	return plural(n, "rail") + " up"
}

// load says what the rails of a node without problems do, where the sampler reports it.
func (s *Snapshot) load() string {
	load := ""
	for _, b := range s.Balance {
		switch {
		case b.Imbalance != nil:
			return ", even"
		case b.Active != nil && *b.Active > 0:
			load = ", busy"
		case b.Judged && load == "":
			load = ", idle"
		}
	}
	return load
}

// notes are the node's notes of a level.
func (s *Snapshot) notes(level Level) []Note {
	return slices.DeleteFunc(slices.Clone(s.Notes), func(n Note) bool { return n.Level != level })
}

// railProblems are the rails that are down, in one line, and what their series report.
func (s *Snapshot) railProblems() (list []Note) {
	var down []string
	for _, r := range s.Rails {
		switch {
		case !r.Known:
			list = append(list, Note{Level: Warn, Text: "rail " + r.Name + ": state unknown"})
		case !r.Up:
			down = append(down, r.Name)
			continue
		}
		for _, n := range r.Notes {
			list = append(list, Note{Level: n.Level, Text: "rail " + r.Name + ": " + n.Text})
		}
	}
	text := ""
	switch last := len(down) - 1; {
	case last < 0:
		return list
	case len(down) == len(s.Rails):
		text = "no rail is up"
	case last == 0:
		text = "rail " + down[0] + " is down"
	default:
		text = "rails " + strings.Join(down[:last], ", ") + " and " + down[last] + " are down"
	}
	return slices.Insert(list, 0, Note{Level: Bad, Text: text})
}

// peerProblems are the peers whose last round was not ok.
func (s *Snapshot) peerProblems() (list []Note) {
	for _, p := range s.Peers {
		i := slices.IndexFunc(p.Rounds, func(r Round) bool { return r.Outcome != "skipped" }) // latest first
		if i < 0 {
			continue
		}
		switch r := p.Rounds[i]; r.Outcome {
		case "fallback":
			list = append(list, Note{Level: Bad, Text: "peer " + p.Name + " is reachable by TCP only: " + r.Reason})
		case "failed":
			list = append(list, Note{Level: Bad, Text: "probe of peer " + p.Name + " failed: " + r.Reason})
		case "degraded":
			list = append(list, Note{Level: Warn, Text: "RDMA to peer " + p.Name + " is degraded"})
		}
	}
	return list
}

func (s *Snapshot) bondProblems() (list []Note) {
	for _, b := range s.Bonds {
		if b.Up != nil && *b.Up == 0 {
			list = append(list, Note{Level: Warn, Text: "bond " + b.Name + " is down"})
			continue
		}
		for _, m := range b.Members {
			if m.Up != nil && *m.Up == 0 {
				list = append(list, Note{Level: Warn, Text: "member " + m.Name + " of " + b.Name + " is down"})
			}
		}
	}
	return list
}

// imbalanceProblem says in which direction the rails are uneven, without the figure, which is below: the verdict is
// read aloud whenever it changes.
func (s *Snapshot) imbalanceProblem() []Note {
	for d, b := range s.Balance {
		if b.Imbalance != nil && *b.Imbalance > rail.ImbalancedAbove {
			return []Note{{Level: Warn, Text: [2]string{"receiving", "transmitting"}[d] + " is uneven"}}
		}
	}
	return nil
}

// doctorProblems are how many faults and warnings doctor found. They are below, with what to do.
func (s *Snapshot) doctorProblems() (list []Note) {
	n := map[string]int{}
	for _, f := range s.Exam.Findings {
		n[f.Kind()]++
	}
	for _, kind := range []string{"fault", "warning"} {
		if n[kind] > 0 {
			list = append(list, Note{Level: Warn, Text: plural(n[kind], kind) + " found by doctor"})
		}
	}
	return list
}

// attachFindings shows doctor's findings about one rail with that rail.
func (s *Snapshot) attachFindings() {
	for _, f := range s.Exam.Findings {
		words := strings.Fields(f.Subject)
		if f.Check == "" || len(words) < 2 || words[0] != "rail" {
			continue
		}
		i := slices.IndexFunc(s.Rails, func(r Rail) bool { return r.Name == words[1] })
		if i < 0 {
			continue
		}
		level := Warn
		if f.Fault {
			level = Bad
		}
		s.Rails[i].Notes = append(s.Rails[i].Notes, Note{Level: level, Text: f.Read})
	}
}
