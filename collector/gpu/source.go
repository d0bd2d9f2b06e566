// Package gpu is the source of GPUs: memory, errors, utilization, clocks, power and partitions. NVIDIA's are read by
// NVML, AMD's from the files of their drivers.
package gpu

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/amdgpu"
	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/sysfs"
)

// Source is the gpu source; see [New].
type Source struct {
	*table
	procfs    string
	budget    time.Duration
	processes int
	reader    *nvml.Reader[collector.Reading]
	users     *nvml.Reader[collector.GPUUse]
	watcher   *nvml.Watcher
	seen      atomic.Bool // a GPU was found before by NVML
	amd       *amdGPUs
}

// New returns the source of the GPUs of session, and of those that amd finds. procfs is a mount point; its meminfo
// describes a GPU without memory of its own. A Read waits up to budget for NVML, and up to budget for the GPUs of each
// vendor. The processes of each GPU with the most memory get series of their own. Nothing is loaded
// before the first Read or Use.
//
// If NVML needs longer than budget to initialize, as without persistence mode, the first Reads fail and later ones
// succeed. Read returns [collector.ErrAbsent] if there is neither driver nor GPU and never was. If the kernel driver is
// loaded and NVML is not available, as in a container without its library, Read returns a fault.
func New(amd *amdgpu.Finder, procfs string, session *nvml.Session, budget time.Duration, processes int) *Source {
	s := &Source{table: newTable(), procfs: procfs, budget: budget, processes: processes}
	s.reader = nvml.NewReader(session, s.readGPU)
	s.users, s.watcher = nvml.NewReader(session, s.readUse), nvml.NewWatcher(session)
	s.amd = newAMDGPUs(s, amd)
	return s
}

// Read implements [collector.Source].
func (s *Source) Read(emit func(collector.Sample)) error {
	var (
		samples []collector.Sample
		exist   bool
		faults  []error
		amd     sync.WaitGroup
	)
	// The vendors are read at the same time, so that a driver that hangs does not cost the other vendor its time.
	amd.Go(func() { exist, faults = s.amd.Read(func(one collector.Sample) { samples = append(samples, one) }) })
	err := s.readNVIDIA(emit)
	amd.Wait()
	for _, sample := range samples {
		emit(sample)
	}
	if errors.Is(err, collector.ErrAbsent) && (exist || len(faults) > 0) {
		err = nil
	}
	return errors.Join(append(faults, err)...)
}

func (s *Source) readNVIDIA(emit func(collector.Sample)) error {
	roster, gpus, err := s.reader.Read(s.budget)
	if err != nil {
		return s.classify(err)
	}
	s.seen.Store(true)
	var faults []error
	if roster.Count > nvml.MaxGPUs {
		err := fmt.Errorf("the driver counts %d GPUs; the first %d are read", roster.Count, nvml.MaxGPUs)
		faults = append(faults, &collector.Fault{Reason: sysfs.ReasonRange, Err: err})
	}
	faults = append(faults, roster.DriverErr)
	for _, gpu := range gpus {
		faults = append(faults, gpu.Value.Emit(emit)...)
		if gpu.Err != nil {
			fault := collector.NewFault(fmt.Sprint("gpu", gpu.Index), gpu.Err)
			fault.Expected = false // never expected: a whole GPU is missing
			faults = append(faults, fault)
		}
	}
	for i, res := range s.watcher.Read(roster, s.budget) {
		for xid, n := range res.Value {
			emit(collector.Sample{Metric: s.xids, Labels: []string{strconv.Itoa(res.Index), xidName(xid)},
				Value: float64(n)})
		}
		if res.Err != nil && gpus[i].Err == nil { // otherwise it was already reported
			faults = append(faults, collector.NewFault(fmt.Sprint("gpu", res.Index), res.Err))
		}
	}
	return errors.Join(faults...)
}

func xidName(xid uint64) string {
	if xid == nvml.OtherXID {
		return "other"
	}
	return strconv.FormatUint(xid, 10)
}

// classify returns Read's error if NVML returned no GPUs.
func (s *Source) classify(err error) error {
	code := nvml.CodeOf(err)
	fault := collector.NewFault("", err)
	fault.Expected = code == nvml.CodeReleased // never expected for other reasons: every GPU is missing
	switch {
	case !nvml.Absent(err):
		return fault
	case code == nvml.CodeNotBuilt:
	case s.seen.Load():
		fault.Reason, fault.Err = nvml.ReasonNoGPU, fmt.Errorf("there were GPUs before: %w", err)
		return fault
	// A container may show that the kernel has the driver and yet lack the library or the device nodes.
	case code != nvml.CodeGPUNotFound && sysfs.Exists(filepath.Join(s.procfs, "driver/nvidia/version")) == nil:
		fault.Err = fmt.Errorf("the kernel has the driver loaded: %w", err)
		return fault
	}
	return fmt.Errorf("%w: %w", collector.ErrAbsent, err)
}

// Use returns the current use of the GPUs that answer within budget; NVML may take another budget first, and AMD's GPUs
// a third. known is false if the list of GPUs is unknown. Safe for concurrent use, also with Read.
func (s *Source) Use(budget time.Duration) (list []collector.GPUUse, known bool) {
	_, gpus, err := s.users.Read(budget)
	known = err == nil || errors.Is(s.classify(err), collector.ErrAbsent)
	if err == nil {
		s.seen.Store(true)
	}
	for _, gpu := range gpus {
		gpu.Value.Index = gpu.Index
		list = append(list, gpu.Value)
	}
	amd, amdKnown := s.amd.Use(budget)
	return append(list, amd...), known && amdKnown
}

// busyPercent is the utilization of a GPU that computes: a display or a monitoring tool stays below.
const busyPercent = 10

func (s *Source) readUse(gpu nvml.GPU) (collector.GPUUse, error) {
	d := s.newDevice(gpu, 0)
	d.readMemory()
	use := collector.GPUUse{Used: d.used, UsedKnown: d.usedKnown}
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
