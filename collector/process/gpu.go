package process

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/nvml"
)

type gpuHolding struct {
	gpu     string // index
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
