package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/railscope/railscope/doctor/facts"
)

// Share returns the facts as peers get them. What is in the environments of
// processes stays here: the node judges it itself.
func Share(f *facts.Facts) *facts.Facts {
	out := *f
	out.Jobs = facts.Jobs{Read: f.Jobs.Read, Conclusions: conclude(f)}
	out.Unread = slices.DeleteFunc(slices.Clone(f.Unread),
		func(s string) bool { return strings.HasPrefix(s, facts.UnreadJobs) })
	if len(out.Unread) < len(f.Unread) {
		out.Unread = append(out.Unread,
			facts.UnreadJobs+": not all were read; run railscope doctor on that node for the "+
				"reasons")
	}
	return &out
}

// conclude judges the environments of this node for a peer.
func conclude(f *facts.Facts) []facts.Conclusion {
	list := []facts.Conclusion{}
	for _, check := range jobChecks() {
		for _, severity := range []Severity{Fault, Warning} {
			c := facts.Conclusion{Check: check.id, Severity: string(severity)}
			for _, g := range check.groups(f) {
				for _, env := range g.envs {
					if g.verdict.severity != severity {
						continue
					}
					if env.File != "" {
						c.Files++
					}
					c.Processes += env.Count
				}
			}
			if c.Processes+c.Files > 0 {
				list = append(list, c)
			}
		}
	}
	return list
}

// repeat reports what a peer concluded of its own processes, each severity once,
// if it makes sense.
func (c jobCheck) repeat(f *facts.Facts, report func(Finding)) {
	seen := map[Severity]bool{}
	for _, peer := range f.Jobs.Conclusions {
		severity := Severity(peer.Severity)
		valid := severity == Fault || severity == Warning
		if peer.Check != c.id || !valid || seen[severity] || min(peer.Processes, peer.Files) < 0 ||
			max(peer.Processes, peer.Files) == 0 {
			continue
		}
		seen[severity] = true
		var where []string
		if peer.Processes > 0 {
			where = append(where, counted(peer.Processes, "process", "processes"))
		}
		if peer.Files > 0 {
			where = append(where, counted(peer.Files, "configuration file", "configuration files"))
		}
		report(Finding{Severity: severity, Subject: c.variable,
			Evidence: fmt.Sprintf("the node itself found it wrong in %s; values and processes are not reported to "+
				"peers",
				strings.Join(where, " and ")),
			Why: sentence(strings.ReplaceAll(c.about, "`", "")),
			Fix: []string{"# run railscope doctor on that node, as root: it prints the processes, the values and " +
				"the fix"}})
	}
}

// sentence ends a text with a full stop.
func sentence(s string) string { return strings.ToUpper(s[:1]) + s[1:] + "." }
