package rail

import (
	"errors"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/sysfs"
)

// Options select the ports that are rails (by default all but virtual functions), their names (by default numbers)
// and their roles (by default from the distance to GPUs).
type Options struct {
	Include *regexp.Regexp    // matches devices, or device/port if it has a slash; nil includes all
	Exclude *regexp.Regexp    // like Include; nil excludes none
	Names   map[string]string // "device/port" or "PCI address/port" → rail name
	Leaves  map[string]string // rail name → switch that the rail is connected to
	Roles   []RoleRule        // the first rule that matches a device sets the role of its rails

	VirtualFunctions bool // list virtual functions in Snapshot.Virtual
}

// Kernel answers queries that sysfs cannot.
type Kernel interface {
	// PortNetdev returns the network interface of an RDMA port, or an error if the kernel has no answer.
	PortNetdev(device string, port int) (string, error)
}

// smiKernel is a [Kernel] that knows the types of devices.
type smiKernel interface {
	// SMI reports whether a device carries only subnet management packets.
	SMI(device string) (bool, error)
}

// Captured is a [Kernel] whose answers were captured with the tree. Any other Kernel answers only for the running
// kernel's sysfs.
type Captured interface {
	Kernel
	Captured()
}

// Snapshot is the result of one scan. It is shared and must not be modified.
type Snapshot struct {
	Rails    []Rail
	LeftOut  []LeftOut
	Virtual  []VirtualFunction // ports of virtual functions, in order, if Options.VirtualFunctions is set
	GPUs     []GPU             // sorted by PCI address
	Excluded []string          // devices that Options exclude and that would be rails, or that the hypervisor removed
	Missing  []Missing         // known rails that are absent, sorted by name
	Idle     []string          // keys and patterns of Options that match no port, as the configuration writes them
	Err      error             // errors of devices that could not be examined, joined; the other devices are in Rails
}

// A finder does not list directories again within settle, so that all sources of one scrape see the same rails. It
// examines all devices if a listing has changed, and every examineEvery.
const (
	settle       = 20 * time.Millisecond
	examineEvery = time.Minute
)

// Finder finds the rails below one sysfs while devices disappear, return or are renamed. Safe for concurrent use.
type Finder struct {
	sysfs  string
	kernel Kernel
	budget time.Duration

	examining lane.Group[examined]

	mu       sync.Mutex // protects all following fields
	opts     Options
	registry registry // a rail keeps its number when another one disappears
	saved    []Record
	save     func([]Record)
	snap     Snapshot
	devices  map[string]*deviceState // keyed by device ID
	gpus     []GPU
	near     map[string]bool // keyed by directory of a function: a GPU is, or was, behind the same switch
	listed   time.Time       // time of the last listing of the directories
	examined time.Time       // time of the last examination of all devices
	listing  []sysfs.Entry   // listing from which snap was made
}

type deviceState struct {
	name, id string
	excluded bool                     // excluded by Options
	examined *examined                // nil until the first result
	location atomic.Pointer[location] // never changes; set in the device's lane before its driver is called
}

// NewFinder returns a finder for the tree at sysfsRoot, normally /sys. A device that does not answer within budget
// is examined again by the next scan. kernel may be nil; unless it is [Captured], it is only used on a real sysfs.
func NewFinder(sysfsRoot string, opts Options, kernel Kernel, budget time.Duration) *Finder {
	return &Finder{sysfs: sysfsRoot, opts: opts, kernel: kernel, budget: budget, near: map[string]bool{}}
}

// Remember initializes the finder with the records of an earlier process, and passes changed records to save, which
// must not block and may be nil. Call it before the first scan. If a record is invalid, none is used.
func (f *Finder) Remember(records []Record, save func([]Record)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.save = save
	if err := CheckRecords(records); err != nil {
		return err
	}
	for _, r := range records {
		f.registry.records = append(f.registry.records, &r)
	}
	f.saved = records
	return nil
}

// Forget forgets a missing rail by name, and reports whether it was remembered.
func (f *Finder) Forget(name string) bool {
	gone := func(m Missing, r Record) bool {
		return m.Name == name && m.Device == r.Device && m.Port == r.Port && m.PCIAddress == r.PCIAddress
	}
	missing := f.Snapshot().Missing
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.registry.records, func(r *Record) bool {
		return slices.ContainsFunc(missing, func(m Missing) bool { return gone(m, *r) })
	})
	if i < 0 {
		return false
	}
	f.registry.records = slices.Delete(f.registry.records, i, i+1)
	f.listed, f.examined = time.Time{}, time.Time{} // the next scan saves it
	return true
}

// SetOptions changes which ports are rails, from the next scan on. Numbered ports keep their numbers.
func (f *Finder) SetOptions(opts Options) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opts = opts
	f.listed, f.examined = time.Time{}, time.Time{}
}

// Rails returns the rails that exist now, in order, and an error for what could not be examined. Neither means that
// there are no rails.
func (f *Finder) Rails() ([]Rail, error) {
	s := f.Snapshot()
	return s.Rails, s.Err
}

// Snapshot scans, unless the last scan is recent.
func (f *Finder) Snapshot() Snapshot {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if now.Sub(f.listed) < settle {
		return f.snap
	}
	devices, err := sysfs.List(f.class())
	if err != nil && sysfs.Reason(err) != sysfs.ReasonVanished { // without the directory, the kernel has no RDMA core
		f.snap, f.listed, f.listing = Snapshot{Err: err}, now, nil
		return f.snap
	}
	netdevs, _ := sysfs.List(filepath.Join(f.sysfs, "class/net"))
	listing := slices.Concat(devices, netdevs)
	if all := !slices.Equal(listing, f.listing) || now.Sub(f.examined) >= examineEvery; all || f.snap.Err != nil {
		f.snap = f.scan(devices, all)
		f.listing = listing
		if all {
			f.examined = now
		}
	}
	f.listed = time.Now()
	return f.snap
}

func (f *Finder) class() string { return filepath.Join(f.sysfs, "class/infiniband") }

func (f *Finder) device(name string, kernel Kernel) device {
	return device{sysfs: f.sysfs, dir: filepath.Join(f.class(), name), name: name, kernel: kernel, opts: f.opts}
}

// scan examines all devices, or those without a result. A device that does not answer keeps its last result.
func (f *Finder) scan(entries []sysfs.Entry, all bool) Snapshot {
	before := f.devices
	f.devices = map[string]*deviceState{}
	var devices []*deviceState
	for _, e := range entries {
		id := e.Name + "#" + strconv.FormatUint(e.Ino, 10)
		excluded := f.opts.excludesDevice(e.Name)
		d := before[id]
		if d == nil || d.excluded != excluded { // its ports may be excluded in another way, too
			d = &deviceState{name: e.Name, id: id, excluded: excluded}
		}
		f.devices[id] = d
		devices = append(devices, d)
	}
	slices.SortFunc(devices, func(a, b *deviceState) int { return NaturalCompare(a.name, b.name) })
	if all {
		f.gpus, _ = GPUs(f.sysfs) // a GPU that cannot be read is near no rail
	}
	err := f.examine(devices, all)
	snap := f.makeSnapshot(devices)
	snap.Err = err
	return snap
}

// examine locates all devices and examines those that are not excluded, each in its lane.
func (f *Finder) examine(devices []*deviceState, all bool) error {
	kernel := f.kernel
	if !sysfs.Live(f.class()) {
		kernel = nil
	}
	due := map[string]*deviceState{}
	var names []string
	if captured, ok := f.kernel.(Captured); ok {
		kernel = captured
	}
	for _, d := range devices {
		if d.excluded && d.examined == nil || !d.excluded && (all || d.examined == nil) {
			due[d.name], names = d, append(names, d.name)
		}
	}
	var failed []error
	for _, res := range f.examining.Run(f.budget, names, func(name string) examined {
		return f.device(name, kernel).examine(due[name].excluded, &due[name].location)
	}) {
		d, found := due[res.Key], res.Value
		switch {
		case d.excluded && res.Err == nil:
			d.examined = &found
		case d.excluded:
		case res.Err != nil:
			failed = append(failed, &DeviceError{res.Key, &sysfs.Error{Path: filepath.Join(f.class(), res.Key),
				Reason: sysfs.ReasonTimeout, Err: res.Err}})
		case found.err != nil:
			failed = append(failed, &DeviceError{res.Key, found.err})
			d.examined = nil
		default:
			d.examined = &found
		}
	}
	return errors.Join(failed...)
}

func (f *Finder) makeSnapshot(devices []*deviceState) (snap Snapshot) {
	var seen []sighting
	var near []bool // a GPU is, or was, behind the switch of the rail
	snap.GPUs = f.gpus
	bonded := map[string]bool{}
	for i, ports := range f.compare(portsOf(devices)) {
		d := devices[i]
		e := d.examined
		if e == nil || d.excluded {
			seen = append(seen, d.unexamined()...)
		}
		if d.excluded && d.wouldBeRail() || len(ports) > 0 && !slices.ContainsFunc(ports, port.included) {
			snap.Excluded = append(snap.Excluded, d.name)
		}
		for _, p := range ports {
			if p.reason != "" {
				snap.LeftOut = append(snap.LeftOut, p.leftOut())
				continue
			}
			r := p.Rail
			r.ID = d.id
			r.GPU, r.GPUDistance = nearest(f.gpus, e.function)
			if r.GPUDistance.behindSwitch() {
				f.near[e.function.path] = true
			}
			near = append(near, f.near[e.function.path])
			snap.Rails = append(snap.Rails, r)
			seen = append(seen, sighting{kind: examinedPort, Record: Record{Device: r.Device, Port: r.Port,
				Place: r.Place, PCIAddress: r.PCIAddress, NodeGUID: r.NodeGUID, Synthetic: r.Synthetic != ""}})
		}
		if e != nil {
			for _, v := range e.virtual {
				v.ID = d.id
				snap.Virtual = append(snap.Virtual, v)
			}
			for _, address := range e.bonded {
				bonded[address] = true
			}
		}
	}
	assigned, missing := f.registry.assign(seen, f.opts.Names, absence{bonded, snap.LeftOut})
	snap.Missing = missing
	snap.Excluded = append(snap.Excluded, f.registry.away(snap.Rails)...)
	for i, name := range slices.DeleteFunc(assigned, func(name string) bool { return name == "" }) {
		snap.Rails[i].Name, snap.Rails[i].Named = name, f.opts.names(name)
	}
	assignRoles(snap.Rails, near, f.opts.Roles)
	for i := range snap.Rails {
		snap.Rails[i].Leaf = f.opts.Leaves[snap.Rails[i].Name]
	}
	snap.Idle = f.opts.idle(snap)
	if list := f.registry.list(); !slices.Equal(list, f.saved) {
		f.saved = list
		if f.save != nil {
			f.save(list)
		}
	}
	return snap
}

func portsOf(devices []*deviceState) [][]port {
	list := make([][]port, len(devices))
	for i, d := range devices {
		if d.examined != nil {
			list[i] = d.examined.ports
		}
	}
	return list
}

// wouldBeRail reports whether the ports of an excluded device would be rails, as far as known.
func (d *deviceState) wouldBeRail() bool {
	l := d.location.Load()
	return l == nil || l.reason == ""
}

// unexamined returns what the registry needs about a device whose ports are unknown.
func (d *deviceState) unexamined() []sighting {
	if !d.wouldBeRail() {
		return nil
	}
	var l location
	if known := d.location.Load(); known != nil {
		l = *known
	}
	kind := unexamined
	if d.excluded {
		kind = excludedDevice
	}
	return []sighting{{kind: kind, Record: Record{Device: d.name, Place: l.place, PCIAddress: l.pciAddress,
		NodeGUID: l.nodeGUID}}}
}

// DeviceError is the error of a device that could not be examined.
type DeviceError struct {
	Device string
	Err    error
}

func (e *DeviceError) Error() string { return e.Device + ": " + e.Err.Error() }
func (e *DeviceError) Unwrap() error { return e.Err }
