package gpu

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/nvml"
	"github.com/railscope/railscope/internal/sysfs"
)

// reading is what reading one GPU found.
type reading struct {
	samples []collector.Sample
	faults  []error
}

// device is one GPU while it is read.
type device struct {
	nvml.GPU
	*table
	index  string // the label gpu
	procfs string
	limit  int   // how many processes get a series
	lost   error // why the GPU as a whole cannot be read
	out    reading
}

func (s *Source) newDevice(gpu nvml.GPU) *device {
	return &device{GPU: gpu, table: s.table, index: strconv.Itoa(gpu.Index), procfs: s.procfs,
		limit: s.opts.Processes}
}

// readGPU reads one GPU, and gives up only when the GPU as a whole cannot be reached.
func (s *Source) readGPU(gpu nvml.GPU) (reading, error) {
	d := s.newDevice(gpu)
	d.out.samples = make([]collector.Sample, 0, 48)
	for _, step := range []func(){d.identity, d.memory, d.numbers, d.throttling, d.mig} {
		if step(); d.lost != nil {
			break
		}
	}
	return d.out, d.lost
}

// emit adds a sample; labels are those after gpu.
func (d *device) emit(row *collector.Metric, value float64, labels ...string) {
	labels = append([]string{d.index}, labels...)
	d.out.samples = append(d.out.samples, collector.Sample{Metric: row, Labels: labels, Value: value})
}

func (d *device) fault(err error) *collector.Fault {
	f := collector.NewFault("gpu"+d.index, err)
	d.out.faults = append(d.out.faults, f)
	return f
}

// failed records an error, and reports whether there is one.
func (d *device) failed(err error) bool {
	switch {
	case err == nil:
		return false
	case nvml.Unreachable(err):
		d.lost = err
	default:
		_ = d.fault(err)
	}
	return true
}

// invalid records a number that is impossible, and reports whether it is.
func (d *device) invalid(call string, row *collector.Metric, v, most uint64) bool {
	switch {
	case v == nvml.NotAvailable:
		return d.failed(&nvml.Error{Call: call + ": " + row.Name, Code: nvml.CodeNotSupported})
	case v > most:
		err := fmt.Errorf("%s: %s: %d cannot be more than %d", call, row.Name, v, most)
		d.fault(err).Reason = sysfs.ReasonInvalid
		return true
	}
	return false
}

func (d *device) identity() {
	id, err := d.Identity()
	d.failed(err)
	if id == (nvml.Identity{}) {
		return
	}
	address, err := pciAddress(id.BusID)
	if err != nil && id.BusID != "" {
		d.fault(err).Reason = sysfs.ReasonInvalid
	}
	d.emit(d.info, 1, id.UUID, id.Name, address, d.Driver)
}

var busIDs = regexp.MustCompile(`^([0-9a-f]{4,8})(:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])$`)

// pciAddress turns NVML's 0000000F:01:00.0 into sysfs's 000f:01:00.0: the domain has four digits, and more only where
// it needs them.
func pciAddress(busID string) (string, error) {
	m := busIDs.FindStringSubmatch(strings.ToLower(busID))
	if m == nil {
		return "", fmt.Errorf("nvmlDeviceGetPciInfo: invalid PCI address %q", busID)
	}
	domain := strings.TrimLeft(m[1], "0")
	return strings.Repeat("0", max(0, 4-len(domain))) + domain + m[2], nil
}

// numbers emits what one query each answers.
func (d *device) numbers() {
	for _, q := range d.queries {
		v, err := d.Numbers(q.Query)
		if d.failed(err) {
			if d.lost != nil {
				return
			}
			continue
		}
		for i, f := range q.fields {
			if d.invalid(string(q.Query), f.row, v[i], f.most) {
				continue
			}
			value := f.row.From[0].Value(v[i])
			if f.label == "" {
				d.emit(f.row, value)
			} else {
				d.emit(f.row, value, f.label)
			}
		}
	}
}

func (d *device) throttling() {
	v, err := d.Numbers(nvml.QueryThrottled)
	if d.failed(err) {
		return
	}
	// Without the list of reasons that the GPU can give, all count as possible.
	possible := uint64(1<<64 - 1)
	if p, err := d.Numbers(nvml.QueryThrottles); err == nil {
		possible = p[0]
	}
	now, reasons := v[0], throttleReasons()
	for bit, reason := range reasons {
		if mask := uint64(1) << bit; (possible|now)&mask != 0 {
			d.emit(d.throttled, collector.Bool(now&mask != 0), reason)
		}
	}
	d.emit(d.throttled, collector.Bool(now>>len(reasons) != 0), "other")
}

// mig emits the MIG mode, and when it is on the memory of each instance.
func (d *device) mig() {
	v, err := d.Numbers(nvml.QueryMIGMode)
	if d.failed(err) || d.invalid(string(nvml.QueryMIGMode), d.migMode, v[0], 1) {
		return
	}
	d.emit(d.migMode, float64(v[0]))
	if v[0] == 0 {
		return
	}
	// With MIG on, NVML gives the figures of the GPU itself to privileged callers only, and a container that holds an
	// instance is none (nvml.h, "in MIG mode, if device handle is provided").
	for _, f := range collector.Faults(errors.Join(d.out.faults...)) {
		f.Expected = f.Expected || f.Reason == sysfs.ReasonPermission
	}
	instances, err := d.Instances()
	d.failed(err)
	seen := make(map[[2]int]bool)
	for _, instance := range instances {
		key := [2]int{instance.GPUInstance, instance.ComputeInstance}
		if d.lost != nil || seen[key] {
			continue
		}
		seen[key] = true
		d.instance(instance)
	}
}

// instance emits what is known of a MIG instance.
func (d *device) instance(instance nvml.Instance) {
	gi, ci := strconv.Itoa(instance.GPUInstance), strconv.Itoa(instance.ComputeInstance)
	failed := func(err error) bool {
		if err != nil {
			err = fmt.Errorf("MIG device %s/%s: %w", gi, ci, err)
		}
		return d.failed(err)
	}
	id, err := instance.Identity()
	if id.UUID == "" { // it has no PCI address of its own everywhere
		failed(err)
	}
	// The name ends in the profile: NVIDIA H200 MIG 1g.18gb.
	_, profile, _ := strings.Cut(id.Name, " MIG ")
	d.emit(d.migInfo, 1, gi, ci, id.UUID, profile)
	m, err := instance.Memory()
	if failed(err) || d.invalid(memoryCall, d.migTotal, m.Total, nvml.NotAvailable-1) {
		return
	}
	d.emit(d.migTotal, float64(m.Total), gi, ci)
	d.part(d.migUsed, m.Used, m, gi, ci)
	d.part(d.migFree, m.Free, m, gi, ci)
}
