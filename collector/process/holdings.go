package process

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/rdmanl"
	"github.com/railscope/railscope/internal/sysfs"
)

// Limits of one dump of queue pairs. If it takes longer than a scrape waits, a later scrape uses it.
const (
	qpTime   = 10 * time.Second
	qpFresh  = 2 * time.Minute
	qpRest   = 9 // pause before the next dump, as a multiple of the duration of the last
	maxPairs = 1 << 20
	maxOwner = 1 << 15 // threads × ports × states that are counted separately; 2 MiB
)

// Kernel is the RDMA core's interface that the process source uses.
type Kernel interface {
	// Devices returns the names of all devices.
	Devices() ([]string, error)
	// SharedDevices reports whether devices are visible in all network namespaces.
	SharedDevices() (bool, error)
	// QueuePairs calls each for every queue pair of a device; see [rdmanl.Client.QueuePairs].
	QueuePairs(device string, limits rdmanl.QPLimits, each func(rdmanl.QP)) error
	// Close closes the connection.
	Close()
}

// qpOwner is the key by which queue pairs are counted; thread 0 is unknown.
type qpOwner struct {
	thread uint32
	port   uint32
	state  rdmanl.QPState
}

type qpTally struct {
	device string
	owners map[qpOwner]uint32
	kernel map[uint32]bool // ports on which the kernel itself has connected queue pairs, for example for storage
	rest   uint32          // queue pairs of owners beyond maxOwner
	begun  uint64          // start of the dump, on the clock of proc.Now
	took   time.Duration
	ended  time.Time
	cut    error // reason why it is not complete
	err    error // reason why it failed

	carried map[string]rail.Carried // what the device's rails had carried when it began, by Key
}

type qpReader struct {
	kernel  func() Kernel
	clock   func() uint64
	carried func(device string) map[string]rail.Carried // nil if traffic is not known

	front lane.Group[qpFound]
	lanes lane.Group[struct{}]
	last  map[string]*atomic.Pointer[qpTally] // keyed by device; written in its lane
}

type qpFound struct {
	devices []string   // names of all devices
	tallies []*qpTally // tallies of the devices that were listed
	shared  bool       // the list includes queue pairs of other network namespaces
	err     error      // reason why the devices are unknown
}

// read lists the queue pairs. It waits up to budget for the list of devices, and up to budget for the devices.
func (q *qpReader) read(budget time.Duration) (found qpFound, faults []error) {
	if q.kernel == nil {
		return qpFound{shared: true}, nil
	}
	front := q.front.Run(budget, []string{"devices"}, func(string) (found qpFound) {
		kernel := q.kernel()
		defer kernel.Close()
		found.devices, found.err = kernel.Devices()
		if found.err == nil {
			found.shared, found.err = kernel.SharedDevices()
		}
		return found
	})[0]
	found = front.Value
	switch {
	case front.State != lane.Done:
		return qpFound{}, []error{collector.LaneFault("", front.State, front.Err)}
	case errors.Is(found.err, unix.EPROTONOSUPPORT): // a kernel without RDMA
		return qpFound{shared: true}, nil
	case found.err != nil:
		return qpFound{}, []error{unexpected("", found.err)}
	}
	// a new map: a lane that starts late must not access the map of the next read
	last := map[string]*atomic.Pointer[qpTally]{}
	for _, name := range found.devices {
		last[name] = q.last[name]
		if last[name] == nil {
			last[name] = new(atomic.Pointer[qpTally])
		}
	}
	q.last = last
	for _, res := range q.lanes.Run(budget, found.devices, func(name string) struct{} {
		q.dump(name, last[name])
		return struct{}{}
	}) {
		t := last[res.Key].Load()
		switch {
		case t != nil && t.err != nil:
			faults = append(faults, unexpected(res.Key, t.err))
			continue
		case t == nil || time.Since(t.ended) > qpFresh:
			faults = append(faults, collector.LaneFault(res.Key, res.State, res.Err))
			continue
		case t.cut != nil:
			f := unexpected(res.Key, fmt.Errorf("the number of queue pairs is a lower bound: %w", t.cut))
			f.Reason = sysfs.ReasonTooLarge
			if errors.Is(t.cut, os.ErrDeadlineExceeded) {
				f.Reason = sysfs.ReasonTimeout
			}
			faults = append(faults, f)
		}
		found.tallies = append(found.tallies, t)
	}
	return found, faults
}

// unexpected returns a fault that is not marked as expected, whatever its reason.
func unexpected(device string, err error) *collector.Fault {
	f := collector.NewFault(device, err)
	f.Expected = false
	return f
}

// dump counts a device's queue pairs, unless the last dump is too recent for its cost. It runs in the device's lane.
func (q *qpReader) dump(device string, last *atomic.Pointer[qpTally]) {
	if t := last.Load(); t != nil && t.err == nil && time.Since(t.ended) < min(qpRest*t.took, qpFresh) {
		return
	}
	t := &qpTally{device: device, owners: map[qpOwner]uint32{}, kernel: map[uint32]bool{}, begun: q.clock()}
	if q.carried != nil {
		t.carried = q.carried(device)
	}
	kernel := q.kernel() // close the connection: the next dump is far away, and the device may be removed by then
	defer kernel.Close()
	start := time.Now()
	t.err = kernel.QueuePairs(device, rdmanl.QPLimits{Time: qpTime, Pairs: maxPairs}, t.add)
	t.ended = time.Now()
	t.took = t.ended.Sub(start)
	switch {
	case errors.Is(t.err, rdmanl.ErrCut):
		t.cut, t.err = t.err, nil
	case t.rest > 0:
		t.cut = fmt.Errorf("%d queue pairs belong to more than %d threads", t.rest, maxOwner)
	}
	last.Store(t)
}

func (q *qpTally) add(qp rdmanl.QP) {
	if qp.Kernel {
		if qp.Connected && qp.State >= rdmanl.RTR {
			q.kernel[qp.Port] = true
		}
		return
	}
	key := qpOwner{qp.PID, qp.Port, qp.State}
	if _, known := q.owners[key]; !known && len(q.owners) >= maxOwner {
		q.rest++
		return
	}
	q.owners[key]++
}

// railsOf returns the rails of a device; for a virtual function, those of its physical function. none is true if
// the device is certainly not a rail, such as a storage adapter that rails.include omits.
func (p *Source) railsOf(device string, rails []rail.Rail) (of []rail.Rail, none bool) {
	where := func(matches func(rail.Rail) bool) []rail.Rail {
		return slices.DeleteFunc(slices.Clone(rails), func(r rail.Rail) bool { return !matches(r) })
	}
	of = where(func(r rail.Rail) bool { return r.Device == device })
	if len(of) > 0 {
		return of, false
	}
	dir := filepath.Join(p.opts.Sysfs, "class/infiniband", device)
	physical, err := os.Readlink(filepath.Join(dir, "device/physfn"))
	if err != nil {
		return nil, errors.Is(err, os.ErrNotExist) && sysfs.Exists(dir) == nil
	}
	return where(func(r rail.Rail) bool { return r.PCIAddress == filepath.Base(physical) }), false
}

// railName returns a port's rail, or "" if it has none. A queue pair that has no port yet (0) is on the only rail.
func railName(rails []rail.Rail, port uint32) string {
	for _, r := range rails {
		if uint32(r.Port) == port || port == 0 && len(rails) == 1 {
			return r.Name
		}
	}
	return ""
}

type gpuHolding struct {
	gpu     string // index
	pid     uint32
	memory  float64 // bytes; NaN if not known
	compute bool    // it computes, and is not just a window on a screen
}

type gpuHeld struct {
	list []*gpuHolding
	err  error // reason why it is not complete
	mig  bool  // err is the answer of a parent of MIG instances to an unprivileged caller
}

// holdings lists the processes that hold GPU memory. Missing GPUs are not faults here: the gpu source reports them.
func holdings(r *nvml.Reader[gpuHeld], budget time.Duration) (list []*gpuHolding, present bool, faults []error) {
	_, gpus, err := r.Read(budget)
	if nvml.Absent(err) {
		return nil, false, nil
	}
	if err != nil {
		f := collector.NewFault("", err)
		f.Expected = nvml.CodeOf(err) == nvml.CodeReleased
		return nil, true, []error{f}
	}
	for _, gpu := range gpus {
		if err := cmp.Or(gpu.Err, gpu.Value.err); err != nil {
			f := collector.NewFault("gpu"+strconv.Itoa(gpu.Index), err)
			f.Expected = f.Expected || gpu.Value.mig
			faults = append(faults, f)
		}
		list = append(list, gpu.Value.list...)
	}
	return list, true, faults
}

func readHoldings(gpu nvml.GPU) (held gpuHeld, lost error) {
	compute, err := gpu.Processes(false)
	switch held.err = err; {
	case nvml.CodeOf(err) == nvml.CodeNoPermission:
		mode, err := gpu.Numbers(nvml.QueryMIGMode)
		held.mig = err == nil && mode[0] == 1
	case err == nil:
		var graphics []nvml.Process
		graphics, held.err = gpu.Processes(true)
		held.list = merge(strconv.Itoa(gpu.Index), compute, graphics)
	}
	if nvml.Unreachable(held.err) {
		return held, held.err
	}
	return held, nil
}

func merge(gpu string, compute, graphics []nvml.Process) []*gpuHolding {
	byPID := map[uint32]*gpuHolding{}
	all := slices.Concat(compute, graphics)
	for i, p := range all {
		h := byPID[p.PID]
		if h == nil {
			h = &gpuHolding{gpu: gpu, pid: p.PID, memory: math.NaN()}
			byPID[p.PID] = h
		}
		h.compute = h.compute || i < len(compute)
	}
	known, _ := nvml.SumByProcess(all)
	for _, p := range known {
		byPID[p.PID].memory = float64(p.Memory)
	}
	return slices.Collect(maps.Values(byPID))
}
