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

// ErrAbsent says that the machine has no hardware of this kind: a value, not a
// failure. It is always wrapped, and wraps os.ErrNotExist. A file that vanishes
// while it is read is not ErrAbsent.
var ErrAbsent = fmt.Errorf("no such hardware: %w", os.ErrNotExist)

// ReasonPanic is the reason of a read that panicked.
const ReasonPanic = "panic"

// ReasonNamespace is the reason of a source that only sees processes of its own pid namespace.
const ReasonNamespace = "pid_namespace"

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

// reasoned is an error that knows its reason, such as one of NVML.
type reasoned interface {
	error
	Reason() string
}

// NewFault makes a fault of what went wrong with device. EINVAL, EOPNOTSUPP
// and ENODEV are how a driver says that a port has no such counter, so they are
// expected.
func NewFault(device string, err error) *Fault {
	reason := sysfs.Reason(err)
	if r, ok := errors.AsType[reasoned](err); ok {
		reason = r.Reason()
	}
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
	switch e := err.(type) { //nolint:errorlint // it is the one that takes the tree apart
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
	return []*Fault{NewFault("", err)}
}

// LaneFault is the fault of a device whose lane gave no value.
func LaneFault(device string, state lane.State, err error) *Fault {
	reason := sysfs.ReasonTimeout
	if state == lane.Died {
		reason = ReasonPanic
	}
	return &Fault{Device: device, Reason: reason, Err: err}
}

// FinderFaults turns the error of a finder of rails into faults, one for each
// device that could not be examined.
func FinderFaults(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error }) //nolint:errorlint // it takes a joined error apart
	if !ok {
		return []error{NewFault("", err)}
	}
	var list []error
	for _, e := range joined.Unwrap() {
		if d, ok := errors.AsType[*rail.DeviceError](e); ok {
			list = append(list, NewFault(d.Device, d.Err))
		} else {
			list = append(list, NewFault("", e))
		}
	}
	return list
}
