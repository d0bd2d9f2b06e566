package gpu

import (
	"errors"
	"strconv"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/proc"
)

const memoryCall = "nvmlDeviceGetMemoryInfo"

// memory emits what the GPU has and uses. Only an answer that says so, not supported or a total of nothing, makes it a
// GPU without memory of its own; a function that is missing or a permission that is refused does not.
func (d *device) memory() {
	m, err := d.Memory()
	switch {
	case err == nil && m.Total == 0 || nvml.CodeOf(err) == nvml.CodeNotSupported:
		d.failed(err)
		d.sharedMemory()
		return
	case d.failed(err), d.invalid(memoryCall, d.memoryTotal, m.Total, nvml.NotAvailable-1):
	default:
		d.emit(d.memoryTotal, float64(m.Total))
		d.part(d.memoryFree, m.Free, m)
		if d.part(d.memoryUsed, m.Used, m) {
			d.emit(d.memorySource, 1, sourceNVML)
		}
		if m.Reserved != nvml.NotAvailable {
			d.part(d.memoryReserved, m.Reserved, m)
		}
	}
	if d.limit > 0 && d.lost == nil {
		d.addProcesses()
	}
}

// part emits a part of the memory, and reports whether it could be one.
func (d *device) part(row *collector.Metric, v uint64, of nvml.Memory, labels ...string) bool {
	if d.invalid(memoryCall, row, v, of.Total) {
		return false
	}
	d.emit(row, float64(v), labels...)
	return true
}

// sharedMemory emits the memory of a GPU that shares the machine's.
func (d *device) sharedMemory() {
	machine, err := proc.ReadMemory(d.procfs)
	if err != nil {
		_ = d.fault(err)
	} else {
		d.emit(d.memoryTotal, float64(machine.Total))
		d.emit(d.memoryFree, float64(machine.Available))
	}
	sum, complete := d.addProcesses()
	switch {
	case complete:
		d.emit(d.memoryUsed, float64(sum))
		d.emit(d.memorySource, 1, sourceProcesses)
	case err == nil:
		d.emit(d.memoryUsed, float64(machine.Total-machine.Available))
		d.emit(d.memorySource, 1, sourceMeminfo)
	}
}

// addProcesses emits what is known of the processes, and returns the sum of what they hold. The sum is not complete
// where processes may be hidden, nor where the driver reports the memory of none.
func (d *device) addProcesses() (sum uint64, complete bool) {
	compute, err := d.Processes(false)
	if d.failed(err) {
		return 0, false
	}
	graphics, err := d.Processes(true)
	if d.failed(err); d.lost != nil {
		return 0, false
	}
	known, unknown := nvml.SumByProcess(append(compute, graphics...))
	host := proc.SeesHost(d.procfs)
	if host {
		d.emit(d.processes, float64(len(known)), "known")
		d.emit(d.processes, float64(unknown), "unknown")
	} else {
		f := d.fault(errors.New("processes outside of this pid namespace may be hidden; share the host's to see them"))
		f.Reason, f.Expected = collector.ReasonNamespace, true
	}
	var rest uint64
	for i, p := range known {
		sum += p.Memory
		switch {
		case d.limit <= 0:
		case i < d.limit:
			d.emit(d.processMemory, float64(p.Memory), strconv.FormatUint(uint64(p.PID), 10))
		default:
			rest += p.Memory
		}
	}
	if d.limit > 0 && len(known) > d.limit {
		d.emit(d.processMemory, float64(rest), "other")
	}
	return sum, host && (len(known) > 0 || unknown == 0)
}
