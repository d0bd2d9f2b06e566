package collector

import (
	"strconv"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/lane"
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

// gpuFound is what is known about which GPUs there are.
type gpuFound struct {
	known bool
	count int
}

// gpuUses is what Use needs beside what Read does. Its lanes are others, so that
// neither finds the other's taken.
type gpuUses struct {
	mu     sync.Mutex            // protects all following fields
	front  lane.Group[gpuRoster] // one lane
	lanes  lane.Group[GPUUse]
	labels []*gpuLabels
	keys   []string
}

// Use returns what the GPUs hold and do now, those that answer within the budget,
// which finding out which there are does not shorten. known is false as long as it is not known which GPUs there are: what
// Read found is good, and as long as that is nothing Use looks itself. Beside
// Read, it may be called by any goroutine.
func (g *GPU) Use(budget time.Duration) (list []GPUUse, known bool) {
	u := &g.use
	u.mu.Lock()
	defer u.mu.Unlock()
	found := g.lookLocked(budget)
	if found == nil || !found.known {
		return nil, false
	}
	for i := len(u.keys); i < found.count; i++ {
		u.keys = append(u.keys, strconv.Itoa(i))
		u.labels = append(u.labels, newGPULabels(u.keys[i]))
	}
	labels := u.labels
	for _, res := range u.lanes.Run(budget, u.keys[:found.count], func(key string) GPUUse {
		index, err := strconv.Atoi(key)
		if err != nil {
			panic(err)
		}
		return g.useOf(index, labels[index])
	}) {
		index, _ := strconv.Atoi(res.Key)
		res.Value.Index = index
		list = append(list, res.Value)
	}
	return list, true
}

// lookLocked returns which GPUs there are, and finds that out where no Read has.
func (g *GPU) lookLocked(budget time.Duration) *gpuFound {
	found := g.found.Load()
	if found != nil && found.known {
		return found
	}
	front := g.use.front.Run(budget, []string{"nvml"}, func(string) gpuRoster { return g.session.roster(false) })[0]
	if front.State != lane.Done {
		return nil
	}
	looked, _ := g.findings(front.Value) // what is wrong is Read's to tell
	g.found.CompareAndSwap(found, looked)
	return looked
}

// useOf asks one GPU.
func (g *GPU) useOf(index int, labels *gpuLabels) (use GPUUse) {
	g.session.asking.RLock()
	defer g.session.asking.RUnlock()
	device, err := g.session.lib.GPU(index)
	if err != nil {
		return use
	}
	r := &gpuReader{name: "gpu" + strconv.Itoa(index), labels: labels, procfs: g.procfs, device: device}
	r.memory()
	for _, s := range r.out.samples {
		if s.Metric == gpuMemoryUsed {
			use.Used, use.UsedKnown = uint64(s.Value), true
		}
	}
	if n, err := device.Numbers(nvml.QueryUtilization); err == nil && n[0] <= 100 {
		use.Busy, use.BusyKnown = n[0] >= gpuBusyFrom, true
	} else if processes, err := device.Processes(false); err == nil {
		use.Busy, use.BusyKnown = len(processes) > 0, true
	}
	return use
}
