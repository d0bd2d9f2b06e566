package gpu

import (
	"errors"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/nvml"
)

// busyPercent is the utilisation from which a GPU counts as busy; a display or a monitor stays below it.
const busyPercent = 10

// Use is the current use of a GPU.
type Use struct {
	Index     int
	Used      uint64 // bytes, as gpu_memory_used_bytes
	UsedKnown bool
	Busy      bool // its utilisation is 10 % or more; without that figure: it has compute processes
	BusyKnown bool
}

// Use returns the current use of the GPUs that answer within the budget, which NVML may take once more before. known is
// false while the GPUs are unknown. Safe for concurrent use, also with Read.
func (s *Source) Use(budget time.Duration) (list []Use, known bool) {
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

// readUse reads the use of one GPU.
func (s *Source) readUse(gpu nvml.GPU) (Use, error) {
	d := s.newDevice(gpu, 0)
	d.readMemory()
	use := Use{Used: d.used, UsedKnown: d.usedKnown}
	if d.lost != nil {
		return use, d.lost
	}
	if n, err := gpu.Numbers(nvml.QueryUtilization); err == nil && n[0] <= 100 {
		use.Busy, use.BusyKnown = n[0] >= busyPercent, true
	} else if processes, err := gpu.Processes(false); err == nil {
		use.Busy, use.BusyKnown = len(processes) > 0, true
	}
	return use, nil
}
