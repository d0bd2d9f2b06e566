package collector

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/sysfs"
)

// GPUOptions are what may be chosen of the gpu source. The zero value is valid.
type GPUOptions struct {
	// Budget is how long a Read waits for NVML, and then for each GPU; 0 means 1 s.
	Budget time.Duration
	// Processes is how many processes of each GPU get a series of their own, those
	// that hold most; 0 means none, and no series for the rest either.
	Processes int
}

// NewGPU returns the gpu source: memory, errors, utilisation, clocks and power of every GPU of session. procfs is where
// proc is mounted; a GPU without memory of its own is described by meminfo there. Nothing is loaded before the first
// Read or Use.
//
// Where initialising NVML takes longer than the budget, as without persistence mode, the first Reads fail and the later
// ones do not. Read returns [ErrAbsent] when there is neither driver nor GPU and has not been since the start; when the
// kernel driver is loaded and NVML cannot be reached, as in a container without its library, that is a fault.
func NewGPU(procfs string, session *nvml.Session, opts GPUOptions) *GPU {
	if opts.Budget <= 0 {
		opts.Budget = time.Second
	}
	g := &GPU{procfs: procfs, opts: opts, rows: gpuRows(), labels: map[int]*gpuLabels{}}
	g.reader = nvml.NewReader(session, g.readGPU)
	g.use = nvml.NewReader(session, g.useOf)
	return g
}

// GPU is the gpu source; see [NewGPU].
type GPU struct {
	procfs string
	opts   GPUOptions
	rows   []*Metric
	reader *nvml.Reader[gpuReading]
	use    *nvml.Reader[GPUUse]
	seen   atomic.Bool // there has been a GPU

	mu     sync.Mutex
	labels map[int]*gpuLabels
}

// Name implements [Source].
func (g *GPU) Name() string { return "gpu" }

// Metrics implements [Source].
func (g *GPU) Metrics() []*Metric { return g.rows }

// Read implements [Source].
func (g *GPU) Read(emit func(Sample)) error {
	roster, gpus, err := g.reader.Read(g.opts.Budget)
	if err != nil {
		return g.classify(err)
	}
	g.seen.Store(true)
	var faults []error
	if roster.Count > nvml.MaxGPUs {
		err := fmt.Errorf("the driver counts %d GPUs; the first %d are read", roster.Count, nvml.MaxGPUs)
		faults = append(faults, &Fault{Reason: sysfs.ReasonRange, Err: err})
	}
	if roster.DriverErr != nil {
		faults = append(faults, newGPUFault("", roster.DriverErr))
	}
	for _, gpu := range gpus {
		for _, s := range gpu.Value.samples {
			emit(s)
		}
		faults = append(faults, gpu.Value.faults...)
		if gpu.Err != nil {
			fault := newGPUFault("gpu"+strconv.Itoa(gpu.Index), gpu.Err)
			fault.Expected = false // whatever the reason, a whole GPU is missing
			faults = append(faults, fault)
		}
	}
	return errors.Join(faults...)
}

// readGPU reads one GPU.
func (g *GPU) readGPU(gpu nvml.GPU) (gpuReading, error) {
	r := g.newReader(gpu)
	r.read(gpu.Driver)
	return r.out, r.lost
}

// newReader returns the reader of one GPU.
func (g *GPU) newReader(gpu nvml.GPU) *gpuReader {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := strconv.Itoa(gpu.Index)
	if g.labels[gpu.Index] == nil {
		g.labels[gpu.Index] = newGPULabels(key)
	}
	return &gpuReader{name: "gpu" + key, device: gpu.Device, labels: g.labels[gpu.Index], procfs: g.procfs,
		processes: g.opts.Processes}
}

// classify says what it means that NVML gave no GPUs.
func (g *GPU) classify(err error) error {
	code := nvml.CodeOf(err)
	switch {
	case !nvml.Absent(err):
		fault := newGPUFault("", err)
		fault.Expected = code == nvml.CodeReleased // for any other reason every GPU is missing
		return fault
	case code == nvml.CodeNotBuilt:
	case g.seen.Load():
		return &Fault{Reason: nvml.ReasonNoGPU, Err: fmt.Errorf("there were GPUs before: %w", err)}
	// A container can see that the kernel has the driver and yet lack the library or the device nodes. That is no
	// machine without GPUs.
	case code != nvml.CodeGPUNotFound && kernelDriver(g.procfs):
		fault := newGPUFault("", fmt.Errorf("the kernel has the driver loaded: %w", err))
		fault.Expected = false
		return fault
	}
	return fmt.Errorf("%w: %w", ErrAbsent, err)
}

// kernelDriver reports whether the kernel driver is loaded.
func kernelDriver(procfs string) bool {
	_, err := os.Stat(filepath.Join(procfs, "driver/nvidia/version"))
	return err == nil
}

// newGPUFault makes a fault of an answer of NVML.
func newGPUFault(device string, err error) *Fault {
	e, ok := errors.AsType[*nvml.Error](err)
	if !ok {
		return NewFault(device, err)
	}
	reason := e.Reason()
	return &Fault{Device: device, Reason: reason, Expected: reason == sysfs.ReasonUnsupported, Err: err}
}
