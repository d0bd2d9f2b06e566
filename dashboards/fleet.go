package dashboards

import (
	"fmt"
	"strings"
)

// Colours and pages that all dashboards use.
const (
	green, yellow, orange, red, grey = "green", "yellow", "orange", "red", "#6e7687"

	docProbe, docFigures, docReasons = "probe.md", "probe.md#figures", "probe.md#reasons"
	docExtras                        = "probe.md#extras"
	docBudget                        = "probe.md#budget"
	docOwn, docRDMA, docNetdev       = "metrics.md#railscope-itself", "metrics.md#source-rdma",
		"metrics.md#source-netdev"
	docBond, docPCIe, docGPU = "metrics.md#source-bond", "metrics.md#source-pcie", "metrics.md#source-gpu"
	docGPUDirect, docSampler = "metrics.md#source-gpudirect", "sampler.md"
	docProcess, docNCCL      = "process.md", "nccl.md"
	docDashboards, docAlerts = "dashboards.md", "alerts.md"
)

// Queries that several panels share, by node or by peer.
const (
	ofExpected = `sum by (instance, peer) (railscope_probe_goodput_bytes_per_second{<peer>, mode="stealing"}) / ` +
		`sum by (instance, peer) (railscope_probe_rail_expected_bytes_per_second{<peer>})`
	ofExpectedAll = `sum by (instance, peer) (railscope_probe_goodput_bytes_per_second{<node>, mode="stealing"}) / ` +
		`sum by (instance, peer) (railscope_probe_rail_expected_bytes_per_second{<node>})`
	// Rails that were up within the last day and are now down or missing, on nodes that answer. Ports that were
	// never up (half of a DGX Spark's), renamed rails and excluded rails do not count.
	lost = `((max_over_time(railscope_port_up{<node>}[1d:15m]) == 1) unless ignoring (rail) ` +
		`railscope_port_up{<node>} == 1 unless ignoring (rail, port) railscope_rail_excluded_info{<node>} and on ` +
		`(job, instance) railscope_build_info{<node>})`
	gpuUsed = `railscope_gpu_memory_used_bytes{<node>} / railscope_gpu_memory_total_bytes{<node>}`
	// The condition of RailscopeGPUMemoryFull, without its wait.
	gpuFull = `((railscope_gpu_memory_free_bytes{<node>} < 1073741824 or railscope_gpu_memory_free_bytes{<node>} and ` +
		`ignoring (source) railscope_gpu_memory_source_info{<node>, source!="nvml"}) / ` +
		`railscope_gpu_memory_total_bytes{<node>} < 0.02)`
	// Nodes of railscope's jobs: 1 if Prometheus can scrape them.
	answers = `(up{<node>} and on (job) last_over_time(railscope_build_info{<node>}[$__range]))`
	// Share of a node's slowest rail: load ÷ capacity, relative to the best rail of its group. Absent while idle.
	slowestRail = `1 - max by (instance) (avg_over_time(railscope_rails_imbalance_ratio{<node>}[$__rate_interval]))`
	// Share of the peers that the last probe did not reach over RDMA.
	notByRDMA = `sum by (instance) (railscope_probe_transport{<node>, transport!~"rdma|simulated"}) / sum by (instance) ` +
		`(railscope_probe_transport{<node>})`
	// Rails that are slower than their 24-hour median to most peers. To a single peer, the peer may be at fault.
	degraded = `(quantile by (instance, rail) (0.5, railscope_probe_rail_degradation_ratio{<node>}) < 0.7)`
	// Median over a node's peers, for the same reason.
	ofExpectedMiddle = `quantile by (instance) (0.5, ` + ofExpectedAll + `)`
	unevenNow        = `max by (instance) ` +
		`(rate(railscope_rails_imbalanced_seconds_total{<node>}[$__rate_interval]) / ` +
		`rate(railscope_rails_busy_seconds_total{<node>}[$__rate_interval]))`
	alertsFiring = `ALERTS{alertstate="firing", alertname=~"Railscope.+", cluster=~"$cluster", ` +
		`job=~"$job|", instance=~"$instance|"}`
)

// fleet shows all nodes, to find the one at fault.
func fleet() *dashboard {
	d := &dashboard{
		name: "fleet", title: "railscope / Fleet", variables: ofAll(),
		about: "All nodes: dead or uneven rails, pairs of nodes without RDMA, full GPUs, and the nodes at fault.",
	}
	return d.
		section("Overview", fleetNow()...).
		section("Nodes", fleetNodes()...).
		section("Peers: from node (row) to peer (column)", fleetPeers()...).
		section("History", fleetThen()...).
		folded("Latency by pair (histograms: in large fleets, select nodes first)", fleetLatency()...).
		folded("railscope itself", fleetOwn()...)
}

func fleetNow() []*panel {
	return []*panel{
		stat("Nodes", docOwn,
			"Nodes that Prometheus can scrape. Missing nodes do not run railscope or cannot be reached.").
			query(`count(railscope_build_info{<node>})`, "").unit("none").colours(grey).nothing("none"),
		stat("Do not answer", docDashboards,
			"Nodes of railscope's jobs that Prometheus could not scrape. Anything but 0 is a blind spot.").
			query(`sum(1 - `+answers+`)`, "").unit("none").colours(green, from(1, red)),
		stat("Rails lost", docRDMA,
			"Rails that were up within the last day and are now down or missing. Ports that never had a cable "+
				"do not count.").
			query(`count(`+lost+`) or sum(0 * railscope_build_info{<node>})`, "").unit("none").colours(green,
			from(1, red)),
		stat("Uneven nodes", docSampler,
			"Nodes with uneven traffic for more than 50 % of the time under load: one rail carried less than 75 "+
				"% of the best rail with the same link layer and rate. The table shows the slowest rail of each "+
				"node.").
			query(`count(`+unevenNow+` > 0.5) or sum(0 * railscope_build_info{<node>})`, "").unit("none").colours(green,
			from(1, orange)),
		stat("Not by RDMA", docReasons,
			"Pairs of nodes whose last probe used TCP or failed. Anything but 0 slows down every job that spans "+
				"the two nodes.").
			query(`sum(railscope_probe_transport{<node>, transport!~"rdma|simulated"})`, "").unit("none").colours(green,
			from(1, red)).nothing("no probes"),
		stat("Fallback suspected", docSampler,
			"Nodes whose traffic suggests that a job has lost RDMA: busy GPUs while the rails carry TCP, or "+
				"traffic on one rail instead of several.").
			query(`sum(max by (instance) (railscope_fallback_suspected{<node>}))`, "").unit("none").colours(green,
			from(1, orange)),
		stat("Worst of expected", docFigures,
			"Striped goodput ÷ expected goodput of the worst pair. Well below 85 %, a rail is slow, shared or "+
				"missing.").
			query(`min(`+ofExpectedAll+`)`, "").unit("percentunit").worseBelow(0.85, 0.7).nothing("no probes"),
		stat("Full GPUs", docGPU,
			"GPUs with less than 2 % and less than 1 GiB of memory free; for GPUs that share the machine's "+
				"memory, less than 2 %. The next allocation may fail, including NCCL's.").
			query(`count(`+gpuFull+`) or sum(0 * railscope_gpu_memory_free_bytes{<node>})`, "").unit("none").
			colours(green, from(1, red)).nothing("no GPU data"),
	}
}

func fleetNodes() []*panel {
	bad := func(first float64) []object {
		return []object{wide(85), painted(), by("transparent", from(first, red))}
	}
	return []*panel{
		table("Nodes", docDashboards,
			"One row per node, worst first. Faults counts the red cells. Probe figures are the median over the "+
				"peers, so one bad peer does not affect every node. The name links to the node.").size(24, 10).
			label("instance", "Node", wide(150), leadingTo(toNode("${__value.text}"))).
			column("Faults", faults(), wide(75), painted(), by("transparent", from(1, red))).
			column("Up", `max by (instance) (`+answers+`)`, wide(75), painted(), by(red, from(1, "transparent")),
				says(state{"0", "no", red}, state{"1", "yes", "transparent"})).
			column("Rails up", `sum by (instance) (railscope_port_up{<node>})`, wide(75)).
			column("Rails lost",
				`count by (instance) (`+lost+`) or sum by (instance) (0 * railscope_build_info{<node>})`, bad(1)...).
			column("Degraded",
				`count by (instance) (`+degraded+`) or sum by (instance) (0 * railscope_build_info{<node>})`,
				bad(1)...).
			column("Misbound", `sum by (instance) (railscope_gid_misbound{<node>})`, bad(1)...).
			column("Slowest rail", slowestRail, wide(100), inUnit("percentunit"), prop("decimals", 0)).
			column("Transmit", bits("port_transmit_bytes_total", "<node>", "instance"), inUnit("bps")).
			column("Receive", bits("port_receive_bytes_total", "<node>", "instance"), inUnit("bps")).
			column("TCP", bits("rail_tcp_bytes_total", "<node>", "instance"), inUnit("bps")).
			column("Fallback", `max by (instance) (railscope_fallback_suspected{<node>})`, wide(95), painted(),
				by("transparent"), says(no, state{"1", "suspected", orange})).
			column("Not by RDMA", notByRDMA, wide(115), inUnit("percentunit"), prop("decimals", 0), painted(),
				by("transparent", from(0.5, red))).
			column("Of expected", ofExpectedMiddle, wide(105), inUnit("percentunit"), prop("decimals", 0), painted(),
				by(red, from(0.7, yellow), from(0.85, "transparent"))).
			column("Full GPUs",
				`count by (instance) (`+gpuFull+`) or sum by (instance) (0 * railscope_gpu_memory_free_bytes{<node>})`,
				bad(1)...).
			column("Sources failing", `sum by (instance) (1 - railscope_source_success{<node>})`, wide(120), painted(),
				by("transparent", from(1, orange))).
			sortedBy("Faults", true),
		table("Alerts firing", docDashboards,
			"Firing alerts of railscope's rules. An empty table is good if the rules are loaded.").size(12, 7).
			label("severity", "Severity", wide(85), painted(),
				says(state{"critical", "critical", red}, state{"warning", "warning", orange},
					state{"info", "info", "blue"})).
			label("alert", "Alert").label("instance", "Node", wide(140), leadingTo(toNode("${__value.text}"))).
			label("rail", "Rail", wide(50)).label("peer", "Peer", wide(140)).
			labelled(`max by (severity, alert, instance, rail, peer) (label_replace(`+alertsFiring+
				`, "alert", "$1", "alertname", "Railscope(.*)"))`).nothing("none").sortedBy("Severity", false),
		table("Lost and misbound rails", docRDMA,
			"Rails that were up within the last day and are now down or missing, and rails whose RoCE v2 GIDs "+
				"belong to another interface, so that connections leave through another port. An empty table is "+
				"good.").size(12, 7).
			label("instance", "Node", leadingTo(toNode("${__value.text}"))).label("rail", "Rail").label("device",
			"Device").
			label("fault", "Fault", painted(), says(state{"down", "down", red}, state{"gone", "gone", red},
				state{"GIDs misbound", "GIDs misbound", orange})).
			labelled(`max by (instance, rail, device, fault) (label_replace(` + lost +
				` and railscope_port_up{<node>}, "fault", "down", "", "") or label_replace(` + lost +
				` unless railscope_port_up{<node>}, "fault", "gone", "", "") or ` +
				`label_replace(railscope_gid_misbound{<node>} == 1, "fault", "GIDs misbound", "", ""))`).
			nothing("none"),
	}
}

// faults counts the red cells in a node's row.
func faults() string {
	var terms []string
	for i, term := range []string{
		`count by (instance) (` + lost + `)`,
		`count by (instance) (` + degraded + `)`,
		`sum by (instance) (railscope_gid_misbound{<node>})`,
		`max by (instance) (railscope_fallback_suspected{<node>})`,
		`max by (instance) (1 - ` + answers + `)`,
		notByRDMA + ` >= bool 0.5`,
		ofExpectedMiddle + ` < bool 0.7`,
		`count by (instance) (` + gpuFull + `) > bool 0`,
	} {
		terms = append(terms, fmt.Sprintf(`label_replace(%s, "fault", "%d", "", "")`, term, i))
	}
	return `sum by (instance) (` + strings.Join(terms, " or ") + `)`
}

// Names of 0 and 1 in cells.
var (
	no  = state{"0", "no", "transparent"}
	yes = state{"1", "yes", red}
)

func fleetPeers() []*panel {
	return []*panel{
		matrix("Goodput of expected, or the transport if not RDMA", docFigures,
			"Striped goodput of the last probe ÷ what the rails of both ends could carry. A red row is a node, "+
				"a red column a peer, a red block a switch. Empty cells are pairs without a probe.",
			`-1 * max by (instance, peer) (railscope_probe_transport{<node>, transport="tcp"} == 1) or -2 * max by `+
				`(instance, peer) (railscope_probe_transport{<node>, transport="none"} == 1) or `+ofExpectedAll).
			unit("percentunit").decimals(0).colours("dark-red", from(0.7, orange), from(0.85, "dark-green")).
			states(state{"-1", "TCP", orange}, state{"-2", "none", red}),
	}
}

func fleetThen() []*panel {
	return []*panel{
		timeseries("Rails up", docRDMA,
			"Active rails by node. A step down is a cable, switch or driver; rapid changes are a flapping link.").
			query(`sum by (instance) (railscope_port_up{<node>})`, "{{instance}}").unit("none").from(0).decimals(0).
			lowest().leads(toNode(ofInstance)),
		timeseries("Slowest rail", docSampler,
			"Share of the slowest rail of each node relative to the best rail with the same link layer and "+
				"rate, by capacity, in the worse direction, under load. 100 % is even. On a node below the others, "+
				"a rail is slow or unused.").
			query(slowestRail, "{{instance}}").unit("percentunit").from(0).upTo(1).lowest().leads(toNode(ofInstance)),
		timeseries("Imbalanced share of busy time", docSampler,
			"Share of the time under load in which rails were uneven, by node. A value that stays above 50 % is "+
				"a fault.").
			query(`sum by (instance) (rate(railscope_rails_imbalanced_seconds_total{<node>}[$__rate_interval])) / `+
				`sum by (instance) (rate(railscope_rails_busy_seconds_total{<node>}[$__rate_interval]))`,
				"{{instance}}").
			unit("percentunit").from(0).upTo(1).colours(green, from(0.5, red)).limits().leads(toNode(ofInstance)),
		timeseries("RDMA traffic", docRDMA,
			"By node; transmit upwards, receive downwards. Nodes of one job look alike; a node that differs "+
				"slows down the others.").
			query(bits("port_transmit_bytes_total", "<node>", "instance"), "transmit · {{instance}}").
			query(bits("port_receive_bytes_total", "<node>", "instance"), "receive · {{instance}}").unit("bps").
			style("receive · .*", below()).leads(toNode(ofInstance)),
		timeseries("TCP on the rails", docSampler,
			"Traffic of the rails' interfaces that is not RDMA, by node. If it follows the job, the job fell "+
				"back to TCP.").
			query(bits("rail_tcp_bytes_total", "<node>", "instance"), "{{instance}}").unit("bps").from(0).
			leads(toNode(ofInstance)),
		timeseries("Congestion", docRDMA,
			"Congestion notifications (CNP) that nodes slowed down for, by node. Some are normal. Many more "+
				"than on other nodes: incast, or a path that lost a link.").
			query(perSecond("port_cnp_handled_total", "<node>", "instance"), "{{instance}}").unit("pps").from(0).
			leads(toNode(ofInstance)),
		timeseries("Goodput of expected", docFigures,
			"Median over each node's peers. If one node drops, the node is at fault; if all drop at once, the "+
				"fabric.").
			query(ofExpectedMiddle, "{{instance}}").unit("percentunit").from(0).worseBelow(0.85, 0.7).limits().lowest().
			atLeastEvery("1m").leads(toProbe(ofInstance, everyPeer)),
		timeseries("Peers not by RDMA", docReasons,
			"Share of each node's peers that the last probe did not reach over RDMA. One node at 100 %: that "+
				"node. A little on all nodes: a peer that they share.").
			query(notByRDMA, "{{instance}}").unit("percentunit").from(0).upTo(1).colours(green, from(0.5, red)).
			limits().
			leads(toProbe(ofInstance, everyPeer)),
		timeseries("GPU memory", docGPU,
			"Memory in use ÷ total for the fullest GPU of each node. A steady rise without a new job is a leak.").
			query(`max by (instance) (`+gpuUsed+`)`, "{{instance}}").unit("percentunit").from(0).upTo(1).colours(green,
			from(0.98, yellow)).limits().leads(toNode(ofInstance)),
	}
}

func fleetLatency() []*panel {
	return []*panel{
		matrix("Mean latency in the selected time", docFigures,
			"Round trip of 8 B RDMA writes. A few µs behind one switch, tens of µs behind several; milliseconds "+
				"are retransmissions. Darker blue is slower: compare cells with each other.",
			mean("probe_latency_seconds", "<node>", "instance, peer")).unit("s").from(0).scheme("continuous-blues"),
		matrix("99th percentile of latency in the selected time", docFigures,
			"A pair whose 99th percentile is far above its mean has occasional congestion or loss.",
			overall(0.99, "probe_latency_seconds", "<node>", "instance, peer")).unit("s").from(0).
			scheme("continuous-blues"),
		timeseries("99th percentile of latency", docFigures,
			"Over all peers of each node. A step is a new path or a broken link; a slow rise is congestion.").
			query(quantile(0.99, "probe_latency_seconds", "<node>", "instance", "$__rate_interval"), "{{instance}}").
			size(24, 9).unit("s").from(0).
			atLeastEvery("2m").leads(toProbe(ofInstance, everyPeer)),
	}
}

func fleetOwn() []*panel {
	return []*panel{
		bars("Versions", docOwn,
			"Nodes by railscope version. More than one version outside an upgrade: a node was missed.").
			query(`count by (version) (railscope_build_info{<node>})`, "{{version}}").unit("none").from(0).
			colours("blue"),
		timeseries("Sources failing", docOwn,
			"Nodes on which a source could not read some of its data, by source. The data that could be read is "+
				"shown.").
			query(`sum by (source) (1 - railscope_source_success{<node>})`, "{{source}}").unit("none").from(0).
			decimals(0),
		timeseries("Late samples", docSampler,
			"Samples that the sampler took too late, per second and node. They are not lost, but short bursts "+
				"are less visible. The node lacks CPU time, or a device answers slowly.").
			query(perSecond("sampler_overruns_total", "<node>", "instance"), "{{instance}}").unit("eps").from(0).
			leads(toNode(ofInstance)),
		timeseries("Scrape duration", docOwn,
			"Time that the reads for a scrape took, by node. Near the limit of 3 s per source, a device hangs.").
			query(`max by (instance) (railscope_scrape_seconds{<node>})`, "{{instance}}").unit("s").from(0).
			leads(toNode(ofInstance)),
		timeseries("Memory of railscope", docOwn, "Resident memory by node. It should not grow over days.").
			query(`max by (instance) (process_resident_memory_bytes{<node>} and on (job, instance) `+
				`railscope_build_info{<node>})`, "{{instance}}").unit("bytes").from(0).leads(toNode(ofInstance)),
		timeseries("Configuration rejected", docOwn,
			"1 while a node runs on an older configuration because the last one was rejected. The log has the "+
				"reason.").
			query(`max by (instance) (1 - railscope_config_last_reload_successful{<node>})`, "{{instance}}").
			unit("none").from(0).decimals(0).leads(toNode(ofInstance)),
	}
}
