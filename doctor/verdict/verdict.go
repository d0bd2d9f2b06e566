// Package verdict judges a node for railscope check: it makes one level, one exit code and one line of what is known
// about the node.
package verdict

import (
	"fmt"
	"slices"
	"strings"

	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/proof"
	"github.com/railscope/railscope/internal/status"
	"github.com/railscope/railscope/internal/terminal"
)

// Exit codes of a node that is bad, and of one whose state is unknown.
const (
	ExitBad     = 1
	ExitUnknown = 2
)

// Verdict is the result of check.
type Verdict struct {
	Level    string            `json:"level"` // ok, critical, warning, info, unknown
	Exit     int               `json:"exit"`
	Text     string            `json:"text"` // the line that check prints
	Source   string            `json:"source"`
	Findings []finding.Finding `json:"findings"` // findings that count, the worst first
	Proofs   []Proof           `json:"proofs"`   // last evidence of what each rail can carry; empty if none is known
}

// Selection selects checks.
type Selection struct {
	Only   []string // the checks that count; empty: all
	Ignore []string // the checks that do not count
}

// Wants reports whether a check is selected.
func (s Selection) Wants(name string) bool {
	return (len(s.Only) == 0 || slices.Contains(s.Only, name)) && !slices.Contains(s.Ignore, name)
}

func (s Selection) selected(list []finding.Finding) []finding.Finding {
	return slices.DeleteFunc(slices.Clone(list), func(f finding.Finding) bool { return !s.Wants(f.Check) })
}

// Criteria say which findings make a node bad.
type Criteria struct {
	Selection
	Min finding.Severity // least severity
}

// Judge derives the verdict.
func (c Criteria) Judge(s State) Verdict {
	s.Found, s.Round = finding.Causes(s.Found), finding.Causes(s.Round, s.Found...)
	excused, less := c.judgeDown(&s)
	found := c.selected(slices.Concat(s.Found, s.Round))
	slices.SortStableFunc(found, finding.Finding.Compare)
	bad := append(c.counting(s), c.severe(c.selected(s.Round))...)
	slices.SortStableFunc(bad, finding.Finding.Compare)
	out := Verdict{Level: status.OK, Source: s.Source, Findings: append([]finding.Finding{}, found...),
		Proofs: append([]Proof{}, s.Proofs...)}
	switch {
	case s.Maintenance:
		out.Text = line(out.Level, "maintenance, nothing is judged", 0)
	case len(bad) > 0:
		out.Level, out.Exit = string(bad[0].Severity), ExitBad
		out.Text = line(out.Level, bad[0].Title(), len(bad)-1)
	case s.Unknown != "":
		out.Level, out.Exit = status.Unknown, ExitUnknown
		out.Text = line(out.Level, s.Unknown, 0)
	case less != nil: // a finding below the least severity; a rail that is down is still not healthy
		out.Level = string(less.Severity)
		out.Text = line(out.Level, less.Title()+", "+s.Rails.String(), 0)
	default:
		out.Text = line(out.Level, rails(s, found)+excused+proved(s)+others(found), 0)
	}
	return out
}

// judgeDown judges the rails that are not up. A rail without a finding that explains it becomes a finding. excused
// describes rails that are silenced or ignored. less is the worst finding about another rail.
func (c Criteria) judgeDown(s *State) (excused string, less *finding.Finding) {
	var silenced, ignored int
	for _, d := range s.Down {
		i := slices.IndexFunc(s.Found, func(f finding.Finding) bool { return explainsDown(f, d.Name) })
		switch {
		case d.Silenced:
			silenced++
		case i < 0 && c.Wants("port_down"):
			s.Found = append(s.Found, finding.Finding{Check: "port_down", Severity: finding.Critical,
				Subject: "rail " + d.Name, Evidence: "its port is not up", Fix: []string{"railscope doctor"}})
		case i < 0 || !c.Wants(s.Found[i].Check):
			ignored++
		case less == nil || s.Found[i].Compare(*less) < 0:
			less = &s.Found[i]
		}
	}
	s.Rails.All -= silenced + ignored
	for _, part := range []struct {
		n    int
		word string
	}{{silenced, "down and silenced"}, {ignored, "down and ignored"}} {
		if part.n > 0 {
			excused += fmt.Sprintf(", %d %s", part.n, part.word)
		}
	}
	return excused, less
}

// severe returns the findings that are severe enough. A finding that is recovering no longer describes the node.
func (c Criteria) severe(list []finding.Finding) []finding.Finding {
	return slices.DeleteFunc(slices.Clone(list), func(f finding.Finding) bool {
		return f.Recovering || f.Severity.Compare(c.Min) > 0
	})
}

// counting returns the findings that make the node bad. It leaves out, unless Only names their check, limits of
// the process: jobs may work. Findings about peers count only if more than half of the peers have one: one faulty
// node must not take all nodes that probe it out of service.
func (c Criteria) counting(s State) []finding.Finding {
	list, peers := c.severe(c.selected(s.Found)), map[string]bool{}
	for _, f := range list {
		if f.Peer() {
			peers[f.Subject] = true
		}
	}
	most := 2*len(peers) > s.Peers
	return slices.DeleteFunc(list, func(f finding.Finding) bool {
		switch {
		case slices.Contains(c.Only, f.Check):
			return false
		case f.Peer():
			return !most
		}
		return check.IsOwn(f.Check)
	})
}

// rails returns how many rails are up, or why there are none.
func rails(s State, found []finding.Finding) string {
	i := slices.IndexFunc(found, func(f finding.Finding) bool { return f.Check == "no_rails" })
	if i < 0 {
		return s.Rails.String()
	}
	why, _, _ := strings.Cut(found[i].Evidence, ": ")
	why, _, _ = strings.Cut(why, " (")
	return why
}

// proved returns how old the oldest of the rails' proofs is, or how many rails have one.
func proved(s State) string {
	var oldest *proof.Proof
	n := 0
	for _, p := range s.Proofs {
		if p.Proof == nil {
			continue
		}
		n++
		if oldest == nil || p.At.Before(oldest.At) {
			oldest = p.Proof
		}
	}
	switch {
	case n == 0:
		return ""
	case n < len(s.Proofs):
		return fmt.Sprintf(", %d proved", n)
	}
	return ", proved " + oldest.Ago(s.At)
}

// others returns the numbers of findings below the least severity and of recovering findings.
func others(found []finding.Finding) (text string) {
	for _, severity := range []finding.Severity{finding.Critical, finding.Warning} {
		n := 0
		for _, f := range found {
			if f.Severity == severity && !f.Recovering {
				n++
			}
		}
		if n > 0 {
			text += ", " + terminal.Count(n, string(severity))
		}
	}
	recovering := 0
	for _, f := range found {
		if f.Recovering && f.Severity != finding.Info {
			recovering++
		}
	}
	if recovering > 0 {
		text += fmt.Sprintf(", %d recovering", recovering)
	}
	return text
}

// maxLine is the length of the line in bytes, as node-problem-detector counts it.
const maxLine = 80

// line formats a line of at most maxLine bytes. more is the number of other findings.
func line(level, text string, more int) string {
	prefix, suffix := "railscope: "+level+": ", ""
	if more > 0 {
		suffix = fmt.Sprintf(" (+%d more)", more)
	}
	text = strings.Join(strings.Fields(terminal.Plain(text)), " ")
	if room := maxLine - len(prefix) - len(suffix); len(text) > room {
		text = strings.ToValidUTF8(text[:room-len("...")], "") + "..."
	}
	return prefix + text + suffix
}
