package gpu

import (
	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/amdgpu"
	"github.com/railscope/railscope/internal/nvml"
)

// Values of gpu_memory_source_info. NVML and amdgpu report all values of a discrete GPU. A GPU that shares the
// machine's memory (DGX Spark, MI300A) has none of its own: total and free are those of the machine. Used is, in NVML,
// the sum of the memory of its processes or, if that is unknown, the used memory of the machine; in amdgpu, the memory
// that it allocated.
const (
	sourceNVML      = "nvml"
	sourceProcesses = "process_sum"
	sourceMeminfo   = "meminfo"
	sourceAMD       = "amdgpu"
	sourceAMDShared = "amdgpu_gtt"
)

// table holds the rows. The label gpu is the NVML index: the position in PCI order when the driver was initialized.
// AMD's GPUs follow (see [amdgpu.GPU]).
type table struct {
	collector.Table
	memoryRows
	migRows
	amdRows
	info, processes, processMemory, throttled, xids *collector.Metric

	queries []query
}

type memoryRows struct {
	memoryTotal, memoryUsed, memoryFree, memoryReserved, memorySource *collector.Metric
}

type migRows struct {
	migMode, migInfo, migTotal, migUsed, migFree *collector.Metric
}

// amdRows are the rows for AMD's GPUs that are filled in without a query of NVML. Most of them have a query, too.
type amdRows struct {
	busy, memoryBusy, volatileECC, replays, temperature, power, clock *collector.Metric
	partitions, partitionInfo                                         *collector.Metric
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

// References of AMD's files; package amdgpu has more.
const (
	refAMD = "; Linux 6.11 drivers/gpu/drm/amd/"
	refKFD = "; AMD's driver of 2026-01, amdkfd/kfd_process.c kfd_procfs_show"
	refPM  = refAMD + "pm/amdgpu_pm.c"
)

func newTable() *table {
	t := &table{Table: collector.Table{Source: "gpu"}}
	gpu := t.Group("", "gpu")
	t.addMemory(gpu)
	t.processes = gpu.Ref("nvml.h nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_v2_t"+refKFD).With("memory").
		Gauge("gpu_processes", "Processes on the GPU whose memory the driver reports (known) and does not report "+
			"(unknown); read with per-process memory and on a GPU that shares the memory of the machine, and only in "+
			"the host's pid namespace. AMD's driver reports all of them.", "nvmlDeviceGetComputeRunningProcesses",
			"nvmlDeviceGetGraphicsRunningProcesses", "kfd/proc/*/vram_*")
	t.processMemory = gpu.Ref("nvml.h nvmlProcessInfo_v2_t usedGpuMemory"+refKFD).With("pid").Gauge(
		"gpu_process_memory_bytes",
		"GPU memory of the processes that hold most, by the pid that the driver reports, and of all others under pid "+
			"other; only with --source.gpu.processes.", "nvmlDeviceGetComputeRunningProcesses",
		"nvmlDeviceGetGraphicsRunningProcesses", "kfd/proc/*/vram_*")
	t.throttled = gpu.Ref("nvml.h nvmlClocksEventReasons").With("reason").Gauge("gpu_clocks_throttled", "1 while the "+
		"reason limits the clocks, else 0; reasons that this GPU does not support are absent, unknown ones are "+
		"other. gpu_idle is not a fault.", "nvmlDeviceGetCurrentClocksEventReasons",
		"nvmlDeviceGetCurrentClocksThrottleReasons")
	t.xids = gpu.Ref("nvml.h nvmlEventTypeXidCriticalError; docs.nvidia.com/deploy/xid-errors").With("xid").Counter(
		"gpu_xid_events_total", "Errors that the driver reported about the GPU, by XID, since NVML was first read. A "+
			"series begins with its first event. 13, 31, 43, 45, 68 and 109 are mostly faults of applications, 999 "+
			"is unknown to NVML; the 17th and further ones of a GPU are other. With MIG on, only root sees those of "+
			"instances.",
		"nvmlEventSetWait_v2", "nvmlEventSetWait")
	t.addMIG(gpu)
	t.addPartitions(gpu)
	t.addUse(gpu)
	t.addHealth(gpu)
	return t
}

func (t *table) addMemory(gpu collector.Group) {
	const refInfo = "nvml.h nvmlDeviceGetMemoryInfo_v2"
	memory := gpu.From(collector.Origin{Name: "nvmlDeviceGetMemoryInfo_v2"},
		collector.Origin{Name: "nvmlDeviceGetMemoryInfo"})
	t.info = gpu.Ref("nvml.h nvmlDeviceGetUUID, nvmlDeviceGetName, nvmlDeviceGetPciInfo_v3, nvmlSystemGetDriverVersion"+
		refPM+" unique_id, amdgpu/amdgpu_fru_eeprom.c product_name").
		With("uuid", "name", "pci_address", "driver").
		Gauge("gpu_info", "Identity of the GPU, always 1. driver is empty with the kernel's amdgpu, which has no "+
			"version of its own.", "nvmlDeviceGetUUID", "unique_id")
	const vram = refAMD + "amdgpu/amdgpu_vram_mgr.c"
	t.memoryTotal = memory.Ref(refInfo+"; proc_meminfo(5)"+vram).Scaled(1024, "MemTotal").
		Gauge("gpu_memory_total_bytes",
			"Memory of the GPU; where gpu_memory_source_info is neither nvml nor amdgpu, MemTotal of the machine, "+
				"which the GPU shares, with what is set aside for the GPU.", "mem_info_vram_total")
	t.memoryUsed = memory.Ref(refInfo+", nvmlDeviceGetComputeRunningProcesses_v3; proc_meminfo(5)"+vram+
		", amdgpu_gtt_mgr.c").From(collector.Origin{Name: "nvmlDeviceGetComputeRunningProcesses"}).
		Scaled(1024, "MemTotal - MemAvailable").
		Gauge("gpu_memory_used_bytes", "Allocated memory. Without gpu_memory_reserved_bytes it includes the reserved "+
			"part (older drivers, AMD); with source process_sum or amdgpu_gtt it is a lower bound, with meminfo the "+
			"use of the whole machine.", "mem_info_vram_used", "mem_info_vram_used + mem_info_gtt_used")
	t.memoryFree = memory.Ref(refInfo+"; proc_meminfo(5)"+vram).Scaled(1024, "MemAvailable").
		Gauge("gpu_memory_free_bytes",
			"Memory that can still be allocated; where gpu_memory_source_info is neither nvml nor amdgpu, "+
				"MemAvailable of the machine, with what is set aside for the GPU, so that used and free do not add "+
				"up to total.",
			"mem_info_vram_total - mem_info_vram_used")
	t.memoryReserved = gpu.Ref("nvml.h nvmlMemory_v2_t").Gauge("gpu_memory_reserved_bytes", "Memory that driver and "+
		"firmware reserve, not included in used.", "nvmlDeviceGetMemoryInfo_v2")
	t.memorySource = gpu.Ref(refInfo+": NVML_ERROR_NOT_SUPPORTED on an integrated GPU"+refAMD+
		"amdgpu/gmc_v9_0.c gmc_v9_0_mc_init").With("source").
		Gauge("gpu_memory_source_info", "Where gpu_memory_used_bytes comes from: nvml or amdgpu, or, on a GPU that "+
			"shares the memory of the machine, process_sum, meminfo or amdgpu_gtt; always 1.",
			"nvmlDeviceGetMemoryInfo_v2", "mem_info_vram_total")
}

func (t *table) addMIG(gpu collector.Group) {
	t.migMode = gpu.Ref("nvml.h nvmlDeviceGetMigMode currentMode").Gauge("gpu_mig_mode", "1 while the GPU is divided "+
		"into MIG instances, else 0.", "nvmlDeviceGetMigMode")
	instance := gpu.Ref("nvml.h nvmlDeviceGetMemoryInfo_v2 on a MIG device handle").With("gi", "ci")
	t.migInfo = instance.Ref("nvml.h nvmlDeviceGetUUID, nvmlDeviceGetName").With("uuid", "profile").
		Gauge("gpu_mig_info",
			"Identity of the MIG device of a GPU instance and a compute instance, always 1.",
			"nvmlDeviceGetMigDeviceHandleByIndex")
	memory := instance.From(collector.Origin{Name: "nvmlDeviceGetMemoryInfo_v2"},
		collector.Origin{Name: "nvmlDeviceGetMemoryInfo"})
	const shared = " of the GPU instance, which its compute instances share."
	t.migTotal = memory.Gauge("gpu_mig_memory_total_bytes", "Memory"+shared)
	t.migUsed = memory.Gauge("gpu_mig_memory_used_bytes", "Allocated memory"+shared)
	t.migFree = memory.Gauge("gpu_mig_memory_free_bytes", "Free memory"+shared)
}

func (t *table) addPartitions(gpu collector.Group) {
	t.partitions = gpu.Ref("AMD's driver of 2026-01, amdkfd/kfd_topology.c node_show").Gauge("gpu_partitions",
		"Devices that ROCm makes of an AMD GPU: more than 1 if it is partitioned. The other series are those of the "+
			"whole GPU.", "kfd/topology/nodes/*/properties")
	t.partitionInfo = gpu.Ref("Linux 6.11 drivers/gpu/drm/amd/amdgpu/amdgpu_gfx.c, amdgpu_gmc.c").
		With("compute", "memory").
		Gauge("gpu_partition_info", "How an AMD GPU is partitioned, always 1: compute is SPX, DPX, TPX, QPX or CPX, "+
			"memory NPS1 to NPS8.", "current_compute_partition", "current_memory_partition")
}

func (t *table) query(q nvml.Query, fields ...field) { t.queries = append(t.queries, query{q, fields}) }

func (t *table) addUse(gpu collector.Group) {
	const bar1 = "nvmlDeviceGetBAR1MemoryInfo"
	t.query(nvml.QueryBAR1,
		field{row: gpu.Ref("nvml.h nvmlBAR1Memory_t bar1Total").Gauge("gpu_bar1_memory_total_bytes",
			"Size of the window through which the CPU and other PCIe devices, RDMA adapters among them, reach GPU "+
				"memory.", bar1)},
		field{row: gpu.Ref("nvml.h nvmlBAR1Memory_t bar1Used").Gauge("gpu_bar1_memory_used_bytes",
			"Mapped part of the BAR1 window, including memory registered for GPUDirect RDMA. If it is all of the "+
				"window, no more can be registered.", bar1)})
	ratio := gpu.Scaled(0.01, "nvmlDeviceGetUtilizationRates")
	t.busy = ratio.Scaled(0.01, amdgpu.Busy).Ref("nvml.h nvmlUtilization_t gpu"+refPM).Gauge("gpu_utilization_ratio",
		"Part of the driver's last sample period, 1/6 s to 1 s, in which a kernel ran; not how much of the GPU it "+
			"used. On AMD, how busy the engines are, as the firmware computes it.")
	t.memoryBusy = ratio.Scaled(0.01, amdgpu.MemoryBusy).Ref("nvml.h nvmlUtilization_t memory"+refPM).Gauge(
		"gpu_memory_utilization_ratio", "Part of the driver's last sample period, 1/6 s to 1 s, in which GPU memory "+
			"was read or written; not how full it is. On AMD, how busy the memory is, as the firmware computes it.")
	t.query(nvml.QueryUtilization, field{row: t.busy, most: 100}, field{row: t.memoryBusy, most: 100})
}

func (t *table) addHealth(gpu collector.Group) {
	const ecc, remapped = "nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows"
	total := gpu.Ref("nvml.h nvmlDeviceGetTotalEccErrors NVML_AGGREGATE_ECC").With("kind").
		Counter("gpu_ecc_errors_total",
			"Memory errors over the life of the card (aggregate): corrected, or uncorrected, which costs a process "+
				"its data.",
			ecc)
	t.query(nvml.QueryECCCorrected, field{row: total, label: "corrected"})
	t.query(nvml.QueryECCUncorr, field{row: total, label: "uncorrected"})
	t.volatileECC = gpu.Ref("nvml.h nvmlDeviceGetTotalEccErrors NVML_VOLATILE_ECC"+refAMD+"amdgpu/amdgpu_ras.c").
		With("kind").Counter("gpu_ecc_volatile_errors_total", "Memory errors since the driver was loaded or the GPU "+
		"was reset (volatile); NVIDIA's are included in gpu_ecc_errors_total. AMD also has deferred: uncorrectable, "+
		"in data that nothing has used.", ecc, "ras/umc_err_count", "ras/aca_umc")
	t.query(nvml.QueryECCVolatile, field{row: t.volatileECC, label: "corrected"})
	t.query(nvml.QueryECCVolUncorr, field{row: t.volatileECC, label: "uncorrected"})
	rows := gpu.Ref("nvml.h nvmlDeviceGetRemappedRows corrRows, uncRows").With("cause").Gauge("gpu_remapped_rows",
		"Memory rows replaced by spare ones, after errors that were correctable or uncorrectable.", remapped)
	t.query(nvml.QueryRemappedRows, field{row: rows, label: "correctable"}, field{row: rows, label: "uncorrectable"},
		field{row: gpu.Ref("nvml.h nvmlDeviceGetRemappedRows isPending").
			Gauge("gpu_row_remap_pending", "1 while rows wait for the next GPU reset to be replaced.", remapped),
			most: 1},
		field{row: gpu.Ref("nvml.h nvmlDeviceGetRemappedRows failureOccurred").
			Gauge("gpu_row_remap_failure", "1 after a row could not be replaced: replace the card.", remapped),
			most: 1})
	replays := collector.Origin{Name: "nvmlDeviceGetPcieReplayCounter", Bits: 32}
	t.replays = gpu.Ref("nvml.h nvmlDeviceGetPcieReplayCounter"+refAMD+"amdgpu/amdgpu_device.c, nbio_v7_9.c").
		From(replays, collector.Origin{Name: amdgpu.PCIeReplays}).Counter(
		"gpu_pcie_replays_total", "PCIe packets retransmitted after a link error; a rising value points to a bad "+
			"slot, riser or cable. 32 bits wide: it wraps to 0. On AMD the sum of two counters, of 16 bits each on "+
			"an MI300X: NAKs received and sent.")
	t.query(nvml.QueryPCIeReplays, field{row: t.replays})
	t.temperature = gpu.Ref("nvml.h nvmlDeviceGetTemperature NVML_TEMPERATURE_GPU"+refPM).
		From(collector.Origin{Name: "nvmlDeviceGetTemperature"}, collector.Origin{Name: "nvmlDeviceGetTemperatureV"}).
		Scaled(0.001, amdgpu.TemperatureEdge).Scaled(0.001, amdgpu.TemperatureJunction).Gauge("gpu_temperature_celsius",
		"Temperature of the GPU die; on an AMD GPU without that sensor, as an MI300X, of its hottest point.")
	t.query(nvml.QueryTemperature, field{row: t.temperature})
	t.power = gpu.Ref("nvml.h nvmlDeviceGetPowerUsage"+refPM).Scaled(0.001, "nvmlDeviceGetPowerUsage").
		Scaled(1e-6, amdgpu.PowerInput).Scaled(1e-6, amdgpu.PowerAverage).
		Gauge("gpu_power_watts", "Power draw of GPU and memory; on some architectures the mean of the last second.")
	t.query(nvml.QueryPower, field{row: t.power})
	t.clock = gpu.Ref("nvml.h nvmlDeviceGetClockInfo"+refPM).With("clock").Scaled(1e6, "nvmlDeviceGetClockInfo").Gauge(
		"gpu_clock_hertz", "Current frequency of the sm, memory or graphics clock.", amdgpu.ClockGraphics,
		amdgpu.ClockMemory)
	t.query(nvml.QueryClockSM, field{row: t.clock, label: "sm"})
	t.query(nvml.QueryClockMemory, field{row: t.clock, label: "memory"})
	t.query(nvml.QueryClockGraphics, field{row: t.clock, label: "graphics"})
}
