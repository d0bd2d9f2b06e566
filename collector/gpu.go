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

	"github.com/railscope/railscope/internal/lane"
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

// gpuRetry is the shortest time from the end of one initialisation of NVML to
// the next: it costs seconds where persistence mode is off.
const gpuRetry = time.Minute

// maxGPUs bounds what we believe of nvmlDeviceGetCount.
const maxGPUs = 128

// NewGPU returns the gpu source: memory, errors, utilisation, clocks and power
// of every GPU that lib knows. procfs is where proc is mounted; a GPU without
// memory of its own is described by meminfo there. Nothing is loaded before the
// first Read
// or Use.
//
// NVML and every GPU have a lane each: a call that hangs costs the series of
// its GPU until it returns, and those of no other. Where initialising NVML takes
// longer than the budget, as without persistence mode, the first Reads fail and
// the later ones do not. Read returns [ErrAbsent]
// when there is neither driver nor GPU and has not been since the start; when
// the kernel driver is loaded and NVML cannot be reached, as in a container
// without its library, that is a fault.
func NewGPU(procfs string, lib nvml.Library, opts GPUOptions) *GPU {
	if opts.Budget <= 0 {
		opts.Budget = time.Second
	}
	g := &GPU{procfs: procfs, opts: opts, rows: gpuRows()}
	g.session.lib = lib
	return g
}

// GPU is the gpu source; see [NewGPU].
type GPU struct {
	procfs string
	opts   GPUOptions
	rows   []*Metric

	session gpuSession
	front   lane.Group[gpuRoster]  // one lane: initialise, count
	gpus    lane.Group[gpuReading] // a lane for each GPU

	labels []*gpuLabels // by index
	keys   []string     // the indices as text
	anew   bool         // every GPU said that NVML must be initialised again

	seen  atomic.Bool              // there has been a GPU
	found atomic.Pointer[gpuFound] // by the last Read, or by Use while none has known; nil before
	use   gpuUses
}

// Name implements [Source].
func (g *GPU) Name() string { return "gpu" }

// Metrics implements [Source].
func (g *GPU) Metrics() []*Metric { return g.rows }

// Read implements [Source].
func (g *GPU) Read(emit func(Sample)) error {
	anew := g.anew
	front := g.front.Run(g.opts.Budget, []string{"nvml"}, func(string) gpuRoster { return g.session.roster(anew) })[0]
	if front.State != lane.Done {
		return LaneFault("", front.State, front.Err)
	}
	g.anew = false
	roster := front.Value
	found, err := g.findings(roster)
	g.found.Store(found)
	if err != nil {
		return err
	}
	faults := g.grow(&roster)

	g.anew = true
	for _, res := range g.gpus.Run(g.opts.Budget, g.keys[:roster.count], g.visit(roster.driver)) {
		if res.State != lane.Done {
			faults = append(faults, LaneFault("gpu"+res.Key, res.State, res.Err))
			g.anew = false
			continue
		}
		for _, s := range res.Value.samples {
			emit(s)
		}
		for _, f := range res.Value.faults {
			faults = append(faults, f)
		}
		g.anew = g.anew && res.Value.anew
	}
	return errors.Join(faults...)
}

// findings says what a roster means: which GPUs there are, or why that is not
// known, or none are.
func (g *GPU) findings(roster gpuRoster) (*gpuFound, error) {
	err := roster.err
	if err == nil && roster.count == 0 {
		err = &nvml.Error{Call: "nvmlDeviceGetCount_v2", Code: nvml.CodeGPUNotFound}
	}
	if err != nil {
		err = g.classify(err)
		return &gpuFound{known: errors.Is(err, ErrAbsent)}, err
	}
	g.seen.Store(true)
	return &gpuFound{known: true, count: min(roster.count, maxGPUs)}, nil
}

// grow makes labels for as many GPUs as the roster has, and returns what is
// wrong with the roster itself.
func (g *GPU) grow(roster *gpuRoster) (faults []error) {
	if roster.count > maxGPUs {
		err := fmt.Errorf("the driver counts %d GPUs; the first %d are read", roster.count, maxGPUs)
		faults = append(faults, &Fault{Reason: sysfs.ReasonRange, Err: err})
		roster.count = maxGPUs
	}
	if roster.driverErr != nil {
		faults = append(faults, newGPUFault("", roster.driverErr))
	}
	for i := len(g.keys); i < roster.count; i++ {
		g.keys = append(g.keys, strconv.Itoa(i))
		g.labels = append(g.labels, newGPULabels(g.keys[i]))
	}
	return faults
}

// visit returns what is done in the lane of each GPU. It shares nothing with
// the gpu that is written after it was made, because it may outlive the Read.
func (g *GPU) visit(driver string) func(string) gpuReading {
	session, labels, procfs, processes := &g.session, g.labels, g.procfs, g.opts.Processes
	return func(key string) gpuReading {
		session.asking.RLock()
		defer session.asking.RUnlock()
		index, err := strconv.Atoi(key)
		if err != nil {
			panic(err)
		}
		r := &gpuReader{name: "gpu" + key, labels: labels[index], procfs: procfs, processes: processes}
		r.device, err = session.lib.GPU(index)
		if r.failed(err) {
			r.out.faults[0].Expected = false // whatever the reason, a whole GPU is missing
			return r.out
		}
		r.read(driver)
		return r.out
	}
}

// classify says what it means that NVML gave no GPUs.
func (g *GPU) classify(err error) error {
	var f *Fault
	var e *nvml.Error
	switch {
	case errors.As(err, &f):
		return f
	case !errors.As(err, &e):
		return NewFault("", err)
	}
	switch e.Code {
	case nvml.CodeNotBuilt:
		return fmt.Errorf("%w: %w", ErrAbsent, err)
	case nvml.CodeLibrary, nvml.CodeDriverNotLoaded, nvml.CodeGPUNotFound:
		if g.seen.Load() {
			return &Fault{Reason: nvml.ReasonNoGPU, Err: fmt.Errorf("there were GPUs before: %w", err)}
		}
		// A container can see that the kernel has the driver and yet lack the
		// library or the device nodes. That is no machine without GPUs.
		if e.Code != nvml.CodeGPUNotFound && kernelDriver(g.procfs) {
			return &Fault{Reason: e.Reason(), Err: fmt.Errorf("the kernel has the driver loaded: %w", err)}
		}
		return fmt.Errorf("%w: %w", ErrAbsent, err)
	}
	fault := newGPUFault("", err)
	fault.Expected = false // whatever the reason, every GPU is missing
	return fault
}

// kernelDriver reports whether the kernel driver is loaded.
func kernelDriver(procfs string) bool {
	_, err := os.Stat(filepath.Join(procfs, "driver/nvidia/version"))
	return err == nil
}

// gpuSession is the part of the conversation with NVML that is not about one
// GPU. An initialisation that takes longer than a Read still counts.
type gpuSession struct {
	lib    nvml.Library
	asking sync.RWMutex // held for reading by every visit to a GPU, of Read or Use, for writing by Open

	front sync.Mutex // held by a roster, in a lane; protects all following fields
	open  bool
	tried time.Time // end of the last initialisation
	err   error     // why it is not open
}

// gpuRoster is what the front lane found.
type gpuRoster struct {
	count     int
	driver    string
	driverErr error
	err       error // nothing else is set
}

// roster counts the GPUs, and initialises NVML before where that is needed;
// anew says that the GPUs asked for it.
func (s *gpuSession) roster(anew bool) gpuRoster {
	s.front.Lock()
	defer s.front.Unlock()
	if anew && s.open {
		s.close(&nvml.Error{Call: "NVML", Code: nvml.CodeUninitialized})
	}
	if !s.open {
		if err := s.init(); err != nil {
			return gpuRoster{err: err}
		}
	}
	var r gpuRoster
	if r.count, r.err = s.lib.Count(); r.err != nil {
		if mustReopen(r.err) {
			s.close(r.err)
		}
		return gpuRoster{err: r.err}
	}
	r.driver, r.driverErr = s.lib.Driver()
	return r
}

func (s *gpuSession) close(err error) { s.open, s.err = false, err }

func (s *gpuSession) init() error {
	if !s.tried.IsZero() && time.Since(s.tried) < gpuRetry {
		return s.err
	}
	if !s.asking.TryLock() {
		// Open would pull the library's state from under a call that hangs.
		return &Fault{Reason: sysfs.ReasonTimeout, Err: errors.New("NVML must be initialised again, and a call into it has not returned")}
	}
	defer s.asking.Unlock()
	err := s.lib.Open()
	s.tried = time.Now()
	s.open, s.err = err == nil, err
	return err
}

// mustReopen reports whether err means that NVML has to be initialised again:
// the driver was unloaded, and perhaps loaded again.
func mustReopen(err error) bool {
	var e *nvml.Error
	return errors.As(err, &e) && (e.Code == nvml.CodeUninitialized || e.Code == nvml.CodeDriverNotLoaded)
}

// newGPUFault makes a fault of an answer of NVML.
func newGPUFault(device string, err error) *Fault {
	var e *nvml.Error
	if !errors.As(err, &e) {
		return NewFault(device, err)
	}
	reason := e.Reason()
	return &Fault{Device: device, Reason: reason, Expected: reason == sysfs.ReasonUnsupported, Err: err}
}
