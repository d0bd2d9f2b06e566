package gpu

import (
	"errors"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/nvml"
)

// Use returns the current use of the GPUs that answer within the budget, which NVML may take once more before. known is
// false while the GPUs are unknown. Safe for concurrent use, also with Read.
func (s *Source) Use(budget time.Duration) (list []collector.GPUUse, known bool) {
	_, gpus, err := s.users.Read(budget)
	if err != nil {
		return nil, errors.Is(s.classify(err), collector.ErrAbsent)
	}
	s.seen.Store(true)
	for _, gpu := range gpus {
		gpu.Value.Index = gpu.Index
		list = append(list, gpu.Value)
	}
	return list, true
}

func (s *Source) readUse(gpu nvml.GPU) (collector.GPUUse, error) {
	d := s.newDevice(gpu, 0)
	d.readMemory()
	use := collector.GPUUse{Used: d.used, UsedKnown: d.usedKnown}
	if d.lost != nil {
		return use, d.lost
	}
	if n, err := gpu.Numbers(nvml.QueryUtilization); err == nil && n[0] <= 100 {
		use.Busy, use.BusyKnown = n[0] >= 10, true // a display or a monitor stays below 10 %
	} else if processes, err := gpu.Processes(false); err == nil {
		use.Busy, use.BusyKnown = len(processes) > 0, true
	}
	return use, nil
}
