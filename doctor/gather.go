package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rdmanl"
	"github.com/railscope/railscope/internal/sysfs"
)

// defaultBudget is how long one thing may take to answer. A healthy one takes a
// thousandth of it.
const defaultBudget = 3 * time.Second

// Gatherer reads the facts of this node. What hangs keeps its lane from one
// reading to the next, so a gatherer lives as long as its process. Safe for
// concurrent use.
type Gatherer struct {
	o      Options
	kernel kernel // nil: the tree is not this machine's, the kernel knows nothing of it
	lanes  lane.Group[answer]
	whole  sync.Mutex // one reading at a time: a second would find the lanes taken
	system systemLanes

	mu   sync.Mutex         // protects the following field
	busy map[string]*reader // of the call in each lane
}

// work is what is done in one lane. Nobody may be there any more when it is
// done, so it writes to nothing: it returns what then writes to the facts.
type work func(*reader) func(*RailFacts)

// answer is what one lane found: put writes it into the facts.
type answer struct {
	put    func(*RailFacts)
	unread []string
}

// New returns the gatherer of this machine, or of the one whose files are at
// o.Sysfs and o.Procfs.
func New(o Options) *Gatherer {
	if o.Budget == 0 {
		o.Budget = defaultBudget
	}
	if o.Rails == nil {
		o.Rails = rail.NewFinder(o.Sysfs, rail.Options{}, rdmanl.New(o.Budget), o.Budget).Snapshot
	}
	g := &Gatherer{o: o, busy: map[string]*reader{}}
	if sysfs.Live(filepath.Join(o.Sysfs, "class/net")) {
		g.kernel = rtnetlink{timeout: o.Budget}
	}
	return g
}

// Gather reads everything once. A thing that does not answer costs its part of
// the facts and the budget, however many do not.
func (g *Gatherer) Gather(ctx context.Context) *Facts {
	g.whole.Lock()
	defer g.whole.Unlock()
	f := &Facts{Version: FactsVersion, At: time.Now(), Unread: []string{}}
	f.Node = hostname(g.o.Procfs)
	var system []string
	var wait sync.WaitGroup
	wait.Go(func() { f.System, system = gatherSystem(ctx, g.o, g.o.Rails().Rails, &g.system) })
	var unread []string
	f.Rails, unread = g.gatherRails(ctx)
	wait.Wait()
	f.Unread = slices.Concat(f.Unread, unread, system)
	return f
}

// hostname is what the machine whose procfs it is calls itself: captures and the
// demo have a name of their own.
func hostname(procfs string) string {
	if name, err := sysfs.ReadString(procfs, "sys/kernel/hostname"); err == nil && name != "" {
		return clean(name)
	}
	name, _ := os.Hostname()
	return name
}

// gatherRails reads the rails and what they hang on.
func (g *Gatherer) gatherRails(ctx context.Context) (RailFacts, []string) {
	var f RailFacts
	snap := g.o.Rails()
	var unread []string
	if snap.Err != nil {
		for line := range strings.SplitSeq(snap.Err.Error(), "\n") {
			if strings.HasSuffix(line, os.ErrPermission.Error()) {
				line += ": run it as root"
			}
			unread = append(unread, line)
		}
	}
	for _, l := range snap.LeftOut[:min(len(snap.LeftOut), maxNetdevs)] { // virtual functions may be thousands
		f.LeftOut = append(f.LeftOut, LeftOut{l.Device, l.Port, l.Reason})
	}
	devices, err := sysfs.List(filepath.Join(g.o.Sysfs, "class/infiniband"))
	f.RDMA, f.Hidden = err == nil, err != nil && sysfs.Reason(err) != sysfs.ReasonVanished
	if _, err := os.Stat(filepath.Join(g.o.Sysfs, "class")); err != nil {
		unread = append(unread, fmt.Sprintf("%v: --path.sysfs names where sysfs is mounted", err))
	}
	for _, d := range devices[:min(len(devices), maxNetdevs)] {
		if len(snap.Rails) == 0 {
			f.Devices = append(f.Devices, d.Name)
		}
	}
	f.Rails = make([]Rail, len(snap.Rails))
	todo := map[string]work{
		"bonds": func(r *reader) func(*RailFacts) { return g.readBonds(r, snap.Rails) },
		"GPUs":  g.readGPUs,
		"NUMA":  g.readNUMA,
		"uptime": func(r *reader) func(*RailFacts) {
			seconds, _, _ := strings.Cut(r.text(g.o.Procfs, "uptime"), " ")
			v, _ := strconv.ParseFloat(seconds, 64) // 0: unknown
			return func(f *RailFacts) { f.Uptime = v }
		},
	}
	for i, v := range snap.Rails {
		f.Rails[i] = railOf(v)
		todo[v.String()] = func(r *reader) func(*RailFacts) { return g.readRail(r, v) }
	}
	if len(snap.Rails) == 0 {
		todo["adapters"] = g.readAdapters
	}
	unread = append(unread, g.run(&f, todo)...)
	slices.SortFunc(f.Netdevs, func(a, b Netdev) int { return strings.Compare(a.Name, b.Name) })
	f.Netdevs = slices.CompactFunc(f.Netdevs, func(a, b Netdev) bool { return a.Name == b.Name })
	if g.kernel != nil && ctx.Err() == nil {
		unread = append(unread, g.run(&f, map[string]work{"addresses": g.askAddresses(f.Netdevs)})...)
		unread = append(unread, g.run(&f, map[string]work{"routes": g.askRoutes(&f)})...)
	}
	return f, unread
}

// railOf is what the finder knows of a rail.
func railOf(v rail.Rail) Rail {
	return Rail{Name: v.Name, Device: v.Device, Port: v.Port, Netdev: v.Netdev, LinkLayer: v.LinkLayer, Driver: v.Driver, Software: v.Software,
		PCIAddress: v.PCIAddress, NUMANode: v.NUMANode, Board: v.SystemImageGUID}
}

// run does each piece of work in its lane, puts what was found into the facts,
// and returns what could not be read.
func (g *Gatherer) run(f *RailFacts, todo map[string]work) (unread []string) {
	var keys []string
	for key := range todo {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, res := range g.lanes.Run(g.o.Budget, keys, func(key string) answer {
		r := g.enter(key)
		put := todo[key](r)
		return answer{put, r.unread}
	}) {
		switch res.State {
		case lane.Done:
			unread = append(unread, res.Value.unread...)
			if res.Value.put != nil {
				res.Value.put(f)
			}
		case lane.Died:
			unread = append(unread, fmt.Sprintf("%s: %v: this is a fault of railscope, please report it", res.Key, res.Err))
		default:
			unread = append(unread, fmt.Sprintf("%s: %s: %v: the driver or its firmware hangs; see dmesg", res.Key, g.where(res.Key), res.Err))
		}
	}
	return unread
}

// enter is called in the lane of key.
func (g *Gatherer) enter(key string) *reader {
	r := &reader{}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy[key] = r
	return r
}

// where is the file at which the call in a lane is.
func (g *Gatherer) where(key string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r := g.busy[key]; r != nil {
		return r.where()
	}
	return key
}
