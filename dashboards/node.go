package dashboards

// node is one node, its rails side by side.
func node() *dashboard {
	d := &dashboard{
		name: "node", title: "railscope / Node", variables: ofOne(railVariable()),
		about: "One node: its rails side by side, what they carry, what holds them up, the bonds over them and the GPUs beside them.",
	}
	return d.
		section("Is anything wrong?", nodeNow()...).
		section("Rails", nodeRails()...).
		section("Traffic", nodeTraffic()...).
		section("Congestion and loss", nodeCongestion()...).
		section("Links and errors", nodeErrors()...).
		section("GPU memory", nodeMemory()...).
		folded("Bursts: every sample, rail by rail", nodeBursts()...).
		folded("GPUs", nodeGPUs()...).
		folded("Who uses what", nodeUsers()...).
		folded("Bonds", nodeBonds()...).
		folded("GIDs and PCIe", nodeGIDs()...).
		folded("railscope itself", nodeOwn()...)
}

const (
	// lost, of the chosen rails.
	lostHere = `((max_over_time(railscope_port_up{<rail>}[1d:15m]) == 1) unless ignoring (rail) railscope_port_up{<rail>} == 1 unless ignoring (rail, port) railscope_rail_excluded_info{<node>} and on (job, instance) railscope_build_info{<node>})`
	// How full the PCIe link of an adapter or a GPU is built out: speed and width, of what the device could do.
	linkOfMost = `(railscope_pcie_link_transfers_per_second{<node>} * railscope_pcie_link_width_lanes{<node>}) / (railscope_pcie_link_max_transfers_per_second{<node>} * railscope_pcie_link_max_width_lanes{<node>})`
)

// perRail and perGPU name series. What tells them apart comes first, because
// legends and axes cut the end, and the node, mostly the same, last.
func perRail(what string) string { return named("rail {{rail}}", what) }
func perGPU(what string) string  { return named("GPU {{gpu}}", what) }

func named(of, what string) string {
	if what != "" {
		of += " " + what
	}
	return of + " · {{instance}}"
}

func nodeNow() []*panel {
	return []*panel{
		stat("Rails up", docRDMA, "Rails whose port is ACTIVE.").
			query(`sum(railscope_port_up{<rail>})`, "").unit("none").colours(grey).nothing("no rails"),
		stat("Rails lost", docRDMA, "Rails that were up within the last day and are not now: down (cable, switch port, `ip link set … down`), or gone from the machine (driver, PCIe).").
			query(`count(`+lostHere+`) or sum(0 * railscope_build_info{<node>})`, "").unit("none").colours(green, from(1, red)).nothing("no rails"),
		stat("Slowest rail", docSampler, "What the slowest rail carries of what the best of its link layer and rate does, each by its capacity, in the worse direction. 100 % is even; jobs that use some rails only are uneven, too. No figure while they are idle.").
			query(`min(`+slowestRail+`)`, "").unit("percentunit").decimals(0).colours(grey).nothing("idle"),
		stat("Fallback suspected", docSampler, "Reasons why the node's own traffic looks as if it had left RDMA; the timeline under Traffic has them by name.").
			query(`sum(max by (reason) (railscope_fallback_suspected{<node>}))`, "").unit("none").colours(green, from(1, orange)),
		stat("GIDs misbound", docRDMA, "Rails whose RoCE v2 IPv4 GIDs all sit on another interface, as after enslaving it to a bond: connections leave by another port.").
			query(`sum(railscope_gid_misbound{<rail>})`, "").unit("none").colours(green, from(1, red)).nothing("none"),
		stat("Full GPUs", docGPU, "GPUs with less than a fiftieth of their memory and less than 1 GiB free; of what shares the machine's memory, less than a fiftieth. The next allocation may fail; NCCL needs some, too.").
			query(`count(`+gpuFull+`) or sum(0 * railscope_gpu_memory_free_bytes{<node>})`, "").unit("none").colours(green, from(1, red)).nothing("no GPU tells"),
		stat("GPUDirect RDMA", docGPUDirect, "How adapters reach GPU memory: peermem or dmabuf. With none and unsupported every transfer is copied through host memory; on a DGX Spark that is by design.").
			query(`max(railscope_gpudirect_info{<node>, mode="peermem"} or railscope_gpudirect_info{<node>, mode="dmabuf"} * 2 or railscope_gpudirect_info{<node>, mode="none"} * 3 or railscope_gpudirect_info{<node>, mode="unsupported"} * 4)`, "").
			unit("none").colours(grey).nothing("unknown").
			states(state{"1", "peermem", grey}, state{"2", "dmabuf", grey}, state{"3", "none", orange}, state{"4", "unsupported", grey}),
		stat("Sources failing", docOwn, "Sources that could not read everything they should. What could be read is shown all the same; `source_errors_total` has device and reason.").
			query(`sum(1 - railscope_source_success{<node>})`, "").unit("none").colours(green, from(1, orange)),
	}
}

func nodeRails() []*panel {
	const key = "instance, rail"
	return []*panel{
		table("Rails", docRDMA,
			"What each rail is, and what it could carry: the least of port rate and PCIe link. Rails of one node should differ in nothing but names and addresses.").size(24, 10).
			label("rail", "Rail", wide(60), leadingTo(toRailOf("${__data.fields.instance}", "${__value.text}"))).
			column("State", `max by (`+key+`) (railscope_port_state_id{<rail>})`, wide(85), painted(), by("transparent"), says(portStates...)).
			column("Sends", bits("port_transmit_bytes_total", "<rail>", key), wide(95), inUnit("bps")).
			column("Receives", bits("port_receive_bytes_total", "<rail>", key), wide(95), inUnit("bps")).
			column("Rate", `8 * max by (`+key+`) (railscope_port_rate_bytes_per_second{<rail>})`, wide(85), inUnit("bps")).
			column("Capacity", `8 * max by (`+key+`) (railscope_rail_capacity_bytes_per_second{<rail>})`, wide(85), inUnit("bps")).
			column("PCIe link", `8 * max by (`+key+`) (railscope_pcie_link_bytes_per_second{<rail>, kind="nic"})`, wide(85), inUnit("bps")).
			column("MTU", `max by (`+key+`) (railscope_port_mtu_bytes{<rail>, kind="netdev"})`, wide(65), inUnit("none")).
			column("RoCE MTU", `max by (`+key+`) (railscope_port_mtu_bytes{<rail>, kind="active"})`,
				wide(90), inUnit("none"), painted(), by(orange, from(4096, "transparent"))).
			column("Misbound", `max by (`+key+`) (railscope_gid_misbound{<rail>})`, wide(85), painted(), by("transparent", from(1, red)), says(no, yes)).
			label("device", "Device").label("netdev", "Interface").label("pci_address", "PCI address").label("numa_node", "NUMA", wide(65)).label("firmware", "Firmware").
			label("instance", "Node").
			labelled(`max by (instance, rail, device, netdev, pci_address, numa_node, firmware) (railscope_rail_info{<rail>})`),
	}
}

var portStates = []state{
	{"4", "active", green}, {"1", "down", orange}, {"2", "init", orange}, {"3", "armed", yellow}, {"5", "active defer", yellow}, {"0", "no change", grey},
}

func nodeTraffic() []*panel {
	return []*panel{
		timeseries("RDMA traffic by rail", docRDMA, "Sent upwards, received downwards. Lines of one direction should lie on each other: one below them is a slow rail, one at 0 a rail that is not used.").size(12, 9).
			query(bits("port_transmit_bytes_total", "<rail>", "instance, rail"), perRail("sends")).
			query(bits("port_receive_bytes_total", "<rail>", "instance, rail"), perRail("receives")).unit("bps").style(".* receives · .*", below()).lowestNow().leads(toRail()),
		timeseries("RDMA traffic of capacity", docRDMA, "What each rail carries ÷ what it could, sent upwards, received downwards. Averages: the bursts between two scrapes are in the heatmaps, further down.").size(12, 9).
			query(`max by (instance, rail) (rate(railscope_port_transmit_bytes_total{<rail>}[$__rate_interval]) / railscope_rail_capacity_bytes_per_second{<rail>})`, perRail("sends")).
			query(`max by (instance, rail) (rate(railscope_port_receive_bytes_total{<rail>}[$__rate_interval]) / railscope_rail_capacity_bytes_per_second{<rail>})`, perRail("receives")).
			unit("percentunit").from(-1).upTo(1).style(".* receives · .*", below()).lowestNow().leads(toRail()),
		timeseries("Imbalance of traffic", docSampler, "Of the last 10 s while rails are busy: 1 − the smallest share. 39 %: a rail carries 61 % of what the best of its link layer and rate does; 100 %: one carries nothing. From 25 % on the time counts as imbalanced.").
			query(`max by (instance, direction) (railscope_rails_imbalance_ratio{<node>})`, "{{direction}} · {{instance}}").
			unit("percentunit").from(0).upTo(1).worseAbove(0.25, 0.5).limits(),
		timeseries("Time busy and saturated", docSampler, "Part of the time in which a rail was used at all (above 1 %), and in which it was full (above 95 %). Full for long: the job waits for this rail.").
			query(`max by (instance, rail) (rate(railscope_rail_busy_seconds_total{<rail>}[$__rate_interval]))`, perRail("busy")).
			query(`max by (instance, rail) (rate(railscope_rail_saturated_seconds_total{<rail>}[$__rate_interval]))`, perRail("saturated")).
			unit("percentunit").from(0).upTo(1),
		timeseries("TCP on the rails", docSampler, "What the rails' interfaces carried that was not RDMA, sent upwards, received downwards. In step with the job: a job that fell back to TCP.").
			query(bits("rail_tcp_bytes_total", `<rail>, direction="transmit"`, "instance, rail"), perRail("sends")).
			query(bits("rail_tcp_bytes_total", `<rail>, direction="receive"`, "instance, rail"), perRail("receives")).unit("bps").style(".* receives · .*", below()),
		timeseries("Imbalanced part of the busy time", docSampler, "Of the seconds in which rails were busy, the part in which they were uneven. Steadily above 0.5: not chance, but a fault.").
			query(`sum by (instance, direction) (rate(railscope_rails_imbalanced_seconds_total{<node>}[$__rate_interval])) / sum by (instance, direction) (rate(railscope_rails_busy_seconds_total{<node>}[$__rate_interval]))`, "{{direction}} · {{instance}}").
			size(8, 7).unit("percentunit").from(0).upTo(1).worseAbove(0.2, 0.5).limits(),
		timeline("Fallback suspected", docSampler, "Why the node's own traffic looks as if it had left RDMA: GPUs busy while rails carry TCP, or one rail where there were several. Go on with the processes and their environment (`railscope doctor`).",
			state{"0", "no", "transparent"}, state{"1", "suspected", orange}).size(16, 7).
			query(`max by (instance, reason) (railscope_fallback_suspected{<node>})`, "{{reason}} · {{instance}}"),
	}
}

// uncounted is said where no rail has a counter: many drivers count less than mlx5.
const uncounted = "no rail here counts this"

func nodeBursts() []*panel {
	return []*panel{
		heatmap("Utilisation of rail $rail", docSampler,
			"Every sample of the sampler ÷ capacity, both directions. A bright band at the top is a rail that is full in bursts; rails side by side should look alike.", "percentunit").size(6, 8).
			query(spread("rail_utilization_ratio", "<rail>"), "{{le}}").eachOf("rail", 4),
	}
}

func nodeCongestion() []*panel {
	return []*panel{
		timeseries("Congestion notifications (CNP)", docRDMA, "Handled: we slowed down because the network said so. Sent: what reaches us was marked. Ignored is wrong: congestion control is off here.").
			query(perSecond("port_cnp_handled_total", "<rail>", "instance, rail"), perRail("handled")).
			query(perSecond("port_cnp_sent_total", "<rail>", "instance, rail"), perRail("sent")).
			query(perSecond("port_cnp_ignored_total", "<rail>", "instance, rail"), perRail("ignored")).unit("pps").from(0).nothing(uncounted),
		timeseries("ECN-marked packets", docRDMA, "Packets that arrived with the mark of a congested switch queue. One rail alone: look at its switch.").
			query(perSecond("port_ecn_marked_packets_total", "<rail>", "instance, rail"), perRail("")).unit("pps").from(0).nothing(uncounted),
		timeseries("Paused by PFC", docNetdev,
			"Part of the time that PFC held a priority. Received, upwards: the network held us. Sent, downwards: we held the network, because this host is too slow. Near 1: a port that stands still.").
			query(`max by (instance, rail, priority) (rate(railscope_port_pause_seconds_total{<rail>, direction="receive"}[$__rate_interval]))`, perRail("priority {{priority}} held")).
			query(`max by (instance, rail, priority) (rate(railscope_port_pause_seconds_total{<rail>, direction="transmit"}[$__rate_interval]))`, perRail("priority {{priority}} holds")).
			unit("percentunit").style(".* holds · .*", below()).nothing(uncounted),
		timeseries("Pause frames", docNetdev, "PFC pause frames by priority, received upwards, sent downwards. On any other than the lossless priority: a wrong setting.").
			query(perSecond("port_pause_frames_total", `<rail>, direction="receive"`, "instance, rail, priority"), perRail("priority {{priority}} receives")).
			query(perSecond("port_pause_frames_total", `<rail>, direction="transmit"`, "instance, rail, priority"), perRail("priority {{priority}} sends")).
			unit("pps").style(".* sends · .*", below()).nothing(uncounted),
		timeseries("Out of order and sent again", docRDMA, "Packets that arrived out of order, and loss as the sender sees it. On a lossless fabric all are 0; on one that sprays packets some are not.").
			query(perSecond("port_out_of_sequence_packets_total", "<rail>", "instance, rail"), perRail("out of order")).
			query(perSecond("port_packet_sequence_errors_total", "<rail>", "instance, rail"), perRail("lost")).
			query(perSecond("port_adaptive_retransmits_total", "<rail>", "instance, rail"), perRail("adaptive retransmissions")).unit("eps").from(0).nothing(uncounted),
		timeseries("Timeouts", docRDMA, "No acknowledgement came in time, and queue pairs that gave up. Any at all costs a job milliseconds to seconds, or its life.").
			query(perSecond("port_ack_timeouts_total", "<rail>", "instance, rail"), perRail("timeouts")).
			query(perSecond("port_transport_retries_exceeded_total", "<rail>", "instance, rail"), perRail("gave up")).
			query(perSecond("port_rnr_naks_received_total", "<rail>", "instance, rail"), perRail("peer not ready")).unit("eps").from(0).nothing(uncounted),
		timeseries("Discarded for lack of buffers", docNetdev, "By the physical port, and by priority and cause, which may overlap. RoCE pays for each with a retransmission: PFC or ECN does not do its work.").
			query(perSecond("netdev_phy_discards_total", "<rail>", "instance, rail, direction"), perRail("{{direction}}")).
			query(perSecond("port_priority_receive_discards_total", "<rail>", "instance, rail, priority, cause"), perRail("priority {{priority}}, {{cause}}")).
			query(perSecond("port_out_of_buffer_total", "<rail>", "instance, rail"), perRail("no receive buffer")).unit("eps").from(0).nothing(uncounted),
		timeseries("Adapter waits for PCIe", docNetdev, "Time in which the adapter could not use PCIe for more than 30 % of it, and packets lost to that. The host is the bottleneck: PCIe link, IOMMU, NUMA.").
			query(`max by (instance, rail, operation) (rate(railscope_netdev_pci_stalled_seconds_total{<rail>}[$__rate_interval]))`, perRail("{{operation}}")).unit("percentunit").from(0).upTo(1).nothing(uncounted),
		timeseries("Pause storms", docNetdev, "Times that this host paused the network for long. With severity error the adapter stopped pausing, and loses packets instead: a hung host or GPU.").
			query(perSecond("port_pause_storm_events_total", "<rail>", "instance, rail, severity"), perRail("{{severity}}")).unit("eps").from(0).nothing(uncounted),
	}
}
