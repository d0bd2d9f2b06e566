package dashboards

// The hardware half of the node dashboard: links, GPUs, bonds, GIDs, PCIe.

func nodeErrors() []*panel {
	return []*panel{
		timeline("Ports", docRDMA, "State of each rail's port. Short pieces are a link that flaps.", portStates...).size(12, 8).
			query(`max by (instance, rail) (railscope_port_state_id{<rail>})`, perRail("")).leads(toRail()),
		timeseries("Carrier changes", docNetdev, "Times per minute that a rail's interface lost or found its carrier. More than a start of the node: cable, optics, switch port.").size(12, 8).
			query(`60 * `+perSecond("netdev_carrier_changes_total", "<rail>", "instance, rail"), perRail("")).unit(perMinute).from(0).nothing(uncounted),
		timeseries("Bit errors on the wire", docNetdev,
			"Bits that forward error correction mended: some are normal above 100 Gbit/s, ten times those of other rails is a dying link. Symbols it could not mend lose packets.").
			query(perSecond("netdev_phy_fec_corrected_errors_total", "<rail>", "instance, rail"), perRail("mended")).
			query(perSecond("netdev_phy_symbol_errors_total", "<rail>", "instance, rail"), perRail("not mended")).unit("eps").from(0).nothing(uncounted),
		timeseries("Damaged packets", docRDMA, "Packets that arrived damaged: bad checksum (ICRC, CRC), receive errors, symbol errors. Any steady rate: replace cable or optics.").
			query(perSecond("port_icrc_errors_total", "<rail>", "instance, rail"), perRail("ICRC")).
			query(perSecond("netdev_phy_crc_errors_total", "<rail>", "instance, rail"), perRail("CRC")).
			query(perSecond("port_receive_errors_total", "<rail>", "instance, rail"), perRail("receive errors")).
			query(perSecond("port_symbol_errors_total", "<rail>", "instance, rail"), perRail("symbol errors")).unit("eps").from(0).nothing(uncounted),
		timeseries("Requests that failed", docRDMA, "Work requests that ended in an error, ours and peers'. Flushed ones belong to every end of a job, and are left out.").
			query(`sum by (instance, rail) (rate(railscope_port_requester_completion_errors_total{<rail>}[$__rate_interval]) - rate(railscope_port_requester_completion_flush_errors_total{<rail>}[$__rate_interval]))`, perRail("ours")).
			query(`sum by (instance, rail) (rate(railscope_port_responder_completion_errors_total{<rail>}[$__rate_interval]) - rate(railscope_port_responder_completion_flush_errors_total{<rail>}[$__rate_interval]))`, perRail("peers'")).
			unit("eps").from(0).nothing(uncounted),
	}
}

func nodeMemory() []*panel {
	return []*panel{
		bars("GPU memory in use", docGPU, "Of the total, now. Where a GPU shares the memory of the machine, gpu_memory_source_info says what is counted.").size(6, 8).
			query(`max by (instance, gpu) (`+gpuUsed+`)`, perGPU("")).unit("percentunit").from(0).upTo(1).colours(green, from(0.98, yellow)).nothing("no GPUs"),
		timeseries("GPU memory", docGPU, "In use, and what there is, dashed. A sawtooth that does not come back is fragmentation or a leak.").size(10, 8).
			query(`max by (instance, gpu) (railscope_gpu_memory_used_bytes{<node>})`, perGPU("")).
			query(`max by (instance) (railscope_gpu_memory_total_bytes{<node>})`, "total · {{instance}}").unit("bytes").from(0).style("total .*", dashed()...).nothing("no GPU tells"),
		timeseries("Peak of GPU memory", docSampler, "Most that was in use, looked at every second: in the last minute, and (dashed) since railscope started. Peaks between two scrapes are in it.").size(8, 8).
			query(`max by (instance, gpu) (railscope_gpu_memory_used_peak_bytes{<node>, window="1m"})`, perGPU("")).
			query(`max by (instance, gpu) (railscope_gpu_memory_used_peak_bytes{<node>, window="start"})`, perGPU("ever")).unit("bytes").from(0).style(".* ever · .*", dashed()...).nothing("no GPU tells"),
		timeseries("BAR1", docGPU, "Part of the window to GPU memory that is mapped. At 1 no more memory can be registered for GPUDirect RDMA, and transfers are copied.").
			query(`max by (instance, gpu) (railscope_gpu_bar1_memory_used_bytes{<node>} / railscope_gpu_bar1_memory_total_bytes{<node>})`, perGPU("")).
			unit("percentunit").from(0).upTo(1).colours(green, from(0.9, red)).limits().nothing("no GPU tells"),
		timeseries("ECC errors", docGPU, "Memory errors per hour. Corrected ones that keep coming, and any uncorrected one: see the remapped rows.").
			query(`3600 * `+perSecond("gpu_ecc_errors_total", "<node>", "instance, gpu, kind"), perGPU("{{kind}}")).unit(perHour).from(0).nothing("no GPU tells"),
		timeseries("Remapped rows", docGPU, "Rows of memory replaced by spare ones, and rows that wait for a reset. One that could not be replaced: exchange the card.").
			query(`max by (instance, gpu, cause) (railscope_gpu_remapped_rows{<node>})`, perGPU("{{cause}}")).
			query(`max by (instance, gpu) (railscope_gpu_row_remap_pending{<node>})`, perGPU("pending")).
			query(`max by (instance, gpu) (railscope_gpu_row_remap_failure{<node>})`, perGPU("failed")).unit("short").from(0).decimals(0).nothing("no GPU tells"),
	}
}

func nodeGPUs() []*panel {
	return []*panel{
		timeseries("GPU busy", docGPU, "Part of the time in which a kernel ran. Busy GPUs beside idle rails: compare with the traffic above; GPUs that wait for rails: dips in step with its peaks.").
			query(`max by (instance, gpu) (railscope_gpu_utilization_ratio{<node>})`, perGPU("")).unit("percentunit").from(0).upTo(1).nothing("no GPU tells"),
		timeseries("Power", docGPU, "What each GPU draws. One below the others under the same job is throttled, or waits.").
			query(`max by (instance, gpu) (railscope_gpu_power_watts{<node>})`, perGPU("")).unit("watt").from(0).nothing("no GPU tells"),
		timeseries("Temperature", docGPU, "Of the die. One above the others: airflow, or a pump.").
			query(`max by (instance, gpu) (railscope_gpu_temperature_celsius{<node>})`, perGPU("")).unit("celsius").nothing("no GPU tells"),
		timeseries("Clock", docGPU, "Of the streaming multiprocessors. One below the others under the same job is throttled; the panel beside has the reason.").
			query(`max by (instance, gpu) (railscope_gpu_clock_hertz{<node>, clock="sm"})`, perGPU("")).unit("hertz").from(0).nothing("no GPU tells"),
		timeline("Throttled", docGPU, "What holds the clocks down. Thermal and power brake reasons are faults of the machine; gpu_idle is left out.",
			state{"0", "no", "transparent"}, state{"1", "throttled", orange}).size(8, 8).
			query(`max by (instance, gpu, reason) (railscope_gpu_clocks_throttled{<node>, reason!="gpu_idle"})`, perGPU("{{reason}}")),
		timeseries("PCIe packets sent again", docGPU, "By the GPU, after an error on its link. Rising: slot, riser or cable.").
			query(perSecond("gpu_pcie_replays_total", "<node>", "instance, gpu"), perGPU("")).unit("pps").from(0).nothing("no GPU tells"),
	}
}

func nodeUsers() []*panel {
	const who, name = "instance, pod, container, comm", "{{pod}} {{container}} {{comm}} · {{instance}}"
	return []*panel{
		stat("Jobs without RDMA", docProcess, "Processes of jobs that hold GPU memory and have no connected queue pair on any rail, two minutes after their start: they go by TCP. `--collector.process` looks for them.").size(4, 8).
			query(`sum(railscope_process_gpu_without_rdma{<node>})`, "").unit("none").colours(green, from(1, orange)).nothing("not looked for"),
		table("Who has queue pairs", docProcess, "Processes by rail and state of their queue pairs. A job should have as many in state rts on each rail; one rail short is a job on fewer rails.").size(20, 8).
			label("instance", "Node").label("rail", "Rail").label("pod", "Pod").label("container", "Container").label("comm", "Command").label("state", "State").
			column("Queue pairs", `sum by (instance, rail, pod, container, comm, state) (railscope_process_queue_pairs{<rail>})`).nothing("not looked for"),
		timeseries("Connected queue pairs", docProcess, "In state rts, by process, all rails. A fall to 0 while the process lives: its connections broke.").size(12, 8).
			query(`sum by (`+who+`) (railscope_process_queue_pairs{<rail>, state="rts"})`, name).unit("none").from(0).decimals(0).stacked().nothing("not looked for: --collector.process"),
		timeseries("GPU memory by process", docProcess, "What each process holds, on all GPUs. What nobody of the job holds is somebody else's.").size(12, 8).
			query(`sum by (`+who+`) (railscope_process_gpu_memory_bytes{<node>})`, name).unit("bytes").from(0).stacked().nothing("not looked for: --collector.process"),
		timeseries("Networks of NCCL", docNCCL, "Jobs by the network that their NCCL says it uses, from its logs (`--collector.nccl`). Socket beside IB: a job that fell back.").
			query(`count by (instance, network) (railscope_nccl_network_info{<node>})`, "{{network}} · {{instance}}").unit("none").from(0).decimals(0).
			style("Socket .*", fixed(orange)).nothing("not looked for: --collector.nccl"),
		timeseries("Why NCCL uses sockets", docNCCL, "Jobs by reason, as far as their logs say; and adapters that do not reach GPU memory by themselves.").
			query(`count by (instance, reason) (railscope_nccl_fallback_reason_info{<node>})`, "{{reason}} · {{instance}}").
			query(`sum by (instance, device) (1 - railscope_nccl_gdr_enabled{<node>})`, "{{device}} without GPUDirect · {{instance}}").unit("none").from(0).decimals(0).nothing("not looked for: --collector.nccl"),
		timeseries("Warnings of NCCL", docNCCL, "Per minute and kind, and completions with an error by status: retry_exc is a peer or a path that does not answer.").
			query(`60 * `+perSecond("nccl_warnings_total", "<node>", "instance, kind"), "{{kind}} · {{instance}}").
			query(`60 * `+perSecond("nccl_completion_errors_total", "<node>", "instance, status"), "{{status}} · {{instance}}").unit(perMinute).from(0).nothing("not looked for: --collector.nccl"),
	}
}

func nodeBonds() []*panel {
	return []*panel{
		table("Bonds", docBond, "How bonds are set up, and whether all of their members carry. Fewer up than there are, or none that answers LACP: less bandwidth, and no fault in any job's log.").size(24, 6).
			label("instance", "Node").label("bond", "Bond").label("mode", "Mode").label("xmit_hash_policy", "Hash").label("miimon", "miimon").label("lacp_rate", "LACP rate").
			labelled(`max by (instance, bond, mode, xmit_hash_policy, miimon, lacp_rate) (railscope_bond_info{<node>})`).
			column("Carrier", `max by (instance, bond) (railscope_bond_up{<node>})`, painted(), by(red, from(1, "transparent")), says(state{"0", "no", red}, state{"1", "yes", "transparent"})).
			column("Members", `max by (instance, bond) (railscope_bond_members{<node>})`).
			column("Up", `max by (instance, bond) (railscope_bond_members_up{<node>})`).
			column("Not up", `max by (instance, bond) (railscope_bond_members{<node>} - railscope_bond_members_up{<node>})`, painted(), by("transparent", from(1, red))).
			column("Gone", `max by (instance, bond) (railscope_bond_members_missing{<node>})`, painted(), by("transparent", from(1, red))).
			column("In the aggregator", `max by (instance, bond) (railscope_bond_aggregator_ports{<node>})`).
			column("LACP partner", `max by (instance, bond) (railscope_bond_partner_present{<node>})`, painted(), by(red, from(1, "transparent")), says(state{"0", "none", red}, state{"1", "yes", "transparent"})).
			nothing("no bonds"),
		timeline("Members up", docBond, "As the bond's link monitor sees them.", state{"0", "down", red}, state{"1", "up", green}).nothing("no bonds").
			query(`max by (instance, bond, member) (railscope_bond_member_up{<node>})`, "{{bond}} {{member}} · {{instance}}"),
		timeline("Members that send", docBond, "Which members the bond may send through. More changes than failures: the active member wanders.", state{"0", "stands by", "blue"}, state{"1", "sends", green}).nothing("no bonds").
			query(`max by (instance, bond, member) (railscope_bond_member_active{<node>})`, "{{bond}} {{member}} · {{instance}}"),
		timeseries("Link failures of members", docBond, "Per hour. A member that keeps failing is a cable or a switch port.").size(12, 8).
			query(`3600 * `+perSecond("bond_member_link_failures_total", "<node>", "instance, bond, member"), "{{bond}} {{member}} · {{instance}}").unit(perHour).from(0).nothing("no bonds"),
		timeseries("LACP out of step", docBond, "Times per hour that a side did not come into step within a minute: the two ends are not configured alike.").size(12, 8).
			query(`3600 * `+perSecond("bond_member_churned_total", "<node>", "instance, bond, member, side"), "{{bond}} {{member}} {{side}} · {{instance}}").unit(perHour).from(0).nothing("no bonds"),
	}
}

func nodeGIDs() []*panel {
	return []*panel{
		table("GIDs", docRDMA, "The used entries of the rails' GID tables. A rail wants a RoCE v2 entry with its IPv4 address (…ffff:…) on its own interface; the index may move.").size(16, 9).
			label("rail", "Rail", wide(50)).label("device", "Device").label("index", "Index", wide(60)).label("type", "Type", wide(100)).label("gid", "GID", wide(330)).label("netdev", "Interface").label("instance", "Node").
			labelled(`max by (instance, rail, device, index, type, gid, netdev) (railscope_gid_info{<rail>})`).sortedBy("Rail", false),
		timeseries("GID changes", docRDMA, "Entries that appeared, went or changed, per hour. Programs that keep an index break when it moves.").size(8, 9).
			query(`3600 * `+perSecond("gid_changes_total", "<rail>", "instance, rail"), perRail("")).unit(perHour).from(0),
		table("PCIe links", docPCIe, "Speed and width now, of what the device could do. Below 100 % under load: slot, riser or firmware, except by design (a DGX Spark's adapters). A GPU at rest may lower its speed.").size(16, 8).
			label("kind", "Kind", wide(55)).label("rail", "Rail", wide(50)).label("pci_address", "PCI address", wide(120)).label("instance", "Node", wide(150)).
			column("Carries", `8 * max by (instance, kind, rail, pci_address) (railscope_pcie_link_bytes_per_second{<node>})`, inUnit("bps")).
			column("Transfers", `max by (instance, kind, rail, pci_address) (railscope_pcie_link_transfers_per_second{<node>})`, inUnit("si:T/s")).
			column("Lanes", `max by (instance, kind, rail, pci_address) (railscope_pcie_link_width_lanes{<node>})`).
			column("Of its most", `max by (instance, kind, rail, pci_address) (`+linkOfMost+`)`, inUnit("percentunit"), painted(), by(orange, from(0.99, "transparent"))).
			column("NUMA", `max by (instance, kind, rail, pci_address) (railscope_pcie_numa_node{<node>})`),
		timeseries("PCIe errors (AER)", docPCIe, "Errors that devices reported. Correctable ones in numbers slow the link down; nonfatal and fatal ones end jobs.").size(8, 8).
			query(perSecond("pcie_aer_errors_total", "<node>", "instance, kind, pci_address, severity"), "{{kind}} {{pci_address}} {{severity}} · {{instance}}").unit("eps").from(0),
	}
}

func nodeOwn() []*panel {
	return []*panel{
		timeseries("Length of reads", docOwn, "How long the last read of each source took. Near 3 s, after which it is given up: a device hangs.").
			query(`max by (instance, source) (railscope_source_read_seconds{<node>})`, "{{source}} · {{instance}}").unit("s").from(0),
		timeseries("Errors of reads", docOwn, "By source, device and reason. `unsupported` is a driver's way to say that a port has no such counter, and harmless.").
			query(perSecond("source_errors_total", "<node>", "instance, source, device, reason"), "{{source}} {{device}} {{reason}} · {{instance}}").unit("eps").from(0).nothing("none"),
		timeseries("Samples too late", docSampler, "Samples that were taken later than they should be. They are counted over the time they really took; bursts are seen less sharply.").
			query(perSecond("sampler_overruns_total", "<node>", "instance"), "{{instance}}").unit("eps").from(0),
		timeseries("Time between samples", docSampler, "By device. More than `--sample.interval`: a read takes longer than a tenth of it, and the sampler has slowed down.").
			query(`max by (instance, device) (railscope_sampler_interval_seconds{<node>})`, "{{device}} · {{instance}}").unit("s").from(0),
		timeseries("Samples that tell nothing", docSampler, "The first after a counter stepped back (reset), or after the device was gone (gap). More than now and then: a device resets.").
			query(`60 * `+perSecond("sampler_dropped_samples_total", "<node>", "instance, reason"), "{{reason}} · {{instance}}").unit(perMinute).from(0),
		timeseries("What sampling costs devices", docSampler, "Part of the time in which a device is being read for samples, waiting for its firmware included. Near a tenth, the sampler slows down.").
			query(`sum by (instance, device) (rate(railscope_sampler_read_seconds_total{<node>}[$__rate_interval]))`, "{{device}} · {{instance}}").unit("percentunit").from(0),
		timeseries("Processor time", docOwn, "Of railscope, in processors.").
			query(`sum by (instance) (rate(process_cpu_seconds_total{<node>}[$__rate_interval]) and on (job, instance) railscope_build_info{<node>})`, "{{instance}}").unit("percentunit").from(0),
		timeseries("Memory", docOwn, "Resident. It should not grow for days.").
			query(`max by (instance) (process_resident_memory_bytes{<node>} and on (job, instance) railscope_build_info{<node>})`, "{{instance}}").unit("bytes").from(0),
		timeseries("Goroutines", docOwn, "Rising without end: reads that never return.").
			query(`max by (instance) (go_goroutines{<node>} and on (job, instance) railscope_build_info{<node>})`, "{{instance}}").unit("short").from(0),
	}
}
