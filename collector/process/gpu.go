package process

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/nvml"
)

type gpuHolding struct {
	gpu     string // index
	uuid    string // of the GPU, or of the MIG device; empty when not known
	pid     uint32
	memory  float64 // bytes; NaN when not known
	compute bool    // it computes; not only a window on a screen
}

type gpuHeld struct {
	list []*gpuHolding
	err  error // why it is not complete
	mig  bool  // err is the answer of a parent of MIG instances to a caller without privileges
}

// holdings lists the processes that hold GPU memory. Missing GPUs are no fault: the gpu source reports them.
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
		id, _ := gpu.Identity() // without it pods are named by other means
		held.list = merge(strconv.Itoa(gpu.Index), id.UUID, compute, graphics)
		for _, h := range held.list {
			if strings.Contains(h.uuid, "/") {
				h.uuid = migUUID(gpu.Device, h.uuid)
			}
		}
	}
	if nvml.Unreachable(held.err) {
		return held, held.err
	}
	return held, nil
}

// merge makes one holding of each process. For one with a single MIG instance, uuid is gi/ci.
func merge(gpu, uuid string, compute, graphics []nvml.Process) []*gpuHolding {
	byPID := map[uint32]*gpuHolding{}
	all := slices.Concat(compute, graphics)
	for i, p := range all {
		device := uuid
		if p.GPUInstance != 1<<32-1 {
			device = fmt.Sprintf("%d/%d", p.GPUInstance, p.ComputeInstance)
		}
		h := byPID[p.PID]
		if h == nil {
			h = &gpuHolding{gpu: gpu, uuid: device, pid: p.PID, memory: math.NaN()}
			byPID[p.PID] = h
		}
		if h.uuid != device { // several: no single device identifies it
			h.uuid = "?"
		}
		h.compute = h.compute || i < len(compute)
	}
	known, _ := nvml.SumByProcess(all)
	for _, p := range known {
		byPID[p.PID].memory = float64(p.Memory)
	}
	return slices.Collect(maps.Values(byPID))
}

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
