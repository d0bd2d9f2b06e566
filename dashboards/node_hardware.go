package dashboards

// The hardware half of the node dashboard: links, GPUs, bonds, GIDs, PCIe.

func nodeErrors() []*panel {
	return []*panel{
		timeline("Ports", docRDMA,
			"State of each rail's port. Short segments are a flapping link.", portStates...).size(12, 8).
			query(`max by (instance, rail) (railscope_port_state_id{<rail>})`, perRail("")).leads(toRail()),
		timeseries("Carrier changes", docNetdev,
			"Times per minute that a rail's interface lost or regained its carrier. More than at boot: cable, "+
				"optics, switch port.").size(12, 8).
			query(`60 * `+perSecond("netdev_carrier_changes_total", "<rail>", "instance, rail"), perRail("")).
			unit(perMinute).from(0).nothing(uncounted),
		timeseries("Bit errors on the wire", docNetdev,
			"Corrected: bits that forward error correction fixed, and the trend (dashed): the mean over as much "+
				"time as is shown. Some are normal above 100 Gb/s; 10 times those of other rails is a failing link. "+
				"Uncorrected symbols lose packets.").
			size(12, 8).
			query(perSecond("netdev_phy_fec_corrected_errors_total", "<rail>", "instance, rail"), perRail("corrected")).
			query(`sum by (instance, rail) (increase(railscope_netdev_phy_fec_corrected_errors_total{<rail>}`+
				`[$__range])) / $__range_s`, perRail("trend")).
			query(perSecond("netdev_phy_symbol_errors_total", "<rail>", "instance, rail"), perRail("uncorrected")).
			unit("eps").from(0).style(".* trend · .*", dashed()...).nothing(uncounted),
		timeseries("Codewords by symbol errors", docNetdev,
			"Blocks of data per second by the number of symbols that forward error correction had to fix, on a "+
				"logarithmic scale. Blocks near the most that it can fix, 15 or 7, show how little margin is left.").
			size(12, 8).style(".*", prop("custom.scaleDistribution", object{"type": "log", "log": 10})).
			query(perSecond("netdev_fec_codewords_total", "<rail>", "instance, rail, errors"),
				perRail("{{errors}} errors")).
			unit("ops").nothing("not counted by this driver and kernel"),
		timeseries("Optical power", docNetdev,
			"Light that arrives at each lane. A lane far below the others, or that falls over weeks: clean or replace "+
				"the fibre. If no light arrives, the other end's laser or the fibre has failed.").size(12, 8).lowest().
			query(`10 * log10(1000 * min by (instance, rail, lane) (railscope_netdev_module_power_watts{<rail>, `+
				`direction="receive"}))`, perRail("lane {{lane}}")).
			unit("dBm").nothing("not read: --source.netdev.modules"),
		timeseries("Module temperature", docNetdev,
			"Temperature of the modules, and of those that the adapter's sensors show.").size(12, 8).
			query(`max by (instance, rail) (railscope_netdev_module_temperature_celsius{<rail>} or `+
				`railscope_rail_module_temperature_celsius{<rail>})`, perRail("")).
			unit("celsius").nothing("not reported"),
		timeseries("Corrupted packets", docRDMA,
			"Packets that arrived corrupted: checksum (ICRC, CRC), receive and symbol errors. Replace cable or "+
				"optics if the rate is steady.").size(12, 8).
			query(perSecond("port_icrc_errors_total", "<rail>", "instance, rail"), perRail("ICRC")).
			query(perSecond("netdev_phy_crc_errors_total", "<rail>", "instance, rail"), perRail("CRC")).
			query(perSecond("port_receive_errors_total", "<rail>", "instance, rail"), perRail("receive errors")).
			query(perSecond("port_symbol_errors_total", "<rail>", "instance, rail"), perRail("symbol errors")).
			unit("eps").from(0).nothing(uncounted),
		timeseries("Failed requests", docRDMA,
			"Work requests that ended in an error, local and remote. Flushed requests occur at the end of every "+
				"job and are excluded.").size(12, 8).
			query(`sum by (instance, rail) `+
				`(rate(railscope_port_requester_completion_errors_total{<rail>}[$__rate_interval]) - `+
				`rate(railscope_port_requester_completion_flush_errors_total{<rail>}[$__rate_interval]))`,
				perRail("local")).
			query(`sum by (instance, rail) `+
				`(rate(railscope_port_responder_completion_errors_total{<rail>}[$__rate_interval]) - `+
				`rate(railscope_port_responder_completion_flush_errors_total{<rail>}[$__rate_interval]))`,
				perRail("remote")).
			unit("eps").from(0).nothing(uncounted),
	}
}

func nodeMemory() []*panel {
	return []*panel{
		bars("GPU memory in use", docGPU,
			"Current use ÷ total. If a GPU shares the machine's memory, gpu_memory_source_info shows what is "+
				"counted.").size(6, 8).
			query(`max by (instance, gpu) (`+gpuUsed+`)`, perGPU("")).unit("percentunit").from(0).upTo(1).colours(green,
			from(0.98, yellow)).nothing("no GPUs"),
		timeseries("GPU memory", docGPU,
			"Memory in use, and the total (dashed). A sawtooth that does not return to its level is "+
				"fragmentation or a leak.").size(10, 8).
			query(`max by (instance, gpu) (railscope_gpu_memory_used_bytes{<node>})`, perGPU("")).
			query(`max by (instance) (railscope_gpu_memory_total_bytes{<node>})`, "total · {{instance}}").unit("bytes").
			from(0).style("total .*", dashed()...).nothing("no GPU data"),
		timeseries("Peak GPU memory", docSampler,
			"Maximum of samples taken every second: over the last minute, and since railscope started (dashed). "+
				"Includes peaks between two scrapes.").size(8, 8).
			query(`max by (instance, gpu) (railscope_gpu_memory_used_peak_bytes{<node>, window="1m"})`, perGPU("")).
			query(`max by (instance, gpu) (railscope_gpu_memory_used_peak_bytes{<node>, window="start"})`,
				perGPU("since start")).unit("bytes").from(0).style(".* since start · .*", dashed()...).
			nothing("no GPU data"),
		timeseries("BAR1", docGPU,
			"Mapped share of the window to GPU memory. At 100 %, no more memory can be registered for GPUDirect "+
				"RDMA, and transfers are copied.").
			query(`max by (instance, gpu) (railscope_gpu_bar1_memory_used_bytes{<node>} / `+
				`railscope_gpu_bar1_memory_total_bytes{<node>})`, perGPU("")).
			unit("percentunit").from(0).upTo(1).colours(green, from(0.9, red)).limits().nothing("no GPU data"),
		timeseries("ECC errors", docGPU,
			"Memory errors per hour. If corrected errors persist, or after any uncorrected error, check the "+
				"remapped rows; of AMD's GPUs, `amd-smi bad-pages`.").
			query(`3600 * (`+perSecond("gpu_ecc_errors_total", "<node>", "instance, gpu, kind")+` or `+
				perSecond("gpu_ecc_volatile_errors_total", "<node>", "instance, gpu, kind")+`)`, perGPU("{{kind}}")).
			unit(perHour).from(0).nothing("no GPU data"),
		timeseries("Remapped rows", docGPU,
			"Memory rows replaced by spare rows, and rows that wait for a reset. If remapping failed, replace "+
				"the card.").
			query(`max by (instance, gpu, cause) (railscope_gpu_remapped_rows{<node>})`, perGPU("{{cause}}")).
			query(`max by (instance, gpu) (railscope_gpu_row_remap_pending{<node>})`, perGPU("pending")).
			query(`max by (instance, gpu) (railscope_gpu_row_remap_failure{<node>})`, perGPU("failed")).unit("short").
			from(0).decimals(0).nothing("no GPU data"),
	}
}

func nodeGPUs() []*panel {
	return []*panel{
		timeseries("GPU utilization", docGPU,
			"Share of the time in which a kernel ran. Busy GPUs with idle rails: compare with the traffic "+
				"above. GPUs that wait for rails: dips at the traffic peaks.").
			query(`max by (instance, gpu) (railscope_gpu_utilization_ratio{<node>})`, perGPU("")).unit("percentunit").
			from(0).upTo(1).nothing("no GPU data"),
		timeseries("Power", docGPU,
			"Power draw of each GPU. A GPU below the others with the same job is throttled or waits.").
			query(`max by (instance, gpu) (railscope_gpu_power_watts{<node>})`, perGPU("")).unit("watt").from(0).
			nothing("no GPU data"),
		timeseries("Temperature", docGPU, "Die temperature. A GPU above the others: airflow or pump.").
			query(`max by (instance, gpu) (railscope_gpu_temperature_celsius{<node>})`, perGPU("")).unit("celsius").
			nothing("no GPU data"),
		timeseries("Clock", docGPU,
			"Clock of the streaming multiprocessors; of AMD's GPUs, the graphics clock. A GPU below the others with "+
				"the same job is throttled; the next panel shows the reason, for NVIDIA's GPUs only.").
			query(`max by (instance, gpu) (railscope_gpu_clock_hertz{<node>, clock="sm"}) or `+
				`max by (instance, gpu) (railscope_gpu_clock_hertz{<node>, clock="graphics"})`, perGPU("")).
			unit("hertz").from(0).nothing("no GPU data"),
		timeline("Throttled", docGPU,
			"Reasons for reduced clocks. Thermal and power brake reasons are hardware faults; gpu_idle is "+
				"excluded.",
			state{"0", "no", "transparent"}, state{"1", "throttled", orange}).size(8, 8).
			query(`max by (instance, gpu, reason) (railscope_gpu_clocks_throttled{<node>, reason!="gpu_idle"})`,
				perGPU("{{reason}}")),
		timeseries("PCIe replays", docGPU,
			"Packets that the GPU retransmitted after a link error. If the rate rises, check slot, riser or "+
				"cable.").
			query(perSecond("gpu_pcie_replays_total", "<node>", "instance, gpu"), perGPU("")).unit("pps").from(0).
			nothing("no GPU data"),
	}
}

func nodeUsers() []*panel {
	const who, name = "instance, pod, container, comm", "{{pod}} {{container}} {{comm}} · {{instance}}"
	return []*panel{
		stat("Jobs without RDMA", docProcess,
			"Jobs that hold GPU memory and have no connected queue pair on any rail 2 minutes after their "+
				"start: they use TCP. Needs `--source.process`.").size(4, 8).
			query(`sum(railscope_process_gpu_without_rdma{<node>})`, "").unit("none").colours(green, from(1, orange)).
			nothing("not enabled"),
		table("Queue pairs by process", docProcess,
			"Queue pairs by process, rail and state. A job should have the same number in state rts on each "+
				"rail; a missing rail means that the job uses fewer rails.").size(20, 8).
			label("instance", "Node").label("rail", "Rail").label("pod", "Pod").label("container", "Container").
			label("comm", "Command").label("state", "State").
			column("Queue pairs",
				`sum by (instance, rail, pod, container, comm, state) (railscope_process_queue_pairs{<rail>})`).
			nothing("not enabled"),
		timeseries("Connected queue pairs", docProcess,
			"Queue pairs in state rts by process, over all rails. A drop to 0 while the process lives: its "+
				"connections broke.").size(12, 8).
			query(`sum by (`+who+`) (railscope_process_queue_pairs{<rail>, state="rts"})`, name).unit("none").from(0).
			decimals(0).stacked().nothing("not enabled: --source.process"),
		timeseries("GPU memory by process", docProcess,
			"Memory of each process on all GPUs. Memory that no process of the job holds belongs to someone "+
				"else.").size(12, 8).
			query(`sum by (`+who+`) (railscope_process_gpu_memory_bytes{<node>})`, name).unit("bytes").from(0).
			stacked().
			nothing("not enabled: --source.process"),
		timeseries("Traffic of jobs", docProcess,
			"Traffic of each job over the rails that it has alone, both directions. A rail that jobs share counts for "+
				"none of them.").size(24, 8).
			query(bits("process_job_rail_bytes_total", "<rail>", who), name).unit("bps").from(0).
			stacked().nothing("not enabled: --source.process, or all rails are shared"),
		timeseries("Networks used by NCCL", docNCCL,
			"Jobs by the network in their NCCL log (`--source.nccl`). Socket beside IB: a job fell back.").
			query(`count by (instance, network) (railscope_nccl_network_info{<node>})`, "{{network}} · {{instance}}").
			unit("none").from(0).decimals(0).
			style("Socket .*", fixed(orange)).nothing("not enabled: --source.nccl"),
		timeseries("Why NCCL uses sockets", docNCCL,
			"Jobs by the reason in their NCCL log, and adapters without GPUDirect RDMA.").
			query(`count by (instance, reason) (railscope_nccl_fallback_reason_info{<node>})`,
				"{{reason}} · {{instance}}").
			query(`sum by (instance, device) (1 - railscope_nccl_gdr_enabled{<node>})`,
				"{{device}} without GPUDirect · {{instance}}").unit("none").from(0).decimals(0).
			nothing("not enabled: --source.nccl"),
		timeseries("NCCL warnings", docNCCL,
			"Warnings per minute by kind, and completion errors by status. retry_exc: a peer or path does not "+
				"respond.").
			query(`60 * `+perSecond("nccl_warnings_total", "<node>", "instance, kind"), "{{kind}} · {{instance}}").
			query(`60 * `+perSecond("nccl_completion_errors_total", "<node>", "instance, status"),
				"{{status}} · {{instance}}").unit(perMinute).from(0).nothing("not enabled: --source.nccl"),
	}
}

func nodeBonds() []*panel {
	return []*panel{
		table("Bonds", docBond,
			"Configuration of the bonds and state of their members. Missing members or LACP partners cost "+
				"bandwidth without an error in any job log.").size(24, 6).
			label("instance", "Node").label("bond", "Bond").label("mode", "Mode").label("xmit_hash_policy", "Hash").
			label("miimon", "miimon").label("lacp_rate", "LACP rate").
			labelled(
				`max by (instance, bond, mode, xmit_hash_policy, miimon, lacp_rate) (railscope_bond_info{<node>})`).
			column("Carrier", `max by (instance, bond) (railscope_bond_up{<node>})`, painted(),
				by(red, from(1, "transparent")), says(state{"0", "no", red}, state{"1", "yes", "transparent"})).
			column("Members", `max by (instance, bond) (railscope_bond_members{<node>})`).
			column("Up", `max by (instance, bond) (railscope_bond_members_up{<node>})`).
			column("Not up", `max by (instance, bond) (railscope_bond_members{<node>} - `+
				`railscope_bond_members_up{<node>})`, painted(), by("transparent", from(1, red))).
			column("Missing", `max by (instance, bond) (railscope_bond_members_missing{<node>})`, painted(),
				by("transparent", from(1, red))).
			column("In the aggregator", `max by (instance, bond) (railscope_bond_aggregator_ports{<node>})`).
			column("LACP partner", `max by (instance, bond) (railscope_bond_partner_present{<node>})`, painted(),
				by(red, from(1, "transparent")), says(state{"0", "none", red}, state{"1", "yes", "transparent"})).
			nothing("no bonds"),
		timeline("Members up", docBond,
			"State of the members according to the bond's link monitor.", state{"0", "down", red},
			state{"1", "up", green}).nothing("no bonds").
			query(`max by (instance, bond, member) (railscope_bond_member_up{<node>})`,
				"{{bond}} {{member}} · {{instance}}"),
		timeline("Active members", docBond,
			"Members that the bond may transmit through. More changes than failures: the active member keeps "+
				"changing.", state{"0", "standby", "blue"}, state{"1", "active", green}).nothing("no bonds").
			query(`max by (instance, bond, member) (railscope_bond_member_active{<node>})`,
				"{{bond}} {{member}} · {{instance}}"),
		timeseries("Member link failures", docBond,
			"Per hour. A member with repeated failures has a bad cable or switch port.").size(12, 8).
			query(`3600 * `+perSecond("bond_member_link_failures_total", "<node>", "instance, bond, member"),
				"{{bond}} {{member}} · {{instance}}").unit(perHour).from(0).nothing("no bonds"),
		timeseries("LACP churn", docBond,
			"Times per hour that one side did not synchronize within 1 minute: the two ends are configured "+
				"differently.").size(12, 8).
			query(`3600 * `+perSecond("bond_member_churned_total", "<node>", "instance, bond, member, side"),
				"{{bond}} {{member}} {{side}} · {{instance}}").unit(perHour).from(0).nothing("no bonds"),
	}
}

func nodeGIDs() []*panel {
	return []*panel{
		table("GIDs", docRDMA,
			"Used entries of the GID tables. A rail needs a RoCE v2 entry with its IPv4 address (…ffff:…) on "+
				"its own interface. The index may change.").size(16, 9).
			label("rail", "Rail", wide(50)).label("device", "Device").label("index", "Index", wide(60)).label("type",
			"Type", wide(100)).label("gid", "GID", wide(330)).label("netdev", "Interface").label("instance", "Node").
			labelled(`max by (instance, rail, device, index, type, gid, netdev) (railscope_gid_info{<rail>})`).
			sortedBy("Rail", false),
		timeseries("GID changes", docRDMA,
			"Entries that were added, removed or changed, per hour. Programs with a fixed index fail when it "+
				"changes.").size(8, 9).
			query(`3600 * `+perSecond("gid_changes_total", "<rail>", "instance, rail"), perRail("")).unit(perHour).
			from(0),
		table("PCIe links", docPCIe,
			"Current speed and width relative to the device's maximum. Below 100 % under load: slot, riser or "+
				"firmware, except by design (adapters of a DGX Spark). Idle GPUs may lower their speed.").size(16, 8).
			label("kind", "Kind", wide(55)).label("rail", "Rail", wide(50)).label("pci_address", "PCI address",
			wide(120)).label("instance", "Node", wide(150)).
			column("Rate", `8 * max by (instance, kind, rail, pci_address) `+
				`(railscope_pcie_link_bytes_per_second{<node>})`, inUnit("bps")).
			column("Transfers", `1e-9 * max by (instance, kind, rail, pci_address) `+
				`(railscope_pcie_link_transfers_per_second{<node>})`, inUnit("suffix:GT/s")).
			column("Lanes", `max by (instance, kind, rail, pci_address) (railscope_pcie_link_width_lanes{<node>})`).
			column("Of maximum", `max by (instance, kind, rail, pci_address) (`+linkOfMost+`)`, inUnit("percentunit"),
				painted(), by(orange, from(0.99, "transparent"))).
			column("NUMA", `max by (instance, kind, rail, pci_address) (railscope_pcie_numa_node{<node>})`),
		timeseries("PCIe errors (AER)", docPCIe,
			"Errors that devices reported. Many correctable errors slow down the link; nonfatal and fatal ones "+
				"end jobs.").size(8, 8).
			query(perSecond("pcie_aer_errors_total", "<node>", "instance, kind, pci_address, severity"),
				"{{kind}} {{pci_address}} {{severity}} · {{instance}}").unit("eps").from(0),
	}
}

func nodeOwn() []*panel {
	return []*panel{
		timeseries("Read duration", docOwn,
			"Duration of the last read of each source. Near the limit of 3 s, a device hangs.").
			query(`max by (instance, source) (railscope_source_read_seconds{<node>})`, "{{source}} · {{instance}}").
			unit("s").from(0),
		timeseries("Read errors", docOwn,
			"By source, device and reason. `unsupported` is harmless: the driver has no such counter for this "+
				"port.").
			query(perSecond("source_errors_total", "<node>", "instance, source, device, reason"),
				"{{source}} {{device}} {{reason}} · {{instance}}").unit("eps").from(0).nothing("none"),
		timeseries("Late samples", docSampler,
			"Samples that were taken too late. They are divided by the elapsed time; short bursts are less "+
				"visible.").
			query(perSecond("sampler_overruns_total", "<node>", "instance"), "{{instance}}").unit("eps").from(0),
		timeseries("Sampling interval", docSampler,
			"By device. Longer than `--sample.interval`: a read takes more than 10 % of it, so the sampler "+
				"slowed down.").
			query(`max by (instance, device) (railscope_sampler_interval_seconds{<node>})`,
				"{{device}} · {{instance}}").
			unit("s").from(0),
		timeseries("Dropped samples", docSampler,
			"Reasons: the counter was reset (reset), the device was gone (gap), the read was too slow (slow). "+
				"More than a few: a device resets.").
			query(`60 * `+perSecond("sampler_dropped_samples_total", "<node>", "instance, reason"),
				"{{reason}} · {{instance}}").unit(perMinute).from(0),
		timeseries("Time spent reading devices", docSampler,
			"Share of the time in which a device is read for samples, including its firmware. Near 10 %, the "+
				"sampler slows down.").
			query(`sum by (instance, device) (rate(railscope_sampler_read_seconds_total{<node>}[$__rate_interval]))`,
				"{{device}} · {{instance}}").unit("percentunit").from(0),
		timeseries("CPU time", docOwn, "CPU cores used by railscope.").
			query(`sum by (instance) (rate(process_cpu_seconds_total{<node>}[$__rate_interval]) and on (job, `+
				`instance) railscope_build_info{<node>})`, "{{instance}}").unit("percentunit").from(0),
		timeseries("Memory", docOwn, "Resident memory of railscope. It should not grow over days.").
			query(`max by (instance) (process_resident_memory_bytes{<node>} and on (job, instance) `+
				`railscope_build_info{<node>})`, "{{instance}}").unit("bytes").from(0),
		timeseries("Goroutines", docOwn, "A steady increase means that reads never return.").
			query(`max by (instance) (go_goroutines{<node>} and on (job, instance) railscope_build_info{<node>})`,
				"{{instance}}").unit("short").from(0),
	}
}
