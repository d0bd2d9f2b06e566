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
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// Bounds on what is read of processes, and kept.
const (
	maxProcesses   = 1 << 18
	maxEnvs        = 32
	maxValue       = 1024 // bytes of a variable; a longer one is not judged
	MaxNamed       = 8    // processes named for each environment
	environReaders = 4    // a process that hangs in the kernel can hold one of them each
	environLane    = "environments of processes, reader "
)

// UnreadJobs is the prefix of Unread about environments.
const UnreadJobs = "environments of processes"

// JobVariables are the variables that are read of an environment.
func JobVariables() []string {
	return []string{"NCCL_IB_DISABLE", "NCCL_NET", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "UCX_TLS", "UCX_NET_DEVICES"}
}

func wanted(name string) bool { return slices.Contains(JobVariables(), name) }

// judgeable are the variables that can be judged: not cut, and printable.
func judgeable(vars map[string]string) map[string]string {
	maps.DeleteFunc(vars, func(_, value string) bool { return len(value) > maxValue })
	for name, value := range vars {
		vars[name] = Printable(value)
	}
	return vars
}

// environs collects the environments that several readers find. Safe for
// concurrent use.
type environs struct {
	mu      sync.Mutex
	byKey   map[string]*Env
	err     error // of the list of processes
	total   int   // processes to be read
	read    int
	hidden  int // refused by the kernel
	left    int // processes with an environment beyond maxEnvs
	cut     int // longer than proc.MaxEnviron
	whose   int // one of them
	failed  int // not read for another reason
	why     error
	pending map[int]bool // not read yet
}

func (e *environs) add(env Env, p Process) {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := fmt.Sprint(env.Foreign, env.File, env.Vars) // maps are printed in order of their keys
	known := e.byKey[key]
	if known == nil {
		if len(e.byKey) >= maxEnvs {
			e.left++
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

// saw counts how reading one process ended.
func (e *environs) saw(pid int, cut bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.pending, pid)
	switch {
	case err == nil:
		e.read++
		if cut {
			e.cut, e.whose = e.cut+1, pid
		}
	case absent(err): // it has ended meanwhile
	case sysfs.Reason(err) == sysfs.ReasonPermission:
		e.hidden++
	default:
		e.failed, e.why = e.failed+1, err
	}
}

// unread is what was not read, and what to do about it. The caller holds mu.
func (e *environs) unread() (list []string) {
	say := func(format string, args ...any) { list = append(list, fmt.Sprintf(UnreadJobs+format, args...)) }
	if e.err != nil {
		say(": %v; mount procfs", e.err)
	}
	if len(e.pending) > 0 {
		say(": %d of %d were read in time; a process that hangs in the kernel may be the cause (ps axo "+
			"pid,stat,comm | "+
			"grep ' D')",
			e.read+e.hidden, e.total)
	}
	if e.hidden > 0 {
		say(" of other users (%d): permission denied; run doctor as root, outside of containers", e.hidden)
	}
	if e.left > 0 {
		say(" (%d): more than %d different ones; fix those that are found, and run doctor again", e.left, maxEnvs)
	}
	if e.cut > 0 {
		say(" (%d): what follows their first %d bytes; check by hand: tr '\\0' '\\n' < /proc/%d/environ | grep -E "+
			"'^(NCCL|UCX)_'",
			e.cut, proc.MaxEnviron, e.whose)
	}
	if e.failed > 0 {
		say(" (%d): %v; see dmesg", e.failed, e.why)
	}
	return list
}

// addEnvironReaders adds readers of the environments of all processes, as they
// were when each began, and of the configuration files that set the same.
func (g *Gatherer) addEnvironReaders(ctx context.Context, todo map[string]work) *environs {
	e := &environs{byKey: map[string]*Env{}, pending: map[int]bool{}}
	todo["configuration files of NCCL and UCX"] = func(*reader) func(*Facts) { g.readJobFiles(e); return nil }
	pids, err := proc.PIDs(g.o.Procfs, maxProcesses)
	e.err = err
	self, _ := proc.Self(g.o.Procfs)
	home, _ := proc.Namespace(g.o.Procfs, "self", "net")
	begun := uint64(proc.Unlimited)
	if g.kernel.Live {
		begun = proc.Now()
	}
	queue := make(chan int, len(pids))
	e.total = len(pids)
	g.mu.Lock()
	for _, pid := range pids {
		if pid == self {
			continue
		}
		e.pending[pid] = true
		if !g.reading[pid] { // else it hangs since an earlier reading
			queue <- pid
		}
	}
	g.mu.Unlock()
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

// readProcess reads one process. One that started after begun has taken the PID
// of another one.
func (g *Gatherer) readProcess(pid int, home string, begun uint64, e *environs) {
	g.mark(pid, true)
	vars, cut, err := g.environ(g.o.Procfs, pid, wanted)
	g.mark(pid, false)
	e.saw(pid, cut, err)
	if err != nil || len(judgeable(vars)) == 0 {
		return
	}
	if st, err := proc.ReadStat(g.o.Procfs, pid); err == nil && st.Start > begun {
		return
	}
	comm, _ := sysfs.ReadString(g.o.Procfs, strconv.Itoa(pid), "comm")
	net, err := proc.Namespace(g.o.Procfs, strconv.Itoa(pid), "net")
	e.add(Env{Vars: vars, Foreign: err == nil && home != "" && net != home}, Process{pid, Clean(comm)})
}

// readEnviron is [proc.Environ], but that a kernel thread, which has none, fails
// with [os.ErrNotExist] rather than for want of permission.
func readEnviron(root string, pid int, wanted func(string) bool) (map[string]string, bool, error) {
	vars, cut, err := proc.Environ(root, pid, wanted)
	if sysfs.Reason(err) == sysfs.ReasonPermission && proc.KernelThread(root, pid) {
		err = os.ErrNotExist
	}
	return vars, cut, err
}

func (g *Gatherer) mark(pid int, reading bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if reading {
		g.reading[pid] = true
	} else {
		delete(g.reading, pid)
	}
}

// readJobFiles reads the files that set the same variables for every job.
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

// finish enters what the readers found into the facts.
func (e *environs) finish(f *Facts) {
	e.mu.Lock() // a reader that hangs may still come back
	defer e.mu.Unlock()
	f.Jobs.Read = e.read
	for _, key := range slices.Sorted(maps.Keys(e.byKey)) {
		env := *e.byKey[key]
		env.Processes = slices.Clone(env.Processes)
		f.Jobs.Envs = append(f.Jobs.Envs, env)
	}
	f.Unread = append(f.Unread, e.unread()...)
}

// readNamed reads what the environments name: devices, interfaces, GIDs.
func (g *Gatherer) readNamed(envs []Env, rails []rail.Rail) work {
	return func(r *reader) func(*Facts) {
		devices := g.rdmaPorts(r)
		var netdevs []string
		var names map[string]string
		indices := map[int]bool{}
		for _, env := range envs {
			for _, name := range UCXNames(env.Vars["UCX_NET_DEVICES"]) {
				if name == "" || strings.Contains(name, "/") || slices.Contains(netdevs, name) ||
					!exists(filepath.Join(g.o.Sysfs, "class/net", name)) {
					continue
				}
				netdevs = append(netdevs, name)
				if port, ok := g.kernel.RDMA.Port(name); ok {
					if names == nil {
						names = map[string]string{}
					}
					names[name] = port
				}
			}
			if index := GIDIndex(env.Vars); index >= 0 && !env.Foreign && len(indices) < 8 {
				indices[index] = true
			}
		}
		var gids []NamedGID
		for _, one := range rails[:min(len(rails), maxPorts)] {
			if len(indices) > 0 && one.LinkLayer == "Ethernet" {
				gids = append(gids, namedGIDs(one, slices.Sorted(maps.Keys(indices)))...)
			}
		}
		return func(f *Facts) {
			f.Jobs.Devices, f.Jobs.Netdevs, f.Jobs.GIDs, f.Jobs.RDMANames = devices, netdevs, gids, names
		}
	}
}

// rdmaPorts lists all RDMA ports.
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

// namedGIDs reads some entries of a rail's GID table, none if there is no table.
func namedGIDs(r rail.Rail, indices []int) (list []NamedGID) {
	table := rail.NewGIDTable(r.Dir, r.Port)
	defer table.Close()
	gids, errs := table.Read()
	if len(errs) > 0 && len(gids) == 0 {
		return nil
	}
	hasIPv4 := slices.ContainsFunc(gids, rail.GID.IPv4)
	for _, index := range indices {
		named := NamedGID{Device: r.Device, Port: r.Port, Index: index}
		if i := slices.IndexFunc(gids, func(g rail.GID) bool { return g.Index == index }); i >= 0 {
			g := gids[i]
			named.Used, named.Type, named.GID = true, Clean(g.Type), g.Addr.String()
			named.Good = g.Type == rail.TypeRoCEv2 && !g.Addr.Unmap().IsLinkLocalUnicast() && (g.IPv4() || !hasIPv4)
		}
		list = append(list, named)
	}
	return list
}
