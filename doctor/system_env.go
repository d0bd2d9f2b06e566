package doctor

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// JobFacts is what processes have in their environment that decides how NCCL and
// UCX go, and what is there for it to name.
type JobFacts struct {
	Envs    []JobEnv   `json:"envs"`
	Devices []RDMAPort `json:"devices"` // all RDMA ports of this network namespace, those that are no rails too
	Netdevs []string   `json:"netdevs"` // interfaces, of those that an environment names
	GIDs    []AskedGID `json:"gids"`    // entries of rails' GID tables that an environment names
	Looked  int        `json:"looked"`  // processes whose environment was read

	// Conclusions are all that a peer gets of this, beside Looked; see
	// [Facts.Shared]. On the node itself there are none.
	Conclusions []JobConclusion `json:"conclusions"`
}

// JobEnv is one environment, and who has it. Of an environment only the few
// variables that the checks look at are kept.
type JobEnv struct {
	Vars      map[string]string `json:"vars"`
	File      string            `json:"file,omitempty"`      // a configuration file instead of processes
	Foreign   bool              `json:"foreign,omitempty"`   // in another network namespace: names mean other devices there
	Count     int               `json:"count"`               // processes that have it
	Processes []Process         `json:"processes,omitempty"` // some of them
}

// Process is one process.
type Process struct {
	PID  int    `json:"pid"`
	Comm string `json:"comm"`
}

// RDMAPort is a port of an RDMA device.
type RDMAPort struct {
	Device string `json:"device"`
	Port   int    `json:"port"`
}

// AskedGID is an entry of a rail's GID table.
type AskedGID struct {
	Device string `json:"device"`
	Port   int    `json:"port"`
	Index  int    `json:"index"`
	Used   bool   `json:"used"`
	Good   bool   `json:"good"` // RoCE v2 over IPv4; over IPv6 where the rail has nothing better; never link-local
	Type   string `json:"type"`
	GID    string `json:"gid"`
}

// Bounds on what is read of processes, and kept.
const (
	maxProcesses   = 1 << 18
	maxEnviron     = 256 << 10 // bytes of one environment; that there is more is said
	maxEnvs        = 32
	maxValue       = 1024 // bytes of a variable; a longer one is not judged
	maxKept        = 8    // processes named for each environment
	environReaders = 4    // a process that hangs in the kernel can hold one of them each
)

// jobVars are the variables that checks look at.
func jobVars() []string {
	return []string{"NCCL_IB_DISABLE", "NCCL_NET", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "UCX_TLS", "UCX_NET_DEVICES"}
}

// parseEnviron finds the variables in /proc/<pid>/environ: VAR=VALUE, each ended
// by a zero byte. Of two of a name the first counts, as for getenv. It returns
// nil where there is none.
func parseEnviron(b []byte) map[string]string {
	if !bytes.Contains(b, []byte("NCCL_")) && !bytes.Contains(b, []byte("UCX_")) {
		return nil
	}
	var vars map[string]string
	for entry := range bytes.SplitSeq(b, []byte{0}) {
		name, value, found := bytes.Cut(entry, []byte{'='})
		if !found || !slices.Contains(jobVars(), string(name)) {
			continue
		}
		if _, twice := vars[string(name)]; twice || len(value) > maxValue {
			continue
		}
		if vars == nil {
			vars = map[string]string{}
		}
		vars[string(name)] = printable(string(value))
	}
	return vars
}

// environs collects environments that several readers find. Safe for concurrent
// use.
type environs struct {
	mu     sync.Mutex
	byKey  map[string]*JobEnv
	looked int
	hidden int // refused by the kernel
	left   int // processes with an environment beyond maxEnvs
	cut    int // longer than maxEnviron
	whose  int // one of them
	failed int // that could not be read for another reason
	why    string
}

func (e *environs) add(env JobEnv, p Process) {
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
		known.Processes = known.Processes[:min(len(known.Processes), maxKept)]
	}
}

func (e *environs) saw(pid int, cut bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case err == nil:
		e.looked++
		if cut {
			e.cut, e.whose = e.cut+1, pid
		}
	case errors.Is(err, os.ErrPermission):
		e.hidden++
	case !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ESRCH): // which is to have ended meanwhile
		e.failed, e.why = e.failed+1, err.Error()
	}
}

// unread is what was not looked at, and what to do about it. The caller holds mu.
func (e *environs) unread() (list []string) {
	if e.hidden > 0 {
		list = append(list, fmt.Sprintf(unreadJobs+" of other users (%d): permission denied; run doctor as root, outside of containers", e.hidden))
	}
	if e.left > 0 {
		list = append(list, fmt.Sprintf(unreadJobs+" (%d): more than %d different ones; mend those that are found, and run doctor again", e.left, maxEnvs))
	}
	if e.cut > 0 {
		list = append(list, fmt.Sprintf(unreadJobs+" (%d): what is behind their first %d bytes; look there by hand: tr '\\0' '\\n' < /proc/%d/environ | grep -E '^(NCCL|UCX)_'", e.cut, maxEnviron, e.whose))
	}
	if e.failed > 0 {
		list = append(list, fmt.Sprintf(unreadJobs+" (%d): %s; look into dmesg", e.failed, e.why))
	}
	return list
}

// readJobs reads the environments of all processes, as they were when each
// began, and of the configuration files that do the same.
func (s *system) readJobs(ctx context.Context) part {
	if s.o.NoJobs || len(s.rails) == 0 { // whatever they say, it cannot be wrong about no rails
		return part{put: func(*SystemFacts) {}}
	}
	found := &environs{byKey: map[string]*JobEnv{}}
	s.readJobFiles(found)
	pids, err := processes(s.o.Procfs)
	var unread []string
	if err != nil {
		unread = append(unread, fmt.Sprintf(unreadJobs+": %v; mount procfs", err))
	}
	done := s.readEnvirons(ctx, pids, found)
	found.mu.Lock() // a reader that hangs may still come back
	defer found.mu.Unlock()
	if !done {
		unread = append(unread, fmt.Sprintf(unreadJobs+": %d of %d were read before time was over; a process that hangs in the kernel may be in the way (ps axo pid,stat,comm | grep ' D')",
			found.looked+found.hidden, len(pids)))
	}
	unread = append(unread, found.unread()...)
	jobs := JobFacts{Looked: found.looked}
	for _, key := range slices.Sorted(maps.Keys(found.byKey)) {
		env := *found.byKey[key]
		env.Processes = slices.Clone(env.Processes)
		jobs.Envs = append(jobs.Envs, env)
	}
	s.readNamed(&jobs)
	return part{put: func(f *SystemFacts) { f.Jobs = jobs }, unread: unread}
}

// processes lists the processes below procfs.
func processes(procfs string) (pids []int, err error) {
	dir, err := os.Open(procfs)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(1024)
		for _, name := range names {
			if pid, err := strconv.Atoi(name); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return pids, nil
		case err != nil:
			return pids, err
		case len(pids) >= maxProcesses:
			return pids, fmt.Errorf("more than %d processes, the rest is not looked at", maxProcesses)
		}
	}
}

// readEnvirons reads all environments with a few readers, each in a lane of its
// own, and reports whether all were read in time.
func (s *system) readEnvirons(ctx context.Context, pids []int, found *environs) bool {
	self, _ := os.Readlink(filepath.Join(s.o.Procfs, "self"))
	home, _ := os.Readlink(filepath.Join(s.o.Procfs, "self/ns/net"))
	work := make(chan int, len(pids))
	hangs := false
	for _, pid := range pids {
		if _, busy := s.lanes.reading.Load(pid); busy {
			hangs = true
		} else if strconv.Itoa(pid) != self {
			work <- pid
		}
	}
	close(work)
	var readers []string
	for i := range environReaders {
		readers = append(readers, fmt.Sprint(i))
	}
	whole := false
	for _, res := range s.lanes.environ.Run(remaining(ctx), readers, func(string) bool {
		buf := make([]byte, maxEnviron)
		for pid := range work {
			if ctx.Err() != nil {
				return false
			}
			s.readEnviron(pid, home, buf, found)
		}
		return true
	}) {
		if res.State == lane.Late || res.State == lane.Died || res.State == lane.Done && !res.Value {
			return false
		}
		whole = whole || res.State == lane.Done // one that still hangs from before has taken no work
	}
	return whole && !hangs
}

// readEnviron reads one process.
func (s *system) readEnviron(pid int, home string, buf []byte, found *environs) {
	dir := filepath.Join(s.o.Procfs, strconv.Itoa(pid))
	s.lanes.reading.Store(pid, true)
	n, err := s.read(filepath.Join(dir, "environ"), buf)
	s.lanes.reading.Delete(pid)
	if errors.Is(err, os.ErrPermission) && s.kernelThread(dir) {
		return
	}
	cut := n == len(buf)
	if cut { // the last variable may be half a one, which would say something else
		n = bytes.LastIndexByte(buf, 0) + 1
	}
	found.saw(pid, cut, err)
	vars := parseEnviron(buf[:n])
	if err != nil || vars == nil {
		return
	}
	comm, _ := sysfs.ReadString(dir, "comm")
	net, err := os.Readlink(filepath.Join(dir, "ns/net"))
	found.add(JobEnv{Vars: vars, Foreign: err == nil && home != "" && net != home}, Process{PID: pid, Comm: clean(comm)})
}

// kernelThread reports whether a process has no command line: it is one of the
// kernel's, or has ended, and has no environment either.
func (s *system) kernelThread(dir string) bool {
	n, err := s.read(filepath.Join(dir, "cmdline"), make([]byte, 1))
	return n == 0 && err == nil
}

// readStart reads the start of a regular file into buf. O_NONBLOCK keeps a pipe
// from holding us up: it opens at once, and is turned away.
func readStart(path string, buf []byte) (int, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	if st, err := file.Stat(); err != nil || !st.Mode().IsRegular() {
		return 0, cmp.Or(err, fmt.Errorf("read %s: not a regular file", path))
	}
	n, err := io.ReadFull(file, buf)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return n, err
}

// readJobFiles reads the files that set the same variables for every job.
func (s *system) readJobFiles(found *environs) {
	if s.o.Rootfs == "" {
		return
	}
	buf := make([]byte, maxEnviron)
	for _, file := range []string{"/etc/nccl.conf", "/etc/ucx/ucx.conf", "/etc/environment"} {
		n, err := readStart(filepath.Join(s.o.Rootfs, file), buf)
		if err != nil {
			continue
		}
		var entries []string
		for line := range strings.Lines(string(buf[:n])) {
			name, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
			entries = append(entries, strings.TrimSpace(name)+"="+strings.Trim(strings.TrimSpace(value), `"'`))
		}
		if vars := parseEnviron([]byte(strings.Join(entries, "\x00"))); vars != nil {
			found.add(JobEnv{Vars: vars, File: file}, Process{})
		}
	}
}

// readNamed reads what the environments name: devices, interfaces, GIDs.
func (s *system) readNamed(jobs *JobFacts) {
	devices, _ := sysfs.List(filepath.Join(s.o.Sysfs, "class/infiniband"))
	for _, d := range devices {
		ports, _ := sysfs.List(filepath.Join(s.o.Sysfs, "class/infiniband", d.Name, "ports"))
		for _, p := range ports {
			if n, err := strconv.Atoi(p.Name); err == nil && len(jobs.Devices) < 4*maxPorts {
				jobs.Devices = append(jobs.Devices, RDMAPort{d.Name, n})
			}
		}
	}
	slices.SortFunc(jobs.Devices, func(a, b RDMAPort) int {
		if a.Device == b.Device {
			return a.Port - b.Port
		}
		return strings.Compare(a.Device, b.Device)
	})
	indices := map[int]bool{}
	for _, env := range jobs.Envs {
		for _, name := range ucxNames(env.Vars["UCX_NET_DEVICES"]) {
			if name != "" && !strings.ContainsAny(name, "/") && !slices.Contains(jobs.Netdevs, name) && exists(filepath.Join(s.o.Sysfs, "class/net", name)) {
				jobs.Netdevs = append(jobs.Netdevs, name)
			}
		}
		if index := gidIndex(env.Vars); index >= 0 && !env.Foreign && len(indices) < 8 {
			indices[index] = true
		}
	}
	for _, r := range s.rails[:min(len(s.rails), maxPorts)] {
		if len(indices) > 0 && r.LinkLayer == "Ethernet" {
			jobs.GIDs = append(jobs.GIDs, askGIDs(r, slices.Sorted(maps.Keys(indices)))...)
		}
	}
}

// askGIDs reads some entries of a rail's GID table, nothing where there is no
// table.
func askGIDs(r rail.Rail, indices []int) (list []AskedGID) {
	table := rail.NewGIDTable(r.Dir, r.Port)
	defer table.Close()
	gids, errs := table.Read()
	if len(errs) > 0 && len(gids) == 0 {
		return nil
	}
	for _, index := range indices {
		asked := AskedGID{Device: r.Device, Port: r.Port, Index: index}
		for _, g := range gids {
			if g.Index == index {
				asked.Used, asked.Type, asked.GID = true, clean(g.Type), g.Addr.String()
				asked.Good = g.Type == rail.TypeRoCEv2 && !g.Addr.Unmap().IsLinkLocalUnicast() && (g.IPv4() || !slices.ContainsFunc(gids, rail.GID.IPv4))
			}
		}
		list = append(list, asked)
	}
	return list
}
