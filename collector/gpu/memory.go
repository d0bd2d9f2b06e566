package gpu

import (
	"errors"
	"strconv"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/proc"
)

const memoryCall = "nvmlDeviceGetMemoryInfo"

// readMemory emits the memory of the GPU. Only the answer "not supported" or a total of 0 makes it a GPU without its
// own memory, not a missing function or permission.
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

// emitPart emits a part of the memory, if it is one.
func (d *device) emitPart(row *collector.Metric, v uint64, of nvml.Memory, labels ...string) {
	if !d.invalid(memoryCall, row, v, of.Total) {
		d.emit(row, float64(v), labels...)
	}
}

func (d *device) emitUsed(v uint64, source string) {
	d.used, d.usedKnown = v, true
	d.emit(d.memoryUsed, float64(v))
	d.emit(d.memorySource, 1, source)
}

// readSharedMemory emits the memory of a GPU that shares the machine's.
func (d *device) readSharedMemory() {
	machine, err := proc.ReadMemory(d.procfs)
	if d.out.Fail(err); err == nil {
		d.emit(d.memoryTotal, float64(machine.Total))
		d.emit(d.memoryFree, float64(machine.Available))
	}
	if sum, complete := d.readProcesses(); complete {
		d.emitUsed(sum, sourceProcesses)
	} else if err == nil {
		d.emitUsed(machine.Total-machine.Available, sourceMeminfo)
	}
}

// readProcesses emits the rows of processes, and returns the sum of their memory. It is not complete where processes
// may be hidden, nor where the driver reports the memory of none.
func (d *device) readProcesses() (sum uint64, complete bool) {
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
		d.emit(d.table.processes, float64(len(known)), "known")
		d.emit(d.table.processes, float64(unknown), "unknown")
	} else {
		err := errors.New("processes outside of this pid namespace may be hidden; share the host's to see them")
		d.out.Fault(&collector.Fault{Device: d.out.Device, Reason: collector.ReasonNamespace, Expected: true, Err: err})
	}
	var rest uint64
	for i, p := range known {
		sum += p.Memory
		if i < d.processes {
			d.emit(d.processMemory, float64(p.Memory), strconv.FormatUint(uint64(p.PID), 10))
		} else {
			rest += p.Memory
		}
	}
	if d.processes > 0 && len(known) > d.processes {
		d.emit(d.processMemory, float64(rest), "other")
	}
	return sum, host && (len(known) > 0 || unknown == 0)
}
