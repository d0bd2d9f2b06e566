package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// JobConclusion is what a node says to peers of the environments of its
// processes: that one check finds them wrong, and how many. Neither values nor
// processes are in it.
type JobConclusion struct {
	Check     string   `json:"check"`
	Severity  Severity `json:"severity"`
	Processes int      `json:"processes"`
	Files     int      `json:"files"` // configuration files that set the variable for every job
}

// Shared are the facts as peers get them. What is in the environments of
// processes stays here: the node judges it itself.
func (f *Facts) Shared() *Facts {
	out := *f
	out.System.Jobs = JobFacts{Looked: f.System.Jobs.Looked, Conclusions: conclude(f)}
	out.Unread = slices.DeleteFunc(slices.Clone(f.Unread), func(s string) bool { return strings.HasPrefix(s, unreadJobs) })
	if len(out.Unread) < len(f.Unread) {
		out.Unread = append(out.Unread, unreadJobs+": not all were read; run railscope doctor on that node for the reasons")
	}
	return &out
}

// unreadJobs begins whatever is said of environments that were not read.
const unreadJobs = "environments of processes"

// conclude judges the environments of this node for a peer.
func conclude(f *Facts) []JobConclusion {
	list := []JobConclusion{}
	for _, check := range jobChecks() {
		for _, severity := range []Severity{Fault, Warning} {
			c := JobConclusion{Check: check.id, Severity: severity}
			for _, g := range check.groups(f) {
				if g.verdict.severity == severity {
					c.add(g.envs)
				}
			}
			if c.Processes+c.Files > 0 {
				list = append(list, c)
			}
		}
	}
	return list
}

func (c *JobConclusion) add(envs []JobEnv) {
	for _, env := range envs {
		if env.File != "" {
			c.Files++
		}
		c.Processes += env.Count
	}
}

// checkConclusions leaves of what a peer concluded what makes sense.
func (f *SystemFacts) checkConclusions() {
	told := map[string]bool{}
	f.Jobs.Conclusions = slices.DeleteFunc(f.Jobs.Conclusions, func(c JobConclusion) bool {
		key := c.Check + " " + string(c.Severity)
		known := slices.ContainsFunc(jobChecks(), func(check jobCheck) bool { return check.id == c.Check })
		if !known || told[key] || c.Severity != Fault && c.Severity != Warning || min(c.Processes, c.Files) < 0 || max(c.Processes, c.Files) == 0 {
			return true
		}
		told[key] = true
		return false
	})
}

// repeat finds what a peer concluded of its own processes.
func (c jobCheck) repeat(f *Facts, found func(Finding)) {
	for _, told := range f.System.Jobs.Conclusions {
		if told.Check != c.id {
			continue
		}
		var where []string
		if told.Processes > 0 {
			where = append(where, counted(told.Processes, "process", "processes"))
		}
		if told.Files > 0 {
			where = append(where, counted(told.Files, "configuration file", "configuration files"))
		}
		found(Finding{
			Severity: told.Severity, Subject: c.variable,
			Read: fmt.Sprintf("the node itself found it wrong in %s; values and processes are not reported to peers", strings.Join(where, " and ")),
			Why:  strings.ReplaceAll(c.about, "`", ""),
			Mend: []string{note("run railscope doctor on that node, as root: it prints the processes, the values and the fix")},
		})
	}
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
