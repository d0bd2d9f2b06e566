package process

import "github.com/railscope/railscope/collector"

const (
	refRestrack = "drivers/infiniband/core/nldev.c fill_res_qp_entry; include/uapi/rdma/rdma_netlink.h " +
		"RDMA_NLDEV_CMD_RES_QP_GET"
	refNVML = "nvml.h nvmlProcessInfo_v2_t usedGpuMemory; docs/amd.md; docs/process.md"
)

type table struct {
	collector.Table
	queuePairs, memory, without, age, seconds *collector.Metric
	bytes, shared, imbalance                  *collector.Metric // rows of jobs
}

func newTable() *table {
	t := &table{Table: collector.Table{Source: "process"}}
	const dump = "RDMA_NLDEV_CMD_RES_QP_GET"
	queuePairs := t.Group(refRestrack)
	t.queuePairs = queuePairs.With("rail", "pod", "container", "comm", "state").Gauge("process_queue_pairs",
		"Queue pairs of processes, not the kernel's, by rail and state: rts can send. pod is namespace/name, or the "+
			"UID if the name is not known; comm is empty if the thread that created them has ended; rail is empty on "+
			"a device that is not a rail. Series over --source.process.limit are summed with every label other.",
		"RDMA_NLDEV_ATTR_RES_QP")
	t.memory = t.Group(refNVML, "gpu", "pod", "container", "comm").Gauge("process_gpu_memory_bytes",
		"GPU memory that processes hold; absent if the driver does not report it for one of them. Series over "+
			"--source.process.limit are summed with every label other.",
		"nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses", "kfd/proc/*/vram_*")
	t.without = t.Group("docs/process.md", "pod", "container", "comm", "spans").Gauge("process_gpu_without_rdma",
		"Jobs that hold GPU memory and have no connected queue pair on any rail, 0 if all have one: spans=nodes if "+
			"the environment shows that the job spans nodes, spans=gpus if it holds several GPUs and the environment "+
			"does not show that it stays on this node. Judged two minutes after their start, and only when every "+
			"queue pair is accounted for.",
		"RDMA_NLDEV_ATTR_RES_STATE", "nvmlDeviceGetComputeRunningProcesses", "kfd/proc/*/vram_*")
	t.addJobs()
	t.age = queuePairs.With("device").Gauge("process_queue_pairs_age_seconds",
		"Age of the list of queue pairs that was used: near 0 unless listing them takes longer than a scrape waits. A "+
			"list is used for at most two minutes.", dump)
	t.seconds = queuePairs.With("device").Gauge("process_queue_pairs_read_seconds",
		"Time that listing the queue pairs took. The kernel asks an adapter's firmware about each of them, so at most "+
			"10 % of the time is spent on it.", dump)
	return t
}

func (t *table) addJobs() {
	jobs := t.Group("docs/process.md")
	t.bytes = jobs.With("rail", "direction", "pod", "container", "comm").Counter("process_job_rail_bytes_total",
		"Bytes of the rail's port while the job was the only one with queue pairs there, without those of railscope's "+
			"rounds. Absent while process_job_rail_shared is not 0, and on "+
			"software devices, whose counters have TCP too. Series over --source.process.limit are summed with every "+
			"label other.", "RDMA_NLDEV_ATTR_RES_QP", "port_rcv_data", "port_xmit_data")
	t.shared = jobs.With("rail", "pod", "container", "comm").Gauge("process_job_rail_shared",
		"Jobs with queue pairs on the rail whose bytes there are not known: 1 if other processes, the kernel or an "+
			"unknown process have queue pairs there too, or if some are on a virtual function, else 0. Series over "+
			"--source.process.limit are summed with every label other.", "RDMA_NLDEV_ATTR_RES_QP")
	t.imbalance = jobs.With("direction", "role", "pod", "container", "comm").Gauge("process_job_rails_imbalance_ratio",
		"1 − the smallest share of a rail of the role on which the job has queue pairs, between two of their lists "+
			"at least 10 s apart; shares are those of rails_imbalance_ratio. Absent if the job shares one of its "+
			"rails, and while none of a group of at least two carries 1 % of its capacity. At most "+
			"--source.process.limit series, the highest.", "RDMA_NLDEV_ATTR_RES_QP", "port_rcv_data", "port_xmit_data")
}
