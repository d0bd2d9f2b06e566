package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/terminal"
)

// Share returns the facts that peers get. The environments of processes stay on the node, which judges them itself.
func Share(f *facts.Facts) *facts.Facts {
	out := *f
	out.Jobs = facts.Jobs{Read: f.Jobs.Read, Conclusions: conclude(f)}
	out.Unread = slices.DeleteFunc(slices.Clone(f.Unread),
		func(s string) bool { return strings.HasPrefix(s, facts.UnreadJobs) })
	if len(out.Unread) < len(f.Unread) {
		out.Unread = append(out.Unread,
			facts.UnreadJobs+": not all were read; run railscope doctor on that node for the reasons")
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
				if g.verdict.severity == severity {
					c.Processes, c.Files = c.Processes+g.processes, c.Files+g.files
				}
			}
			if c.Processes+c.Files > 0 {
				list = append(list, c)
			}
		}
	}
	return list
}

// repeat reports what a peer concluded of its own processes, each severity once, if it makes sense.
func (c jobCheck) repeat(f *facts.Facts, report reporter) {
	seen := map[Severity]bool{}
	for _, peer := range f.Jobs.Conclusions {
		severity := Severity(peer.Severity)
		valid := (severity == Fault || severity == Warning) && min(peer.Processes, peer.Files) >= 0 &&
			max(peer.Processes, peer.Files) > 0
		if peer.Check != c.id || !valid || seen[severity] {
			continue
		}
		seen[severity] = true
		var where []string
		if peer.Processes > 0 {
			where = append(where, terminal.Count(peer.Processes, "process"))
		}
		if peer.Files > 0 {
			where = append(where, terminal.Count(peer.Files, "configuration file"))
		}
		why := strings.ReplaceAll(c.about, "`", "")
		report(Finding{Severity: severity, Subject: c.variable,
			Evidence: fmt.Sprintf("the node itself found it wrong in %s; values and processes are not reported to peers",
				listed(where)),
			Why: strings.ToUpper(why[:1]) + why[1:] + ".",
			Fix: []string{"# run railscope doctor on that node, as root: it prints the processes, the values and the fix"}})
	}
}
