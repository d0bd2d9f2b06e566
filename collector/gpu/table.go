package gpu

import (
	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/nvml"
)

// Values of gpu_memory_source_info. A GPU with memory of its own has all figures from NVML. One that shares the memory
// of the machine (DGX Spark) has none there: total and free are the machine's, and used is the sum of what its
// processes hold, or, where that is not known, what the whole machine uses.
const (
	sourceNVML      = "nvml"
	sourceProcesses = "process_sum"
	sourceMeminfo   = "meminfo"
)

// table is the rows. The label gpu is the NVML index: the place in PCI order among the GPUs that the driver had when it
// was initialised.
type table struct {
	collector.Table
	info, memoryTotal, memoryUsed, memoryFree, memoryReserved, memorySource *collector.Metric
	processes, processMemory, throttled                                     *collector.Metric
	migMode, migInfo, migTotal, migUsed, migFree                            *collector.Metric

	queries []query
}

// query is a question to NVML of which every field is a sample.
type query struct {
	nvml.Query
	fields []field // in the order of the query's fields
}

type field struct {
	row   *collector.Metric
	label string // value of the row's second label; empty: it has none
	most  uint64 // the largest possible value
}

func newTable() *table {
	t := new(table)
	gpu := t.Group("", "gpu")
	memory := collector.From("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo")
	processes := collector.From("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses")
	orMachine := func(name string) []collector.Origin {
		return append(memory[:2:2], collector.Origin{Name: name, Scale: 1024})
	}
	t.info = gpu.Ref("nvml.h nvmlDeviceGetUUID, nvmlDeviceGetName, nvmlDeviceGetPciInfo_v3, "+
		"nvmlSystemGetDriverVersion").
		With("uuid", "name", "pci_address", "driver").
		Gauge("gpu_info", "Identity of the GPU, always 1.", collector.From("nvmlDeviceGetUUID")...)
	t.memoryTotal = gpu.Ref("nvml.h nvmlDeviceGetMemoryInfo_v2; proc_meminfo(5)").Gauge("gpu_memory_total_bytes",
		"Memory of the GPU; where gpu_memory_source_info is not nvml, MemTotal of the machine, which the GPU shares.",
		orMachine("MemTotal")...)
	t.memoryUsed = gpu.Ref("nvml.h nvmlDeviceGetMemoryInfo_v2, nvmlDeviceGetComputeRunningProcesses_v3; "+
		"proc_meminfo(5)").
		Gauge("gpu_memory_used_bytes", "Allocated memory. Without gpu_memory_reserved_bytes it includes the reserved "+
			"part (older drivers); with source process_sum it is a lower bound, with meminfo what the whole "+
			"machine uses.",
			append(memory[:2:2], collector.Origin{Name: "nvmlDeviceGetComputeRunningProcesses"},
				collector.Origin{Name: "MemTotal - MemAvailable", Scale: 1024})...)
	t.memoryFree = gpu.Ref("nvml.h nvmlDeviceGetMemoryInfo_v2; proc_meminfo(5)").Gauge("gpu_memory_free_bytes",
		"Memory that can still be allocated; where gpu_memory_source_info is not nvml, MemAvailable of the "+
			"machine, so "+
			"that used and free do not add up to total.", orMachine("MemAvailable")...)
	t.memoryReserved = gpu.Ref("nvml.h nvmlMemory_v2_t").Gauge("gpu_memory_reserved_bytes",
		"Memory that driver and firmware keep for themselves, not included in used.", memory[:1]...)
	t.memorySource = gpu.Ref("nvml.h nvmlDeviceGetMemoryInfo_v2: NVML_ERROR_NOT_SUPPORTED on an integrated GPU").
		With("source").Gauge("gpu_memory_source_info",
		"Where gpu_memory_used_bytes comes from: nvml, or, on a GPU that "+
			"shares the memory of the machine, process_sum or meminfo; always 1.", memory[:1]...)
	t.processes = gpu.Ref("nvml.h nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_v2_t").With("memory").
		Gauge("gpu_processes", "Processes on the GPU whose memory the driver reports (known) and does not report "+
			"(unknown); read with per-process memory and on a GPU that shares the memory of the machine, and only "+
			"in the "+
			"host's pid namespace.", processes...)
	t.processMemory = gpu.Ref("nvml.h nvmlProcessInfo_v2_t usedGpuMemory").With("pid").Gauge("gpu_process_memory_bytes",
		"GPU memory of the processes that hold most, by the pid that the driver reports, and of all others under pid "+
			"other; only with --collector.gpu.processes.", processes...)
	t.throttled = gpu.Ref("nvml.h nvmlClocksEventReasons").With("reason").Gauge("gpu_clocks_throttled",
		"1 while the reason holds the clocks down, else 0; reasons that this GPU does not know are absent, reasons "+
			"that "+
			"railscope does not know are other. gpu_idle is no fault.",
		collector.From("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")...)
	t.addMIG(gpu, memory)
	t.addQueries(gpu)
	return t
}

func (t *table) addMIG(gpu collector.Group, memory []collector.Origin) {
	t.migMode = gpu.Ref("nvml.h nvmlDeviceGetMigMode currentMode").Gauge("gpu_mig_mode",
		"1 while the GPU is divided into MIG instances, else 0.", collector.From("nvmlDeviceGetMigMode")...)
	instance := gpu.Ref("nvml.h nvmlDeviceGetMemoryInfo_v2 on a MIG device handle").With("gi", "ci")
	t.migInfo = instance.Ref("nvml.h nvmlDeviceGetUUID, nvmlDeviceGetName").With("uuid", "profile").
		Gauge("gpu_mig_info",
			"Identity of the MIG device of a GPU instance and a compute instance, always 1.",
			collector.From("nvmlDeviceGetMigDeviceHandleByIndex")...)
	const shared = " of the GPU instance, which its compute instances share."
	t.migTotal = instance.Gauge("gpu_mig_memory_total_bytes", "Memory"+shared, memory...)
	t.migUsed = instance.Gauge("gpu_mig_memory_used_bytes", "Allocated memory"+shared, memory...)
	t.migFree = instance.Gauge("gpu_mig_memory_free_bytes", "Free memory"+shared, memory...)
}

// addQueries adds the rows that are one query each.
func (t *table) addQueries(gpu collector.Group) {
	const anyValue = nvml.NotAvailable - 1
	add := func(q nvml.Query, fields ...field) { t.queries = append(t.queries, query{q, fields}) }
	bar1 := collector.From("nvmlDeviceGetBAR1MemoryInfo")
	add(nvml.QueryBAR1,
		field{gpu.Ref("nvml.h nvmlBAR1Memory_t bar1Total").Gauge("gpu_bar1_memory_total_bytes",
			"Size of the window through which the CPU and other PCIe devices, RDMA adapters among them, reach GPU "+
				"memory.",
			bar1...), "", anyValue},
		field{gpu.Ref("nvml.h nvmlBAR1Memory_t bar1Used").Gauge("gpu_bar1_memory_used_bytes",
			"Mapped part of the BAR1 window, including memory registered for GPUDirect RDMA.", bar1...), "", anyValue},
		field{gpu.Ref("nvml.h nvmlBAR1Memory_t bar1Free").Gauge("gpu_bar1_memory_free_bytes",
			"Unmapped part of the BAR1 window; at 0 no more memory can be registered for GPUDirect RDMA.", bar1...),
			"", anyValue})
	use := collector.Scaled(0.01, "nvmlDeviceGetUtilizationRates")
	add(nvml.QueryUtilization,
		field{gpu.Ref("nvml.h nvmlUtilization_t gpu").Gauge("gpu_utilization_ratio",
			"Part of the driver's last sample "+
				"period, 1/6 s to 1 s, in which a kernel ran; not how much of the GPU it used.", use...), "", 100},
		field{gpu.Ref("nvml.h nvmlUtilization_t memory").Gauge("gpu_memory_utilization_ratio",
			"Part of the driver's last "+
				"sample period, 1/6 s to 1 s, in which GPU memory was read or written; not how full it is.", use...),
			"", 100})
	errors := collector.From("nvmlDeviceGetTotalEccErrors")
	life := gpu.Ref("nvml.h nvmlDeviceGetTotalEccErrors NVML_AGGREGATE_ECC").With("kind").
		Counter("gpu_ecc_errors_total",
			"Memory errors over the life of the card (aggregate), as the card counts them: corrected, or "+
				"uncorrected, which "+
				"costs a process its data.", errors...)
	add(nvml.QueryECCCorrected, field{life, "corrected", anyValue})
	add(nvml.QueryECCUncorr, field{life, "uncorrected", anyValue})
	recent := gpu.Ref("nvml.h nvmlDeviceGetTotalEccErrors NVML_VOLATILE_ECC").With("kind").
		Counter("gpu_ecc_volatile_errors_total", "Memory errors since the driver was loaded or the GPU was reset "+
			"(volatile), included in gpu_ecc_errors_total.", errors...)
	add(nvml.QueryECCVolatile, field{recent, "corrected", anyValue})
	add(nvml.QueryECCVolUncorr, field{recent, "uncorrected", anyValue})
	t.addHealth(gpu, add)
}

// addHealth adds the rows of remapped rows, replays, temperature, power and clocks.
func (t *table) addHealth(gpu collector.Group, add func(nvml.Query, ...field)) {
	const anyValue = nvml.NotAvailable - 1
	const remapped = "nvml.h nvmlDeviceGetRemappedRows "
	from := collector.From("nvmlDeviceGetRemappedRows")
	rows := gpu.Ref(remapped+"corrRows, uncRows").With("cause").Gauge("gpu_remapped_rows", "Memory rows replaced by "+
		"spare ones, after errors that could be corrected (correctable) and that could not (uncorrectable).", from...)
	add(nvml.QueryRemappedRows,
		field{rows, "correctable", anyValue}, field{rows, "uncorrectable", anyValue},
		field{gpu.Ref(remapped+"isPending").Gauge("gpu_row_remap_pending",
			"1 while rows wait for the next GPU reset to be replaced.", from...), "", 1},
		field{gpu.Ref(remapped+"failureOccurred").Gauge("gpu_row_remap_failure",
			"1 once a row could not be replaced: replace the card.", from...), "", 1})
	add(nvml.QueryPCIeReplays, field{gpu.Ref("nvml.h nvmlDeviceGetPcieReplayCounter").Counter("gpu_pcie_replays_total",
		"PCIe packets retransmitted after a link error; a rising value points to a bad slot, riser or cable. 32 bits "+
			"wide: it wraps to 0.", collector.Origin{Name: "nvmlDeviceGetPcieReplayCounter", Bits: 32}), "", anyValue})
	add(nvml.QueryTemperature, field{gpu.Ref("nvml.h nvmlDeviceGetTemperature NVML_TEMPERATURE_GPU").
		Gauge("gpu_temperature_celsius", "Temperature of the GPU die.",
			collector.From("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV")...), "", anyValue})
	add(nvml.QueryPower, field{gpu.Ref("nvml.h nvmlDeviceGetPowerUsage").Gauge("gpu_power_watts",
		"Power draw of the GPU and its memory; on some architectures the mean of the last second.",
		collector.Scaled(0.001, "nvmlDeviceGetPowerUsage")...), "", anyValue})
	clock := gpu.Ref("nvml.h nvmlDeviceGetClockInfo").With("clock").Gauge("gpu_clock_hertz",
		"Current frequency of the sm, memory or graphics clock.", collector.Scaled(1e6, "nvmlDeviceGetClockInfo")...)
	add(nvml.QueryClockSM, field{clock, "sm", anyValue})
	add(nvml.QueryClockMemory, field{clock, "memory", anyValue})
	add(nvml.QueryClockGraphics, field{clock, "graphics", anyValue})
}

// throttleReasons are the reasons for a lower clock, in the order of their bits from bit 0 (nvml.h
// nvmlClocksEventReason*).
func throttleReasons() []string {
	return []string{
		"gpu_idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown", "sync_boost", "sw_thermal_slowdown",
		"hw_thermal_slowdown", "hw_power_brake_slowdown", "display_clock_setting",
	}
}
