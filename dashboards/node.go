package dashboards

// node shows one node, its rails side by side.
func node() *dashboard {
	d := &dashboard{
		name: "node", title: "railscope / Node", variables: ofOne(railVariable()),
		about: "One node: its alerts and findings, its rails side by side, bonds and GPUs.",
	}
	return d.
		section("Alerts and findings", nodeFaults()...).
		section("Rails", nodeRails()...).
		section("Overview", nodeNow()...).
		section("Traffic", nodeTraffic()...).
		section("Congestion and loss", nodeCongestion()...).
		folded("Links and errors", nodeErrors()...).
		folded("Bursts: all samples by rail", nodeBursts()...).
		folded("GPU memory", nodeMemory()...).
		folded("GPUs", nodeGPUs()...).
		folded("Processes and jobs", nodeUsers()...).
		folded("Bonds", nodeBonds()...).
		folded("Properties, GIDs and PCIe", append(nodeProperties(), nodeGIDs()...)...).
		folded("railscope itself", nodeOwn()...)
}

const (
	// Lost rails among the selected ones: the port was up in the last day, and is down or missing now.
	lostHere = `((max_over_time(railscope_port_up{<rail>}[1d:15m]) == 1) unless ignoring (rail) ` +
		`railscope_port_up{<rail>} == 1 unless ignoring (rail, port) railscope_rail_excluded_info{<node>} and on ` +
		`(job, instance) railscope_build_info{<node>})`
	// Speed × width of a PCIe link relative to the device's maximum.
	linkOfMost = `(railscope_pcie_link_transfers_per_second{<node>} * railscope_pcie_link_width_lanes{<node>}) / ` +
		`(railscope_pcie_link_max_transfers_per_second{<node>} * railscope_pcie_link_max_width_lanes{<node>})`
)

func nodeNow() []*panel {
	return []*panel{
		stat("Rails up", docRDMA, "Rails whose port is ACTIVE.").
			query(`sum(railscope_port_up{<rail>})`, "").unit("none").colours(grey).nothing("no rails"),
		stat("Rails lost", docRDMA,
			"Rails that were up within the last day and are now down (cable, switch port, `ip link set … down`) "+
				"or missing (driver, PCIe).").
			query(`count(`+lostHere+`) or sum(0 * railscope_build_info{<node>})`, "").unit("none").colours(green,
			from(1, red)).nothing("no rails"),
		stat("Slowest rail", docSampler,
			"Share of the slowest rail relative to the best rail with the same link layer and rate, by "+
				"capacity, in the worse direction. 100 % is even. Jobs that use only some rails are uneven too. No "+
				"value while idle.").
			query(`min(`+slowestRail+`)`, "").unit("percentunit").decimals(0).colours(grey).nothing("idle"),
		stat("Fallback suspected", docSampler,
			"Number of reasons why the node's traffic suggests that a job has lost RDMA. The timeline under "+
				"Traffic names them.").
			query(`sum(max by (reason) (railscope_fallback_suspected{<node>}))`, "").unit("none").colours(green,
			from(1, orange)),
		stat("GIDs misbound", docRDMA,
			"Rails whose RoCE v2 IPv4 GIDs all belong to another interface, for example a bond: connections "+
				"leave through another port.").
			query(`sum(railscope_gid_misbound{<rail>})`, "").unit("none").colours(green, from(1, red)).nothing("none"),
		stat("Full GPUs", docGPU,
			"GPUs with less than 2 % and less than 1 GiB of memory free; for GPUs that share the machine's "+
				"memory, less than 2 %. The next allocation may fail, including NCCL's.").
			query(`count(`+gpuFull+`) or sum(0 * railscope_gpu_memory_free_bytes{<node>})`, "").unit("none").
			colours(green, from(1, red)).nothing("no GPU data"),
		stat("GPUDirect RDMA", docGPUDirect,
			"How adapters access GPU memory: peermem or dmabuf. With none or unsupported, every transfer is "+
				"copied through host memory; on a DGX Spark this is normal.").
			query(`max(railscope_gpudirect_info{<node>, mode="peermem"} or railscope_gpudirect_info{<node>, `+
				`mode="dmabuf"} * 2 or railscope_gpudirect_info{<node>, mode="none"} * 3 or `+
				`railscope_gpudirect_info{<node>, mode="unsupported"} * 4)`, "").
			unit("none").colours(grey).nothing("unknown").
			states(state{"1", "peermem", grey}, state{"2", "dmabuf", grey}, state{"3", "none", orange},
				state{"4", "unsupported", grey}),
		stat("Sources failing", docOwn,
			"Sources that could not read some of their data. The data that could be read is shown. "+
				"`source_errors_total` has device and reason.").
			query(`sum(1 - railscope_source_success{<node>})`, "").unit("none").colours(green, from(1, orange)),
	}
}

func nodeTraffic() []*panel {
	return []*panel{
		timeseries("RDMA traffic by rail", docRDMA,
			"Transmit upwards, receive downwards. Lines of one direction should coincide: a lower line is a "+
				"slow rail, a line at 0 an unused rail.").size(12, 9).
			query(bits("port_transmit_bytes_total", "<rail>", "instance, rail"), perRail("transmit")).
			query(bits("port_receive_bytes_total", "<rail>", "instance, rail"), perRail("receive")).unit("bps").
			style(".* receive · .*", below()).lowestNow().leads(toRail()),
		timeseries("RDMA traffic ÷ capacity", docRDMA,
			"Transmit upwards, receive downwards. Averages: the heatmaps under Bursts show what is between two "+
				"scrapes.").
			size(12, 9).
			query(`max by (instance, rail) (rate(railscope_port_transmit_bytes_total{<rail>}[$__rate_interval]) / `+
				`railscope_rail_capacity_bytes_per_second{<rail>})`, perRail("transmit")).
			query(`max by (instance, rail) (rate(railscope_port_receive_bytes_total{<rail>}[$__rate_interval]) / `+
				`railscope_rail_capacity_bytes_per_second{<rail>})`, perRail("receive")).
			unit("percentunit").from(-1).upTo(1).style(".* receive · .*", below()).lowestNow().leads(toRail()),
		timeseries("Traffic imbalance", docSampler,
			"Over the last 10 s under load: 1 − the smallest share. 39 %: a rail carries 61 % of the best rail "+
				"with the same link layer and rate. 100 %: a rail carries nothing. Time above 25 % counts as "+
				"imbalanced.").
			query(`max by (instance, direction) (railscope_rails_imbalance_ratio{<node>})`,
				"{{direction}} · {{instance}}").
			unit("percentunit").from(0).upTo(1).worseAbove(0.25, 0.5).limits(),
		timeseries("Busy and saturated time", docSampler,
			"Share of the time in which a rail was in use (above 1 %) and full (above 95 %). If a rail is full "+
				"for long, the job waits for it.").
			query(`max by (instance, rail) (rate(railscope_rail_busy_seconds_total{<rail>}[$__rate_interval]))`,
				perRail("busy")).
			query(`max by (instance, rail) (rate(railscope_rail_saturated_seconds_total{<rail>}[$__rate_interval]))`,
				perRail("saturated")).
			unit("percentunit").from(0).upTo(1),
		timeseries("TCP on the rails", docSampler,
			"Traffic of the rails' interfaces that is not RDMA; transmit upwards, receive downwards. If it "+
				"follows the job, the job fell back to TCP.").
			query(bits("rail_tcp_bytes_total", `<rail>, direction="transmit"`, "instance, rail"), perRail("transmit")).
			query(bits("rail_tcp_bytes_total", `<rail>, direction="receive"`, "instance, rail"), perRail("receive")).
			unit("bps").style(".* receive · .*", below()),
		timeseries("Imbalanced share of busy time", docSampler,
			"Share of the time under load in which rails were uneven. A value that stays above 50 % is a fault.").
			query(`sum by (instance, direction) `+
				`(rate(railscope_rails_imbalanced_seconds_total{<node>}[$__rate_interval])) / sum by (instance, `+
				`direction) (rate(railscope_rails_busy_seconds_total{<node>}[$__rate_interval]))`,
				"{{direction}} · {{instance}}").
			size(8, 7).unit("percentunit").from(0).upTo(1).worseAbove(0.2, 0.5).limits(),
		timeline("Fallback suspected", docSampler,
			"Why the node's traffic suggests that a job has lost RDMA: busy GPUs while the rails carry TCP, or "+
				"traffic on one rail instead of several. Check the processes and their environment (`railscope "+
				"doctor`).",
			state{"0", "no", "transparent"}, state{"1", "suspected", orange}).size(16, 7).
			query(`max by (instance, reason) (railscope_fallback_suspected{<node>})`, "{{reason}} · {{instance}}"),
	}
}

// uncounted is shown if no rail has the counter: many drivers have fewer counters than mlx5.
const uncounted = "not counted on these rails"

func nodeBursts() []*panel {
	return []*panel{
		heatmap("Utilization of rail $rail", docSampler,
			"All samples ÷ capacity, both directions. A bright band at the top is a rail that is full in "+
				"bursts. All rails should look alike.", "percentunit").size(6, 8).
			query(spread("rail_utilization_ratio", "<rail>"), "{{le}}").eachOf("rail", 4),
	}
}

func nodeCongestion() []*panel {
	return []*panel{
		timeseries("Congestion notifications (CNP)", docRDMA,
			"Sent: packets that arrived here were marked, so the path to this node is congested. Ignored: congestion "+
				"control is off on this node, which is a fault. Those received are not drawn: mlx5 counts "+
				"retransmissions among them.").
			query(perSecond("port_cnp_sent_total", "<rail>", "instance, rail"), perRail("sent")).
			query(perSecond("port_cnp_ignored_total", "<rail>", "instance, rail"), perRail("ignored")).unit("pps").
			from(0).nothing(uncounted),
		timeseries("ECN-marked packets", docRDMA,
			"Packets that arrived with the congestion mark of a full switch queue. If only one rail has them, "+
				"check its switch.").
			query(perSecond("port_ecn_marked_packets_total", "<rail>", "instance, rail"), perRail("")).unit("pps").
			from(0).nothing(uncounted),
		timeseries("Paused by PFC", docNetdev,
			"Share of the time in which PFC blocked a priority. Received (upwards): the network blocked this "+
				"node. Sent (downwards): this node is too slow and blocked the network. Near 100 %, the port "+
				"carries no traffic.").
			query(`max by (instance, rail, priority) (rate(railscope_port_pause_seconds_total{<rail>, `+
				`direction="receive"}[$__rate_interval]))`, perRail("priority {{priority}} received")).
			query(`max by (instance, rail, priority) (rate(railscope_port_pause_seconds_total{<rail>, `+
				`direction="transmit"}[$__rate_interval]))`, perRail("priority {{priority}} sent")).
			unit("percentunit").style(".* sent · .*", below()).nothing(uncounted),
		timeseries("Pause frames", docNetdev,
			"PFC pause frames by priority; received upwards, sent downwards. Frames on priorities other than "+
				"the lossless one are a configuration error.").
			query(perSecond("port_pause_frames_total", `<rail>, direction="receive"`, "instance, rail, priority"),
				perRail("priority {{priority}} received")).
			query(perSecond("port_pause_frames_total", `<rail>, direction="transmit"`, "instance, rail, priority"),
				perRail("priority {{priority}} sent")).
			unit("pps").style(".* sent · .*", below()).nothing(uncounted),
		timeseries("Out of order and retransmitted", docRDMA,
			"Packets that arrived out of order, and losses that the sender detected. All are 0 on a lossless "+
				"fabric, but not with adaptive routing.").
			query(perSecond("port_out_of_sequence_packets_total", "<rail>", "instance, rail"), perRail("out of order")).
			query(perSecond("port_packet_sequence_errors_total", "<rail>", "instance, rail"),
				perRail("sequence errors")).
			query(perSecond("port_adaptive_retransmits_total", "<rail>", "instance, rail"),
				perRail("adaptive retransmissions")).unit("eps").from(0).nothing(uncounted),
		timeseries("Timeouts", docRDMA,
			"Missing acknowledgements, and queue pairs that gave up. Each one costs a job milliseconds to "+
				"seconds, or ends it.").
			query(perSecond("port_ack_timeouts_total", "<rail>", "instance, rail"), perRail("timeouts")).
			query(perSecond("port_transport_retries_exceeded_total", "<rail>", "instance, rail"), perRail("gave up")).
			query(perSecond("port_rnr_naks_received_total", "<rail>", "instance, rail"), perRail("peer not ready")).
			unit("eps").from(0).nothing(uncounted),
		timeseries("Buffer discards", docNetdev,
			"Discards by the physical port, and by priority and cause, which may overlap. RoCE retransmits for "+
				"each one: PFC or ECN does not work.").
			query(perSecond("netdev_phy_discards_total", "<rail>", "instance, rail, direction"),
				perRail("{{direction}}")).
			query(perSecond("port_priority_receive_discards_total", "<rail>", "instance, rail, priority, cause"),
				perRail("priority {{priority}}, {{cause}}")).
			query(perSecond("port_out_of_buffer_total", "<rail>", "instance, rail"), perRail("no receive buffer")).
			unit("eps").from(0).nothing(uncounted),
		timeseries("Adapter waits for PCIe", docNetdev,
			"Share of the time in which PCIe stalled the adapter by more than 30 %, and the resulting drops. "+
				"The host is the bottleneck: PCIe link, IOMMU, NUMA.").
			query(`max by (instance, rail, operation) `+
				`(rate(railscope_netdev_pci_stalled_seconds_total{<rail>}[$__rate_interval]))`,
				perRail("{{operation}}")).unit("percentunit").from(0).upTo(1).nothing(uncounted),
		timeseries("Pause storms", docNetdev,
			"Times that this host paused the network for too long. With severity error the adapter stopped "+
				"pausing and now drops packets: a hung host or GPU.").
			query(perSecond("port_pause_storm_events_total", "<rail>", "instance, rail, severity"),
				perRail("{{severity}}")).unit("eps").from(0).nothing(uncounted),
	}
}
