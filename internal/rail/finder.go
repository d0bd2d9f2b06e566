package rail

import (
	"errors"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/sysfs"
)

// Options say which ports are rails and how they are named. The zero value
// takes every port that is not a virtual function and numbers them.
type Options struct {
	Include *regexp.Regexp    // on device names; nil includes all
	Names   map[string]string // "device/port" or "PCI address/port" → rail name
}

// Kernel answers what sysfs does not say.
type Kernel interface {
	// PortNetdev returns the network interface of an RDMA port, or an error
	// when the kernel has no answer.
	PortNetdev(device string, port int) (string, error)
}

// Snapshot is what the finder found at one moment. It is shared: do not change it.
type Snapshot struct {
	Rails    []Rail
	LeftOut  []LeftOut
	Excluded []string  // devices that Options.Include leaves out and that would be rails, in order
	Missing  []Missing // rails that are known and not there, in order of their names
	Err      error     // devices that could not be examined, joined; the others are in Rails
}

// How long a finder trusts its last scan: not at all when a listing has changed, examineEvery when it has not, and
// within settle without listing, so that all sources of one scrape see the same rails.
const (
	settle       = 20 * time.Millisecond
	examineEvery = time.Minute
)

// Finder finds the rails below one sysfs, and finds them again when devices
// vanish, come back or network interfaces are renamed. Safe for concurrent use.
type Finder struct {
	sysfs  string
	kernel Kernel
	budget time.Duration

	lanes  lane.Group[examined]
	places lane.Group[location]

	mu       sync.Mutex // protects all following fields
	opts     Options
	registry registry // which rail has which number: one that vanishes does not rename the others
	saved    []Record
	save     func([]Record)
	located  map[string]location // by device and inode
	snap     Snapshot
	known    map[string]examined // by device and inode, as last examined
	compared time.Time           // when the listings were last compared
	examined time.Time           // when the devices were last examined
	seen     []sysfs.Entry       // the listings that snap was made of
}

// NewFinder returns a finder for the tree at sysfs, normally /sys. A device
// that does not answer within budget is left for the next scan. kernel may be
// nil; it is only asked where the tree is a real sysfs.
func NewFinder(sysfsRoot string, opts Options, kernel Kernel, budget time.Duration) *Finder {
	return &Finder{sysfs: sysfsRoot, opts: opts, kernel: kernel, budget: budget}
}

// Remember makes the finder go on from the records of an earlier process, and
// hand them to save whenever they change; save must not wait, and may be nil.
// Before the first scan. Where a record is not as this version writes it, it returns
// an error and uses none.
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

// SetOptions changes which ports are rails, from the next scan on. Ports that
// have a number keep it.
func (f *Finder) SetOptions(opts Options) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opts = opts
	f.compared, f.examined = time.Time{}, time.Time{}
}

// Rails returns the rails there are now, in order, and what could not be
// examined. Neither excludes the other; no rails and no error means that the
// machine has none.
func (f *Finder) Rails() ([]Rail, error) {
	s := f.Snapshot()
	return s.Rails, s.Err
}

// Excluded returns the devices that are there, but are no rails because the
// options leave them out. Of them only place and node GUID are read.
func (f *Finder) Excluded() []string { return f.Snapshot().Excluded }

// Missing returns the rails that are known and not there.
func (f *Finder) Missing() []Missing { return f.Snapshot().Missing }

// Snapshot is Rails with the ports that were left out.
func (f *Finder) Snapshot() Snapshot {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if now.Sub(f.compared) < settle {
		return f.snap
	}
	devices, err := sysfs.List(f.class())
	if err != nil {
		if sysfs.Reason(err) != sysfs.ReasonVanished {
			f.snap, f.compared, f.seen = Snapshot{Err: err}, now, nil
			return f.snap
		}
		devices = nil // no RDMA core in this kernel: no rails
	}
	netdevs, _ := sysfs.List(filepath.Join(f.sysfs, "class/net"))
	listing := append(append([]sysfs.Entry{}, devices...), netdevs...)
	if all := !slices.Equal(listing, f.seen) || now.Sub(f.examined) >= examineEvery; all || f.snap.Err != nil {
		f.snap = f.examine(devices, all)
		f.seen = listing
		if all {
			f.examined = now
		}
	}
	f.compared = time.Now() // after what it took
	return f.snap
}

func (f *Finder) class() string { return filepath.Join(f.sysfs, "class/infiniband") }

// examined is the result for one device.
type examined struct {
	ports   []Rail
	leftOut []LeftOut
	taken   []string // PCI addresses of functions that are part of this device, a bond's
	err     error
}

// examine examines the devices, side by side, each in its own lane: all of them, or only those that could not be
// examined so far. A device that does not answer stays what it was, unless it was removed meanwhile.
func (f *Finder) examine(devices []sysfs.Entry, all bool) Snapshot {
	known := map[string]examined{} // by ID
	var names, ask, left []string
	ids := map[string]string{}
	for _, d := range devices {
		id := d.Name + "#" + strconv.FormatUint(d.Ino, 10)
		ids[d.Name] = id
		if f.opts.Include != nil && !f.opts.Include.MatchString(d.Name) {
			left = append(left, d.Name)
			continue
		}
		names = append(names, d.Name)
		e, ok := f.known[id]
		if ok {
			known[id] = e
		}
		if all || !ok {
			ask = append(ask, d.Name)
		}
	}
	failed := f.examineEach(ask, ids, known)
	f.known = known
	var silent []string
	for _, name := range names {
		if _, ok := known[ids[name]]; !ok {
			silent = append(silent, name)
		}
	}
	f.locate(ids, silent, left)
	slices.SortFunc(names, naturalCompare)
	slices.SortFunc(left, naturalCompare)
	snap := f.makeSnapshot(names, left, ids)
	snap.Err = errors.Join(failed...)
	return snap
}

// locate finds out where devices are that are not examined: those that do not answer, and those that are left out. The
// result holds until the device is removed.
func (f *Finder) locate(ids map[string]string, silent, left []string) {
	located := map[string]location{}
	var ask []string
	for _, name := range slices.Concat(silent, left) {
		if l, ok := f.located[ids[name]]; ok {
			located[ids[name]] = l
		} else {
			ask = append(ask, name)
		}
	}
	for _, res := range f.places.Run(f.budget, ask, func(name string) location {
		d := device{sysfs: f.sysfs, dir: filepath.Join(f.class(), name), name: name}
		l := d.locate()
		if slices.Contains(left, name) {
			l.nodeGUID = d.text("node_guid")
		}
		return l
	}) {
		if res.Err == nil {
			located[ids[res.Key]] = res.Value
		}
	}
	f.located = located
}

// makeSnapshot makes a snapshot of what is known of the devices. The rails get their names from the registry.
func (f *Finder) makeSnapshot(names, left []string, ids map[string]string) (snap Snapshot) {
	var seen []sighting
	taken := map[string]bool{}
	for _, name := range names {
		e, ok := f.known[ids[name]]
		if l := f.located[ids[name]]; !ok && l.why == "" {
			seen = append(seen, sighting{Record{Device: name, Place: l.place, PCIAddress: l.pciAddress}, unexamined})
			snap.Rails = append(snap.Rails, Rail{}) // dropped below: in step with seen
		}
		for _, r := range e.ports {
			r.ID = ids[name]
			seen = append(seen, sighting{kind: examinedPort,
				Record: Record{Device: r.Device, Port: r.Port, Place: r.Place, PCIAddress: r.PCIAddress,
					NodeGUID: r.NodeGUID}})
			snap.Rails = append(snap.Rails, r)
		}
		snap.LeftOut = append(snap.LeftOut, e.leftOut...)
		for _, address := range e.taken {
			taken[address] = true
		}
	}
	for _, name := range left {
		if l := f.located[ids[name]]; l.why == "" {
			snap.Excluded = append(snap.Excluded, name)
			seen = append(seen, sighting{kind: excludedOne,
				Record: Record{Device: name, Place: l.place, PCIAddress: l.pciAddress, NodeGUID: l.nodeGUID}})
		}
	}
	rails, missing := f.registry.assign(seen, f.opts.Names, taken)
	for i := range snap.Rails {
		snap.Rails[i].Name = rails[i]
	}
	snap.Rails = slices.DeleteFunc(snap.Rails, func(r Rail) bool { return r.ID == "" })
	snap.Missing = missing
	if list := f.registry.list(); !slices.Equal(list, f.saved) {
		f.saved = list
		if f.save != nil {
			f.save(list)
		}
	}
	return snap
}

// examineEach examines devices, puts the results into known, and returns what could not be examined.
func (f *Finder) examineEach(names []string, ids map[string]string, known map[string]examined) (failed []error) {
	kernel := f.kernel
	if !sysfs.Live(f.class()) {
		kernel = nil
	}
	slices.SortFunc(names, naturalCompare)
	for _, res := range f.lanes.Run(f.budget, names, func(name string) examined {
		return device{sysfs: f.sysfs, dir: filepath.Join(f.class(), name), name: name, kernel: kernel}.examine()
	}) {
		switch {
		case res.Err != nil:
			failed = append(failed, &DeviceError{res.Key, &sysfs.Error{Path: filepath.Join(f.class(), res.Key),
				Reason: sysfs.ReasonTimeout, Err: res.Err}})
		case res.Value.err != nil:
			failed = append(failed, &DeviceError{res.Key, res.Value.err})
			delete(known, ids[res.Key])
		default:
			known[ids[res.Key]] = res.Value
		}
	}
	return failed
}

// Key is the form in which the configuration names a port: device/port.
func Key(device string, port int) string { return device + "/" + strconv.Itoa(port) }

// splitKey takes a [Key] apart.
func splitKey(key string) (device string, port int) {
	i := strings.LastIndexByte(key, '/')
	port, _ = strconv.Atoi(key[i+1:])
	return key[:max(i, 0)], port
}

// DeviceError is a device that could not be examined.
type DeviceError struct {
	Device string
	Err    error
}

func (e *DeviceError) Error() string { return e.Device + ": " + e.Err.Error() }
func (e *DeviceError) Unwrap() error { return e.Err }

// naturalCompare orders mlx5_2 before mlx5_10 and rocep1s0f0 before
// roceP2p1s0f0: runs of digits compare as numbers, letters whatever their case,
// and names that are equal so far byte by byte.
func naturalCompare(a, b string) int {
	if c := compareFolded(strings.ToLower(a), strings.ToLower(b)); c != 0 {
		return c
	}
	return strings.Compare(a, b)
}

func compareFolded(a, b string) int {
	for a != "" && b != "" {
		da, db := digits(a), digits(b)
		if da == 0 || db == 0 {
			if a[0] != b[0] {
				return int(a[0]) - int(b[0])
			}
			a, b = a[1:], b[1:]
			continue
		}
		na, nb := strings.TrimLeft(a[:da], "0"), strings.TrimLeft(b[:db], "0")
		if c := len(na) - len(nb); c != 0 {
			return c
		}
		if c := strings.Compare(na, nb); c != 0 {
			return c
		}
		a, b = a[da:], b[db:]
	}
	return len(a) - len(b)
}

// digits returns the length of the run of digits that s starts with.
func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}
