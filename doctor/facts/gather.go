package facts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/railscope/railscope/internal/expect"
	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// Options say where to read.
type Options struct {
	Sysfs, Procfs string // where they are mounted
	Rootfs        string // where the host's root file system is mounted; normally /

	Rails  func() rail.Snapshot // the rails under their configured names
	Budget time.Duration        // how long one thing may take to answer; 0 is 3 s
	// Expect is what the node should be, such as an [expect.Keeper]; nil: nothing is expected.
	Expect interface {
		Expected(rails []rail.Rail) []expect.Rail
		Node() expect.Node
	}
	// Jobs returns the jobs that hold GPU memory, and whether they are known. Nil: they are not.
	Jobs   func() (list []GPUJob, known bool)
	Kernel *Kernel // answers what is in no file; nil queries the running kernel, if Sysfs is its own
}

// Scope is what is read.
type Scope int

// The scopes.
const (
	All         Scope = iota
	WithoutJobs       // no environments of processes, for findings that strangers see
	ByHand            // All, and what costs too much to read every minute: for commands that a user runs
	OneNode           // no versions of libraries, which only a comparison needs, and whose search may take seconds
)

// Gatherer reads the facts of this node. What hangs keeps its lane from one reading to the next, so a process has one
// gatherer for everyone who wants facts. Safe for concurrent use.
type Gatherer struct {
	o         Options
	kernel    Kernel
	root      string // of this process, with the devices and libraries that it can open
	lanes     lane.Group[*reader]
	reading   sync.Mutex // one reading at a time: a second would find the lanes taken
	searched  time.Time  // when installed was last complete; it and installed belong to the lane that searches
	installed []Installed
	environ   func(root string, pid int, wanted func(string) bool) (map[string]string, bool, error)

	calls     sync.Map // lane → *reader of the call in it
	processes lane.Group[*environment]

	inProcesses atomic.Int32 // calls in processes
}

// work is what is done in one lane. The function that it returns writes to the facts, if anybody still waits.
type work func(*reader) func(*Facts)

// New returns the gatherer of this machine, or of the one whose files are at o.Sysfs and o.Procfs.
func New(o Options) *Gatherer {
	if o.Budget == 0 {
		o.Budget = 3 * time.Second // a healthy thing takes 1/1000 of it
	}
	g := &Gatherer{o: o, environ: readEnviron}
	switch {
	case o.Kernel != nil:
		g.kernel = *o.Kernel
	case sysfs.Live(filepath.Join(o.Sysfs, "class/net")):
		g.kernel = runningKernel(o.Sysfs, o.Budget)
	}
	if g.root = o.Rootfs; g.kernel.Live && o.Kernel == nil {
		g.root = "/"
	}
	return g
}

// Gather reads everything in the scope. What does not answer costs its facts and one budget for all.
func (g *Gatherer) Gather(ctx context.Context, scope Scope) *Facts {
	g.reading.Lock()
	defer g.reading.Unlock()
	f := &Facts{Version: Version, Node: hostname(g.o.Procfs), Unread: []string{}}
	snap := g.o.Rails()
	g.addRails(f, snap)
	first := g.readers(ctx, snap.Rails)
	if scope == OneNode {
		delete(first, laneVersions)
	}
	g.run(ctx, f, first)
	f.arrange()
	g.addExpected(f, snap)
	// What follows depends on what was read above, or may take long.
	todo := map[string]work{"libibverbs and its providers": g.readVerbs(f.Rails),
		"addresses and routes": g.readAddresses(f.Network), "PCIe settings": g.readPCI(snap.Rails, f.GPUs, scope)}
	if scope == ByHand && len(snap.Rails) > 0 {
		todo["transports of UCX"] = g.readUCX(ctx)
		todo["queue pairs of processes"] = g.readHolders(snap.Rails)
		todo["bonds in the kernel log"] = g.readLAG(f.Network)
	}
	if scope != WithoutJobs && len(snap.Rails) > 0 { // without rails no setting of a job can be wrong about them
		todo[UnreadJobs] = g.readJobs(ctx)
	}
	g.run(ctx, f, todo)
	return f
}

// laneVersions is the lane that searches for installed libraries.
const laneVersions = "versions of libraries"

func (g *Gatherer) readers(ctx context.Context, rails []rail.Rail) map[string]work {
	todo := map[string]work{
		"bonds":                   func(r *reader) func(*Facts) { return g.readBonds(r, rails) },
		"GPUs":                    g.readGPUs,
		"GPUDirect":               g.readGPUDirect,
		"NUMA":                    g.readNUMA,
		"uptime":                  g.readUptime,
		"limits on locked memory": g.readMemlock,
		"RDMA device nodes":       func(r *reader) func(*Facts) { return g.readDevices(r, rails) },
		"versions of drivers":     func(*reader) func(*Facts) { return g.readRunningVersions(rails) },
		laneVersions:              func(r *reader) func(*Facts) { return g.readInstalledVersions(ctx, r) },
	}
	if len(rails) == 0 {
		todo["adapters"] = g.readAdapters
	}
	for i, v := range rails {
		todo[v.String()] = func(r *reader) func(*Facts) { return g.readRail(r, v) }
		if i < maxPorts && v.LinkLayer == "Ethernet" && !v.Software {
			todo[qosLane(v)] = func(r *reader) func(*Facts) { return g.readQoS(r, v) }
		}
	}
	return todo
}

// hostname is the name of the machine whose procfs it is: captures and the demo are named differently from this host.
func hostname(procfs string) string {
	if name, err := sysfs.ReadString(procfs, "sys/kernel/hostname"); err == nil && name != "" {
		return clean(name)
	}
	name, _ := os.Hostname()
	return name
}

func (g *Gatherer) addRails(f *Facts, snap rail.Snapshot) {
	if snap.Err != nil {
		for line := range strings.SplitSeq(snap.Err.Error(), "\n") {
			if strings.HasSuffix(line, os.ErrPermission.Error()) {
				line += ": run it as root"
			}
			f.Unread = append(f.Unread, line)
		}
	}
	if len(snap.LeftOut) > 0 {
		l := snap.LeftOut[0]
		f.LeftOut = fmt.Sprintf("%s port %d: %s", l.Device, l.Port, l.Reason)
	}
	devices, err := sysfs.List(filepath.Join(g.o.Sysfs, "class/infiniband"))
	f.RDMA, f.Hidden = err == nil, err != nil && sysfs.Reason(err) != sysfs.ReasonVanished
	if _, err := os.Stat(filepath.Join(g.o.Sysfs, "class")); err != nil {
		f.Unread = append(f.Unread, fmt.Sprintf("%v: --path.sysfs names where sysfs is mounted", err))
	}
	if len(snap.Rails) == 0 {
		for _, d := range devices[:min(len(devices), 1024)] { // virtual functions may be thousands
			f.RDMADevices = append(f.RDMADevices, d.Name)
		}
	}
	f.Rails = make([]Rail, len(snap.Rails))
	for i, v := range snap.Rails {
		f.Rails[i] = railOf(v)
	}
}

// addExpected adds what the node should be, as far as it can be compared with what was read.
func (g *Gatherer) addExpected(f *Facts, snap rail.Snapshot) {
	f.Missing = snap.Missing
	if g.o.Expect == nil {
		return
	}
	for i, e := range g.o.Expect.Expected(snap.Rails) {
		f.Rails[i].Expected = e
	}
	f.Expected = g.o.Expect.Node()
	if snap.Err != nil { // those that do not answer are not missing
		f.Expected.Rails = expect.Figure[int]{}
	}
	if !f.GPUsRead {
		f.Expected.GPUs = expect.Figure[int]{}
	}
}

func (f *Facts) arrange() {
	slices.SortFunc(f.Netdevs, func(a, b Netdev) int { return strings.Compare(a.Name, b.Name) })
	f.Netdevs = slices.CompactFunc(f.Netdevs, func(a, b Netdev) bool { return a.Name == b.Name })
	slices.SortFunc(f.QoS, func(a, b QoS) int { return cmp.Or(strings.Compare(a.Device, b.Device), a.Port-b.Port) })
	f.arrangeVersions()
}

// run does each piece of work in its lane, and adds to the facts what was found, and to Unread what could not be.
func (g *Gatherer) run(ctx context.Context, f *Facts, todo map[string]work) {
	if ctx.Err() != nil {
		return // the facts are not wanted any more
	}
	maps.DeleteFunc(todo, func(_ string, do work) bool { return do == nil })
	for _, res := range g.lanes.Run(g.budget(ctx), slices.Sorted(maps.Keys(todo)), func(key string) *reader {
		r := &reader{}
		g.calls.Store(key, r)
		r.put = todo[key](r)
		return r
	}) {
		switch res.State {
		case lane.Done:
			for _, text := range res.Value.unread {
				if !slices.Contains(f.Unread, text) { // it may be the same for each rail
					f.Unread = append(f.Unread, text)
				}
			}
			if res.Value.put != nil {
				res.Value.put(f)
			}
		case lane.Died:
			f.Unread = append(f.Unread, fmt.Sprintf("%s: %v; this is a bug in railscope, please report it", res.Key,
				firstLine(res.Err)))
		default:
			at := res.Key
			if r, ok := g.calls.Load(res.Key); ok {
				at = cmp.Or(r.(*reader).current(), at)
			}
			f.Unread = append(f.Unread, fmt.Sprintf("%s: %s: %v; the driver or its firmware hangs, see dmesg", res.Key,
				at, res.Err))
		}
	}
}

func (g *Gatherer) budget(ctx context.Context) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return min(g.o.Budget, time.Until(end))
	}
	return g.o.Budget
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(fmt.Sprint(err), "\n")
	return line
}

func (g *Gatherer) own(path string) string { return filepath.Join(g.root, path) }

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// absent reports whether a file or a setting does not exist, rather than cannot be read.
func absent(err error) bool {
	return errors.Is(err, os.ErrNotExist) || sysfs.Reason(err) == sysfs.ReasonVanished
}

// reader reads small files and records what failed. A file that does not exist, or that the driver does not have for
// this port, is not a failure: the fact stays unknown. One goroutine reads; current is safe for concurrent use.
type reader struct {
	path   atomic.Pointer[string]
	unread []string
	put    func(*Facts) // writes what was read; nil: nothing
}

func (r *reader) at(elem ...string) string {
	path := filepath.Join(elem...)
	r.path.Store(&path)
	return path
}

func (r *reader) current() string {
	if p := r.path.Load(); p != nil {
		return *p
	}
	return ""
}

func (r *reader) say(format string, args ...any) {
	r.unread = append(r.unread, fmt.Sprintf(format, args...))
}

// fail records an error, with what to do about it. It ignores nil and what does not exist.
func (r *reader) fail(err error) {
	switch sysfs.Reason(err) {
	case sysfs.ReasonVanished, sysfs.ReasonUnsupported, sysfs.ReasonEmpty:
	case sysfs.ReasonPermission:
		r.say("%v: run it as root", err)
	default:
		if err != nil {
			r.say("%v", err)
		}
	}
}

func (r *reader) text(elem ...string) string {
	s, err := sysfs.ReadString(r.at(elem...))
	r.fail(err)
	return s
}

func (r *reader) uint(elem ...string) *uint64 {
	v, err := sysfs.ReadUint(r.at(elem...))
	if err != nil {
		r.fail(err)
		return nil
	}
	return &v
}

// int returns the number in a file; 0 if there is none.
func (r *reader) int(elem ...string) int {
	if v := r.uint(elem...); v != nil && *v <= math.MaxInt32 {
		return int(*v)
	}
	return 0
}

func (r *reader) names(elem ...string) (names []string) {
	list, err := sysfs.List(r.at(elem...))
	r.fail(err)
	for _, e := range list {
		names = append(names, e.Name)
	}
	return names
}
