package collector

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/sysfs"
)

// Kind is what a metric's value means to the one who reads it.
type Kind int

// The kinds of metrics.
const (
	Counter Kind = iota // only grows, except when its device is reset
	Gauge               // goes up and down
	Untyped             // the kernel does not say which
)

// Metric is one row of a source's table, the only place where a metric exists:
// describing, collecting, linting and docs/metrics.md all walk the rows.
type Metric struct {
	Name   string   // without the prefix railscope_
	Help   string   // one sentence: what it counts, and what a rising value means where that helps
	Kind   Kind     //
	Labels []string // names, in the order of Sample.Labels
	From   []Origin // the kernel's names for it; the first that a device has is used
	Ref    string   // where the meaning is written: kernel file, specification
}

// Origin is one of the kernel's counters that a row is made of.
type Origin struct {
	Name      string  // the kernel's name: file name, ethtool string, NVML call
	Scale     float64 // factor to the base unit; 0 means 1
	Bits      int     // width where it is narrower than 64 bits; 0 means 64
	Saturates bool    // stays at its greatest value rather than wrap to 0
}

// Sample is one value of one row.
type Sample struct {
	Metric *Metric
	Labels []string // values for Metric.Labels; not changed by anyone after it was emitted
	Value  float64  // in the base unit
}

// Source is one kind of hardware state.
type Source interface {
	// Name is the source's name in flags and in the source label.
	Name() string
	// Metrics returns the rows, always the same ones.
	Metrics() []*Metric
	// Read emits what can be read now. What cannot is in the error, one
	// [*Fault] each, joined; the two do not exclude each other. It returns an
	// error for which errors.Is(err, ErrAbsent) holds when the machine has no
	// such hardware. It is called by one goroutine at a time and returns in
	// bounded time; emit may be called until it returns, by one goroutine at a
	// time.
	Read(emit func(Sample)) error
}

// ErrAbsent says that the machine has no hardware of this kind: a value, not a
// failure. It is always wrapped, and wraps os.ErrNotExist. A file that vanishes
// while it is read is not ErrAbsent.
var ErrAbsent = fmt.Errorf("no such hardware: %w", os.ErrNotExist)

// Fault is one thing that could not be read.
type Fault struct {
	Device   string // rail device, netdev, bond, GPU; empty for the source as a whole
	Reason   string // one of the sysfs.Reason constants, or a source's own short word
	Expected bool   // an answer that this hardware is known to give; no failure of the source
	Err      error
}

func (f *Fault) Error() string {
	if f.Device == "" {
		return f.Err.Error()
	}
	return f.Device + ": " + f.Err.Error()
}
func (f *Fault) Unwrap() error { return f.Err }

// NewFault makes a fault of what went wrong with device. EINVAL, EOPNOTSUPP
// and ENODEV are how a driver says that a port has no such counter, so they are
// expected.
func NewFault(device string, err error) *Fault {
	reason := sysfs.Reason(err)
	return &Fault{
		Device:   device,
		Reason:   reason,
		Expected: reason == sysfs.ReasonUnsupported || errors.Is(err, unix.ENODEV),
		Err:      err,
	}
}

// Faults takes a joined error apart again. An error that holds no [*Fault] is
// one of its own, without a device.
func Faults(err error) []*Fault {
	if err == nil {
		return nil
	}
	if f, ok := err.(*Fault); ok {
		return []*Fault{f}
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var list []*Fault
		for _, e := range joined.Unwrap() {
			list = append(list, Faults(e)...)
		}
		return list
	}
	var f *Fault
	if errors.As(err, &f) {
		return []*Fault{f}
	}
	return []*Fault{NewFault("", err)}
}
