package collector

// The rows of processTable.
const (
	processQueuePairs = iota
	processGPUMemory
	processWithoutRDMA
	processQPAge
	processQPSeconds
)

const (
	refRestrack = "drivers/infiniband/core/nldev.c fill_res_qp_entry; include/uapi/rdma/rdma_netlink.h RDMA_NLDEV_CMD_RES_QP_GET"
	refNVMLProc = "nvml.h nvmlProcessInfo_v2_t usedGpuMemory; docs/process.md"
)

// processOther is every label of the series that sums what is over the limit.
const processOther = "other"

func processTable() []Metric {
	return []Metric{
		processQueuePairs: {Name: "process_queue_pairs", Kind: Gauge, Labels: []string{"rail", "pod", "container", "comm", "state"}, Ref: refRestrack, From: []Origin{{Name: "RDMA_NLDEV_ATTR_RES_QP"}},
			Help: "Queue pairs of processes, not the kernel's, by rail and state: rts can send. pod is namespace/name, or the UID where the name is not known; comm is empty where the thread that made them has ended; rail is empty on a device that is no rail. What is over --collector.process.limit is summed with every label other."},
		processGPUMemory: {Name: "process_gpu_memory_bytes", Kind: Gauge, Labels: []string{"gpu", "pod", "container", "comm"}, Ref: refNVMLProc, From: []Origin{{Name: "nvmlDeviceGetComputeRunningProcesses"}, {Name: "nvmlDeviceGetGraphicsRunningProcesses"}},
			Help: "GPU memory that processes hold; absent where the driver does not tell it of one of them. What is over --collector.process.limit is summed with every label other."},
		processWithoutRDMA: {Name: "process_gpu_without_rdma", Kind: Gauge, Labels: []string{"pod", "container", "comm", "spans"}, Ref: "docs/process.md", From: []Origin{{Name: "RDMA_NLDEV_ATTR_RES_STATE"}, {Name: "nvmlDeviceGetComputeRunningProcesses"}},
			Help: "Jobs that hold GPU memory and have no connected queue pair on any rail, 0 where all have one: spans=nodes where the environment says that the job spans nodes, spans=gpus where it holds several GPUs and nothing says that it stays on this node. Judged two minutes after their start, and only when every queue pair is accounted for."},
		processQPAge: {Name: "process_queue_pairs_age_seconds", Kind: Gauge, Labels: []string{"device"}, Ref: refRestrack, From: []Origin{{Name: "RDMA_NLDEV_CMD_RES_QP_GET"}},
			Help: "Age of the list of queue pairs that was used: near 0, unless listing them takes longer than a scrape waits. After two minutes a list is not used any more."},
		processQPSeconds: {Name: "process_queue_pairs_read_seconds", Kind: Gauge, Labels: []string{"device"}, Ref: refRestrack, From: []Origin{{Name: "RDMA_NLDEV_CMD_RES_QP_GET"}},
			Help: "How long it took to list the queue pairs. The kernel asks an adapter's firmware about each of them, so at most a tenth of the time is spent on it."},
	}
}

// rowPointers returns the rows of a table as [Source.Metrics] wants them.
func rowPointers(rows []Metric) []*Metric {
	list := make([]*Metric, len(rows))
	for i := range rows {
		list[i] = &rows[i]
	}
	return list
}
