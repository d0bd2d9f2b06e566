package dashboards

// Colours and names that all dashboards use alike.
const (
	green, yellow, orange, red, grey = "green", "yellow", "orange", "red", "#6e7687"

	docProbe, docFigures, docReasons = "probe.md", "probe.md#figures", "probe.md#reasons"
	docHarm                          = "probe.md#it-does-no-harm"
	docOwn, docRDMA, docNetdev       = "metrics.md#railscope-itself", "metrics.md#source-rdma", "metrics.md#source-netdev"
	docBond, docPCIe, docGPU         = "metrics.md#source-bond", "metrics.md#source-pcie", "metrics.md#source-gpu"
	docGPUDirect, docSampler         = "metrics.md#source-gpudirect", "sampler.md"
	docProcess, docNCCL              = "process.md", "nccl.md"
	docDashboards                    = "dashboards.md"
)

// Queries that say one thing wherever it is shown, by node or by peer.
const (
	ofExpected    = `sum by (instance, peer) (railscope_probe_goodput_bytes_per_second{<peer>, mode="stealing"}) / sum by (instance, peer) (railscope_probe_rail_expected_bytes_per_second{<peer>})`
	ofExpectedAll = `sum by (instance, peer) (railscope_probe_goodput_bytes_per_second{<node>, mode="stealing"}) / sum by (instance, peer) (railscope_probe_rail_expected_bytes_per_second{<node>})`
	// Rails that were up within a day and are not now, on nodes that answer: down, or gone from the machine. Half of a
	// DGX Spark's ports have no cable: what never was up is not lost.
	lost         = `((max_over_time(railscope_port_up{<node>}[1d:15m]) == 1) unless railscope_port_up{<node>} == 1 and on (job, instance) railscope_build_info{<node>})`
	gpuFull      = `railscope_gpu_memory_used_bytes{<node>} / railscope_gpu_memory_total_bytes{<node>}`
	alertsFiring = `ALERTS{alertstate="firing", alertname=~"Railscope.+", job=~"$job|", instance=~"$instance|"}`
)

// fleet is all nodes at once: which one to look at.
func fleet() *dashboard {
	d := &dashboard{
		name: "fleet", title: "railscope / Fleet", variables: variables(),
		about: "All nodes: is a rail dead or uneven, does a pair of nodes not go by RDMA, is a GPU full; and which node to look at.",
	}
	return d.
		section("Is anything wrong?", fleetNow()...).
		section("Which node?", fleetNodes()...).
		section("Peer by peer: from the node of the line to the peer of the column", fleetPeers()...).
		section("Since when?", fleetThen()...).
		folded("Latency, peer by peer (histograms: in a fleet of hundreds choose nodes first)", fleetLatency()...).
		folded("railscope itself", fleetOwn()...)
}

func fleetNow() []*panel {
	return []*panel{
		stat("Nodes", docOwn, "Nodes that answer. Fewer than there should be: the others do not run railscope, or cannot be reached.").
			query(`count(railscope_build_info{<node>})`, "").unit("none").colours(grey).nothing("none"),
		stat("Do not answer", docDashboards, "Nodes of the jobs in which railscope was seen that Prometheus could not scrape. Anything but 0 is a blind spot.").
			query(`sum(1 - up{<node>} and on (job) last_over_time(railscope_build_info{<node>}[$__range]))`, "").unit("none").colours(green, from(1, red)),
		stat("Rails lost", docRDMA, "Rails that were up within the last day and are not now: down, or gone from the machine. Ports that never had a cable do not count.").
			query(`count(`+lost+`) or sum(0 * railscope_build_info{<node>})`, "").unit("none").colours(green, from(1, red)),
		stat("Worst imbalance of traffic", docSampler,
			"How unevenly the rails of a node carried its real traffic in the last 10 s, of the worst node: 0 even, 1 all on one rail. No figure while all are idle.").
			query(`max(railscope_rails_imbalance_ratio{<node>})`, "").unit("percentunit").worseAbove(0.2, 0.5).nothing("idle"),
		stat("Not by RDMA", docReasons, "Pairs of nodes whose last probe went by TCP, or not at all. Anything but 0 slows every job that spans the two.").
			query(`sum(railscope_probe_transport{<node>, transport!="rdma"})`, "").unit("none").colours(green, from(1, red)).nothing("no probes"),
		stat("Fallback suspected", docSampler, "Nodes whose own traffic looks as if it had left RDMA: GPUs busy while rails carry TCP, or one rail where there were several.").
			query(`sum(max by (instance) (railscope_fallback_suspected{<node>}))`, "").unit("none").colours(green, from(1, orange)),
		stat("Worst goodput of expected", docFigures, "Striped goodput ÷ what the rails could carry, of the worst pair. Well below 85 % a rail is slow, shared or missing.").
			query(`min(`+ofExpectedAll+`)`, "").unit("percentunit").worseBelow(0.85, 0.7).nothing("no probes"),
		stat("Fullest GPU", docGPU, "Memory in use ÷ total of the fullest GPU. Near 1 the next allocation fails; NCCL needs some, too.").
			query(`max(`+gpuFull+`)`, "").unit("percentunit").worseAbove(0.9, 0.98).nothing("no GPUs"),
	}
}

func fleetNodes() []*panel {
	zeroIsGood := []object{painted(), by("transparent", from(1, red))}
	return []*panel{
		table("Nodes", docDashboards,
			"A line per node, the worst of its rails, peers and GPUs. Red cells say where to look; the name leads to the node.").size(24, 9).
			label("instance", "Node", leadingTo(toNode("${__value.text}"))).
			column("Rails up", `sum by (instance) (railscope_port_up{<node>})`).
			column("Rails lost", `count by (instance) (`+lost+`) or sum by (instance) (0 * railscope_build_info{<node>})`, zeroIsGood...).
			column("Imbalance", `max by (instance) (railscope_rails_imbalance_ratio{<node>})`,
				inUnit("percentunit"), painted(), by("transparent", from(0.2, yellow), from(0.5, red))).
			column("Sends", bits("port_transmit_bytes_total", "<node>", "instance"), inUnit("bps")).
			column("Receives", bits("port_receive_bytes_total", "<node>", "instance"), inUnit("bps")).
			column("Peers by RDMA", `sum by (instance) (railscope_probe_transport{<node>, transport="rdma"})`).
			column("Not by RDMA", `sum by (instance) (railscope_probe_transport{<node>, transport!="rdma"})`, zeroIsGood...).
			column("Fallback suspected", `max by (instance) (railscope_fallback_suspected{<node>})`, painted(), by("transparent", from(1, orange)), says(no, yes)).
			column("Worst of expected", `min by (instance) (`+ofExpectedAll+`)`,
				inUnit("percentunit"), painted(), by(red, from(0.7, yellow), from(0.85, "transparent"))).
			column("Fullest GPU", `max by (instance) (`+gpuFull+`)`, inUnit("percentunit"), painted(), by("transparent", from(0.9, yellow), from(0.98, red))).
			column("GIDs misbound", `sum by (instance) (railscope_gid_misbound{<node>})`, zeroIsGood...).
			column("Sources failing", `sum by (instance) (1 - railscope_source_success{<node>})`, zeroIsGood...),
		table("Alerts firing", docDashboards, "The alerts of railscope's rules that fire now. Empty is good, if the rules are loaded.").size(12, 7).
			label("severity", "Severity", painted(), says(state{"critical", "critical", red}, state{"warning", "warning", orange}, state{"info", "info", "blue"})).
			label("alertname", "Alert").label("instance", "Node", leadingTo(toNode("${__value.text}"))).label("rail", "Rail").label("peer", "Peer").
			labelled(`max by (severity, alertname, instance, rail, peer) (` + alertsFiring + `)`).nothing("none"),
		table("Lost and misbound rails", docRDMA,
			"Rails that were up within the last day and are down or gone, and rails whose RoCE v2 addresses sit on another interface, so that connections leave by another port. Empty is good.").size(12, 7).
			label("instance", "Node", leadingTo(toNode("${__value.text}"))).label("rail", "Rail").label("device", "Device").
			label("fault", "Fault").
			labelled(`max by (instance, rail, device, fault) (label_replace(` + lost + ` and railscope_port_up{<node>}, "fault", "down", "", "") or label_replace(` + lost + ` unless railscope_port_up{<node>}, "fault", "gone", "", "") or ` +
				`label_replace(railscope_gid_misbound{<node>} == 1, "fault", "GIDs misbound", "", ""))`).nothing("none"),
	}
}

// What 0 and 1 are called in cells.
var (
	no  = state{"0", "no", "transparent"}
	yes = state{"1", "yes", red}
)

func fleetPeers() []*panel {
	return []*panel{
		matrix("Way", docReasons, "The way that the last probe took. Anything but RDMA slows every job that spans the two; an empty cell is a pair that does not probe.",
			`sum by (instance, peer) (railscope_probe_transport{<node>, transport="rdma"} or railscope_probe_transport{<node>, transport="tcp"} * 2 or railscope_probe_transport{<node>, transport="none"} * 3)`).
			states(state{"1", "RDMA", green}, state{"2", "TCP", orange}, state{"3", "none", red}),
		matrix("Goodput of expected", docFigures, "Striped goodput ÷ what the rails of both ends could carry. A line that is red is a node, a column a peer, a block a switch.",
			ofExpectedAll).unit("percentunit").decimals(0).colours("dark-red", from(0.7, orange), from(0.85, "dark-green")),
		matrix("Goodput", docFigures, "Payload by RDMA over all rails at once, in the last round. Empty where it was not by RDMA.",
			`8 * sum by (instance, peer) (railscope_probe_goodput_bytes_per_second{<node>, mode="stealing"})`).unit("bps").from(0).
			scheme("continuous-RdYlGr"),
		matrix("Latency, mean of the time shown", docFigures,
			"Round trip of 8 B RDMA writes. Some µs behind one switch, tens behind several; ms are retransmissions. Compare cells with each other.",
			mean("probe_latency_seconds", "<node>", "instance, peer")).unit("s").from(0).scheme("continuous-GrYlRd"),
	}
}

func fleetThen() []*panel {
	return []*panel{
		timeseries("Rails up", docRDMA, "By node. A step down is a cable, a switch or a driver; a comb is a link that flaps.").
			query(`sum by (instance) (railscope_port_up{<node>})`, "{{instance}}").unit("none").from(0).decimals(0).leads(toNode(ofInstance)),
		timeseries("Imbalance of traffic", docSampler, "Of the last 10 s, the worse direction, by node: 0 even, 1 all on one rail. One node above the others has a rail that is slow or not used.").
			query(`max by (instance) (railscope_rails_imbalance_ratio{<node>})`, "{{instance}}").unit("percentunit").from(0).upTo(1).leads(toNode(ofInstance)),
		timeseries("Imbalanced part of the busy time", docSampler, "Of the seconds in which rails were busy, the part in which they were uneven, by node. Steadily above 0.5: not chance, but a fault.").
			query(`sum by (instance) (rate(railscope_rails_imbalanced_seconds_total{<node>}[$__rate_interval])) / sum by (instance) (rate(railscope_rails_busy_seconds_total{<node>}[$__rate_interval]))`, "{{instance}}").
			unit("percentunit").from(0).upTo(1).leads(toNode(ofInstance)),
		timeseries("RDMA traffic", docRDMA, "By node, sent upwards, received downwards. Nodes of one job look alike; the one that does not holds up the others.").
			query(bits("port_transmit_bytes_total", "<node>", "instance"), "{{instance}} sends").
			query(bits("port_receive_bytes_total", "<node>", "instance"), "{{instance}} receives").unit("bps").style(".* receives", below()).leads(toNode(ofInstance)),
		timeseries("TCP on the rails", docSampler, "What the rails' interfaces carried that was not RDMA, by node. Traffic here in step with the job is a job that fell back to TCP.").
			query(bits("rail_tcp_bytes_total", "<node>", "instance"), "{{instance}}").unit("bps").from(0).leads(toNode(ofInstance)),
		timeseries("Congestion", docRDMA, "Congestion notifications (CNP) that nodes slowed down for, by node. Some are the control loop at work; many times the others' is an incast, or a path that lost a link.").
			query(perSecond("port_cnp_handled_total", "<node>", "instance"), "{{instance}}").unit("pps").from(0).leads(toNode(ofInstance)),
		timeseries("Worst goodput of expected", docFigures, "The worst peer of each node. One node that falls is that node; all that fall are the peer they share, or the fabric.").
			query(`min by (instance) (`+ofExpectedAll+`)`, "{{instance}}").unit("percentunit").from(0).worseBelow(0.85, 0.7).limits().
			atLeastEvery("1m").leads(toProbe(ofInstance, everyPeer)),
		timeseries("GPU memory", docGPU, "Memory in use ÷ total of the fullest GPU of each node. A steady rise without a new job is a leak.").
			query(`max by (instance) (`+gpuFull+`)`, "{{instance}}").unit("percentunit").from(0).upTo(1).leads(toNode(ofInstance)),
	}
}

func fleetLatency() []*panel {
	return []*panel{
		matrix("Latency, 99th percentile of the time shown", docFigures,
			"A pair whose 99th percentile is far above its mean meets congestion or loss now and then.",
			overall(0.99, "probe_latency_seconds", "<node>", "instance, peer")).unit("s").from(0).scheme("continuous-GrYlRd"),
		timeseries("Worst latency, 99th percentile", docFigures, "The worst peer and rail of each node. A step is a new path or a broken link; a slow rise is congestion.").
			query(`max by (instance) (`+quantile(0.99, "probe_latency_seconds", "<node>", "instance, peer, rail", "$__rate_interval")+`)`, "{{instance}}").size(12, 9).unit("s").from(0).
			atLeastEvery("2m").leads(toProbe(ofInstance, everyPeer)),
	}
}

func fleetOwn() []*panel {
	return []*panel{
		bars("Versions", docOwn, "Nodes by version of railscope. More than one outside an upgrade: a node was left behind.").
			query(`count by (version) (railscope_build_info{<node>})`, "{{version}}").unit("none").from(0).colours("blue"),
		timeseries("Sources failing", docOwn, "Nodes on which a source could not read everything it should, by source. What could be read is shown all the same.").
			query(`sum by (source) (1 - railscope_source_success{<node>})`, "{{source}}").unit("none").from(0).decimals(0),
		timeseries("Samples too late", docSampler, "Samples that the sampler took later than it should, per second and node. They are not lost, but bursts are seen less sharply: the node is out of processor time, or a device answers slowly.").
			query(perSecond("sampler_overruns_total", "<node>", "instance"), "{{instance}}").unit("cps").from(0).leads(toNode(ofInstance)),
		timeseries("Length of a scrape", docOwn, "How long the reads for a scrape took, by node. Near the 3 s after which a source is given up: a device hangs.").
			query(`max by (instance) (railscope_scrape_seconds{<node>})`, "{{instance}}").unit("s").from(0).leads(toNode(ofInstance)),
		timeseries("Memory of railscope", docOwn, "Resident, by node. It should not grow for days.").
			query(`max by (instance) (process_resident_memory_bytes{<node>} and on (job, instance) railscope_build_info{<node>})`, "{{instance}}").unit("bytes").from(0).leads(toNode(ofInstance)),
		timeseries("Configuration refused", docOwn, "1 while a node runs on an older configuration than the one it was last given: its log says what is wrong with the new one.").
			query(`max by (instance) (1 - railscope_config_last_reload_successful{<node>})`, "{{instance}}").unit("none").from(0).decimals(0).leads(toNode(ofInstance)),
	}
}
