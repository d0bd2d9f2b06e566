package facts

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/railscope/railscope/internal/proc"
	"github.com/railscope/railscope/internal/sysfs"
	"github.com/railscope/railscope/internal/terminal"
)

// Bounds on what is read of processes, and kept.
const (
	maxProcesses   = 1 << 18
	maxEnvs        = 32
	maxValue       = 1024 // bytes of a variable; a longer one is not judged
	MaxNamed       = 8    // processes named for each environment
	environReaders = 4    // a process that hangs in the kernel can block one of them
	environLane    = "environments of processes, reader "
)

// UnreadJobs is the prefix of Unread about environments.
const UnreadJobs = "environments of processes"

// JobVariables are the variables that are read of an environment.
func JobVariables() []string {
	return []string{"NCCL_IB_DISABLE", "NCCL_NET", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "UCX_TLS", "UCX_NET_DEVICES"}
}

func wanted(name string) bool { return slices.Contains(JobVariables(), name) }

// judgeable are the variables that can be judged: complete, and printable.
func judgeable(vars map[string]string) map[string]string {
	maps.DeleteFunc(vars, func(_, value string) bool { return len(value) > maxValue })
	for name, value := range vars {
		vars[name] = terminal.PlainName(value)
	}
	return vars
}

// environs collects the environments that several readers find. Safe for concurrent use.
type environs struct {
	mu      sync.Mutex
	byKey   map[string]*Env
	listErr error        // of the list of processes
	total   int          // processes to read
	pending map[int]bool // not read yet
	read    int
	hidden  int // permission denied
	surplus int // processes with an environment beyond maxEnvs
	cut     int // longer than proc.MaxEnviron
	cutPID  int // one of them
	failed  int // for another reason
	err     error
}

func (e *environs) add(env Env, p Process) {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := fmt.Sprint(env.Foreign, env.File, env.Vars) // maps are printed in order of their keys
	known := e.byKey[key]
	if known == nil {
		if len(e.byKey) >= maxEnvs {
			e.surplus++
			return
		}
		known = &env
		e.byKey[key] = known
	}
	if env.File == "" {
		known.Count++
		known.Processes = append(known.Processes, p)
		slices.SortFunc(known.Processes, func(a, b Process) int { return a.PID - b.PID })
		known.Processes = known.Processes[:min(len(known.Processes), MaxNamed)]
	}
}

func (e *environs) finished(pid int, cut bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.pending, pid)
	switch {
	case err == nil:
		e.read++
		if cut {
			e.cut, e.cutPID = e.cut+1, pid
		}
	case absent(err): // it has exited
	case sysfs.Reason(err) == sysfs.ReasonPermission:
		e.hidden++
	default:
		e.failed, e.err = e.failed+1, err
	}
}

// unread is what was not read, and what to do about it. The caller holds mu.
func (e *environs) unread() (list []string) {
	say := func(format string, args ...any) { list = append(list, fmt.Sprintf(UnreadJobs+format, args...)) }
	if e.listErr != nil {
		say(": %v; mount procfs", e.listErr)
	}
	if len(e.pending) > 0 {
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
	return list
}

// addEnvironReaders adds the readers of processes' environments and of files that set the same variables.
func (g *Gatherer) addEnvironReaders(ctx context.Context, todo map[string]work) *environs {
	e := &environs{byKey: map[string]*Env{}, pending: map[int]bool{}}
	todo["configuration files of NCCL and UCX"] = func(*reader) func(*Facts) { g.readJobFiles(e); return nil }
	pids, err := proc.PIDs(g.o.Procfs, maxProcesses)
	e.total, e.listErr = len(pids), err
	self, _ := proc.Self(g.o.Procfs)
	home, _ := proc.Namespace(g.o.Procfs, "self", "net")
	begun := uint64(proc.Unlimited)
	if g.kernel.Live {
		begun = proc.Now()
	}
	queue := make(chan int, len(pids))
	for _, pid := range pids {
		if pid == self {
			continue
		}
		e.pending[pid] = true
		if _, hangs := g.pids.Load(pid); !hangs { // since an earlier reading
			queue <- pid
		}
	}
	close(queue)
	for i := range environReaders {
		todo[environLane+strconv.Itoa(i)] = func(*reader) func(*Facts) {
			for pid := range queue {
				if ctx.Err() != nil {
					break
				}
				g.readProcess(pid, home, begun, e)
			}
			return nil
		}
	}
	return e
}

// readProcess reads one process. One that started after begun has reused the PID of another.
func (g *Gatherer) readProcess(pid int, home string, begun uint64, e *environs) {
	g.pids.Store(pid, true)
	vars, cut, err := g.environ(g.o.Procfs, pid, wanted)
	g.pids.Delete(pid)
	e.finished(pid, cut, err)
	if err != nil || len(judgeable(vars)) == 0 {
		return
	}
	if st, err := proc.ReadStat(g.o.Procfs, pid); err == nil && st.Start > begun {
		return
	}
	comm, _ := sysfs.ReadString(g.o.Procfs, strconv.Itoa(pid), "comm")
	net, err := proc.Namespace(g.o.Procfs, strconv.Itoa(pid), "net")
	e.add(Env{Vars: vars, Foreign: err == nil && home != "" && net != home}, Process{pid, clean(comm)})
}

// readEnviron is [proc.Environ], but kernel threads, without an environment, fail with [os.ErrNotExist].
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
	for _, name := range []string{"/etc/nccl.conf", "/etc/ucx/ucx.conf", "/etc/environment"} {
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
			e.add(Env{Vars: vars, File: name}, Process{})
		}
	}
}

func (e *environs) finish(f *Facts) {
	e.mu.Lock() // a reader that hangs may still return
	defer e.mu.Unlock()
	f.Jobs.Read = e.read
	for _, key := range slices.Sorted(maps.Keys(e.byKey)) {
		env := *e.byKey[key]
		env.Processes = slices.Clone(env.Processes)
		f.Jobs.Envs = append(f.Jobs.Envs, env)
	}
	f.Unread = append(f.Unread, e.unread()...)
}

func (g *Gatherer) readNamed(envs []Env) work {
	return func(r *reader) func(*Facts) {
		jobs := Jobs{Devices: g.rdmaPorts(r)}
		for _, env := range envs {
			for name := range strings.SplitSeq(strings.TrimPrefix(env.Vars["UCX_NET_DEVICES"], "^"), ",") {
				name, _, _ = strings.Cut(strings.TrimSpace(name), ":")
				if name == "" || strings.Contains(name, "/") || slices.Contains(jobs.Netdevs, name) ||
					!exists(filepath.Join(g.o.Sysfs, "class/net", name)) {
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
		return func(f *Facts) {
			f.Jobs.Devices, f.Jobs.Netdevs, f.Jobs.RDMANames = jobs.Devices, jobs.Netdevs, jobs.RDMANames
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
