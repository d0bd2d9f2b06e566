// Package nvml is this process's use of NVIDIA's management library: one [Session], which alone opens and closes it,
// and a [Reader] for each user, whose calls may hang without holding up another GPU or user.
package nvml

// Library is what is needed of libnvidia-ml. Every method may hang in the driver. Between an Open that succeeded and
// Close the others may be called side by side; while these two run, and at any other time, none may.
type Library interface {
	// Open loads the library as it is on disk now, and initialises it; after an error nothing is loaded. Errors are
	// [*Error].
	Open() error
	// Close shuts NVML down, which closes the device files of the driver, and unloads the library.
	Close()
	// Driver returns the version of the kernel driver. Errors are [*Error].
	Driver() (string, error)
	// Count returns how many GPUs the driver knows, lost ones included. Errors are [*Error].
	Count() (int, error)
	// GPU returns the GPU with an index below Count. Errors are [*Error].
	GPU(index int) (Device, error)
}

// Device is one GPU, or one MIG instance of it. Each method asks for one thing, so that what a GPU does not have takes
// nothing else with it. Errors are [*Error].
type Device interface {
	Identity() (Identity, error)
	Memory() (Memory, error)
	// Numbers answers one query: the fields in the order its constant says, in NVML's own units, 0 beyond the last.
	Numbers(Query) ([4]uint64, error)
	// Processes returns the compute processes, or the graphics processes. A process with several MIG instances is
	// there once for each.
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

// NotAvailable is NVML_VALUE_NOT_AVAILABLE, NVML's "no such number" in an answer that is otherwise good.
const NotAvailable = 1<<64 - 1

// Query is one question that numbers answer: the call of nvml.h, and its argument where it has one.
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
