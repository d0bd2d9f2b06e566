package nvml

import (
	"fmt"
	"strconv"

	"github.com/railscope/railscope/internal/sysfs"
)

// NVML is what the gpu source needs of NVIDIA's management library. Every
// method may hang in the driver. After an Open that succeeded the others may be
// called side by side; before it, and while Open runs, none may.
type Library interface {
	// Open loads the library where it is not loaded and initialises it; a second
	// Open ends the first initialisation before it begins anew. Errors are
	// [*Error].
	Open() error
	// Driver returns the version of the kernel driver. Errors are [*Error].
	Driver() (string, error)
	// Count returns how many GPUs the driver knows, those that are lost
	// included. Errors are [*Error].
	Count() (int, error)
	// GPU returns the GPU with an index below Count. Errors are [*Error].
	GPU(index int) (Device, error)
}

// Device is one GPU, or one MIG instance of it. Each method asks for one
// thing, so that what a GPU does not have takes nothing else with it. All
// errors are [*Error].
type Device interface {
	Identity() (Identity, error)
	Memory() (Memory, error)
	// Numbers answers one query: the fields in the order its constant says, in
	// NVML's own units, 0 beyond the last.
	Numbers(Query) ([4]uint64, error)
	// Processes returns the compute processes, or the graphics processes. A
	// process with several MIG instances is there once for each.
	Processes(graphics bool) ([]Process, error)
	// Instances returns the MIG devices of a GPU whose MIG mode is on.
	Instances() ([]Instance, error)
}

// Identity says which GPU it is. What the driver did not say is empty.
type Identity struct {
	UUID  string
	Name  string
	BusID string // as NVML writes it, for example 00000000:1A:00.0
}

// Memory is the memory of a GPU or a MIG instance, in bytes.
type Memory struct {
	Total, Free, Used uint64
	Reserved          uint64 // NotAvailable where the driver has only nvmlDeviceGetMemoryInfo; Used then contains it
}

// Process is what one process holds of one GPU or MIG instance.
type Process struct {
	PID                          uint32
	GPUInstance, ComputeInstance uint32 // 1<<32-1 without MIG
	Memory                       uint64 // bytes; NotAvailable where the driver cannot say
}

// Instance is one MIG device.
type Instance struct {
	GPUInstance, ComputeInstance int
	Device
}

// NotAvailable is NVML_VALUE_NOT_AVAILABLE, NVML's "no such number" inside an
// answer that is otherwise good.
const NotAvailable = 1<<64 - 1

// Query is one question that numbers answer: the call of nvml.h, and its
// argument where it has one.
type Query string

// The queries, with their fields and units.
const (
	QueryUtilization   Query = "nvmlDeviceGetUtilizationRates"                       // gpu, memory: percent
	QueryBAR1          Query = "nvmlDeviceGetBAR1MemoryInfo"                         // total, used, free: bytes
	QueryECCCorrected  Query = "nvmlDeviceGetTotalEccErrors(CORRECTED, AGGREGATE)"   // errors
	QueryECCUncorr     Query = "nvmlDeviceGetTotalEccErrors(UNCORRECTED, AGGREGATE)" // errors
	QueryECCVolatile   Query = "nvmlDeviceGetTotalEccErrors(CORRECTED, VOLATILE)"    // errors
	QueryECCVolUncorr  Query = "nvmlDeviceGetTotalEccErrors(UNCORRECTED, VOLATILE)"  // errors
	QueryRemappedRows  Query = "nvmlDeviceGetRemappedRows"                           // correctable, uncorrectable: rows; pending, failure: 0 or 1
	QueryPCIeReplays   Query = "nvmlDeviceGetPcieReplayCounter"                      // replays
	QueryTemperature   Query = "nvmlDeviceGetTemperature"                            // degrees Celsius
	QueryPower         Query = "nvmlDeviceGetPowerUsage"                             // milliwatts
	QueryClockSM       Query = "nvmlDeviceGetClockInfo(SM)"                          // megahertz
	QueryClockMemory   Query = "nvmlDeviceGetClockInfo(MEM)"                         // megahertz
	QueryClockGraphics Query = "nvmlDeviceGetClockInfo(GRAPHICS)"                    // megahertz
	QueryThrottled     Query = "nvmlDeviceGetCurrentClocksEventReasons"              // bit mask
	QueryThrottles     Query = "nvmlDeviceGetSupportedClocksEventReasons"            // bit mask
	QueryMIGMode       Query = "nvmlDeviceGetMigMode"                                // current, pending: 0 or 1
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

	CodeNotBuilt Code = -1 // none of NVML's: this binary cannot load a library
)

// Reasons of the gpu source's own, beside those of package sysfs.
const (
	ReasonGPULost         = "gpu_lost"           // fell off the bus, or cannot be reached
	ReasonResetRequired   = "reset_required"     // the GPU works again only after a reset
	ReasonDriverNotLoaded = "driver_not_loaded"  // the kernel driver went away, or its device nodes are not here
	ReasonLibrary         = "library_not_loaded" // the kernel driver is loaded, libnvidia-ml is not to be had
	ReasonVersionMismatch = "version_mismatch"   // library and kernel driver are of different versions
	ReasonNoGPU           = "no_gpu"             // there were GPUs, now there is none
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
	CodeVersionMismatch: {"the library and the kernel driver differ in version; start railscope anew", ReasonVersionMismatch},
	CodeNoData:          {"no data yet", sysfs.ReasonUnsupported},
	CodeStructVersion:   {"this driver has no such structure", sysfs.ReasonUnsupported},
	CodeDeprecated:      {"no longer supported", sysfs.ReasonUnsupported},
	CodeGPUNotFound:     {"no GPU", ReasonNoGPU},
	CodeNotBuilt:        {"cannot load a library", ReasonLibrary},
}

// Error is an answer of NVML other than success.
type Error struct {
	Call string // as in nvml.h
	Code Code
	Err  error // what stopped us before NVML was asked: dlopen, dlsym; else nil
}

func (e *Error) Error() string {
	text := meaning[e.Code].text
	if text == "" {
		text = "NVML error " + strconv.Itoa(int(e.Code))
	}
	if e.Err != nil {
		return fmt.Sprintf("%s: %s: %v", e.Call, text, e.Err)
	}
	return e.Call + ": " + text
}

func (e *Error) Unwrap() error { return e.Err }

// Reason is the word that the error is counted under.
func (e *Error) Reason() string {
	if m, ok := meaning[e.Code]; ok {
		return m.reason
	}
	return ReasonNVML
}
