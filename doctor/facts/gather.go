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

	"github.com/railscope/railscope/internal/amdgpu"
	"github.com/railscope/railscope/internal/expect"
	"github.com/railscope/railscope/internal/gpudirect"
	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// Options configure where and how to read.
type Options struct {
	Sysfs, Procfs string // mount points
	Rootfs        string // mount point of the host's root file system; normally /

	Rails  func() rail.Snapshot // snapshot of the rails under their configured names
	Budget time.Duration        // time that one read may take; 0 is 3 s
	// Expect is the expected state of the node, such as an [expect.Keeper]; nil if nothing is expected.
	Expect interface {
		Expected(rails []rail.Rail) []expect.Rail
		Node() expect.Node
	}
	// Jobs returns the jobs that hold GPU memory, and whether they are known; nil if they are not.
	Jobs   func() (list []GPUJob, known bool)
	Kernel *Kernel // queries beyond files; nil queries the running kernel, if Sysfs is its own
	// Fails reports which readers fail, for tests; nil: none.
	Fails func(reader string) bool
}

// Scope selects what is read.
type Scope int

// Scopes.
const (
	All         Scope = iota
	WithoutJobs       // no environments of processes, for findings that everybody may see
	ByHand            // All, and what is too expensive to read every minute: for commands that a user runs
	// OneNode skips the versions of libraries: only a comparison needs them, and the search may take seconds.
	OneNode
	// Hard reads only rails, bonds, adapters, GPUs and addresses, which takes milliseconds.
	Hard
)

// Gatherer reads the facts of this node. A hung read keeps its lane blocked for later readings, so all users of facts
// in a process share one gatherer. Safe for concurrent use.
type Gatherer struct {
	o       Options
	kernel  Kernel
	root    string // root of this process, with the devices and libraries that it can open
	direct  *gpudirect.Reader
	lanes   lane.Group[*reader]
	reading sync.Mutex                // serializes readings: a second one would find the lanes busy
	uses    []rail.Use                // the use of each rail in this reading
	amd     []amdgpu.GPU              // AMD's GPUs in this reading
	tables  map[string]*rail.GIDTable // GID tables of readings in the scope Hard; each belongs to its lane
	// searched is the time of the last complete search. It and installed belong to the lane that searches.
	searched  time.Time
	installed []Installed
	environ   func(root string, pid int, wanted func(string) bool) (map[string]string, bool, error)

	calls     sync.Map // lane → *reader of its current call
	processes lane.Group[*environment]

	inProcesses atomic.Int32 // current calls in the lanes of processes
}

// work runs in one lane. The function that it returns writes the results to the facts, unless the caller gave up.
type work func(*reader) func(*Facts)

// New returns the gatherer of this machine, or of the machine whose files are at o.Sysfs and o.Procfs.
func New(o Options) *Gatherer {
	if o.Budget == 0 {
		o.Budget = 3 * time.Second // a healthy read takes 1/1000 of it
	}
	g := &Gatherer{o: o, environ: readEnviron, direct: gpudirect.NewReader(o.Sysfs, o.Procfs, o.Rootfs)}
	switch {
	case o.Kernel != nil:
		g.kernel = *o.Kernel
	case sysfs.Live(filepath.Join(o.Sysfs, "class/net")):
		g.kernel = runningKernel(o.Sysfs, o.Budget)
	}
	g.root = o.Rootfs
	if g.kernel.Live && o.Kernel == nil {
		g.root = "/"
	}
	return g
}

// Gather reads everything in the scope. Reads that hang cost their facts and one budget together.
func (g *Gatherer) Gather(ctx context.Context, scope Scope) *Facts {
	g.reading.Lock()
	defer g.reading.Unlock()
	f := &Facts{Version: Version, Node: hostname(g.o.Procfs), Unread: []string{}}
	snap := g.o.Rails()
	g.addRails(f, snap)
	g.uses, g.amd = make([]rail.Use, len(snap.Rails)), nil
	first := g.readers(ctx, snap.Rails)
	switch scope {
	case OneNode:
		delete(first, laneVersions)
	case Hard:
		first = g.hardReaders(snap.Rails, false)
		g.tables = g.keptTables(snap.Rails)
		for _, v := range snap.Rails {
			table := g.tables[tableKey(v)]
			first["GIDs of "+v.String()] = func(r *reader) func(*Facts) { return g.readGIDs(r, v, table) }
		}
	}
	g.run(ctx, f, first)
	f.arrange()
	g.addExpected(f, snap)
	if scope == Hard {
		g.run(ctx, f, map[string]work{ReaderAddresses: g.readAddresses(f.Network)})
		return f
	}
	// The rest depends on these facts, or may take long.
	todo := map[string]work{ReaderVerbs: g.readVerbs(f.Rails),
		ReaderAddresses: g.readAddresses(f.Network), ReaderPCI: g.readPCI(snap.Rails, f.GPUs, scope)}
	for _, one := range g.amd { // a GPU that hangs costs its own facts
		todo[ReaderGPU+one.PCIAddress] = func(r *reader) func(*Facts) { return readAMD(r, g.o.Sysfs, one) }
	}
	if scope == ByHand && len(snap.Rails) > 0 {
		todo[ReaderUCX] = g.readUCX(ctx)
		todo[ReaderHolders] = g.readHolders(snap.Rails)
		todo["bonds in the kernel log"] = g.readLAG(f.Network)
		todo["adapters in the kernel log"] = g.readAdapterLog(f.Network)
	}
	if scope != WithoutJobs && len(snap.Rails) > 0 { // settings of jobs are irrelevant without rails
		todo[UnreadJobs] = g.readJobs(ctx)
	}
	g.run(ctx, f, todo)
	return f
}

func (g *Gatherer) readers(ctx context.Context, rails []rail.Rail) map[string]work {
	todo := g.hardReaders(rails, true)
	maps.Copy(todo, map[string]work{
		ReaderGPUDirect:       g.readGPUDirect,
		ReaderAMD:             findAMD(g.o.Sysfs, &g.amd),
		ReaderNUMA:            g.readNUMA,
		ReaderUptime:          g.readUptime,
		ReaderMemlock:         g.readMemlock,
		ReaderDevices:         func(r *reader) func(*Facts) { return g.readDevices(r, rails) },
		"versions of drivers": func(*reader) func(*Facts) { return g.readRunningVersions(rails) },
		laneVersions:          func(r *reader) func(*Facts) { return g.readInstalledVersions(ctx, r) },
	})
	for i, v := range rails {
		if i < maxPorts && v.LinkLayer == "Ethernet" && !v.Software {
			todo[qosLane(v)] = func(r *reader) func(*Facts) { return g.readQoS(r, v) }
		}
	}
	return todo
}

// hardReaders returns the readers of hard facts; with gids also those of the GIDs.
func (g *Gatherer) hardReaders(rails []rail.Rail, gids bool) map[string]work {
	todo := map[string]work{
		ReaderBonds:    func(r *reader) func(*Facts) { return g.readBonds(r, rails) },
		ReaderAdapters: func(r *reader) func(*Facts) { return g.readAdapters(r, rails) },
		ReaderGPUs:     g.readGPUs,
	}
	for _, v := range rails {
		todo[v.String()] = func(r *reader) func(*Facts) { return g.readRail(r, v, gids) }
	}
	return todo
}

func tableKey(v rail.Rail) string { return fmt.Sprintf("%s/%d", v.ID, v.Port) }

// keptTables returns the GID tables of the rails. Tables are kept for their known size: a new one reads up to 1024
// entries.
func (g *Gatherer) keptTables(rails []rail.Rail) map[string]*rail.GIDTable {
	tables := map[string]*rail.GIDTable{}
	for _, v := range rails {
		tables[tableKey(v)] = g.tables[tableKey(v)]
		if tables[tableKey(v)] == nil {
			tables[tableKey(v)] = rail.NewGIDTable(v.Dir, v.Port)
		}
	}
	return tables
}

// hostname returns the name of the machine that procfs describes: captures and the demo have other names than this
// host.
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
	f.LeftOut, f.Idle = snap.LeftOut[:min(len(snap.LeftOut), 1024)], snap.Idle
	devices, err := sysfs.List(filepath.Join(g.o.Sysfs, "class/infiniband"))
	f.RDMA, f.Hidden = err == nil, err != nil && sysfs.Reason(err) != sysfs.ReasonVanished
	if _, err := os.Stat(filepath.Join(g.o.Sysfs, "class")); err != nil {
		f.Unread = append(f.Unread, fmt.Sprintf("%v: --path.sysfs names where sysfs is mounted", err))
	}
	if len(snap.Rails) == 0 {
		for _, d := range devices[:min(len(devices), 1024)] { // there may be thousands of virtual functions
			f.RDMADevices = append(f.RDMADevices, d.Name)
		}
	}
	f.Rails = make([]Rail, len(snap.Rails))
	for i, v := range snap.Rails {
		f.Rails[i] = railOf(v)
	}
}

// addExpected adds the expected state of the node, without figures that could not be read for comparison.
func (g *Gatherer) addExpected(f *Facts, snap rail.Snapshot) {
	f.Missing = snap.Missing
	defer g.markUnused(f)
	if g.o.Expect == nil {
		return
	}
	for i, e := range g.o.Expect.Expected(snap.Rails) {
		f.Rails[i].Expected = e
	}
	f.Expected = g.o.Expect.Node()
	if snap.Err != nil { // rails that do not answer are not missing
		f.Expected.Rails = expect.Figure[int]{}
	}
	if !f.GPUsRead {
		f.Expected.GPUs = expect.Figure[int]{}
	}
}

func (g *Gatherer) markUnused(f *Facts) {
	expected := make([]expect.Rail, len(f.Rails))
	for i, r := range f.Rails {
		expected[i] = r.Expected
	}
	for i, unused := range expect.Unused(g.uses, expected, f.Expected.ConfiguredRails()) {
		f.Rails[i].Unused = unused
	}
}

func (f *Facts) arrange() {
	slices.SortFunc(f.Netdevs, func(a, b Netdev) int { return strings.Compare(a.Name, b.Name) })
	f.Netdevs = slices.CompactFunc(f.Netdevs, func(a, b Netdev) bool { return a.Name == b.Name })
	slices.SortFunc(f.QoS, func(a, b QoS) int { return cmp.Or(strings.Compare(a.Device, b.Device), a.Port-b.Port) })
	f.arrangeVersions()
}

// run runs each piece of work in its lane. It adds results to the facts, and failures to Unread.
func (g *Gatherer) run(ctx context.Context, f *Facts, todo map[string]work) {
	if ctx.Err() != nil {
		return // the caller gave up
	}
	maps.DeleteFunc(todo, func(_ string, do work) bool { return do == nil })
	for _, res := range g.lanes.Run(g.budget(ctx), slices.Sorted(maps.Keys(todo)), func(key string) *reader {
		r := &reader{}
		g.calls.Store(key, r)
		if g.o.Fails != nil && g.o.Fails(key) {
			panic("this reader fails")
		}
		r.put = todo[key](r)
		return r
	}) {
		if res.State != lane.Done {
			f.Silent = append(f.Silent, res.Key)
		}
		switch res.State {
		case lane.Done:
			for _, text := range res.Value.unread {
				if !slices.Contains(f.Unread, text) { // each rail may yield the same text
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

// absent reports whether a file or setting does not exist, rather than that it cannot be read.
func absent(err error) bool {
	return errors.Is(err, os.ErrNotExist) || sysfs.Reason(err) == sysfs.ReasonVanished
}

// reader reads small files and records failures. A missing file, or one that the driver does not support for this port,
// is not a failure: the fact stays unknown. One goroutine reads; current is safe for concurrent use.
type reader struct {
	path   atomic.Pointer[string]
	unread []string
	put    func(*Facts) // writes what was read; nil if nothing was
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

// fail records an error and its fix. It ignores nil and errors about missing files.
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

// int returns the number in a file; 0 if the file is missing.
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
