package collector

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/railscope/railscope/internal/lane"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// ErrAbsent means that the machine has no hardware of this kind, which is not a failure. It is always wrapped, and
// wraps os.ErrNotExist. A file that vanishes while it is read is not ErrAbsent.
var ErrAbsent = fmt.Errorf("no such hardware: %w", os.ErrNotExist)

// Reasons of faults, beside those of package sysfs.
const (
	ReasonPanic     = "panic"         // the read panicked
	ReasonNamespace = "pid_namespace" // the source only sees processes of its own pid namespace
)

// Fault is one thing that could not be read.
type Fault struct {
	Device   string // rail device, netdev, bond, GPU; empty for the source as a whole
	Reason   string // one of the sysfs.Reason constants, or a source's own short word
	Expected bool   // this hardware is known to answer so: not a failure of the source
	Err      error
}

func (f *Fault) Error() string {
	if f.Device == "" {
		return f.Err.Error()
	}
	return f.Device + ": " + f.Err.Error()
}
func (f *Fault) Unwrap() error { return f.Err }

// NewFault makes a fault of an error of device. EINVAL, EOPNOTSUPP and ENODEV are expected: the port has no such value.
func NewFault(device string, err error) *Fault {
	reason := sysfs.Reason(err)
	if r, ok := errors.AsType[interface {
		error
		Reason() string
	}](err); ok { // such as an error of NVML
		reason = r.Reason()
	}
	expected := reason == sysfs.ReasonUnsupported || errors.Is(err, unix.ENODEV)
	return &Fault{Device: device, Reason: reason, Expected: expected, Err: err}
}

// Faults splits a joined error into its faults. Any other error is one of the rail device or, without one, of none.
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

// LaneFault is the fault of a device whose lane returned no value.
func LaneFault(device string, state lane.State, err error) *Fault {
	reason := sysfs.ReasonTimeout
	if state == lane.Died {
		reason = ReasonPanic
	}
	return &Fault{Device: device, Reason: reason, Err: err}
}

// Rails calls find, and returns a fault if there is none. The rdma source reports single devices that failed.
func Rails(find func() ([]rail.Rail, error)) (rails []rail.Rail, faults []error) {
	rails, err := find()
	if len(rails) == 0 && err != nil && !errors.Is(err, os.ErrNotExist) {
		faults = append(faults, NewFault("", fmt.Errorf("find the rails: %w", err)))
	}
	return rails, faults
}
