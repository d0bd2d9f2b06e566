package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/railscope/railscope/doctor/classes"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/terminal"
)

const onThatNode = "# run railscope doctor on that node, as root: it prints the processes, the values and the fix"

type verdict struct {
	severity finding.Severity
	what     string // effect of the value, lower case
	why      string
	fix      string // value to set; empty to unset the variable
	advice   string // note that replaces fix; empty: fix applies
}

type jobCheck struct {
	id        string
	variables []string // each is judged alone
	about     string
	// A verdict without severity means no fault.
	judge func(f *facts.Facts, env facts.Env, variable string) verdict
}

func jobChecks() []jobCheck {
	return []jobCheck{
		{"nccl_ib_disable", []string{"NCCL_IB_DISABLE"}, "a process or configuration file sets `NCCL_IB_DISABLE`: " +
			"NCCL uses TCP",
			judgeIBDisable},
		{"nccl_net", []string{"NCCL_NET"}, "a process or configuration file sets `NCCL_NET=Socket`: NCCL uses " +
			"TCP", judgeNCCLNet},
		{"nccl_ib_hca", []string{"NCCL_IB_HCA"}, "`NCCL_IB_HCA` names devices that do not exist, or leaves " +
			"none", judgeIBHCA},
		{"nccl_ib_gid_index", []string{"NCCL_IB_GID_INDEX"}, "`NCCL_IB_GID_INDEX` selects an entry that is empty, " +
			"RoCE v1, link-local, or IPv6 beside IPv4 on a rail", judgeGIDIndex},
		{"ucx_tls", []string{"UCX_TLS"}, "`UCX_TLS` leaves UCX only tcp, only datagrams, or no transport between nodes",
			judgeUCXTLS},
		{"ucx_net_devices", []string{"UCX_NET_DEVICES"}, "`UCX_NET_DEVICES` names no RDMA device, or one that does " +
			"not exist",
			judgeUCXDevices},
		{"nixl_etcd", []string{nixlEndpoints}, "`NIXL_ETCD_ENDPOINTS` has no valid address, or processes that " +
			"share it have different namespaces", judgeNIXL},
		{"class_mismatch", classes.Variables(), "the traffic class of `NCCL_IB_TC` or " +
			"`UCX_IB_TRAFFIC_CLASS` leads to a priority without PFC, while another one has it", judgeClass},
	}
}

type jobGroup struct {
	verdict   verdict
	variable  string
	value     string
	envs      []facts.Env
	processes int
	files     int
}

func (c jobCheck) groups(f *facts.Facts) (groups []*jobGroup) {
	if len(f.Rails) == 0 {
		return nil
	}
	for _, variable := range c.variables {
		for _, env := range f.Jobs.Envs {
			value, set := env.Vars[variable]
			if !set {
				continue
			}
			v := c.judge(f, env, variable)
			if v.severity == "" {
				continue
			}
			i := slices.IndexFunc(groups, func(g *jobGroup) bool {
				return g.verdict == v && g.variable == variable && g.value == value
			})
			if i < 0 {
				groups, i = append(groups, &jobGroup{verdict: v, variable: variable, value: value}), len(groups)
			}
			groups[i].add(env)
		}
	}
	return groups
}

func (g *jobGroup) add(env facts.Env) {
	g.envs, g.processes = append(g.envs, env), g.processes+env.Count
	if env.File != "" {
		g.files++
	}
}

// run reports faults in the environments on the node, or repeats what a peer concluded about its own.
func (c jobCheck) run(f *facts.Facts, report reporter) {
	c.repeat(f, report)
	for _, g := range c.groups(f) {
		where, fix := g.holders()
		if g.verdict.advice != "" {
			fix = []string{note("%s", g.verdict.advice)}
		}
		report(finding.Finding{Severity: g.verdict.severity, Subject: g.subject(),
			Where: fmt.Sprintf("%s=%s in %s: %s", g.variable, terminal.PlainName(g.value), where,
				terminal.PlainName(g.verdict.what)),
			Evidence: fmt.Sprintf("%s (%s)", strings.ReplaceAll(c.about, "`", ""), g.count()), Why: g.verdict.why,
			Fix: fix})
	}
}

// subject names the first file or process by its command: a PID would make a new finding of each job.
func (g *jobGroup) subject() string {
	for _, env := range g.envs {
		switch {
		case env.File != "":
			return "file " + env.File
		case len(env.Processes) > 0:
			return "process " + terminal.PlainName(env.Processes[0].Comm)
		}
	}
	return thisNode
}

func (g *jobGroup) count() string { return holderCount(g.processes, g.files) }

func holderCount(processes, files int) string {
	var parts []string
	if processes > 0 {
		parts = append(parts, terminal.Count(processes, "process"))
	}
	if files > 0 {
		parts = append(parts, terminal.Count(files, "configuration file"))
	}
	return listed(parts)
}

func (g *jobGroup) holders() (where string, fix []string) {
	var files, processes, pids []string
	value := g.verdict.fix
	for _, env := range g.envs {
		if env.File != "" {
			files, fix = append(files, env.File), append(fix, edit(g.variable, value, env.File))
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
		what := "unset " + g.variable
		if value != "" {
			what = "export " + g.variable + "=" + shellWord(value)
		}
		fix = append(fix, note("%s where the job is started, and restart it (%s): a running process keeps its "+
			"environment", what, strings.Join(pids, ", ")))
	}
	return where, fix
}

func edit(variable, value, file string) string {
	const line = `^[[:space:]]*(export[[:space:]]+)?%s[[:space:]]*=`
	script := fmt.Sprintf("/"+line+"/d", variable)
	if value != "" {
		literal := strings.NewReplacer(`\`, `\\`, `&`, `\&`, `|`, `\|`) // escaped for the replacement of s|||
		script = fmt.Sprintf("s|"+line+".*|%s=%s|", variable, variable, literal.Replace(value))
	}
	return sh("sed -i -E %s %s", script, file)
}

// Share returns the facts that peers get. The environments of processes stay on the node, which judges them itself.
func Share(f *facts.Facts) *facts.Facts {
	out := *f
	out.Jobs = facts.Jobs{Read: f.Jobs.Read, Conclusions: conclude(f), Classes: classes.Set(f)}
	out.Unread = ServedUnread(f.Unread)
	return &out
}

// ServedUnread returns unread as everybody may see it: without the processes.
func ServedUnread(unread []string) []string {
	list := slices.DeleteFunc(slices.Clone(unread),
		func(s string) bool { return strings.HasPrefix(s, facts.UnreadJobs) })
	if len(list) < len(unread) {
		list = append(list, facts.UnreadJobs+": not all were read; run railscope doctor on that node for the reasons")
	}
	return list
}

func conclude(f *facts.Facts) []facts.Conclusion {
	list := []facts.Conclusion{}
	for _, check := range jobChecks() {
		for _, severity := range []finding.Severity{critical, warning} {
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

// repeat reports a peer's conclusions about its own processes, each severity once, if the conclusion is plausible.
func (c jobCheck) repeat(f *facts.Facts, report reporter) {
	seen := map[finding.Severity]bool{}
	for _, peer := range f.Jobs.Conclusions {
		severity := finding.Severity(peer.Severity)
		valid := (severity == critical || severity == warning) && min(peer.Processes, peer.Files) >= 0 &&
			max(peer.Processes, peer.Files) > 0
		if peer.Check != c.id || !valid || seen[severity] {
			continue
		}
		seen[severity] = true
		why := strings.ReplaceAll(c.about, "`", "")
		report(finding.Finding{Severity: severity,
			Evidence: fmt.Sprintf("%s: the node itself found it wrong in %s; values and processes are not reported "+
				"to peers", strings.Join(c.variables, " or "), holderCount(peer.Processes, peer.Files)),
			Why: strings.ToUpper(why[:1]) + why[1:] + ".",
			Fix: []string{onThatNode}})
	}
}

// checkFewRails finds jobs that use fewer rails than their GPUs need. A job without any rail has another fault, or
// none.
func checkFewRails(f *facts.Facts, report reporter) {
	var names, devices []string
	for _, r := range f.Rails {
		if r.Role == rail.Compute && r.Active() {
			names, devices = append(names, r.Name), append(devices, fmt.Sprintf("%s:%d", r.Device, r.Port))
		}
	}
	for _, j := range f.Jobs.GPU {
		used := slices.DeleteFunc(slices.Clone(j.Rails),
			func(name string) bool { return !slices.Contains(names, name) })
		if len(used) == 0 || len(used) >= min(j.GPUs, len(names)) {
			continue
		}
		evidence := fmt.Sprintf("it holds memory of %d GPUs and has connected queue pairs on %d of %d active compute "+
			"rails (%s)", j.GPUs, len(used), len(names), listed(used))
		switch {
		case len(j.Variables) > 0:
			evidence += "; its environment sets " + listed(j.Variables)
		case !j.EnvironmentRead:
			evidence += "; its environment was not read completely"
		}
		report(finding.Finding{Subject: "job " + terminal.PlainName(j.Name), Where: terminal.PlainName(j.Comm),
			Evidence: evidence, Fix: useAllRails(j, devices),
			Why: "Its traffic between nodes has only the bandwidth of these rails, and waits for them."})
	}
}

// useAllRails returns the lines that make a job use all devices, in the form device:port.
func useAllRails(j facts.GPUJob, devices []string) (fix []string) {
	list := strings.Join(devices, ",")
	lines := map[string][]string{
		"NCCL_IB_HCA": {note("or unset NCCL_IB_HCA: NCCL then uses all ports"),
			sh("export NCCL_IB_HCA=%s", "="+list)},
		"NCCL_NET_GDR_LEVEL": {note("NCCL then uses the rails that are near each GPU"), "unset NCCL_NET_GDR_LEVEL"},
		"UCX_NET_DEVICES":    {sh("export UCX_NET_DEVICES=%s", list)},
		"UCX_MAX_RMA_RAILS":  {fmt.Sprintf("export UCX_MAX_RMA_RAILS=%[1]d UCX_MAX_RNDV_RAILS=%[1]d", len(devices))},
	}
	fix = []string{note("set where the job is started, and restart it: a running process keeps its environment")}
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		if slices.Contains(j.Variables, name) {
			fix = append(fix, lines[name]...)
		}
	}
	if len(fix) > 1 {
		return fix
	}
	return []string{note("NCCL: NCCL_DEBUG=INFO prints the devices that it uses, and /etc/nccl.conf may set " +
		"NCCL_IB_HCA"), note("UCX, NIXL: %s where the job is started", lines["UCX_MAX_RMA_RAILS"][0])}
}
