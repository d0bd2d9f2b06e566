package nvml

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/railscope/railscope/internal/sysfs"
)

// Code is an nvmlReturn_t.
type Code int

// The codes that are used by name, and railscope's own; nvml.h has the rest.
const (
	CodeUninitialized   Code = 1
	CodeInvalidArgument Code = 2
	CodeNotSupported    Code = 3
	CodeNoPermission    Code = 4
	CodeNotFound        Code = 6
	CodeDriverNotLoaded Code = 9
	CodeLibrary         Code = 12 // also: dlopen failed
	CodeNoFunction      Code = 13 // also: the library lacks the symbol
	CodeGPULost         Code = 15
	CodeVersionMismatch Code = 18
	CodeGPUNotFound     Code = 28

	CodeNotBuilt Code = -1 // this binary cannot load a library
	CodeReleased Code = -2 // NVML is released for now; see [Session.Release]
	CodeNoAnswer Code = -3 // a call has not returned
	CodePanic    Code = -4 // the binding panicked on the library's answer
)

// Reasons of errors that are used by name; [Error.Reason] returns others as well.
const (
	ReasonLibrary = "library_not_loaded" // the kernel driver is loaded, libnvidia-ml is not available
	ReasonNoGPU   = "no_gpu"             // there were GPUs, now there is none
	ReasonPanic   = "panic"              // the binding panicked on the library's answer
)

// meanings are the texts of the codes, and the reasons that they are counted under.
var meanings = map[Code]struct{ text, reason string }{
	CodeUninitialized:   {"not initialised", "driver_not_loaded"},
	CodeInvalidArgument: {"invalid argument", "nvml"},
	CodeNotSupported:    {"not supported", sysfs.ReasonUnsupported},
	CodeNoPermission:    {"no permission", sysfs.ReasonPermission},
	CodeDriverNotLoaded: {"the driver is not loaded", "driver_not_loaded"}, // or its device nodes are missing here
	10:                  {"the driver timed out", sysfs.ReasonTimeout},
	CodeLibrary:         {"the library cannot be loaded", ReasonLibrary},
	CodeNoFunction:      {"this driver has no such function", sysfs.ReasonUnsupported},
	CodeGPULost:         {"the GPU is lost", "gpu_lost"}, // it fell off the bus, or cannot be reached
	16:                  {"the GPU must be reset", "reset_required"},
	CodeVersionMismatch: {"driver/library version mismatch", "version_mismatch"},
	21:                  {"no data yet", sysfs.ReasonUnsupported},
	25:                  {"this driver has no such structure", sysfs.ReasonUnsupported},
	26:                  {"no longer supported", sysfs.ReasonUnsupported},
	CodeGPUNotFound:     {"no GPU", ReasonNoGPU},
	CodeNotBuilt:        {"cannot load a library", ReasonLibrary},
	CodeReleased:        {"released for maintenance or after SIGHUP", "released"},
	CodeNoAnswer:        {"", sysfs.ReasonTimeout},
	CodePanic:           {"", ReasonPanic},
}

func (c Code) meaning() (text, reason string) {
	if m, known := meanings[c]; known {
		return m.text, m.reason
	}
	return "NVML error " + strconv.Itoa(int(c)), "nvml"
}

// Error is an answer of NVML other than success.
type Error struct {
	Call string // as in nvml.h
	Code Code
	Err  error // details, such as the text of dlopen; or nil
}

func (e *Error) Error() string {
	text, _ := e.Code.meaning()
	parts := []string{e.Call, text}
	if e.Err != nil {
		parts = append(parts, e.Err.Error())
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ": ")
}

func (e *Error) Unwrap() error { return e.Err }

// Reason is the reason that the error is counted under.
func (e *Error) Reason() string {
	_, reason := e.Code.meaning()
	return reason
}

// CodeOf returns the code of an error of this package, and 0 for any other.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return 0
}

// Absent reports whether err means that there is no driver, no library or no GPU.
func Absent(err error) bool {
	return slices.Contains([]Code{CodeNotBuilt, CodeLibrary, CodeDriverNotLoaded, CodeGPUNotFound}, CodeOf(err))
}

// reopens reports whether err means that NVML must be initialised again: the driver was unloaded, and perhaps replaced.
func reopens(err error) bool {
	return slices.Contains([]Code{CodeUninitialized, CodeDriverNotLoaded, CodeVersionMismatch}, CodeOf(err))
}

// Unreachable reports whether the GPU as a whole cannot be reached: each further call might time out.
func Unreachable(err error) bool { return reopens(err) || CodeOf(err) == CodeGPULost }
