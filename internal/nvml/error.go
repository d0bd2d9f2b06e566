package nvml

import (
	"errors"
	"strconv"

	"github.com/railscope/railscope/internal/sysfs"
)

// Code is an nvmlReturn_t.
type Code int

// The codes that decide something here; nvml.h has the rest.
const (
	CodeUninitialized   Code = 1
	CodeInvalidArgument Code = 2
	CodeNotSupported    Code = 3
	CodeNoPermission    Code = 4
	CodeNotFound        Code = 6
	CodeDriverNotLoaded Code = 9
	CodeTimeout         Code = 10
	CodeLibrary         Code = 12 // also: dlopen failed
	CodeNoFunction      Code = 13 // also: the library lacks the symbol
	CodeGPULost         Code = 15
	CodeResetRequired   Code = 16
	CodeVersionMismatch Code = 18
	CodeNoData          Code = 21
	CodeStructVersion   Code = 25
	CodeDeprecated      Code = 26
	CodeGPUNotFound     Code = 28

	// Of railscope's own.
	CodeNotBuilt Code = -1 // this binary cannot load a library
	CodeReleased Code = -2 // NVML is released for now; see [Session.Release]
	CodeNoAnswer Code = -3 // a call has not returned
	CodePanic    Code = -4 // the binding panicked on what the library answered
)

// Reasons of errors, beside those of package sysfs.
const (
	ReasonGPULost         = "gpu_lost"           // fell off the bus, or cannot be reached
	ReasonResetRequired   = "reset_required"     // the GPU works again only after a reset
	ReasonDriverNotLoaded = "driver_not_loaded"  // the kernel driver went away, or its device nodes are not here
	ReasonLibrary         = "library_not_loaded" // the kernel driver is loaded, libnvidia-ml is not to be had
	ReasonVersionMismatch = "version_mismatch"   // library and kernel driver are of different versions
	ReasonNoGPU           = "no_gpu"             // there were GPUs, now there is none
	ReasonReleased        = "released"           // NVML is released for maintenance or after SIGHUP
	ReasonPanic           = "panic"              // the binding panicked on what the library answered
	ReasonNVML            = "nvml"               // any other answer of NVML
)

// meaning is one code as a person reads it and as it is counted.
var meaning = map[Code]struct{ text, reason string }{
	CodeUninitialized:   {"not initialised", ReasonDriverNotLoaded},
	CodeInvalidArgument: {"invalid argument", ReasonNVML},
	CodeNotSupported:    {"not supported", sysfs.ReasonUnsupported},
	CodeNoPermission:    {"no permission", sysfs.ReasonPermission},
	CodeDriverNotLoaded: {"the driver is not loaded", ReasonDriverNotLoaded},
	CodeTimeout:         {"the driver timed out", sysfs.ReasonTimeout},
	CodeLibrary:         {"the library cannot be loaded", ReasonLibrary},
	CodeNoFunction:      {"this driver has no such function", sysfs.ReasonUnsupported},
	CodeGPULost:         {"the GPU is lost", ReasonGPULost},
	CodeResetRequired:   {"the GPU must be reset", ReasonResetRequired},
	CodeVersionMismatch: {"driver/library version mismatch", ReasonVersionMismatch},
	CodeNoData:          {"no data yet", sysfs.ReasonUnsupported},
	CodeStructVersion:   {"this driver has no such structure", sysfs.ReasonUnsupported},
	CodeDeprecated:      {"no longer supported", sysfs.ReasonUnsupported},
	CodeGPUNotFound:     {"no GPU", ReasonNoGPU},
	CodeNotBuilt:        {"cannot load a library", ReasonLibrary},
	CodeReleased:        {"released for maintenance or after SIGHUP", ReasonReleased},
	CodeNoAnswer:        {"", sysfs.ReasonTimeout},
	CodePanic:           {"", ReasonPanic},
}

// Error is an answer of NVML other than success.
type Error struct {
	Call string // as in nvml.h
	Code Code
	Err  error // more than the code says, such as the text of dlopen; or nil
}

func (e *Error) Error() string {
	m, known := meaning[e.Code]
	if !known {
		m.text = "NVML error " + strconv.Itoa(int(e.Code))
	}
	text := e.Call
	if m.text != "" {
		text += ": " + m.text
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e *Error) Unwrap() error { return e.Err }

// Reason is the word that the error is counted under.
func (e *Error) Reason() string {
	if m, ok := meaning[e.Code]; ok {
		return m.reason
	}
	return ReasonNVML
}

// CodeOf returns the code of an error of this package, and 0 for any other.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return 0
}

// Absent reports whether err says that there is no driver, no library or no GPU.
func Absent(err error) bool {
	switch CodeOf(err) {
	case CodeNotBuilt, CodeLibrary, CodeDriverNotLoaded, CodeGPUNotFound:
		return true
	}
	return false
}

// reopens reports whether err says that NVML must be initialised again: the driver was unloaded, and perhaps replaced.
func reopens(err error) bool {
	switch CodeOf(err) {
	case CodeUninitialized, CodeDriverNotLoaded, CodeVersionMismatch:
		return true
	}
	return false
}

// Unreachable reports whether err says that the GPU as a whole cannot be reached, so that each further call might take
// a timeout of the driver.
func Unreachable(err error) bool { return reopens(err) || CodeOf(err) == CodeGPULost }
