package nccl

import "github.com/railscope/railscope/collector"

const (
	refNCCL = "NCCL 2.10 to 2.30, RCCL 2.18 to 2.30: src/init.cc, src/graph/topo.cc, src/transport/net.cc, " +
		"src/transport/net_ib; docs/nccl.md"
	refWC  = "enum ibv_wc_status in libibverbs/verbs.h; ncclIbTest in NCCL, src/transport/net_ib"
	refOwn = "docs/nccl.md"
)

// table holds the rows. The label job is the name of a log file.
type table struct {
	collector.Table
	network, gdr, channels, fallback, reason   *collector.Metric
	warnings, completions, files, cut, skipped *collector.Metric
}

func newTable() *table {
	t := &table{Table: collector.Table{Source: "nccl"}}
	job, own := t.Group(refNCCL, "job"), t.Group(refOwn)
	const option = "--nccl.log"
	t.network = job.With("network").Gauge("nccl_network_info",
		"Network that a job's NCCL reports, always 1: IB, Socket, or the name of a plugin; job is the name of its log "+
			"file.", "Using network IB")
	t.gdr = job.With("device").Gauge("nccl_gdr_enabled",
		"1 if a job's NCCL reports that the adapter reaches GPU memory directly, 0 if everything is copied through "+
			"host memory.", "GPU Direct RDMA Enabled for HCA 0 'mlx5_0'")
	t.channels = job.With("transport").Gauge("nccl_channels",
		"Connections of channels that a job's NCCL has reported since its log began, by transport; absent if part "+
			"of the log was not read.", "via NET/IB/0/GDRDMA")
	t.fallback = job.Ref(refOwn).Gauge("nccl_fallback",
		"1 if a job of several nodes uses sockets instead of RDMA, by its own log, 0 if not; absent until the log "+
			"shows which, and for networks of unknown plugins.", "Using network Socket", "via NET/Socket/0",
		"NET/OFI Selected provider is tcp")
	t.reason = job.Ref(refOwn).With("reason").Gauge("nccl_fallback_reason_info",
		"Why a job uses sockets, as far as its log shows, always 1: net_forced, ib_disabled, libfabric, "+
			"no_libibverbs, no_device, ib_failed or unknown.", "NET/IB : No device found.",
		"NCCL_IB_DISABLE set by environment to 1")
	t.warnings = t.Group(refNCCL, "kind").Counter("nccl_warnings_total",
		"Warnings of NCCL in all logs since railscope began to read them, and links that became slower.", "NCCL WARN")
	t.completions = t.Group(refWC, "status").Counter("nccl_completion_errors_total",
		"Completions with an error that NCCL warned of, by status (IBV_WC_…_ERR): retry_exc is a peer or path that "+
			"does not answer.", "Got completion from peer")
	t.files = own.With("state").Gauge("nccl_files",
		"Files that match --nccl.log: followed, waiting (newer files take all places), idle for a week, "+
			"special (not a regular file), unreadable, same_name.", option)
	t.cut = own.Counter("nccl_cut_lines_total", "Lines of which only the first 4 KiB were read.", option)
	t.skipped = own.Counter("nccl_skipped_bytes_total",
		"Bytes of logs that were not read: of large ones that existed before, and of those that grow too fast.",
		option)
	return t
}
