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

// jobCheck is a check of one variable in the environments of processes.
type jobCheck struct {
	id, variable, about string
	judge               func(f *Facts, env JobEnv) (verdict, bool)
}

func jobChecks() []jobCheck {
	return []jobCheck{
		{"nccl_ib_disable", "NCCL_IB_DISABLE", "a process, or a configuration file, has `NCCL_IB_DISABLE` set: NCCL goes by TCP", judgeIBDisable},
		{"nccl_net", "NCCL_NET", "a process, or a configuration file, has `NCCL_NET=Socket`: NCCL goes by TCP", judgeNCCLNet},
		{"nccl_ib_hca", "NCCL_IB_HCA", "`NCCL_IB_HCA` names devices that are not there, or leaves none", judgeIBHCA},
		{"nccl_ib_gid_index", "NCCL_IB_GID_INDEX", "`NCCL_IB_GID_INDEX` points to an entry that is empty, RoCE v1, link-local, or IPv6 beside IPv4 on a rail", judgeGIDIndex},
		{"ucx_tls", "UCX_TLS", "`UCX_TLS` leaves UCX tcp alone, datagrams alone, or no transport between nodes", judgeUCXTLS},
		{"ucx_net_devices", "UCX_NET_DEVICES", "`UCX_NET_DEVICES` names no RDMA device, or one that is not there", judgeUCXDevices},
	}
}

// jobGroup is the environments in which one variable is judged badly, alike.
type jobGroup struct {
	verdict verdict
	value   string
	envs    []JobEnv
}

// groups finds the environments whose variable is judged badly. Alike ones of
// different processes are one group.
func (c jobCheck) groups(f *Facts) (groups []*jobGroup) {
	if len(f.System.Ports) == 0 {
		return nil
	}
	for _, env := range f.System.Jobs.Envs {
		value, set := env.Vars[c.variable]
		if !set {
			continue
		}
		v, bad := c.judge(f, env)
		if !bad {
			continue
		}
		i := slices.IndexFunc(groups, func(g *jobGroup) bool { return g.verdict == v && g.value == value })
		if i < 0 {
			groups, i = append(groups, &jobGroup{verdict: v, value: value}), len(groups)
		}
		groups[i].envs = append(groups[i].envs, env)
	}
	return groups
}

// run finds what is wrong on the node that has the environments, or repeats what
// a peer concluded of its own.
func (c jobCheck) run(f *Facts, found func(Finding)) {
	c.repeat(f, found)
	for _, g := range c.groups(f) {
		where, mend := holders(c.variable, g.verdict.mend, g.envs)
		found(Finding{
			Severity: g.verdict.severity, Subject: c.variable + "=" + printable(g.value),
			Read: fmt.Sprintf("%s: %s", where, printable(g.verdict.what)),
			Why:  g.verdict.why,
			Mend: mend,
		})
	}
}

// holders says who has the variable, and how to be rid of it.
func holders(variable, value string, envs []JobEnv) (where string, mend []string) {
	var files, names, pids []string
	count := 0
	for _, env := range envs {
		if env.File != "" {
			files = append(files, env.File)
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
	var all []string
	for _, file := range files {
		all = append(all, clean(file))
		script := fmt.Sprintf(`/^[[:space:]]*(export[[:space:]]+)?%s[[:space:]]*=/d`, variable)
		if value != "" {
			script = fmt.Sprintf(`s|^[[:space:]]*(export[[:space:]]+)?%s[[:space:]]*=.*|%s=%s|`, variable, variable, sedLiteral.Replace(value))
		}
		mend = append(mend, command("sed", "-i", "-E", script, file))
	}
	all = append(all, names...)
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

// sedLiteral takes from a text what it means in the replacement of sed's s|||.
var sedLiteral = strings.NewReplacer(`\`, `\\`, `&`, `\&`, `|`, `\|`)
