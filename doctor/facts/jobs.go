package facts

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/proc"
	"github.com/railscope/railscope/internal/sysfs"
	"github.com/railscope/railscope/internal/terminal"
)

// Bounds on what is read and kept of processes.
const (
	maxProcesses = 1 << 18
	maxEnvs      = 32
	maxValue     = 1024 // bytes of a variable; longer ones are not judged
	maxNumber    = 32   // bytes of a variable that is a number or a time
	maxStuck     = 4    // processes that hang in the kernel, each with a thread; beyond that no others are read
	MaxNamed     = 8    // processes listed per environment
)

// UnreadJobs is the prefix of entries of Unread about environments.
const UnreadJobs = "environments of processes"

// JobVariables returns the variables that are read from an environment.
func JobVariables() []string {
	return []string{"NCCL_IB_DISABLE", "NCCL_NET", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "UCX_TLS", "UCX_NET_DEVICES",
		"NIXL_ETCD_ENDPOINTS", "NIXL_ETCD_NAMESPACE",
		"NCCL_IB_TIMEOUT", "NCCL_IB_RETRY_CNT", "UCX_RC_TIMEOUT", "UCX_RC_RETRY_COUNT",
		"NCCL_IB_TC", "UCX_IB_TRAFFIC_CLASS"}
}

func wanted(name string) bool { return slices.Contains(JobVariables(), name) }

// longest returns the maximum length of a variable's value in bytes.
func longest(name string) int {
	if slices.Contains([]string{"NCCL_IB_TIMEOUT", "NCCL_IB_RETRY_CNT", "UCX_RC_TIMEOUT", "UCX_RC_RETRY_COUNT",
		"NCCL_IB_TC", "UCX_IB_TRAFFIC_CLASS"}, name) {
		return maxNumber
	}
	return maxValue
}

// judgeable returns the variables that can be judged: complete, printable, and without passwords in URLs.
func judgeable(vars map[string]string) map[string]string {
	maps.DeleteFunc(vars, func(name, value string) bool { return len(value) > longest(name) })
	for name, value := range vars {
		vars[name] = terminal.PlainName(value)
	}
	return vars
}

// environs collects the environments of processes and files, each once, and counts failures.
type environs struct {
	byKey   map[string]*Env
	total   int // number of processes
	read    int
	late    int // not read in time
	hidden  int // permission denied
	surplus int // processes whose environment exceeds maxEnvs
	cut     int // environments longer than proc.MaxEnviron
	cutPID  int // PID of one with a cut environment
	failed  int // other errors
	err     error
}

type environment struct {
	Env
	cut bool
	err error
}

func (e *environs) add(env Env) {
	key := fmt.Sprint(env.Foreign, env.File, env.Vars) // maps are printed in order of their keys
	switch known := e.byKey[key]; {
	case known != nil:
		known.Count += env.Count
		known.Processes = append(known.Processes, env.Processes...)
		known.Processes = known.Processes[:min(len(known.Processes), MaxNamed)]
	case len(e.byKey) < maxEnvs:
		e.byKey[key] = &env
	default:
		e.surplus++
	}
}

func (e *environs) addProcess(res lane.Result[string, *environment]) {
	p := res.Value
	switch {
	case res.State == lane.Died:
		e.failed, e.err = e.failed+1, errors.New(firstLine(res.Err))
	case p == nil:
		e.late++
	case absent(p.err): // it has exited
	case sysfs.Reason(p.err) == sysfs.ReasonPermission:
		e.hidden++
	case p.err != nil:
		e.failed, e.err = e.failed+1, p.err
	default:
		e.read++
		if p.cut {
			e.cut, e.cutPID = e.cut+1, p.Processes[0].PID
		}
		if len(p.Vars) > 0 {
			e.add(p.Env)
		}
	}
}

// report records what was not read, and its fix.
func (e *environs) report(r *reader) {
	say := func(format string, args ...any) { r.say(UnreadJobs+format, args...) }
	if e.late > 0 {
		say(": %d of %d were read in time; a process may hang in the kernel (ps axo pid,stat,comm | grep ' D')",
			e.read+e.hidden, e.total)
	}
	if e.hidden > 0 {
		say(" of other users (%d): permission denied; run doctor as root, outside of containers", e.hidden)
	}
	if e.surplus > 0 {
		say(" (%d): more than %d different ones; fix those that are found, and run doctor again", e.surplus, maxEnvs)
	}
	if e.cut > 0 {
		say(" (%d): what follows their first %d bytes; check by hand: tr '\\0' '\\n' < /proc/%d/environ | "+
			"grep -E '^(NCCL|UCX)_'", e.cut, proc.MaxEnviron, e.cutPID)
	}
	if e.failed > 0 {
		say(" (%d): %v; see dmesg", e.failed, e.err)
	}
}

// readJobs reads the environments of processes, the files that set the same variables, and the devices that they name.
func (g *Gatherer) readJobs(ctx context.Context) work {
	return func(r *reader) func(*Facts) {
		e := &environs{byKey: map[string]*Env{}}
		g.readJobFiles(e)
		g.readProcesses(ctx, r, e)
		e.report(r)
		jobs := Jobs{Read: e.read, Devices: g.rdmaPorts(r)}
		if g.o.Jobs != nil {
			jobs.GPU, _ = g.o.Jobs()
		}
		for _, key := range slices.Sorted(maps.Keys(e.byKey)) {
			jobs.Envs = append(jobs.Envs, *e.byKey[key])
		}
		g.readNamed(&jobs)
		return func(f *Facts) { f.Jobs = jobs }
	}
}

// readProcesses reads each process in its own lane: one that hangs in the kernel does not delay others and is not
// retried. All reads end within the budget of the caller's lane.
func (g *Gatherer) readProcesses(ctx context.Context, r *reader, e *environs) {
	pids, err := proc.PIDs(g.o.Procfs, maxProcesses)
	if err != nil {
		r.say(UnreadJobs+": %v; mount procfs", err)
	}
	self, _ := proc.Self(g.o.Procfs)
	home, _ := proc.Namespace(g.o.Procfs, "self", "net")
	begun := uint64(proc.Unlimited)
	if g.kernel.Live {
		begun = proc.Now()
	}
	e.total = len(pids)
	slices.Sort(pids)
	var keys []string
	for _, pid := range pids {
		if pid != self {
			keys = append(keys, strconv.Itoa(pid))
		}
	}
	budget := g.budget(ctx)
	last := time.Now().Add(budget * 3 / 4)
	for _, res := range g.processes.Run(budget/8, keys, func(pid string) *environment {
		defer g.inProcesses.Add(-1)
		if g.inProcesses.Add(1) > maxStuck || ctx.Err() != nil || time.Now().After(last) {
			return nil
		}
		return g.readProcess(pid, home, begun)
	}) {
		e.addProcess(res)
	}
}

// readProcess reads one process. A process that started after begun has reused another one's PID.
func (g *Gatherer) readProcess(key, home string, begun uint64) *environment {
	pid, _ := strconv.Atoi(key) // key comes from strconv.Itoa
	vars, cut, err := g.environ(g.o.Procfs, pid, wanted)
	p := &environment{Env{Count: 1, Processes: []Process{{PID: pid}}}, cut, err}
	if err != nil || len(judgeable(vars)) == 0 {
		return p
	}
	if st, err := proc.ReadStat(g.o.Procfs, pid); err == nil && st.Start > begun {
		return p
	}
	comm, _ := sysfs.ReadString(g.o.Procfs, key, "comm")
	net, err := proc.Namespace(g.o.Procfs, key, "net")
	p.Vars, p.Foreign, p.Processes[0].Comm = vars, err == nil && home != "" && net != home, clean(comm)
	return p
}

// readEnviron is [proc.Environ], except that kernel threads, which have no environment, fail with [os.ErrNotExist].
func readEnviron(root string, pid int, wanted func(string) bool) (map[string]string, bool, error) {
	vars, cut, err := proc.Environ(root, pid, wanted)
	if sysfs.Reason(err) == sysfs.ReasonPermission && proc.KernelThread(root, pid) {
		err = os.ErrNotExist
	}
	return vars, cut, err
}

func (g *Gatherer) readJobFiles(e *environs) {
	if g.o.Rootfs == "" {
		return
	}
	for _, name := range []string{"/etc/nccl.conf", "/etc/rccl.conf", "/etc/ucx/ucx.conf", "/etc/environment"} {
		text, _, err := proc.Head(filepath.Join(g.o.Rootfs, name), proc.MaxEnviron)
		if err != nil {
			continue
		}
		var entries bytes.Buffer
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
			entries.WriteString(strings.TrimSpace(name) + "=" + strings.Trim(strings.TrimSpace(value), `"'`) + "\x00")
		}
		if vars := judgeable(proc.Variables(entries.String(), wanted)); len(vars) > 0 {
			e.add(Env{Vars: vars, File: name})
		}
	}
}

// readNamed finds which of the interfaces named in environments exist.
func (g *Gatherer) readNamed(jobs *Jobs) {
	for _, env := range jobs.Envs {
		for name := range strings.SplitSeq(strings.TrimPrefix(env.Vars["UCX_NET_DEVICES"], "^"), ",") {
			name, _, _ = strings.Cut(strings.TrimSpace(name), ":")
			if name == "" || strings.Contains(name, "/") || slices.Contains(jobs.Netdevs, name) ||
				sysfs.Exists(filepath.Join(g.o.Sysfs, "class/net", name)) != nil {
				continue
			}
			jobs.Netdevs = append(jobs.Netdevs, name)
			if port, ok := g.kernel.RDMA.Port(name); ok {
				if jobs.RDMANames == nil {
					jobs.RDMANames = map[string]string{}
				}
				jobs.RDMANames[name] = port
			}
		}
	}
}

func (g *Gatherer) rdmaPorts(r *reader) (list []RDMAPort) {
	for _, device := range r.names(g.o.Sysfs, "class/infiniband") {
		for _, name := range r.names(g.o.Sysfs, "class/infiniband", device, "ports") {
			if port, err := strconv.Atoi(name); err == nil && len(list) < 4*maxPorts {
				list = append(list, RDMAPort{device, port})
			}
		}
	}
	slices.SortFunc(list, func(a, b RDMAPort) int { return cmp.Or(strings.Compare(a.Device, b.Device), a.Port-b.Port) })
	return list
}
