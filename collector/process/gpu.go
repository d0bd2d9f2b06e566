package process

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/sysfs"
)

// gpuHolding is what one process holds of one GPU.
type gpuHolding struct {
	gpu     string // index
	uuid    string // of the GPU, or of the MIG device; empty when not known
	pid     uint32
	memory  uint64 // bytes
	known   bool   // memory is known
	compute bool   // it computes; not only a window on a screen
}

// gpuHeld is what reading one GPU found.
type gpuHeld struct {
	list []gpuHolding
	err  error // why it is not complete
	mig  bool  // err is that a caller without privileges ownerQuery the parent of MIG instances
}

// holdings lists the processes that hold GPU memory. A machine without GPUs has no holdings and no faults: whether it
// should have some is the gpu source's to say.
func holdings(r *nvml.Reader[gpuHeld], budget time.Duration) (list []gpuHolding, present bool, faults []error) {
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

// readHoldings lists the processes of one GPU.
func readHoldings(gpu nvml.GPU) (held gpuHeld, lost error) {
	compute, err := gpu.Processes(false)
	if err != nil {
		held = gpuHeld{err: err, mig: refusedByMIG(gpu.Device, err)}
	} else {
		held = listHoldings(gpu, compute)
	}
	if nvml.Unreachable(held.err) {
		return held, held.err
	}
	return held, nil
}

// listHoldings lists the processes of one GPU, of which those that compute are known.
func listHoldings(gpu nvml.GPU, compute []nvml.Process) (held gpuHeld) {
	graphics, err := gpu.Processes(true)
	held.err = err
	id, _ := gpu.Identity() // without it pods are named by other means
	held.list = merge(strconv.Itoa(gpu.Index), id.UUID, compute, graphics)
	for i, p := range held.list {
		if strings.Contains(p.uuid, "/") {
			held.list[i].uuid = migUUID(gpu.Device, p.uuid)
		}
	}
	return held
}

// refusedByMIG reports whether err is how the parent of MIG instances answers a
// caller without privileges.
func refusedByMIG(d nvml.Device, err error) bool {
	if nvml.CodeOf(err) != nvml.CodeNoPermission {
		return false
	}
	mode, err := d.Numbers(nvml.QueryMIGMode)
	return err == nil && mode[0] == 1
}

// merge makes one holding of each process, however often it is listed. One with
// MIG instances has gi/ci in place of a UUID, when it has only one.
func merge(gpu, uuid string, compute, graphics []nvml.Process) []gpuHolding {
	var list []gpuHolding
	at := map[uint32]int{}
	computes := map[uint32]bool{}
	for _, p := range compute {
		computes[p.PID] = true
	}
	// SumByProcess orders what it is given, and leaves out those whose memory is
	// not known.
	all := append(append([]nvml.Process(nil), compute...), graphics...)
	known, _ := nvml.SumByProcess(append([]nvml.Process(nil), all...))
	for _, p := range known {
		at[p.PID] = len(list)
		list = append(list, gpuHolding{gpu: gpu, pid: p.PID, memory: p.Memory, known: true, compute: computes[p.PID]})
	}
	for _, p := range all {
		i, there := at[p.PID]
		if !there {
			i = len(list)
			at[p.PID] = i
			list = append(list, gpuHolding{gpu: gpu, pid: p.PID, compute: computes[p.PID]})
		}
		is := uuid
		if p.GPUInstance != 1<<32-1 {
			is = fmt.Sprintf("%d/%d", p.GPUInstance, p.ComputeInstance)
		}
		switch h := &list[i]; h.uuid {
		case "", is:
			h.uuid = is
		default: // several: no single device identifies it
			h.uuid = "?"
		}
	}
	return list
}

// migUUID returns the UUID of the MIG device gi/ci.
func migUUID(d nvml.Device, instance string) string {
	list, _ := d.Instances()
	for _, mig := range list {
		if fmt.Sprintf("%d/%d", mig.GPUInstance, mig.ComputeInstance) == instance {
			id, _ := mig.Identity()
			return id.UUID
		}
	}
	return ""
}

// hostOnly is the fault of a source that needs the host's pid namespace.
func hostOnly() *collector.Fault {
	return &collector.Fault{Reason: collector.ReasonNamespace, Err: errors.New("processes are identified only in the " +
		"host's PID namespace: start railscope on the host, or its " +
		"container with hostPID: true (docker: --pid=host), and --path.procfs on a procfs of that namespace")}
}

// noProcfs is the fault of a procfs that is not there.
func noProcfs(err error) *collector.Fault {
	return &collector.Fault{Reason: sysfs.Reason(err), Err: fmt.Errorf("processes cannot be identified without procfs "+
		"(--path.procfs): %w", err)}
}
