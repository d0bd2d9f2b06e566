// Package nvml wraps NVIDIA's management library: one [Session] per process opens and closes it, and each user has
// a [Reader], whose calls may hang without blocking another GPU or user.
package nvml

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/railscope/railscope/internal/sysfs"
)

// Library is the part of libnvidia-ml that is used. Every method may hang. Between Open and Close, the other
// methods may be called concurrently; at other times they must not be called. Errors are [*Error].
type Library interface {
	// Open loads the library from disk, and initializes it; after an error nothing is loaded.
	Open() error
	// Close shuts NVML down, which closes the device files of the driver, and unloads the library.
	Close()
	// Driver returns the version of the kernel driver.
	Driver() (string, error)
	// Count returns the number of GPUs that the driver knows, including lost ones.
	Count() (int, error)
	// GPU returns the GPU with an index below Count.
	GPU(index int) (Device, error)
}

// Device is a GPU or a MIG instance. Each method queries one thing; an error does not affect the others. Errors are
// [*Error].
type Device interface {
	Identity() (Identity, error)
	Memory() (Memory, error)
	// Numbers answers one query: the fields in the order that its constant describes, in NVML's own units, followed
	// by zeros.
	Numbers(Query) ([4]uint64, error)
	// Processes returns compute or graphics processes. A process with several MIG instances occurs once for each.
	Processes(graphics bool) ([]Process, error)
	// Instances returns the MIG devices of a GPU whose MIG mode is on.
	Instances() ([]Instance, error)
	// XIDs starts to record the XIDs of a GPU. The events must be freed before the library is closed.
	XIDs() (Events, error)
}

// Identity identifies a GPU. Values that the driver did not report are empty.
type Identity struct {
	UUID  string
	Name  string
	BusID string // in NVML's form, for example 00000000:1A:00.0
}

// Memory is the memory of a GPU or a MIG instance, in bytes.
type Memory struct {
	Total, Free, Used uint64
	Reserved          uint64 // NotAvailable if the driver has only nvmlDeviceGetMemoryInfo; Used then includes it
}

// Process is the memory that a process uses on a GPU or MIG instance.
type Process struct {
	PID                          uint32
	GPUInstance, ComputeInstance uint32 // 1<<32-1 without MIG
	Memory                       uint64 // bytes; NotAvailable if the driver does not report it
}

// Instance is one MIG device.
type Instance struct {
	GPUInstance, ComputeInstance int
	Device
}

// NotAvailable is NVML_VALUE_NOT_AVAILABLE: a missing number in an otherwise valid answer.
const NotAvailable = 1<<64 - 1

// Query is a query for numbers: the call of nvml.h, and its argument if it has one.
type Query string

// Queries with their fields and units.
const (
	QueryUtilization  Query = "nvmlDeviceGetUtilizationRates"                       // gpu, memory: percent
	QueryBAR1         Query = "nvmlDeviceGetBAR1MemoryInfo"                         // total, used: bytes
	QueryECCCorrected Query = "nvmlDeviceGetTotalEccErrors(CORRECTED, AGGREGATE)"   // errors
	QueryECCUncorr    Query = "nvmlDeviceGetTotalEccErrors(UNCORRECTED, AGGREGATE)" // errors
	QueryECCVolatile  Query = "nvmlDeviceGetTotalEccErrors(CORRECTED, VOLATILE)"    // errors
	QueryECCVolUncorr Query = "nvmlDeviceGetTotalEccErrors(UNCORRECTED, VOLATILE)"  // errors
	// rows by cause (2), pending, failure
	QueryRemappedRows  Query = "nvmlDeviceGetRemappedRows"
	QueryPCIeReplays   Query = "nvmlDeviceGetPcieReplayCounter"           // replays
	QueryTemperature   Query = "nvmlDeviceGetTemperature"                 // degrees Celsius
	QueryPower         Query = "nvmlDeviceGetPowerUsage"                  // milliwatts
	QueryClockSM       Query = "nvmlDeviceGetClockInfo(SM)"               // megahertz
	QueryClockMemory   Query = "nvmlDeviceGetClockInfo(MEM)"              // megahertz
	QueryClockGraphics Query = "nvmlDeviceGetClockInfo(GRAPHICS)"         // megahertz
	QueryThrottled     Query = "nvmlDeviceGetCurrentClocksEventReasons"   // bit mask
	QueryThrottles     Query = "nvmlDeviceGetSupportedClocksEventReasons" // bit mask
	QueryMIGMode       Query = "nvmlDeviceGetMigMode"                     // current, pending: 0 or 1
)

// SumByProcess adds up the memory of each process, the largest first, and counts the processes whose memory is unknown.
// A process in both lists of a GPU counts once; one with several MIG instances uses the sum of them.
func SumByProcess(list []Process) (known []Process, unknown int) {
	parts := make(map[[3]uint32]uint64)
	for _, p := range list {
		key := [3]uint32{p.PID, p.GPUInstance, p.ComputeInstance}
		parts[key] = max(parts[key], p.Memory)
	}
	sums, hidden := make(map[uint32]uint64), make(map[uint32]bool)
	for key, memory := range parts {
		sums[key[0]] += memory
		hidden[key[0]] = hidden[key[0]] || memory == NotAvailable
	}
	for pid, sum := range sums {
		if hidden[pid] {
			unknown++
		} else {
			known = append(known, Process{PID: pid, Memory: sum})
		}
	}
	slices.SortFunc(known, func(a, b Process) int {
		return cmp.Or(cmp.Compare(b.Memory, a.Memory), cmp.Compare(a.PID, b.PID))
	})
	return known, unknown
}

// Code is an nvmlReturn_t.
type Code int

// Codes that are used by name, and railscope's own; nvml.h has the rest.
const (
	CodeUninitialized   Code = 1
	CodeInvalidArgument Code = 2
	CodeNotSupported    Code = 3
	CodeNoPermission    Code = 4
	CodeNotFound        Code = 6
	CodeDriverNotLoaded Code = 9
	CodeLibrary         Code = 12 // also if dlopen failed
	CodeNoFunction      Code = 13 // also if the library lacks the symbol
	CodeGPULost         Code = 15
	CodeVersionMismatch Code = 18
	CodeGPUNotFound     Code = 28

	CodeNotBuilt Code = -1 // this binary cannot load a library
	CodeReleased Code = -2 // NVML is released for now; see [Session.Release]
	CodeNoAnswer Code = -3 // a call has not returned
	CodePanic    Code = -4 // the binding panicked on the library's answer
)

// Reasons of errors that are used by name; [Error.Reason] returns others, too.
const (
	ReasonLibrary = "library_not_loaded" // the kernel driver is loaded, but libnvidia-ml is not available
	ReasonNoGPU   = "no_gpu"             // there were GPUs, and now there are none
	ReasonPanic   = "panic"              // the binding panicked on the library's answer
)

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

// Error is an NVML result other than success.
type Error struct {
	Call string // name of the call in nvml.h
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

// Reason returns the reason under which the error is counted.
func (e *Error) Reason() string {
	_, reason := e.Code.meaning()
	return reason
}

// CodeOf returns the code of an error of this package, and 0 for any other error.
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

// reopens reports whether err requires NVML to be initialized again: the driver was unloaded, and may have been
// replaced.
func reopens(err error) bool {
	return slices.Contains([]Code{CodeUninitialized, CodeDriverNotLoaded, CodeVersionMismatch}, CodeOf(err))
}

// Unreachable reports whether the whole GPU cannot be reached: each further call might time out.
func Unreachable(err error) bool { return reopens(err) || CodeOf(err) == CodeGPULost }
