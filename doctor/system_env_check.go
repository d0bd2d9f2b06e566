package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// verdict is what is wrong with one variable of one environment.
type verdict struct {
	severity Severity
	what     string // what it means here: "VAR=VALUE does …"
	why      string
	mend     string // what to set it to; empty to unset it
}

// checkJobs finds the environments whose variable is judged badly. Alike ones of
// different processes are one finding.
func checkJobs(variable string, judge func(f *Facts, env JobEnv) (verdict, bool)) func(*Facts, func(Finding)) {
	type group struct {
		verdict verdict
		value   string
		envs    []JobEnv
	}
	return func(f *Facts, found func(Finding)) {
		if len(f.System.Ports) == 0 {
			return
		}
		var groups []*group
		for _, env := range f.System.Jobs.Envs {
			value, set := env.Vars[variable]
			if !set {
				continue
			}
			v, bad := judge(f, env)
			if !bad {
				continue
			}
			i := slices.IndexFunc(groups, func(g *group) bool { return g.verdict == v && g.value == value })
			if i < 0 {
				groups, i = append(groups, &group{verdict: v, value: value}), len(groups)
			}
			groups[i].envs = append(groups[i].envs, env)
		}
		for _, g := range groups {
			where, mend := holders(variable, g.verdict.mend, g.envs)
			found(Finding{
				Severity: g.verdict.severity, Subject: variable + "=" + printable(g.value),
				Read: fmt.Sprintf("%s: %s", where, g.verdict.what),
				Why:  g.verdict.why,
				Mend: mend,
			})
		}
	}
}

// holders says who has the variable, and how to be rid of it.
func holders(variable, value string, envs []JobEnv) (where string, mend []string) {
	var files, names, pids []string
	count := 0
	for _, env := range envs {
		if env.File != "" {
			files = append(files, shellWord(env.File))
			continue
		}
		count += env.Count
		for _, p := range env.Processes {
			if len(names) < maxKept {
				names = append(names, fmt.Sprintf("/proc/%d/environ (%s)", p.PID, clean(p.Comm)))
				pids = append(pids, fmt.Sprintf("%d %s", p.PID, clean(p.Comm)))
			}
		}
	}
	for _, file := range files {
		line := fmt.Sprintf("sed -i -E '/^[[:space:]]*(export[[:space:]]+)?%s[[:space:]]*=/d' %s", variable, file)
		if value != "" {
			line = fmt.Sprintf("sed -i -E 's|^[[:space:]]*(export[[:space:]]+)?%s[[:space:]]*=.*|%s=%s|' %s", variable, variable, shellWord(value), file)
		}
		mend = append(mend, line)
	}
	all := append(slices.Clone(files), names...)
	where = strings.Join(all, ", ")
	if count > len(names) {
		where += fmt.Sprintf(" and %d more processes", count-len(names))
	}
	if count > 0 {
		what := "unset " + variable
		if value != "" {
			what = "export " + variable + "=" + shellWord(value)
		}
		mend = append(mend, fmt.Sprintf("# %s where the job is started, and start it again (pid %s): the environment of a running process stays what it was", what, strings.Join(pids, ", pid ")))
	}
	return where, mend
}
