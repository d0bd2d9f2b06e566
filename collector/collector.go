// Package collector defines metrics, samples and sources, and the code that all sources share. Each source is a
// package below it. Nothing here imports Prometheus, writes to a device or changes a setting.
//
//	kernel, NVML → <source>.Source.Read → Sample{row, labels, value} → exporter
//
// In a source, table.go makes the rows with [Table]. source.go finds the devices and passes their keys to a [Set],
// which opens, reads and closes them. device.go reads one device into a [Reading], and values that rarely change as
// [Facts]. CONTRIBUTING.md describes how to add a counter or a source. The API may change at any time.
package collector

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// Kind is the type of a metric.
type Kind int

// The kinds of metrics.
const (
	Counter   Kind = iota // only increases, until its device is reset
	Gauge                 // may increase and decrease
	Untyped               // the kernel does not document which
	Histogram             // has no samples: the exporter observes it
)

// Metric is one row of a source's table. Every metric is defined in such a row, which the lint test and
// docs/metrics.md use.
type Metric struct {
	Name   string   // without the prefix railscope_
	Help   string   // one sentence: what is counted, and what an increase means where that helps
	Kind   Kind     //
	Labels []string // label names, in the order of Sample.Labels
	From   []Origin // the kernel's counters for it; the first that a device has is used
	Ref    string   // documentation of the value: kernel file, specification
}

// Origin is one of the kernel's counters from which a row is read.
type Origin struct {
	Name      string  // the kernel's name: file name, ethtool string, NVML call
	Scale     float64 // factor to the base unit; 0 means 1
	Bits      int     // width if it is narrower than 64 bits; 0 means 64
	Saturates bool    // stays at its maximum instead of wrapping to 0
}

// Sample is one value of one row.
type Sample struct {
	Metric *Metric
	Labels []string // values for Metric.Labels; must not be modified after the sample was emitted
	Value  float64  // in the base unit
}

// Source is one kind of hardware state.
type Source interface {
	// Name is the source's name in flags and in the source label.
	Name() string
	// Metrics returns the rows, always the same ones.
	Metrics() []*Metric
	// Read emits the samples that can be read now. Failures are returned as one [*Fault] each, joined; samples and
	// an error may occur together. The error wraps [ErrAbsent] if the machine has no such hardware. Read must not
	// be called concurrently. It returns in bounded time, and does not call emit concurrently or after it returned.
	Read(emit func(Sample)) error
}

// GPUUse is the use of a GPU at one moment.
type GPUUse struct {
	Index     int
	Used      uint64 // bytes of memory in use, as gpu_memory_used_bytes
	UsedKnown bool
	Busy      bool // utilization is at least 10 %; if that is unknown: there are compute processes
	BusyKnown bool
}

// ErrAbsent is returned, always wrapped, if the machine has no hardware of this kind, which is not a failure. It
// wraps os.ErrNotExist. A file that vanishes while it is read is not ErrAbsent.
var ErrAbsent = fmt.Errorf("no such hardware: %w", os.ErrNotExist)

// Reasons of faults, in addition to those of package sysfs.
const (
	ReasonPanic     = "panic"         // the read panicked
	ReasonNamespace = "pid_namespace" // the source sees only the processes of its own PID namespace
)

// Fault is one thing that could not be read.
type Fault struct {
	Device   string // rail device, netdev, bond or GPU; empty for the whole source
	Reason   string // one of the sysfs.Reason constants, or a source's own short word
	Expected bool   // known behaviour of this hardware: not a failure of the source
	Err      error
}

func (f *Fault) Error() string {
	if f.Device == "" {
		return f.Err.Error()
	}
	return f.Device + ": " + f.Err.Error()
}
func (f *Fault) Unwrap() error { return f.Err }

// NewFault returns the fault for an error of device. EINVAL, EOPNOTSUPP and ENODEV are expected: the port has no
// such value.
func NewFault(device string, err error) *Fault {
	reason := sysfs.Reason(err)
	if r, ok := errors.AsType[interface {
		error
		Reason() string
	}](err); ok { // for example an NVML error
		reason = r.Reason()
	}
	expected := reason == sysfs.ReasonUnsupported || errors.Is(err, unix.ENODEV)
	return &Fault{Device: device, Reason: reason, Expected: expected, Err: err}
}

// Faults splits a joined error into its faults. Another error becomes a fault of its rail device, or of no device.
func Faults(err error) []*Fault {
	switch e := err.(type) { //nolint:errorlint // it takes the tree apart
	case nil:
		return nil
	case *Fault:
		return []*Fault{e}
	case interface{ Unwrap() []error }:
		var list []*Fault
		for _, one := range e.Unwrap() {
			list = append(list, Faults(one)...)
		}
		return list
	}
	if f, ok := errors.AsType[*Fault](err); ok {
		return []*Fault{f}
	}
	if d, ok := errors.AsType[*rail.DeviceError](err); ok {
		return []*Fault{NewFault(d.Device, d.Err)}
	}
	return []*Fault{NewFault("", err)}
}

// LaneFault returns the fault of a device whose lane returned no value.
func LaneFault(device string, state lane.State, err error) *Fault {
	reason := sysfs.ReasonTimeout
	if state == lane.Died {
		reason = ReasonPanic
	}
	return &Fault{Device: device, Reason: reason, Err: err}
}

// Rails calls find, and returns a fault if find returns an error. The rdma source reports single devices that
// failed.
func Rails(find func() ([]rail.Rail, error)) (rails []rail.Rail, faults []error) {
	rails, err := find()
	if len(rails) == 0 && err != nil && !errors.Is(err, os.ErrNotExist) {
		faults = append(faults, NewFault("", fmt.Errorf("find the rails: %w", err)))
	}
	return rails, faults
}

// Table holds the rows of a source, in the order in which they are described. A source makes it once:
//
//	port := t.Group(refABI, "rail", "device", "port")
//	t.up = port.Gauge("port_up", "1 while the port is ACTIVE, 0 in any other state.", "state")
//	t.mtu = port.With("kind").Gauge("port_mtu_bytes", "…", "mtu")
type Table struct {
	Source string // the source's name
	rows   []*Metric
}

// Name implements [Source].
func (t *Table) Name() string { return t.Source }

// Metrics implements [Source].
func (t *Table) Metrics() []*Metric { return t.rows }

// Group starts a group of rows that have labels in common. ref is the documentation of their values.
func (t *Table) Group(ref string, labels ...string) Group {
	return Group{table: t, ref: ref, labels: labels}
}

// Group adds rows with common labels and a common reference to a table.
type Group struct {
	table  *Table
	ref    string
	labels []string
	from   []Origin
}

// With returns the group with more labels.
func (g Group) With(labels ...string) Group {
	g.labels = slices.Concat(g.labels, labels)
	return g
}

// Ref returns the group with another reference.
func (g Group) Ref(ref string) Group {
	g.ref = ref
	return g
}

// From returns the group with origins that precede the names of each row.
func (g Group) From(origins ...Origin) Group {
	g.from = slices.Concat(g.from, origins)
	return g
}

// Scaled is like [Group.From] with one counter that scale converts to the base unit.
func (g Group) Scaled(scale float64, name string) Group {
	return g.From(Origin{Name: name, Scale: scale})
}

// Counter adds a row of values that only increase; its name ends in _total. from are the kernel's names for 64-bit
// numbers in the base unit; the first that a device has is used. The other methods that add rows take the same
// arguments.
func (g Group) Counter(name, help string, from ...string) *Metric {
	return g.Row(Counter, name, help, from...)
}

// Gauge adds a row of values that may increase and decrease.
func (g Group) Gauge(name, help string, from ...string) *Metric {
	return g.Row(Gauge, name, help, from...)
}

// Row adds a row of any kind.
func (g Group) Row(kind Kind, name, help string, from ...string) *Metric {
	m := &Metric{Name: name, Help: help, Kind: kind, Labels: g.labels, From: slices.Clone(g.from), Ref: g.ref}
	for _, name := range from {
		m.From = append(m.From, Origin{Name: name})
	}
	g.table.rows = append(g.table.rows, m)
	return m
}

// Value converts the kernel's number to the base unit. It divides by a scale below 1: 3 µs are 3e-06, not 2.99…97e-06.
func (o Origin) Value(raw uint64) float64 {
	switch {
	case o.Scale == 0:
		return float64(raw)
	case o.Scale < 1:
		return float64(raw) / math.Round(1/o.Scale)
	}
	return float64(raw) * o.Scale
}

// RailLabels returns the label values of each rail: its name, then others. rails holds one name per line.
func RailLabels(rails string, others ...string) (list [][]string) {
	for name := range strings.SplitSeq(rails, "\n") {
		list = append(list, slices.Concat([]string{name}, others))
	}
	return list
}

// Bool returns 1 for true and 0 for false.
func Bool(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
