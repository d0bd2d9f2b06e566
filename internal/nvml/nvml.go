// Package nvml is this process's use of NVIDIA's management library: one [Session], which opens and closes it, and a
// [Reader] for each user, whose calls may hang without blocking another GPU or user.
package nvml

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/railscope/railscope/internal/sysfs"
)

// Library is the part of libnvidia-ml that is used. Every method may hang. Between Open and Close the others may be
// called concurrently; at any other time, none may. Errors are [*Error].
type Library interface {
	// Open loads the library as it is on disk now, and initialises it; after an error nothing is loaded.
	Open() error
	// Close shuts NVML down, which closes the device files of the driver, and unloads the library.
	Close()
	// Driver returns the version of the kernel driver.
	Driver() (string, error)
	// Count returns how many GPUs the driver knows, including lost ones.
	Count() (int, error)
	// GPU returns the GPU with an index below Count.
	GPU(index int) (Device, error)
}

// Device is a GPU or a MIG instance. Each method queries one thing: an error costs nothing else. Errors are [*Error].
type Device interface {
	Identity() (Identity, error)
	Memory() (Memory, error)
	// Numbers answers one query: the fields in the order its constant says, in NVML's own units, 0 beyond the last.
	Numbers(Query) ([4]uint64, error)
	// Processes returns compute or graphics processes, one with several MIG instances once for each.
	Processes(graphics bool) ([]Process, error)
	// Instances returns the MIG devices of a GPU whose MIG mode is on.
	Instances() ([]Instance, error)
	// XIDs starts to record the XIDs of a GPU, until the events are freed, which must be before the library is closed.
	XIDs() (Events, error)
}

// Identity identifies a GPU. What the driver did not report is empty.
type Identity struct {
	UUID  string
	Name  string
	BusID string // as NVML writes it, for example 00000000:1A:00.0
}

// Memory is the memory of a GPU or a MIG instance, in bytes.
type Memory struct {
	Total, Free, Used uint64
	Reserved          uint64 // NotAvailable if the driver only has nvmlDeviceGetMemoryInfo; Used then includes it
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

// NotAvailable is NVML_VALUE_NOT_AVAILABLE: no such number, in an otherwise valid answer.
const NotAvailable = 1<<64 - 1

// Query is one query with numbers as the answer: the call of nvml.h, and its argument if it has one.
type Query string

// The queries, with their fields and units.
const (
	QueryUtilization  Query = "nvmlDeviceGetUtilizationRates"                       // gpu, memory: percent
	QueryBAR1         Query = "nvmlDeviceGetBAR1MemoryInfo"                         // total, used, free: bytes
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
