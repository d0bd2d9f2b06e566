package gpu

import (
	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/nvml"
)

// Values of gpu_memory_source_info. NVML reports all values of a discrete GPU. A GPU that shares the machine's
// memory (DGX Spark) has none in NVML: total and free are those of the machine. Used is the sum of the memory of
// its processes or, if that is unknown, the used memory of the machine.
const (
	sourceNVML      = "nvml"
	sourceProcesses = "process_sum"
	sourceMeminfo   = "meminfo"
)

// table holds the rows. The label gpu is the NVML index: the position in PCI order when the driver was initialized.
type table struct {
	collector.Table
	info, memoryTotal, memoryUsed, memoryFree, memoryReserved, memorySource *collector.Metric
	processes, processMemory, throttled, xids                               *collector.Metric
	migMode, migInfo, migTotal, migUsed, migFree                            *collector.Metric

	queries []query
}

type query struct {
	nvml.Query
	fields []field // in the order of the query's fields
}

type field struct {
	row   *collector.Metric
	label string // value of the row's second label; empty if the row has none
	most  uint64 // the largest valid value; 0: any
}

func newTable() *table {
	t := &table{Table: collector.Table{Source: "gpu"}}
	gpu := t.Group("", "gpu")
	t.addMemory(gpu)
	t.processes = gpu.Ref("nvml.h nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_v2_t").With("memory").
		Gauge("gpu_processes", "Processes on the GPU whose memory the driver reports (known) and does not report (unknown); "+
			"read with per-process memory and on a GPU that shares the memory of the machine, and only in the host's pid "+
			"namespace.", "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses")
	t.processMemory = gpu.Ref("nvml.h nvmlProcessInfo_v2_t usedGpuMemory").With("pid").Gauge("gpu_process_memory_bytes",
		"GPU memory of the processes that hold most, by the pid that the driver reports, and of all others under pid other; "+
			"only with --collector.gpu.processes.", "nvmlDeviceGetComputeRunningProcesses",
		"nvmlDeviceGetGraphicsRunningProcesses")
	t.throttled = gpu.Ref("nvml.h nvmlClocksEventReasons").With("reason").Gauge("gpu_clocks_throttled", "1 while the "+
		"reason limits the clocks, else 0; reasons that this GPU does not support are absent, unknown ones are other. "+
		"gpu_idle is not a fault.", "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
	t.xids = gpu.Ref("nvml.h nvmlEventTypeXidCriticalError; docs.nvidia.com/deploy/xid-errors").With("xid").Counter(
		"gpu_xid_events_total", "Errors that the driver reported about the GPU, by XID, since NVML was first read. A series "+
			"begins with its first event. 13, 31, 43, 45, 68 and 109 are mostly faults of applications, "+
			"999 is unknown to NVML; the 17th and further ones of a GPU are other. With MIG on, only root sees those of "+
			"instances.",
		"nvmlEventSetWait_v2", "nvmlEventSetWait")
	t.addMIG(gpu)
	t.addUse(gpu)
	t.addHealth(gpu)
	return t
}

func (t *table) addMemory(gpu collector.Group) {
	const refInfo = "nvml.h nvmlDeviceGetMemoryInfo_v2"
	memory := gpu.From(collector.Origin{Name: "nvmlDeviceGetMemoryInfo_v2"},
		collector.Origin{Name: "nvmlDeviceGetMemoryInfo"})
	t.info = gpu.Ref("nvml.h nvmlDeviceGetUUID, nvmlDeviceGetName, nvmlDeviceGetPciInfo_v3, nvmlSystemGetDriverVersion").
		With("uuid", "name", "pci_address", "driver").Gauge("gpu_info", "Identity of the GPU, always 1.", "nvmlDeviceGetUUID")
	t.memoryTotal = memory.Ref(refInfo+"; proc_meminfo(5)").Scaled(1024, "MemTotal").Gauge("gpu_memory_total_bytes",
		"Memory of the GPU; where gpu_memory_source_info is not nvml, MemTotal of the machine, which the GPU shares.")
	t.memoryUsed = memory.Ref(refInfo+", nvmlDeviceGetComputeRunningProcesses_v3; proc_meminfo(5)").
		From(collector.Origin{Name: "nvmlDeviceGetComputeRunningProcesses"}).Scaled(1024, "MemTotal - MemAvailable").
		Gauge("gpu_memory_used_bytes", "Allocated memory. Without gpu_memory_reserved_bytes it includes the reserved part "+
			"(older drivers); with source process_sum it is a lower bound, with meminfo the use of the whole machine.")
	t.memoryFree = memory.Ref(refInfo+"; proc_meminfo(5)").Scaled(1024, "MemAvailable").Gauge("gpu_memory_free_bytes",
		"Memory that can still be allocated; where gpu_memory_source_info is not nvml, MemAvailable of the machine, so that "+
			"used and free do not add up to total.")
	t.memoryReserved = gpu.Ref("nvml.h nvmlMemory_v2_t").Gauge("gpu_memory_reserved_bytes", "Memory that driver and "+
		"firmware reserve, not included in used.", "nvmlDeviceGetMemoryInfo_v2")
	t.memorySource = gpu.Ref(refInfo+": NVML_ERROR_NOT_SUPPORTED on an integrated GPU").With("source").
		Gauge("gpu_memory_source_info", "Where gpu_memory_used_bytes comes from: nvml, or, on a GPU that shares the memory "+
			"of the machine, process_sum or meminfo; always 1.", "nvmlDeviceGetMemoryInfo_v2")
}

func (t *table) addMIG(gpu collector.Group) {
	t.migMode = gpu.Ref("nvml.h nvmlDeviceGetMigMode currentMode").Gauge("gpu_mig_mode", "1 while the GPU is divided "+
		"into MIG instances, else 0.", "nvmlDeviceGetMigMode")
	instance := gpu.Ref("nvml.h nvmlDeviceGetMemoryInfo_v2 on a MIG device handle").With("gi", "ci")
	t.migInfo = instance.Ref("nvml.h nvmlDeviceGetUUID, nvmlDeviceGetName").With("uuid", "profile").Gauge("gpu_mig_info",
		"Identity of the MIG device of a GPU instance and a compute instance, always 1.",
		"nvmlDeviceGetMigDeviceHandleByIndex")
	memory := instance.From(collector.Origin{Name: "nvmlDeviceGetMemoryInfo_v2"},
		collector.Origin{Name: "nvmlDeviceGetMemoryInfo"})
	const shared = " of the GPU instance, which its compute instances share."
	t.migTotal = memory.Gauge("gpu_mig_memory_total_bytes", "Memory"+shared)
	t.migUsed = memory.Gauge("gpu_mig_memory_used_bytes", "Allocated memory"+shared)
	t.migFree = memory.Gauge("gpu_mig_memory_free_bytes", "Free memory"+shared)
}

func (t *table) query(q nvml.Query, fields ...field) { t.queries = append(t.queries, query{q, fields}) }

func (t *table) addUse(gpu collector.Group) {
	const bar1 = "nvmlDeviceGetBAR1MemoryInfo"
	t.query(nvml.QueryBAR1,
		field{row: gpu.Ref("nvml.h nvmlBAR1Memory_t bar1Total").Gauge("gpu_bar1_memory_total_bytes", "Size of the window "+
			"through which the CPU and other PCIe devices, RDMA adapters among them, reach GPU memory.", bar1)},
		field{row: gpu.Ref("nvml.h nvmlBAR1Memory_t bar1Used").Gauge("gpu_bar1_memory_used_bytes", "Mapped part of the BAR1 "+
			"window, including memory registered for GPUDirect RDMA.", bar1)},
		field{row: gpu.Ref("nvml.h nvmlBAR1Memory_t bar1Free").Gauge("gpu_bar1_memory_free_bytes", "Unmapped part of the "+
			"BAR1 window; at 0 no more memory can be registered for GPUDirect RDMA.", bar1)})
	ratio := gpu.Scaled(0.01, "nvmlDeviceGetUtilizationRates")
	t.query(nvml.QueryUtilization,
		field{row: ratio.Ref("nvml.h nvmlUtilization_t gpu").Gauge("gpu_utilization_ratio", "Part of the driver's last "+
			"sample period, 1/6 s to 1 s, in which a kernel ran; not how much of the GPU it used."), most: 100},
		field{row: ratio.Ref("nvml.h nvmlUtilization_t memory").Gauge("gpu_memory_utilization_ratio", "Part of the driver's "+
			"last sample period, 1/6 s to 1 s, in which GPU memory was read or written; not how full it is."),
			most: 100})
}

func (t *table) addHealth(gpu collector.Group) {
	const ecc, remapped = "nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows"
	total := gpu.Ref("nvml.h nvmlDeviceGetTotalEccErrors NVML_AGGREGATE_ECC").With("kind").Counter("gpu_ecc_errors_total",
		"Memory errors over the life of the card (aggregate): corrected, or uncorrected, which costs a process its data.",
		ecc)
	t.query(nvml.QueryECCCorrected, field{row: total, label: "corrected"})
	t.query(nvml.QueryECCUncorr, field{row: total, label: "uncorrected"})
	recent := gpu.Ref("nvml.h nvmlDeviceGetTotalEccErrors NVML_VOLATILE_ECC").With("kind").Counter(
		"gpu_ecc_volatile_errors_total", "Memory errors since the driver was loaded or the GPU was reset (volatile), "+
			"included in gpu_ecc_errors_total.", ecc)
	t.query(nvml.QueryECCVolatile, field{row: recent, label: "corrected"})
	t.query(nvml.QueryECCVolUncorr, field{row: recent, label: "uncorrected"})
	rows := gpu.Ref("nvml.h nvmlDeviceGetRemappedRows corrRows, uncRows").With("cause").Gauge("gpu_remapped_rows",
		"Memory rows replaced by spare ones, after errors that were correctable or uncorrectable.", remapped)
	t.query(nvml.QueryRemappedRows, field{row: rows, label: "correctable"}, field{row: rows, label: "uncorrectable"},
		field{row: gpu.Ref("nvml.h nvmlDeviceGetRemappedRows isPending").Gauge("gpu_row_remap_pending", "1 while rows wait "+
			"for the next GPU reset to be replaced.", remapped), most: 1},
		field{row: gpu.Ref("nvml.h nvmlDeviceGetRemappedRows failureOccurred").Gauge("gpu_row_remap_failure", "1 after a "+
			"row could not be replaced: replace the card.", remapped), most: 1})
	replays := collector.Origin{Name: "nvmlDeviceGetPcieReplayCounter", Bits: 32}
	t.query(nvml.QueryPCIeReplays, field{row: gpu.Ref("nvml.h nvmlDeviceGetPcieReplayCounter").From(replays).Counter(
		"gpu_pcie_replays_total", "PCIe packets retransmitted after a link error; a rising value points to a bad slot, "+
			"riser or cable. 32 bits wide: it wraps to 0.")})
	t.query(nvml.QueryTemperature, field{row: gpu.Ref("nvml.h nvmlDeviceGetTemperature NVML_TEMPERATURE_GPU").Gauge(
		"gpu_temperature_celsius", "Temperature of the GPU die.", "nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV")})
	t.query(nvml.QueryPower, field{row: gpu.Ref("nvml.h nvmlDeviceGetPowerUsage").Scaled(0.001, "nvmlDeviceGetPowerUsage").
		Gauge("gpu_power_watts", "Power draw of GPU and memory; on some architectures the mean of the last second.")})
	clock := gpu.Ref("nvml.h nvmlDeviceGetClockInfo").With("clock").Scaled(1e6, "nvmlDeviceGetClockInfo").Gauge(
		"gpu_clock_hertz", "Current frequency of the sm, memory or graphics clock.")
	t.query(nvml.QueryClockSM, field{row: clock, label: "sm"})
	t.query(nvml.QueryClockMemory, field{row: clock, label: "memory"})
	t.query(nvml.QueryClockGraphics, field{row: clock, label: "graphics"})
}
