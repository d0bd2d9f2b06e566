package collector

import (
	"github.com/railscope/railscope/internal/nvml"
)

// The rows. A GPU is named by its NVML index, which is its place in PCI order
// among the GPUs the driver had when it was initialised; gpu_info says which
// card that is.

// Where the memory figures come from. A GPU with memory of its own has all of
// them from NVML. One that shares the memory of the machine (DGX Spark) has no
// such figures in NVML: then total and free are the machine's, and used is the
// sum of what its processes hold, or where that cannot be had what the whole
// machine uses. gpu_memory_source_info says which of the three used is.
const (
	sourceNVML      = "nvml"
	sourceProcesses = "process_sum"
	sourceMeminfo   = "meminfo"
)

var (
	gpuInfo = &Metric{
		Name: "gpu_info", Kind: Gauge, Labels: []string{"gpu", "uuid", "name", "pci_address", "driver"},
		Help: "Which card a GPU is: always 1.",
		From: []Origin{{Name: "nvmlDeviceGetUUID"}},
		Ref:  "nvml.h nvmlDeviceGetUUID, nvmlDeviceGetName, nvmlDeviceGetPciInfo_v3, nvmlSystemGetDriverVersion",
	}
	gpuMemoryTotal = &Metric{
		Name: "gpu_memory_total_bytes", Kind: Gauge, Labels: []string{"gpu"},
		Help: "Memory the GPU has; where gpu_memory_source_info is not nvml, MemTotal of the machine, which the GPU shares.",
		From: []Origin{{Name: "nvmlDeviceGetMemoryInfo_v2"}, {Name: "nvmlDeviceGetMemoryInfo"}, {Name: "MemTotal", Scale: 1024}},
		Ref:  "nvml.h nvmlDeviceGetMemoryInfo_v2; proc_meminfo(5)",
	}
	gpuMemoryUsed = &Metric{
		Name: "gpu_memory_used_bytes", Kind: Gauge, Labels: []string{"gpu"},
		Help: "Memory that is allocated. Without gpu_memory_reserved_bytes the reserved part is in it (older drivers); with source process_sum it is at least this much, with meminfo it is what the whole machine uses.",
		From: []Origin{{Name: "nvmlDeviceGetMemoryInfo_v2"}, {Name: "nvmlDeviceGetMemoryInfo"}, {Name: "nvmlDeviceGetComputeRunningProcesses"}, {Name: "MemTotal - MemAvailable", Scale: 1024}},
		Ref:  "nvml.h nvmlDeviceGetMemoryInfo_v2, nvmlDeviceGetComputeRunningProcesses_v3; proc_meminfo(5)",
	}
	gpuMemoryFree = &Metric{
		Name: "gpu_memory_free_bytes", Kind: Gauge, Labels: []string{"gpu"},
		Help: "Memory that can still be allocated; where gpu_memory_source_info is not nvml, MemAvailable of the machine, so that used and free do not add up to total.",
		From: []Origin{{Name: "nvmlDeviceGetMemoryInfo_v2"}, {Name: "nvmlDeviceGetMemoryInfo"}, {Name: "MemAvailable", Scale: 1024}},
		Ref:  "nvml.h nvmlDeviceGetMemoryInfo_v2; proc_meminfo(5)",
	}
	gpuMemoryReserved = &Metric{
		Name: "gpu_memory_reserved_bytes", Kind: Gauge, Labels: []string{"gpu"},
		Help: "Memory that driver and firmware keep for themselves, not counted in used.",
		From: []Origin{{Name: "nvmlDeviceGetMemoryInfo_v2"}},
		Ref:  "nvml.h nvmlMemory_v2_t",
	}
	gpuMemorySource = &Metric{
		Name: "gpu_memory_source_info", Kind: Gauge, Labels: []string{"gpu", "source"},
		Help: "Where gpu_memory_used_bytes comes from: nvml, or, on a GPU that shares the memory of the machine, process_sum or meminfo; always 1.",
		From: []Origin{{Name: "nvmlDeviceGetMemoryInfo_v2"}},
		Ref:  "nvml.h nvmlDeviceGetMemoryInfo_v2: NVML_ERROR_NOT_SUPPORTED on an integrated GPU",
	}
	gpuProcesses = &Metric{
		Name: "gpu_processes", Kind: Gauge, Labels: []string{"gpu", "memory"},
		Help: "Processes on the GPU whose memory the driver told (known) and did not tell (unknown); read when per-process memory is asked for and on a GPU that shares the memory of the machine, and only in the host's pid namespace.",
		From: []Origin{{Name: "nvmlDeviceGetComputeRunningProcesses"}, {Name: "nvmlDeviceGetGraphicsRunningProcesses"}},
		Ref:  "nvml.h nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_v2_t",
	}
	gpuProcessMemory = &Metric{
		Name: "gpu_process_memory_bytes", Kind: Gauge, Labels: []string{"gpu", "pid"},
		Help: "GPU memory of the processes that hold most, by the pid the driver gives, and of all the rest under pid other; only when asked for.",
		From: []Origin{{Name: "nvmlDeviceGetComputeRunningProcesses"}, {Name: "nvmlDeviceGetGraphicsRunningProcesses"}},
		Ref:  "nvml.h nvmlProcessInfo_v2_t usedGpuMemory",
	}
	gpuThrottled = &Metric{
		Name: "gpu_clocks_throttled", Kind: Gauge, Labels: []string{"gpu", "reason"},
		Help: "1 while the reason holds the clocks down, 0 while it does not; reasons this GPU does not know are left out, those we do not know are other. gpu_idle is no fault.",
		From: []Origin{{Name: "nvmlDeviceGetCurrentClocksEventReasons"}, {Name: "nvmlDeviceGetCurrentClocksThrottleReasons"}},
		Ref:  "nvml.h nvmlClocksEventReasons",
	}
	gpuMIGMode = &Metric{
		Name: "gpu_mig_mode", Kind: Gauge, Labels: []string{"gpu"},
		Help: "1 while the GPU is divided into MIG instances, 0 while it is not.",
		From: []Origin{{Name: "nvmlDeviceGetMigMode"}},
		Ref:  "nvml.h nvmlDeviceGetMigMode currentMode",
	}
	gpuMIGInfo = &Metric{
		Name: "gpu_mig_info", Kind: Gauge, Labels: []string{"gpu", "gi", "ci", "uuid", "profile"},
		Help: "Which MIG device a GPU instance and compute instance are: always 1.",
		From: []Origin{{Name: "nvmlDeviceGetMigDeviceHandleByIndex"}},
		Ref:  "nvml.h nvmlDeviceGetUUID, nvmlDeviceGetName",
	}
	gpuMIGTotal = &Metric{
		Name: "gpu_mig_memory_total_bytes", Kind: Gauge, Labels: []string{"gpu", "gi", "ci"},
		Help: "Memory of the GPU instance; compute instances of one GPU instance share it.",
		From: []Origin{{Name: "nvmlDeviceGetMemoryInfo_v2"}, {Name: "nvmlDeviceGetMemoryInfo"}},
		Ref:  "nvml.h nvmlDeviceGetMemoryInfo_v2 on a MIG device handle",
	}
	gpuMIGUsed = &Metric{
		Name: "gpu_mig_memory_used_bytes", Kind: Gauge, Labels: []string{"gpu", "gi", "ci"},
		Help: "Allocated memory of the GPU instance; compute instances of one GPU instance share it.",
		From: []Origin{{Name: "nvmlDeviceGetMemoryInfo_v2"}, {Name: "nvmlDeviceGetMemoryInfo"}},
		Ref:  "nvml.h nvmlDeviceGetMemoryInfo_v2 on a MIG device handle",
	}
	gpuMIGFree = &Metric{
		Name: "gpu_mig_memory_free_bytes", Kind: Gauge, Labels: []string{"gpu", "gi", "ci"},
		Help: "Memory of the GPU instance that can still be allocated; compute instances of one GPU instance share it.",
		From: []Origin{{Name: "nvmlDeviceGetMemoryInfo_v2"}, {Name: "nvmlDeviceGetMemoryInfo"}},
		Ref:  "nvml.h nvmlDeviceGetMemoryInfo_v2 on a MIG device handle",
	}
)

// gpuRows are all the rows: those above, and those of the queries below.
func gpuRows() []*Metric {
	rows := []*Metric{
		gpuInfo, gpuMemoryTotal, gpuMemoryUsed, gpuMemoryFree, gpuMemoryReserved, gpuMemorySource,
		gpuProcesses, gpuProcessMemory, gpuThrottled,
		gpuMIGMode, gpuMIGInfo, gpuMIGTotal, gpuMIGUsed, gpuMIGFree,
	}
	seen := make(map[*Metric]bool)
	for _, q := range gpuQueries {
		for _, f := range q.fields {
			if !seen[f.row] {
				seen[f.row] = true
				rows = append(rows, f.row)
			}
		}
	}
	return rows
}

// gpuQuery is a query whose every field is a sample of its own.
type gpuQuery struct {
	query  nvml.Query
	fields []gpuField // in the order of the query's fields
}

type gpuField struct {
	row   *Metric
	label string // value of the row's second label; empty where it has none
	most  uint64 // a greater number is none; 0: any
}

var (
	gpuBAR1Total = &Metric{
		Name: "gpu_bar1_memory_total_bytes", Kind: Gauge, Labels: []string{"gpu"},
		Help: "Size of the window through which the CPU and other PCIe devices, RDMA adapters among them, reach GPU memory.",
		From: []Origin{{Name: "nvmlDeviceGetBAR1MemoryInfo"}}, Ref: "nvml.h nvmlBAR1Memory_t bar1Total",
	}
	gpuBAR1Used = &Metric{
		Name: "gpu_bar1_memory_used_bytes", Kind: Gauge, Labels: []string{"gpu"},
		Help: "The part of the BAR1 window that is mapped; memory registered for GPUDirect RDMA is in it.",
		From: []Origin{{Name: "nvmlDeviceGetBAR1MemoryInfo"}}, Ref: "nvml.h nvmlBAR1Memory_t bar1Used",
	}
	gpuBAR1Free = &Metric{
		Name: "gpu_bar1_memory_free_bytes", Kind: Gauge, Labels: []string{"gpu"},
		Help: "The part of the BAR1 window that is not mapped; without it no more memory can be registered for GPUDirect RDMA.",
		From: []Origin{{Name: "nvmlDeviceGetBAR1MemoryInfo"}}, Ref: "nvml.h nvmlBAR1Memory_t bar1Free",
	}
	gpuUtilization = &Metric{
		Name: "gpu_utilization_ratio", Kind: Gauge, Labels: []string{"gpu"},
		Help: "Part of the driver's last sample period, 1/6 s to 1 s, in which a kernel ran; says nothing of how much of the GPU it used.",
		From: []Origin{{Name: "nvmlDeviceGetUtilizationRates", Scale: 0.01}}, Ref: "nvml.h nvmlUtilization_t gpu",
	}
	gpuMemoryUtilization = &Metric{
		Name: "gpu_memory_utilization_ratio", Kind: Gauge, Labels: []string{"gpu"},
		Help: "Part of the driver's last sample period, 1/6 s to 1 s, in which GPU memory was read or written; not how full it is.",
		From: []Origin{{Name: "nvmlDeviceGetUtilizationRates", Scale: 0.01}}, Ref: "nvml.h nvmlUtilization_t memory",
	}
	gpuECC = &Metric{
		Name: "gpu_ecc_errors_total", Kind: Counter, Labels: []string{"gpu", "kind"},
		Help: "Memory errors over the life of the card (aggregate), as it keeps them itself: corrected, or uncorrected, which costs a process its data.",
		From: []Origin{{Name: "nvmlDeviceGetTotalEccErrors"}}, Ref: "nvml.h nvmlDeviceGetTotalEccErrors NVML_AGGREGATE_ECC",
	}
	gpuECCVolatile = &Metric{
		Name: "gpu_ecc_volatile_errors_total", Kind: Counter, Labels: []string{"gpu", "kind"},
		Help: "Memory errors since the driver was loaded or the GPU was reset (volatile); they are in gpu_ecc_errors_total too.",
		From: []Origin{{Name: "nvmlDeviceGetTotalEccErrors"}}, Ref: "nvml.h nvmlDeviceGetTotalEccErrors NVML_VOLATILE_ECC",
	}
	gpuRemappedRows = &Metric{
		Name: "gpu_remapped_rows", Kind: Gauge, Labels: []string{"gpu", "cause"},
		Help: "Memory rows replaced by spare ones, after errors that could be corrected (correctable) and that could not (uncorrectable).",
		From: []Origin{{Name: "nvmlDeviceGetRemappedRows"}}, Ref: "nvml.h nvmlDeviceGetRemappedRows corrRows, uncRows",
	}
	gpuRemapPending = &Metric{
		Name: "gpu_row_remap_pending", Kind: Gauge, Labels: []string{"gpu"},
		Help: "1 while rows wait for the next GPU reset to be replaced.",
		From: []Origin{{Name: "nvmlDeviceGetRemappedRows"}}, Ref: "nvml.h nvmlDeviceGetRemappedRows isPending",
	}
	gpuRemapFailure = &Metric{
		Name: "gpu_row_remap_failure", Kind: Gauge, Labels: []string{"gpu"},
		Help: "1 once a row could not be replaced: the card is to be exchanged.",
		From: []Origin{{Name: "nvmlDeviceGetRemappedRows"}}, Ref: "nvml.h nvmlDeviceGetRemappedRows failureOccurred",
	}
	gpuPCIeReplays = &Metric{
		Name: "gpu_pcie_replays_total", Kind: Counter, Labels: []string{"gpu"},
		Help: "PCIe packets sent again after an error on the link; a rising value is a bad slot, riser or cable. 32 bits wide: it wraps to 0.",
		From: []Origin{{Name: "nvmlDeviceGetPcieReplayCounter", Bits: 32}}, Ref: "nvml.h nvmlDeviceGetPcieReplayCounter",
	}
	gpuTemperature = &Metric{
		Name: "gpu_temperature_celsius", Kind: Gauge, Labels: []string{"gpu"},
		Help: "Temperature of the GPU die.",
		From: []Origin{{Name: "nvmlDeviceGetTemperature"}, {Name: "nvmlDeviceGetTemperatureV"}}, Ref: "nvml.h nvmlDeviceGetTemperature NVML_TEMPERATURE_GPU",
	}
	gpuPower = &Metric{
		Name: "gpu_power_watts", Kind: Gauge, Labels: []string{"gpu"},
		Help: "Power the GPU and its memory draw; on some architectures the mean of the last second.",
		From: []Origin{{Name: "nvmlDeviceGetPowerUsage", Scale: 0.001}}, Ref: "nvml.h nvmlDeviceGetPowerUsage",
	}
	gpuClock = &Metric{
		Name: "gpu_clock_hertz", Kind: Gauge, Labels: []string{"gpu", "clock"},
		Help: "Present frequency of the sm, memory or graphics clock.",
		From: []Origin{{Name: "nvmlDeviceGetClockInfo", Scale: 1e6}}, Ref: "nvml.h nvmlDeviceGetClockInfo",
	}
)

var gpuQueries = []gpuQuery{
	{nvml.QueryBAR1, []gpuField{{row: gpuBAR1Total}, {row: gpuBAR1Used}, {row: gpuBAR1Free}}},
	{nvml.QueryUtilization, []gpuField{{row: gpuUtilization, most: 100}, {row: gpuMemoryUtilization, most: 100}}},
	{nvml.QueryECCCorrected, []gpuField{{row: gpuECC, label: "corrected"}}},
	{nvml.QueryECCUncorr, []gpuField{{row: gpuECC, label: "uncorrected"}}},
	{nvml.QueryECCVolatile, []gpuField{{row: gpuECCVolatile, label: "corrected"}}},
	{nvml.QueryECCVolUncorr, []gpuField{{row: gpuECCVolatile, label: "uncorrected"}}},
	{nvml.QueryRemappedRows, []gpuField{
		{row: gpuRemappedRows, label: "correctable"}, {row: gpuRemappedRows, label: "uncorrectable"},
		{row: gpuRemapPending, most: 1}, {row: gpuRemapFailure, most: 1},
	}},
	{nvml.QueryPCIeReplays, []gpuField{{row: gpuPCIeReplays}}},
	{nvml.QueryTemperature, []gpuField{{row: gpuTemperature}}},
	{nvml.QueryPower, []gpuField{{row: gpuPower}}},
	{nvml.QueryClockSM, []gpuField{{row: gpuClock, label: "sm"}}},
	{nvml.QueryClockMemory, []gpuField{{row: gpuClock, label: "memory"}}},
	{nvml.QueryClockGraphics, []gpuField{{row: gpuClock, label: "graphics"}}},
}

// gpuThrottles are the reasons for a lower clock, in the order of their bits
// from bit 0; nvml.h nvmlClocksEventReason*.
var gpuThrottles = []string{
	"gpu_idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown", "sync_boost",
	"sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "display_clock_setting",
}
