package collector

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/sysfs"
)

// gpuHolding is what one process holds of one GPU.
type gpuHolding struct {
	gpu     string // index
	uuid    string // of the GPU, or of the MIG device; empty when not known
	pid     uint32
	memory  uint64 // bytes
	told    bool   // memory is known
	compute bool   // it computes; not only a window on a screen
}

// gpuHolders lists the processes that hold GPU memory.
type gpuHolders struct {
	session gpuSession
	front   lane.Group[gpuRoster]
	gpus    lane.Group[gpuHeld]
	anew    bool
}

// gpuHeld is what one visit to one GPU found.
type gpuHeld struct {
	list   []gpuHolding
	err    error
	parent bool // err is that a caller without privileges asked the parent of MIG instances
	anew   bool
}

// read lists what can be listed within budget for NVML, and then for each GPU. A machine without GPUs has no
// holdings and no faults: whether it should have some is the gpu source's to
// say.
func (h *gpuHolders) read(budget time.Duration) (list []gpuHolding, present bool, faults []error) {
	anew := h.anew
	front := h.front.Run(budget, []string{"nvml"}, func(string) gpuRoster { return h.session.roster(anew) })[0]
	if front.State != lane.Done {
		return nil, true, []error{LaneFault("", front.State, front.Err)}
	}
	h.anew = false
	if err := front.Value.err; err != nil {
		if e, ok := errors.AsType[*nvml.Error](err); ok {
			switch e.Code {
			case nvml.CodeNotBuilt, nvml.CodeLibrary, nvml.CodeDriverNotLoaded, nvml.CodeGPUNotFound:
				return nil, false, nil
			}
		}
		f := newGPUFault("", err)
		f.Expected = false
		return nil, true, []error{f}
	}
	keys := make([]string, min(front.Value.count, maxGPUs))
	for i := range keys {
		keys[i] = strconv.Itoa(i)
	}
	h.anew = len(keys) > 0
	for _, res := range h.gpus.Run(budget, keys, h.visit) {
		h.anew = h.anew && res.State == lane.Done && res.Value.anew
		switch {
		case res.State != lane.Done:
			faults = append(faults, LaneFault("gpu"+res.Key, res.State, res.Err))
		case res.Value.err != nil:
			f := newGPUFault("gpu"+res.Key, res.Value.err)
			f.Expected = f.Expected || res.Value.parent
			faults = append(faults, f)
		}
		list = append(list, res.Value.list...)
	}
	return list, len(keys) > 0, faults
}

// visit lists the processes of one GPU, in its lane.
func (h *gpuHolders) visit(key string) (held gpuHeld) {
	h.session.asking.RLock()
	defer h.session.asking.RUnlock()
	index, err := strconv.Atoi(key)
	if err != nil {
		panic(err)
	}
	d, err := h.session.lib.GPU(index)
	var compute, graphics []nvml.Process
	if err == nil {
		compute, err = d.Processes(false)
	}
	if err != nil {
		return gpuHeld{err: err, parent: refusedByMIG(d, err), anew: mustReopen(err)}
	}
	graphics, held.err = d.Processes(true)
	id, _ := d.Identity() // without it pods are named by other means
	held.list = merge(key, id.UUID, compute, graphics)
	for i, p := range held.list {
		if strings.Contains(p.uuid, "/") {
			held.list[i].uuid = migUUID(d, p.uuid)
		}
	}
	return held
}

// refusedByMIG reports whether err is how the parent of MIG instances answers a
// caller without privileges.
func refusedByMIG(d nvml.Device, err error) bool {
	e, ok := errors.AsType[*nvml.Error](err)
	if !ok || e.Code != nvml.CodeNoPermission || d == nil {
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
	// byProcess orders what it is given, and leaves out those whose memory is
	// not told.
	all := append(append([]nvml.Process(nil), compute...), graphics...)
	known, _ := byProcess(append([]nvml.Process(nil), all...))
	for _, p := range known {
		at[p.PID] = len(list)
		list = append(list, gpuHolding{gpu: gpu, pid: p.PID, memory: p.Memory, told: true, compute: computes[p.PID]})
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
		default: // several: no one device says whose it is
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
func hostOnly() *Fault {
	return &Fault{Reason: ReasonNamespace, Err: errors.New("processes can only be told from the host's pid namespace: start railscope on the host, or its container with hostPID: true (docker: --pid=host), and --path.procfs on a procfs of that namespace")}
}

// noProcfs is the fault of a procfs that is not there.
func noProcfs(err error) *Fault {
	return &Fault{Reason: sysfs.Reason(err), Err: fmt.Errorf("no procfs, so that no process can be told (--path.procfs): %w", err)}
}
