// Package nvml is this process's use of NVIDIA's management library: one [Session], which opens and closes it, and a
// [Reader] for each user, whose calls may hang without blocking another GPU or user.
package nvml

import (
	"cmp"
	"slices"
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
