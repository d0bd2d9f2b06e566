package gpu

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/amdgpu"
	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/sysfs"
)

// reasonReset is the reason of faults while amdgpu refuses reads.
const reasonReset = "in_reset"

// amdGPUs reads AMD's GPUs, each in a lane of its own.
type amdGPUs struct {
	source *Source
	finder *amdgpu.Finder
	find   [2]lane.Group[found] // lanes of Read, and of Use
	gpus   *collector.Set[amdgpu.GPU, *amdDevice]
	uses   lane.Lanes[amdgpu.GPU, collector.GPUUse]
	seen   bool // Read found a GPU before

	topology lane.Group[nodes]
	mu       sync.Mutex // protects nodes
	nodes    nodes
}

type found struct {
	gpus []amdgpu.GPU
	err  error
}

type nodes struct {
	list []amdgpu.Node
	err  error
	at   time.Time
}

func newAMDGPUs(s *Source, finder *amdgpu.Finder) *amdGPUs {
	a := &amdGPUs{source: s, finder: finder}
	a.gpus = collector.NewSet(s.budget, func(g amdgpu.GPU) string { return "gpu" + strconv.Itoa(g.Index) },
		func(g amdgpu.GPU) *amdDevice { return &amdDevice{amd: a, gpu: g} })
	return a
}

// list returns the GPUs; user is the index of the caller's lanes.
func (a *amdGPUs) list(user int, budget time.Duration) found {
	res := a.find[user].Run(budget, []string{"amdgpu"}, func(string) found {
		gpus, err := a.finder.GPUs(time.Now())
		return found{gpus, err}
	})[0]
	if res.State != lane.Done {
		return found{err: collector.LaneFault("", res.State, res.Err)}
	}
	return res.Value
}

// Read emits the samples of the GPUs, and reports whether there is one.
func (a *amdGPUs) Read(emit func(collector.Sample)) (exist bool, faults []error) {
	list := a.list(0, a.source.budget)
	if list.err != nil {
		faults = append(faults, collector.Faults(list.err)[0])
	}
	if len(list.gpus) > 0 {
		a.seen = true
		a.readNodes()
	} else if a.seen && list.err == nil {
		err := errors.New("there were GPUs of AMD before, and amdgpu drives none now")
		faults = append(faults, &collector.Fault{Reason: nvml.ReasonNoGPU, Err: err})
	}
	_, gpuFaults := a.gpus.Read(list.gpus, emit)
	return len(list.gpus) > 0, append(faults, gpuFaults...)
}

// readNodes reads the nodes of amdkfd from time to time, in their own lane: while they hang, the GPUs have no processes
// and no partitions.
func (a *amdGPUs) readNodes() {
	a.mu.Lock()
	due := time.Since(a.nodes.at) >= amdgpu.ScanEvery
	a.mu.Unlock()
	if !due {
		return
	}
	res := a.topology.Run(a.source.budget, []string{"amdkfd"}, func(string) nodes {
		list, err := a.finder.Nodes()
		return nodes{list, err, time.Now()}
	})[0]
	if res.State != lane.Done {
		res.Value = nodes{err: collector.LaneFault("", res.State, res.Err)}
	}
	a.mu.Lock()
	a.nodes = res.Value
	a.mu.Unlock()
}

// ids returns the IDs of the nodes of a GPU. The error is the reason why some may be missing.
func (a *amdGPUs) ids(gpu amdgpu.GPU) ([]uint64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return gpu.IDs(a.nodes.list), a.nodes.err
}

// Use is like [Source.Use].
func (a *amdGPUs) Use(budget time.Duration) (list []collector.GPUUse, known bool) {
	gpus := a.list(1, budget)
	for _, res := range a.uses.Run(budget, gpus.gpus, a.readUse) {
		res.Value.Index = res.Key.Index
		list = append(list, res.Value)
	}
	return list, gpus.err == nil
}

func (a *amdGPUs) readUse(gpu amdgpu.GPU) (use collector.GPUUse) {
	m, err := gpu.Memory(a.source.procfs)
	use.Used, use.UsedKnown = m.Used, err == nil
	if gpu.Suspended() {
		use.BusyKnown = true
		return use
	}
	if percent, err := gpu.Number(amdgpu.Busy); err == nil && percent <= 100 {
		use.Busy, use.BusyKnown = percent >= busyPercent, true
	}
	return use
}

// amdDevice is a GPU of AMD.
type amdDevice struct {
	writer
	amd    *amdGPUs
	gpu    amdgpu.GPU
	facts  collector.Facts
	errors collector.Facts
	reset  bool // it was in reset during this read
}

// Close implements [collector.Device]. No file is open between reads.
func (d *amdDevice) Close() {}

// Read implements [collector.Device].
func (d *amdDevice) Read(r *collector.Reading) {
	source := d.amd.source
	d.writer = writer{table: source.table, index: strconv.Itoa(d.gpu.Index), processes: source.processes, out: r}
	d.reset = false
	d.facts.Read(r, d.readFacts)
	shared := d.readMemory()
	if d.processes > 0 {
		d.readProcesses()
	}
	if d.gpu.Suspended() {
		return
	}
	d.number(amdgpu.Busy, 100, d.busy)
	d.number(amdgpu.MemoryBusy, 100, d.memoryBusy)
	d.sensor(d.temperature, nil, amdgpu.TemperatureEdge, amdgpu.TemperatureJunction)
	d.sensor(d.power, nil, amdgpu.PowerInput, amdgpu.PowerAverage)
	d.sensor(d.clock, []string{"graphics"}, amdgpu.ClockGraphics)
	d.sensor(d.clock, []string{"memory"}, amdgpu.ClockMemory)
	// The driver gives 0 for an MI300A (nbio_v7_9_get_pcie_replay_count) and for display adapters without a counter
	// (amdgpu_nbio_get_pcie_replay_count).
	if !shared && !d.gpu.Display {
		d.number(amdgpu.PCIeReplays, 0, d.replays)
	}
	if !d.reset {
		d.errors.Read(r, d.readErrors)
	}
}

// failed records an error, and reports whether there is one. After the first refusal because of a reset, no sensor is
// read.
func (d *amdDevice) failed(err error) bool {
	if errors.Is(err, amdgpu.ErrReset) {
		d.reset = true
		d.out.Fault(&collector.Fault{Device: d.out.Device, Reason: reasonReset, Err: err})
	} else {
		d.out.Fail(err)
	}
	return err != nil
}

// number emits the value of a file of the GPU. most is the largest valid value; 0: any.
func (d *amdDevice) number(name string, most uint64, row *collector.Metric) {
	if d.reset {
		return
	}
	v, err := d.gpu.Number(name)
	if d.failed(err) {
		return
	}
	if most > 0 && v > most {
		d.failInvalid(fmt.Errorf("%s: %d cannot be more than %d", name, v, most))
		return
	}
	d.emit(row, origin(row, name).Value(v))
}

// sensor emits the first of the sensors that the GPU has.
func (d *amdDevice) sensor(row *collector.Metric, labels []string, names ...string) {
	if d.reset {
		return
	}
	v, err := d.gpu.Sensor(names...)
	if !d.failed(err) {
		d.emit(row, origin(row, names[0]).Value(v), labels...)
	}
}

// origin returns the origin of a row with this name.
func origin(row *collector.Metric, name string) collector.Origin {
	return row.From[slices.IndexFunc(row.From, func(o collector.Origin) bool { return o.Name == name })]
}

func (d *amdDevice) readFacts() {
	id := d.gpu.Identity()
	d.emit(d.info, 1, id.UUID, id.Name, d.gpu.PCIAddress, d.amd.finder.Driver())
	compute, memory, err := d.gpu.Modes()
	d.failed(err)
	if compute != "" || memory != "" {
		d.emit(d.partitionInfo, 1, compute, memory)
	}
	ids, err := d.amd.ids(d.gpu)
	if err == nil && len(ids) > 0 {
		d.emit(d.partitions, float64(len(ids)))
	}
}

// readMemory emits the memory, and reports whether the GPU shares that of the machine.
func (d *amdDevice) readMemory() (shared bool) {
	m, err := d.gpu.Memory(d.amd.source.procfs)
	if d.failed(err) {
		return true // unknown
	}
	d.emit(d.memoryTotal, float64(m.Total))
	d.emit(d.memoryFree, float64(m.Free))
	source := sourceAMD
	if m.Shared {
		source = sourceAMDShared
	}
	d.emitUsed(m.Used, source)
	return m.Shared
}

func (d *amdDevice) readProcesses() {
	ids, err := d.amd.ids(d.gpu)
	if err != nil { // in a container without the devices
		d.out.Fault(&collector.Fault{Device: d.out.Device, Reason: sysfs.Reason(err), Expected: true, Err: err})
		return
	}
	if len(ids) == 0 {
		return
	}
	list, err := d.amd.finder.Processes(ids)
	if d.failed(err) {
		return
	}
	var known []nvml.Process
	for _, p := range list {
		known = append(known, nvml.Process{PID: p.PID, Memory: p.Memory})
	}
	slices.SortFunc(known, func(a, b nvml.Process) int {
		return cmp.Or(cmp.Compare(b.Memory, a.Memory), cmp.Compare(a.PID, b.PID))
	})
	d.emit(d.table.processes, float64(len(known)), "known")
	d.emitProcesses(known)
}

func (d *amdDevice) readErrors() {
	e, err := d.gpu.Errors()
	if d.failed(err) {
		return
	}
	d.emit(d.volatileECC, float64(e.Corrected), "corrected")
	d.emit(d.volatileECC, float64(e.Uncorrected), "uncorrected")
	if e.HasDeferred {
		d.emit(d.volatileECC, float64(e.Deferred), "deferred")
	}
}
