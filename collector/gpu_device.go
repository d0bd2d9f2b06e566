package collector

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/proc"
	"github.com/railscope/railscope/internal/sysfs"
)

// gpuReading is all that one visit to one GPU found.
type gpuReading struct {
	samples []Sample
	faults  []error
}

// gpuReader reads one GPU once.
type gpuReader struct {
	name      string // as in Fault.Device
	device    nvml.Device
	labels    *gpuLabels
	procfs    string
	processes int   // how many processes get a series
	lost      error // why the GPU as a whole cannot be read
	out       gpuReading
}

// gpuLabels are the label values of one GPU that never change.
type gpuLabels struct {
	own       []string     // the index
	fields    [][][]string // as gpuQueries
	throttled [][]string   // as gpuThrottles, then other
}

func newGPULabels(index string) *gpuLabels {
	l := &gpuLabels{own: []string{index}}
	for _, q := range gpuQueries {
		var list [][]string
		for _, f := range q.fields {
			if f.label == "" {
				list = append(list, l.own)
			} else {
				list = append(list, []string{index, f.label})
			}
		}
		l.fields = append(l.fields, list)
	}
	for _, reason := range gpuThrottles {
		l.throttled = append(l.throttled, []string{index, reason})
	}
	l.throttled = append(l.throttled, []string{index, "other"})
	return l
}

// with returns the index followed by further label values.
func (l *gpuLabels) with(values ...string) []string {
	return append([]string{l.own[0]}, values...)
}

// read asks the GPU for everything, and gives up only when the GPU as a whole
// cannot be reached: then each further call might take a timeout of the driver.
func (r *gpuReader) read(driver string) {
	r.out.samples = make([]Sample, 0, 48)
	steps := []func(){
		func() { r.identity(driver) },
		r.memory,
		r.queries,
		r.throttled,
		r.mig,
	}
	for _, step := range steps {
		if step(); r.lost != nil {
			return
		}
	}
}

// expectPermission makes the parent GPU's refusals so far expected: with MIG on,
// NVML gives its figures to privileged callers only, and a container that holds
// an instance is none (nvml.h, "in MIG mode, if device handle is provided").
func (r *gpuReader) expectPermission() {
	for _, f := range Faults(errors.Join(r.out.faults...)) {
		f.Expected = f.Expected || f.Reason == sysfs.ReasonPermission
	}
}

func (r *gpuReader) emit(row *Metric, labels []string, value float64) {
	r.out.samples = append(r.out.samples, Sample{Metric: row, Labels: labels, Value: value})
}

// failed notes an error, and reports whether there is one.
func (r *gpuReader) failed(err error) bool {
	if err == nil {
		return false
	}
	if nvml.Unreachable(err) {
		r.lost = err
	} else {
		r.out.faults = append(r.out.faults, newGPUFault(r.name, err))
	}
	return true
}

// refuse notes a number that cannot be one, and reports whether it did.
func (r *gpuReader) refuse(call string, row *Metric, v, most uint64) bool {
	switch {
	case v == nvml.NotAvailable:
		return r.failed(&nvml.Error{Call: call + ": " + row.Name, Code: nvml.CodeNotSupported})
	case v > most:
		r.out.faults = append(r.out.faults, &Fault{Device: r.name, Reason: sysfs.ReasonInvalid,
			Err: fmt.Errorf("%s: %s: %d cannot be more than %d", call, row.Name, v, most)})
		return true
	}
	return false
}

func (r *gpuReader) identity(driver string) {
	id, err := r.device.Identity()
	r.failed(err)
	if id == (nvml.Identity{}) {
		return
	}
	address, err := pciAddress(id.BusID)
	if err != nil && id.BusID != "" {
		r.out.faults = append(r.out.faults, &Fault{Device: r.name, Reason: sysfs.ReasonInvalid, Err: err})
	}
	r.emit(gpuInfo, r.labels.with(id.UUID, id.Name, address, driver), 1)
}

var busIDs = regexp.MustCompile(`^([0-9a-f]{4,8})(:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])$`)

// pciAddress turns NVML's 0000000F:01:00.0 into sysfs's 000f:01:00.0: the
// domain has four digits, and more only where it needs them.
func pciAddress(busID string) (string, error) {
	m := busIDs.FindStringSubmatch(strings.ToLower(busID))
	if m == nil {
		return "", fmt.Errorf("nvmlDeviceGetPciInfo: %q is no PCI address", busID)
	}
	domain := strings.TrimLeft(m[1], "0")
	return strings.Repeat("0", max(0, 4-len(domain))) + domain + m[2], nil
}

func (r *gpuReader) queries() {
	for i, q := range gpuQueries {
		v, err := r.device.Numbers(q.query)
		if r.failed(err) {
			if r.lost != nil {
				return
			}
			continue
		}
		for j, f := range q.fields {
			most := f.most
			if most == 0 {
				most = nvml.NotAvailable - 1
			}
			if r.refuse(string(q.query), f.row, v[j], most) {
				continue
			}
			r.emit(f.row, r.labels.fields[i][j], f.row.From[0].Value(v[j]))
		}
	}
}

func (r *gpuReader) throttled() {
	v, err := r.device.Numbers(nvml.QueryThrottled)
	if r.failed(err) {
		return
	}
	// Without the list of reasons that the GPU can give, all count as possible.
	possible := uint64(1<<64 - 1)
	if p, err := r.device.Numbers(nvml.QueryThrottles); err == nil {
		possible = p[0]
	}
	now := v[0]
	for bit := range gpuThrottles {
		mask := uint64(1) << bit
		if (possible|now)&mask != 0 {
			r.emit(gpuThrottled, r.labels.throttled[bit], Bool(now&mask != 0))
		}
	}
	r.emit(gpuThrottled, r.labels.throttled[len(gpuThrottles)], Bool(now>>len(gpuThrottles) != 0))
}

// memory emits what the GPU has and uses. Only an answer that says so, not
// supported or a total of nothing, makes it a GPU without memory of its own;
// a symbol that is missing or a permission that is refused does not.
func (r *gpuReader) memory() {
	m, err := r.device.Memory()
	var e *nvml.Error
	shared := err == nil && m.Total == 0 || errors.As(err, &e) && e.Code == nvml.CodeNotSupported
	switch {
	case shared:
		r.failed(err)
		r.sharedMemory()
		return
	case r.failed(err), r.refuse("nvmlDeviceGetMemoryInfo", gpuMemoryTotal, m.Total, nvml.NotAvailable-1):
	default:
		r.emit(gpuMemoryTotal, r.labels.own, float64(m.Total))
		r.part(gpuMemoryFree, r.labels.own, m.Free, m)
		if r.part(gpuMemoryUsed, r.labels.own, m.Used, m) {
			r.emit(gpuMemorySource, r.labels.with(sourceNVML), 1)
		}
		if m.Reserved != nvml.NotAvailable {
			r.part(gpuMemoryReserved, r.labels.own, m.Reserved, m)
		}
	}
	if r.processes > 0 && r.lost == nil {
		r.processMemory()
	}
}

// part emits a part of the memory, and reports whether it could be one.
func (r *gpuReader) part(row *Metric, labels []string, v uint64, of nvml.Memory) bool {
	if r.refuse("nvmlDeviceGetMemoryInfo", row, v, of.Total) {
		return false
	}
	r.emit(row, labels, float64(v))
	return true
}

// sharedMemory emits the memory of a GPU that shares the machine's.
func (r *gpuReader) sharedMemory() {
	system, err := proc.ReadMemory(r.procfs)
	if err != nil {
		r.out.faults = append(r.out.faults, NewFault(r.name, err))
	} else {
		r.emit(gpuMemoryTotal, r.labels.own, float64(system.Total))
		r.emit(gpuMemoryFree, r.labels.own, float64(system.Available))
	}
	sum, usable := r.processMemory()
	switch {
	case usable:
		r.emit(gpuMemoryUsed, r.labels.own, float64(sum))
		r.emit(gpuMemorySource, r.labels.with(sourceProcesses), 1)
	case err == nil:
		r.emit(gpuMemoryUsed, r.labels.own, float64(system.Total-system.Available))
		r.emit(gpuMemorySource, r.labels.with(sourceMeminfo), 1)
	}
}

// processMemory emits what is known of the processes, and returns the sum of
// what they hold. The sum is not usable where processes may be hidden from us,
// nor where the driver does not tell the memory of any.
func (r *gpuReader) processMemory() (sum uint64, usable bool) {
	compute, err := r.device.Processes(false)
	if r.failed(err) {
		return 0, false
	}
	graphics, err := r.device.Processes(true)
	if r.failed(err); r.lost != nil {
		return 0, false
	}
	known, unknown := nvml.SumByProcess(append(compute, graphics...))
	host := proc.SeesHost(r.procfs)
	if host {
		r.emit(gpuProcesses, r.labels.with("known"), float64(len(known)))
		r.emit(gpuProcesses, r.labels.with("unknown"), float64(unknown))
	} else {
		r.out.faults = append(r.out.faults, &Fault{Device: r.name, Reason: ReasonNamespace, Expected: true,
			Err: errors.New("processes outside of our pid namespace may be hidden; share the host's to see them")})
	}
	var rest uint64
	for i, p := range known {
		sum += p.Memory
		switch {
		case r.processes <= 0:
		case i < r.processes:
			r.emit(gpuProcessMemory, r.labels.with(strconv.FormatUint(uint64(p.PID), 10)), float64(p.Memory))
		default:
			rest += p.Memory
		}
	}
	if r.processes > 0 && len(known) > r.processes {
		r.emit(gpuProcessMemory, r.labels.with("other"), float64(rest))
	}
	return sum, host && (len(known) > 0 || unknown == 0)
}

// mig emits the MIG mode, and when it is on the memory of each instance.
func (r *gpuReader) mig() {
	v, err := r.device.Numbers(nvml.QueryMIGMode)
	if r.failed(err) || r.refuse(string(nvml.QueryMIGMode), gpuMIGMode, v[0], 1) {
		return
	}
	r.emit(gpuMIGMode, r.labels.own, float64(v[0]))
	if v[0] == 0 {
		return
	}
	r.expectPermission() // those of the instances come after this
	instances, err := r.device.Instances()
	r.failed(err)
	seen := make(map[[2]int]bool)
	for _, instance := range instances {
		key := [2]int{instance.GPUInstance, instance.ComputeInstance}
		if r.lost != nil || seen[key] {
			continue
		}
		seen[key] = true
		r.instance(instance)
	}
}

func (r *gpuReader) instance(instance nvml.Instance) {
	gi, ci := strconv.Itoa(instance.GPUInstance), strconv.Itoa(instance.ComputeInstance)
	failed := func(err error) bool {
		if err != nil {
			err = fmt.Errorf("MIG device %s/%s: %w", gi, ci, err)
		}
		return r.failed(err)
	}
	id, err := instance.Identity()
	if id.UUID == "" { // it has no PCI address of its own everywhere
		failed(err)
	}
	// The name ends in the profile: NVIDIA H200 MIG 1g.18gb.
	_, profile, _ := strings.Cut(id.Name, " MIG ")
	r.emit(gpuMIGInfo, r.labels.with(gi, ci, id.UUID, profile), 1)
	m, err := instance.Memory()
	if failed(err) || r.refuse("nvmlDeviceGetMemoryInfo", gpuMIGTotal, m.Total, nvml.NotAvailable-1) {
		return
	}
	labels := r.labels.with(gi, ci)
	r.emit(gpuMIGTotal, labels, float64(m.Total))
	r.part(gpuMIGUsed, labels, m.Used, m)
	r.part(gpuMIGFree, labels, m.Free, m)
}
