package process

import (
	"errors"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/amdgpu"
	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/nvml"
)

// gpuReader lists the processes that hold memory of GPUs of any vendor.
type gpuReader struct {
	nvml *nvml.Reader[gpuHeld]
	amd  *amdgpu.Finder
	lane lane.Group[amdHeld]
}

type amdHeld struct {
	list    []*gpuHolding
	present bool  // there is a GPU
	err     error // reason why the list is not complete
}

// read lists the processes. It waits up to budget for NVML, and then for its GPUs; meanwhile up to budget for amdkfd.
func (g *gpuReader) read(budget time.Duration) (list []*gpuHolding, present bool, faults []error) {
	var amd amdHeld
	var wg sync.WaitGroup
	wg.Go(func() { amd = g.readAMD(budget) })
	list, present, faults = holdings(g.nvml, budget)
	wg.Wait()
	if amd.err != nil {
		faults = append(faults, amdFault(amd.err))
	}
	return append(list, amd.list...), present || amd.present, faults
}

// amdFault returns the fault of an error of amdkfd's files. amdkfd refuses them to a service or a container without the
// GPUs' devices (kfd_devcgroup_check_permission in amdkfd/kfd_priv.h): that is a setting, and no failure.
func amdFault(err error) *collector.Fault {
	f := collector.Faults(err)[0]
	f.Expected = f.Expected || errors.Is(err, unix.EPERM)
	return f
}

func (g *gpuReader) readAMD(budget time.Duration) amdHeld {
	res := g.lane.Run(budget, []string{"amdgpu"}, func(string) amdHeld { return amdHoldings(g.amd) })[0]
	if res.State != lane.Done {
		return amdHeld{err: collector.LaneFault("", res.State, res.Err)}
	}
	return res.Value
}

// amdHoldings lists the processes that allocated memory through amdkfd, as programs that compute do.
func amdHoldings(finder *amdgpu.Finder) (held amdHeld) {
	gpus, err := finder.GPUs(time.Now())
	held.present, held.err = len(gpus) > 0, err
	if !held.present {
		return held
	}
	nodes, err := finder.Nodes()
	if err != nil {
		held.err = err
	}
	for _, gpu := range gpus {
		list, err := finder.Processes(gpu.IDs(nodes))
		if err != nil {
			held.err = err
		}
		for _, p := range list {
			held.list = append(held.list, &gpuHolding{gpu: strconv.Itoa(gpu.Index), pid: p.PID,
				memory: float64(p.Memory), compute: true})
		}
	}
	return held
}
