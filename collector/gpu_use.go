package collector

import (
	"errors"
	"time"

	"github.com/railscope/railscope/internal/nvml"
)

// gpuBusyFrom is the utilisation from which on a GPU computes, in percent: a
// display or a monitor does not.
const gpuBusyFrom = 10

// GPUUse is what a GPU holds and does at one moment.
type GPUUse struct {
	Index     int
	Used      uint64 // bytes, as gpu_memory_used_bytes
	UsedKnown bool
	Busy      bool // its utilisation is 10 % or more, or, where it has no such figure, it has compute processes
	BusyKnown bool
}

// Use returns what the GPUs hold and do now, those that answer within the budget, which NVML may take before once more.
// known is false as long as it is not known which GPUs there are. It may be called by any goroutine, beside Read.
func (g *GPU) Use(budget time.Duration) (list []GPUUse, known bool) {
	_, gpus, err := g.use.Read(budget)
	if err != nil {
		return nil, errors.Is(g.classify(err), ErrAbsent)
	}
	g.seen.Store(true)
	for _, gpu := range gpus {
		gpu.Value.Index = gpu.Index
		list = append(list, gpu.Value)
	}
	return list, true
}

// useOf asks one GPU.
func (g *GPU) useOf(gpu nvml.GPU) (use GPUUse, err error) {
	r := g.newReader(gpu)
	r.processes = 0
	r.memory()
	for _, s := range r.out.samples {
		if s.Metric == gpuMemoryUsed {
			use.Used, use.UsedKnown = uint64(s.Value), true
		}
	}
	if r.lost != nil {
		return use, r.lost
	}
	if n, err := gpu.Numbers(nvml.QueryUtilization); err == nil && n[0] <= 100 {
		use.Busy, use.BusyKnown = n[0] >= gpuBusyFrom, true
	} else if processes, err := gpu.Processes(false); err == nil {
		use.Busy, use.BusyKnown = len(processes) > 0, true
	}
	return use, nil
}
