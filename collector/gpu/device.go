package gpu

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/proc"
	"github.com/railscope/railscope/internal/sysfs"
)

// writer writes the samples of one GPU of any vendor.
type writer struct {
	*table
	index     string // label gpu
	processes int    // number of processes that get their own series
	used      uint64 // bytes, as gpu_memory_used_bytes
	usedKnown bool
	out       *collector.Reading
}

// device is a GPU of NVIDIA during a read.
type device struct {
	nvml.GPU
	writer
	procfs  string
	mig     uint64 // MIG mode: 0 or 1
	migErr  error
	partial bool  // NVML may refuse the values of the GPU because MIG is on
	lost    error // reason why the whole GPU cannot be read
}

func (s *Source) newDevice(gpu nvml.GPU, processes int) *device {
	index := strconv.Itoa(gpu.Index)
	return &device{GPU: gpu, procfs: s.procfs, writer: writer{table: s.table, index: index, processes: processes,
		out: &collector.Reading{Device: "gpu" + index}}}
}

// readGPU reads one GPU. It stops early only if the whole GPU cannot be reached.
func (s *Source) readGPU(gpu nvml.GPU) (collector.Reading, error) {
	d := s.newDevice(gpu, s.processes)
	mode, err := d.Numbers(nvml.QueryMIGMode)
	d.mig, d.migErr, d.partial = mode[0], err, err == nil && mode[0] == 1
	for _, step := range []func(){d.readIdentity, d.readMemory, d.readNumbers, d.readThrottling, d.readMIG} {
		step()
		if d.lost != nil {
			break
		}
	}
	return *d.out, d.lost
}

// emit adds a sample; labels follow the label gpu.
func (w *writer) emit(row *collector.Metric, value float64, labels ...string) {
	w.out.Add(row, append([]string{w.index}, labels...), value)
}

// failed records an error, and reports whether there is one. With MIG on, NVML returns the GPU's values only to
// privileged callers (nvml.h, "in MIG mode, if device handle is provided").
func (d *device) failed(err error) bool {
	if nvml.Unreachable(err) {
		d.lost = err
	} else if err != nil {
		f := collector.NewFault(d.out.Device, err)
		f.Expected = f.Expected || d.partial && f.Reason == sysfs.ReasonPermission
		d.out.Fault(f)
	}
	return err != nil
}

func (w *writer) failInvalid(err error) {
	w.out.Fault(&collector.Fault{Device: w.out.Device, Reason: sysfs.ReasonInvalid, Err: err})
}

// invalid reports whether v exceeds most, which is then recorded as a fault.
func (d *device) invalid(call string, row *collector.Metric, v, most uint64) bool {
	switch {
	case v == nvml.NotAvailable:
		return d.failed(&nvml.Error{Call: call + ": " + row.Name, Code: nvml.CodeNotSupported})
	case v > most:
		d.failInvalid(fmt.Errorf("%s: %s: %d cannot be more than %d", call, row.Name, v, most))
		return true
	}
	return false
}

func (d *device) readIdentity() {
	id, err := d.Identity()
	d.failed(err)
	if id == (nvml.Identity{}) {
		return
	}
	address, err := pciAddress(id.BusID)
	if err != nil && id.BusID != "" {
		d.failInvalid(err)
	}
	d.emit(d.info, 1, id.UUID, id.Name, address, d.Driver)
}

var busIDs = regexp.MustCompile(`^([0-9a-f]{4,8})(:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])$`)

// pciAddress converts NVML's 0000000F:01:00.0 to sysfs's 000f:01:00.0: the domain has four digits, or more if
// needed.
func pciAddress(busID string) (string, error) {
	m := busIDs.FindStringSubmatch(strings.ToLower(busID))
	if m == nil {
		return "", fmt.Errorf("nvmlDeviceGetPciInfo: invalid PCI address %q", busID)
	}
	domain := strings.TrimLeft(m[1], "0")
	return strings.Repeat("0", max(0, 4-len(domain))) + domain + m[2], nil
}

func (d *device) readNumbers() {
	for _, q := range d.queries {
		v, err := d.Numbers(q.Query)
		d.failed(err)
		if d.lost != nil {
			return
		}
		for i, f := range q.fields {
			if err != nil || d.invalid(string(q.Query), f.row, v[i], cmp.Or(f.most, nvml.NotAvailable-1)) {
				continue
			}
			var labels []string
			if f.label != "" {
				labels = []string{f.label}
			}
			d.emit(f.row, f.row.From[0].Value(v[i]), labels...)
		}
	}
}

func (d *device) readThrottling() {
	v, err := d.Numbers(nvml.QueryThrottled)
	if d.failed(err) {
		return
	}
	// If the list of supported reasons is unknown, assume all.
	supported := uint64(1<<64 - 1)
	if s, err := d.Numbers(nvml.QueryThrottles); err == nil {
		supported = s[0]
	}
	now := v[0]
	// In the order of their bits from bit 0 (nvml.h nvmlClocksEventReason*).
	reasons := []string{"gpu_idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown", "sync_boost",
		"sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "display_clock_setting"}
	for bit, reason := range reasons {
		if mask := uint64(1) << bit; (supported|now)&mask != 0 {
			d.emit(d.throttled, collector.Bool(now&mask != 0), reason)
		}
	}
	d.emit(d.throttled, collector.Bool(now>>len(reasons) != 0), "other")
}

func (d *device) readMIG() {
	if d.failed(d.migErr) || d.invalid(string(nvml.QueryMIGMode), d.migMode, d.mig, 1) {
		return
	}
	d.emit(d.migMode, float64(d.mig))
	if d.mig == 0 {
		return
	}
	d.partial = false
	instances, err := d.Instances()
	d.failed(err)
	seen := make(map[[2]int]bool)
	for _, instance := range instances {
		key := [2]int{instance.GPUInstance, instance.ComputeInstance}
		if d.lost == nil && !seen[key] {
			seen[key] = true
			d.readInstance(instance)
		}
	}
}

func (d *device) readInstance(instance nvml.Instance) {
	gi, ci := strconv.Itoa(instance.GPUInstance), strconv.Itoa(instance.ComputeInstance)
	failed := func(err error) bool {
		if err != nil {
			err = fmt.Errorf("MIG device %s/%s: %w", gi, ci, err)
		}
		return d.failed(err)
	}
	id, err := instance.Identity()
	if id.UUID == "" { // some drivers do not report the MIG device's PCI address
		failed(err)
	}
	// The name ends in the profile: NVIDIA H200 MIG 1g.18gb.
	_, profile, _ := strings.Cut(id.Name, " MIG ")
	d.emit(d.migInfo, 1, gi, ci, id.UUID, profile)
	m, err := instance.Memory()
	if failed(err) || d.invalid(memoryCall, d.migTotal, m.Total, nvml.NotAvailable-1) {
		return
	}
	d.emit(d.migTotal, float64(m.Total), gi, ci)
	d.emitPart(d.migUsed, m.Used, m, gi, ci)
	d.emitPart(d.migFree, m.Free, m, gi, ci)
}

const memoryCall = "nvmlDeviceGetMemoryInfo"

// readMemory emits the GPU's memory. The GPU has no memory of its own only if NVML reports "not supported" or a
// total of 0.
func (d *device) readMemory() {
	m, err := d.Memory()
	if err == nil && m.Total == 0 || nvml.CodeOf(err) == nvml.CodeNotSupported {
		d.failed(err)
		d.readSharedMemory()
		return
	}
	if !d.failed(err) && !d.invalid(memoryCall, d.memoryTotal, m.Total, nvml.NotAvailable-1) {
		d.emit(d.memoryTotal, float64(m.Total))
		d.emitPart(d.memoryFree, m.Free, m)
		if !d.invalid(memoryCall, d.memoryUsed, m.Used, m.Total) {
			d.emitUsed(m.Used, sourceNVML)
		}
		if m.Reserved != nvml.NotAvailable {
			d.emitPart(d.memoryReserved, m.Reserved, m)
		}
	}
	if d.processes > 0 && d.lost == nil {
		d.readProcesses()
	}
}

// emitPart emits a part of the memory unless it exceeds the total.
func (d *device) emitPart(row *collector.Metric, v uint64, of nvml.Memory, labels ...string) {
	if !d.invalid(memoryCall, row, v, of.Total) {
		d.emit(row, float64(v), labels...)
	}
}

func (w *writer) emitUsed(v uint64, source string) {
	w.used, w.usedKnown = v, true
	w.emit(w.memoryUsed, float64(v))
	w.emit(w.memorySource, 1, source)
}

func (d *device) readSharedMemory() {
	machine, err := proc.ReadMemory(d.procfs)
	d.out.Fail(err)
	if err == nil {
		d.emit(d.memoryTotal, float64(machine.Total))
		d.emit(d.memoryFree, float64(machine.Available))
	}
	if sum, complete := d.readProcesses(); complete {
		d.emitUsed(sum, sourceProcesses)
	} else if err == nil {
		d.emitUsed(machine.Total-machine.Available, sourceMeminfo)
	}
}

// readProcesses emits the rows of processes and returns the sum of their memory. complete is false if processes may
// be hidden or the driver reports no process's memory.
func (d *device) readProcesses() (sum uint64, complete bool) {
	compute, err := d.Processes(false)
	if d.failed(err) {
		return 0, false
	}
	graphics, err := d.Processes(true)
	d.failed(err)
	if d.lost != nil {
		return 0, false
	}
	known, unknown := nvml.SumByProcess(append(compute, graphics...))
	host := proc.SeesHost(d.procfs)
	if host {
		d.emit(d.table.processes, float64(len(known)), "known")
		d.emit(d.table.processes, float64(unknown), "unknown")
	} else {
		err := errors.New("processes outside of this pid namespace may be hidden; share the host's to see them")
		d.out.Fault(&collector.Fault{Device: d.out.Device, Reason: collector.ReasonNamespace, Expected: true, Err: err})
	}
	for _, p := range known {
		sum += p.Memory
	}
	d.emitProcesses(known)
	return sum, host && (len(known) > 0 || unknown == 0)
}

// emitProcesses emits the memory of processes, which are in order of it, the largest first.
func (w *writer) emitProcesses(list []nvml.Process) {
	var rest uint64
	for i, p := range list {
		if i < w.processes {
			w.emit(w.processMemory, float64(p.Memory), strconv.FormatUint(uint64(p.PID), 10))
		} else {
			rest += p.Memory
		}
	}
	if w.processes > 0 && len(list) > w.processes {
		w.emit(w.processMemory, float64(rest), "other")
	}
}
