package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/terminal"
)

type verdict struct {
	severity Severity
	what     string // what the value does, lower case
	why      string
	fix      string // what to set it to; empty to unset it
}

type jobCheck struct {
	id, variable, about string
	judge               func(f *facts.Facts, env facts.Env) verdict // without a severity: nothing is wrong
}

func jobChecks() []jobCheck {
	return []jobCheck{
		{"nccl_ib_disable", "NCCL_IB_DISABLE", "a process or configuration file sets `NCCL_IB_DISABLE`: NCCL uses TCP",
			judgeIBDisable},
		{"nccl_net", "NCCL_NET", "a process or configuration file sets `NCCL_NET=Socket`: NCCL uses TCP", judgeNCCLNet},
		{"nccl_ib_hca", "NCCL_IB_HCA", "`NCCL_IB_HCA` names devices that do not exist, or leaves none", judgeIBHCA},
		{"nccl_ib_gid_index", "NCCL_IB_GID_INDEX", "`NCCL_IB_GID_INDEX` selects an entry that is empty, RoCE v1, " +
			"link-local, or IPv6 beside IPv4 on a rail", judgeGIDIndex},
		{"ucx_tls", "UCX_TLS", "`UCX_TLS` leaves UCX only tcp, only datagrams, or no transport between nodes", judgeUCXTLS},
		{"ucx_net_devices", "UCX_NET_DEVICES", "`UCX_NET_DEVICES` names no RDMA device, or one that does not exist",
			judgeUCXDevices},
	}
}

type jobGroup struct {
	verdict   verdict
	value     string
	envs      []facts.Env
	processes int
	files     int
}

func (c jobCheck) groups(f *facts.Facts) (groups []*jobGroup) {
	if len(f.Rails) == 0 {
		return nil
	}
	for _, env := range f.Jobs.Envs {
		value, set := env.Vars[c.variable]
		if !set {
			continue
		}
		v := c.judge(f, env)
		if v.severity == "" {
			continue
		}
		i := slices.IndexFunc(groups, func(g *jobGroup) bool { return g.verdict == v && g.value == value })
		if i < 0 {
			groups, i = append(groups, &jobGroup{verdict: v, value: value}), len(groups)
		}
		g := groups[i]
		g.envs, g.processes = append(g.envs, env), g.processes+env.Count
		if env.File != "" {
			g.files++
		}
	}
	return groups
}

// run reports what is wrong on the node with the environments, or repeats what a peer concluded of its own.
func (c jobCheck) run(f *facts.Facts, report reporter) {
	c.repeat(f, report)
	for _, g := range c.groups(f) {
		where, fix := g.holders(c.variable)
		report(Finding{Severity: g.verdict.severity, Subject: c.variable + "=" + terminal.PlainName(g.value),
			Evidence: where + ": " + terminal.PlainName(g.verdict.what), Why: g.verdict.why, Fix: fix})
	}
}

func (g *jobGroup) holders(variable string) (where string, fix []string) {
	var files, processes, pids []string
	value := g.verdict.fix
	for _, env := range g.envs {
		if env.File != "" {
			files, fix = append(files, env.File), append(fix, edit(variable, value, env.File))
		}
		for _, p := range env.Processes[:min(len(env.Processes), facts.MaxNamed-len(pids))] {
			processes = append(processes, fmt.Sprintf("/proc/%d/environ (%s)", p.PID, p.Comm))
			pids = append(pids, fmt.Sprintf("pid %d %s", p.PID, p.Comm))
		}
	}
	where = strings.Join(append(files, processes...), ", ")
	if g.processes > len(pids) {
		where += fmt.Sprintf(" and %d more processes", g.processes-len(pids))
	}
	if g.processes > 0 {
		what := "unset " + variable
		if value != "" {
			what = "export " + variable + "=" + shellWord(value)
		}
		fix = append(fix, note("%s where the job is started, and restart it (%s): a running process keeps its environment",
			what, strings.Join(pids, ", ")))
	}
	return where, fix
}

func edit(variable, value, file string) string {
	const line = `^[[:space:]]*(export[[:space:]]+)?%s[[:space:]]*=`
	script := fmt.Sprintf("/"+line+"/d", variable)
	if value != "" {
		literal := strings.NewReplacer(`\`, `\\`, `&`, `\&`, `|`, `\|`) // in the replacement of s|||
		script = fmt.Sprintf("s|"+line+".*|%s=%s|", variable, variable, literal.Replace(value))
	}
	return sh("sed -i -E %s %s", script, file)
}

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
