package process

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rdmanl"
	"github.com/railscope/railscope/internal/sysfs"
)

// Bounds of one dump of queue pairs. It may take longer than a scrape waits:
// then it is used by a later one, while it is fresh.
const (
	qpTime   = 10 * time.Second
	qpFresh  = 2 * time.Minute
	qpRest   = 9 // times as long as it took, before it is done again
	maxPairs = 1 << 20
	maxOwner = 1 << 15 // threads × ports × states that are counted separately; 2 MiB
)

// Kernel is what the process source asks the RDMA core.
type Kernel interface {
	// Devices returns the names of all devices.
	Devices() ([]string, error)
	// SharedDevices reports whether all network namespaces see them.
	SharedDevices() (bool, error)
	// QueuePairs calls each for every queue pair of a device; see
	// [rdmanl.Client.QueuePairs].
	QueuePairs(device string, limits rdmanl.QPLimits, each func(rdmanl.QP)) error
	// Close lets go of what is kept between questions.
	Close()
}

// qpOwner is by what queue pairs are counted; thread 0 is unknown.
type qpOwner struct {
	thread uint32
	port   uint32
	state  rdmanl.QPState
}

// qpTally is what one dump came to.
type qpTally struct {
	owners map[qpOwner]uint32
	rest   uint32 // of owners beyond maxOwner
	begun  uint64 // on the clock of proc.Now
	took   time.Duration
	ended  time.Time
	cut    error // why it is not all
}

// qpDevice is one device's lane: its client, and the last dump.
type qpDevice struct {
	name   string
	kernel Kernel // used in the lane only

	mu   sync.Mutex // protects all following fields
	last *qpTally
	err  error // why there is none
}

// qpReader lists the queue pairs of all devices.
type qpReader struct {
	kernel  func() Kernel
	clock   func() (uint64, error)
	front   lane.Group[qpList]
	first   Kernel // of the front lane
	lanes   lane.Group[struct{}]
	devices map[string]*qpDevice
}

// qpList is what the front lane found.
type qpList struct {
	devices []string
	shared  bool
	err     error
}

// qpReading is what is known of one device's queue pairs now.
type qpReading struct {
	device string
	tally  *qpTally // nil: nothing
}

// read lists what can be listed within budget for the list of devices, and then
// for each device. shared says whether queue pairs in other network namespaces
// are in it.
func (q *qpReader) read(budget time.Duration) (list []qpReading, shared bool, faults []error) {
	if q.kernel == nil {
		return nil, true, nil
	}
	front := q.front.Run(budget, []string{"devices"}, func(string) qpList { return q.listDevices() })[0]
	switch {
	case front.State != lane.Done:
		return nil, false, []error{collector.LaneFault("", front.State, front.Err)}
	case errors.Is(front.Value.err, unix.EPROTONOSUPPORT): // a kernel without RDMA
		return nil, true, nil
	case front.Value.err != nil:
		return nil, false, []error{unexpected("", front.Value.err)}
	}
	names := front.Value.devices
	for name := range q.devices {
		if !slices.Contains(names, name) {
			delete(q.devices, name)
		}
	}
	for _, name := range names {
		if q.devices[name] == nil {
			q.devices[name] = &qpDevice{name: name, kernel: q.kernel()}
		}
	}
	devices := maps.Clone(q.devices) // a lane that starts late must not meet the next read
	for _, res := range q.lanes.Run(budget, names, func(name string) struct{} {
		devices[name].dump(q.clock)
		return struct{}{}
	}) {
		tally, err := q.devices[res.Key].now()
		switch {
		case err != nil:
			faults = append(faults, unexpected(res.Key, err))
		case tally == nil && res.Err != nil:
			faults = append(faults, collector.LaneFault(res.Key, res.State, res.Err))
		case tally != nil && tally.cut != nil:
			faults = append(faults, cutFault(res.Key, tally.cut))
		}
		list = append(list, qpReading{res.Key, tally})
	}
	return list, front.Value.shared, faults
}

// listDevices asks for the names of all devices.
func (q *qpReader) listDevices() (r qpList) {
	if q.first == nil {
		q.first = q.kernel()
	}
	defer q.first.Close()
	if r.devices, r.err = q.first.Devices(); r.err == nil {
		r.shared, r.err = q.first.SharedDevices()
	}
	return r
}

// unexpected is the fault of a whole device, whatever the reason.
func unexpected(device string, err error) *collector.Fault {
	f := collector.NewFault(device, err)
	f.Expected = false
	return f
}

// cutFault is the fault of an incomplete count.
func cutFault(device string, err error) *collector.Fault {
	f := unexpected(device, fmt.Errorf("the number of queue pairs is a lower bound: %w", err))
	f.Reason = sysfs.ReasonTooLarge
	if errors.Is(err, os.ErrDeadlineExceeded) {
		f.Reason = sysfs.ReasonTimeout
	}
	return f
}

// dump counts the device's queue pairs, unless that was done a short while ago
// for what it costs. It runs in the device's lane.
func (d *qpDevice) dump(clock func() (uint64, error)) {
	if t, _ := d.now(); t != nil && time.Since(t.ended) < qpRest*t.took {
		return
	}
	t := &qpTally{owners: map[qpOwner]uint32{}}
	defer d.kernel.Close() // it is a while until the next one, which the device may not live to see
	start := time.Now()
	begun, err := clock()
	if err == nil {
		t.begun = begun
		err = d.kernel.QueuePairs(d.name, rdmanl.QPLimits{Time: qpTime, Pairs: maxPairs}, t.add)
	}
	t.ended = time.Now()
	t.took = t.ended.Sub(start)
	if errors.Is(err, rdmanl.ErrCut) {
		t.cut, err = err, nil
	}
	if err == nil && t.cut == nil && t.rest > 0 {
		t.cut = fmt.Errorf("%d queue pairs belong to more than %d threads", t.rest, maxOwner)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last, d.err = t, err; err != nil {
		d.last = nil
	}
}

func (t *qpTally) add(qp rdmanl.QP) {
	if qp.Kernel {
		return
	}
	key := qpOwner{qp.PID, qp.Port, qp.State}
	if _, known := t.owners[key]; !known && len(t.owners) >= maxOwner {
		t.rest++
		return
	}
	t.owners[key]++
}

// now returns the last dump while it is fresh, or why it failed.
func (d *qpDevice) now() (*qpTally, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last != nil && time.Since(d.last.ended) > qpFresh {
		return nil, d.err
	}
	return d.last, d.err
}

// railNames finds the rail that a device's queue pairs use.
type railNames struct {
	sysfs string
	rails []rail.Rail
}

// none reports whether a device is certainly no rail, such as a storage adapter
// that rails.include leaves out. A virtual function may be one.
func (n railNames) none(device string) bool {
	if slices.ContainsFunc(n.rails, func(r rail.Rail) bool { return r.Device == device }) {
		return false
	}
	dir := filepath.Join(n.sysfs, "class/infiniband", device)
	_, err := os.Lstat(filepath.Join(dir, "device/physfn"))
	return errors.Is(err, os.ErrNotExist) && sysfs.Exists(dir) == nil
}

// of returns the rail's name: of a virtual function that of its physical
// function's, of a queue pair that is bound to no port yet that of the device's
// only rail. Where it is no rail's the name is empty.
func (n railNames) of(device string, port uint32) string {
	address := ""
	if !slices.ContainsFunc(n.rails, func(r rail.Rail) bool { return r.Device == device }) {
		physical, err := os.Readlink(filepath.Join(n.sysfs, "class/infiniband", device, "device/physfn"))
		if err != nil {
			return ""
		}
		address = filepath.Base(physical)
	}
	found := ""
	for _, r := range n.rails {
		switch {
		case address == "" && r.Device != device, address != "" && r.PCIAddress != address:
		case port == uint32(r.Port):
			return r.Name
		case port == 0 && found != "":
			return ""
		case port == 0:
			found = r.Name
		}
	}
	return found
}
