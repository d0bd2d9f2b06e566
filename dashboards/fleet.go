package dashboards

import (
	"fmt"
	"strings"
)

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
	// DGX Spark's ports have no cable: what never was up is not lost, nor what has another name now, or is left out.
	lost    = `((max_over_time(railscope_port_up{<node>}[1d:15m]) == 1) unless ignoring (rail) railscope_port_up{<node>} == 1 unless ignoring (rail, port) railscope_rail_excluded_info{<node>} and on (job, instance) railscope_build_info{<node>})`
	gpuUsed = `railscope_gpu_memory_used_bytes{<node>} / railscope_gpu_memory_total_bytes{<node>}`
	// GPUs of which RailscopeGPUMemoryNearlyFull tells, if it lasts: by share and by bytes, because serving takes nearly
	// all by design.
	gpuFull = `(railscope_gpu_memory_free_bytes{<node>} / railscope_gpu_memory_total_bytes{<node>} < 0.02 and ` +
		`(railscope_gpu_memory_free_bytes{<node>} < 1073741824 or sum without (source) (railscope_gpu_memory_source_info{<node>, source!="nvml"})))`
	// Nodes of the jobs in which railscope was seen: 1 if Prometheus reaches them.
	answers = `(up{<node>} and on (job) last_over_time(railscope_build_info{<node>}[$__range]))`
	// The share of a node's slowest rail: load ÷ capacity, relative to the best rail of its group. Absent while idle.
	slowestRail = `1 - max by (instance) (avg_over_time(railscope_rails_imbalance_ratio{<node>}[$__rate_interval]))`
	// Part of the peers that the last probe did not reach by RDMA.
	notByRDMA = `sum by (instance) (railscope_probe_transport{<node>, transport!="rdma"}) / sum by (instance) (railscope_probe_transport{<node>})`
	// Rails that have lost something against their own past to most peers: to one, it may be the peer's fault.
	degraded = `(quantile by (instance, rail) (0.5, railscope_probe_rail_degradation_ratio{<node>}) < 0.7)`
	// The middle of a node's peers, for the same reason.
	ofExpectedMiddle = `quantile by (instance) (0.5, ` + ofExpectedAll + `)`
	unevenNow        = `max by (instance) (rate(railscope_rails_imbalanced_seconds_total{<node>}[$__rate_interval]) / rate(railscope_rails_busy_seconds_total{<node>}[$__rate_interval]))`
	alertsFiring     = `ALERTS{alertstate="firing", alertname=~"Railscope.+", job=~"$job|", instance=~"$instance|"}`
)

// fleet is all nodes at once: which one to look at.
func fleet() *dashboard {
	d := &dashboard{
		name: "fleet", title: "railscope / Fleet", variables: ofAll(),
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
			query(`sum(1 - `+answers+`)`, "").unit("none").colours(green, from(1, red)),
		stat("Rails lost", docRDMA, "Rails that were up within the last day and are not now: down, or gone from the machine. Ports that never had a cable do not count.").
			query(`count(`+lost+`) or sum(0 * railscope_build_info{<node>})`, "").unit("none").colours(green, from(1, red)),
		stat("Uneven nodes", docSampler,
			"Nodes whose real traffic was uneven for more than half of the time that it was there: a rail carried less than 75 % of what the best of its link layer and rate did. The table says how slow the slowest one is.").
			query(`count(`+unevenNow+` > 0.5) or sum(0 * railscope_build_info{<node>})`, "").unit("none").colours(green, from(1, orange)),
		stat("Not by RDMA", docReasons, "Pairs of nodes whose last probe went by TCP, or not at all. Anything but 0 slows every job that spans the two.").
			query(`sum(railscope_probe_transport{<node>, transport!="rdma"})`, "").unit("none").colours(green, from(1, red)).nothing("no probes"),
		stat("Fallback suspected", docSampler, "Nodes whose own traffic looks as if it had left RDMA: GPUs busy while rails carry TCP, or one rail where there were several.").
			query(`sum(max by (instance) (railscope_fallback_suspected{<node>}))`, "").unit("none").colours(green, from(1, orange)),
		stat("Worst of expected", docFigures, "Striped goodput ÷ what the rails could carry, of the worst pair. Well below 85 % a rail is slow, shared or missing.").
			query(`min(`+ofExpectedAll+`)`, "").unit("percentunit").worseBelow(0.85, 0.7).nothing("no probes"),
		stat("Full GPUs", docGPU, "GPUs with less than a fiftieth of their memory and less than 1 GiB free; of what shares the machine's memory, less than a fiftieth. The next allocation may fail; NCCL needs some, too.").
			query(`count(`+gpuFull+`) or sum(0 * railscope_gpu_memory_free_bytes{<node>})`, "").unit("none").colours(green, from(1, red)).nothing("no GPU tells"),
	}
}

func fleetNodes() []*panel {
	bad := func(first float64) []object {
		return []object{wide(85), painted(), by("transparent", from(first, red))}
	}
	return []*panel{
		table("Nodes", docDashboards,
			"A line per node, the worst first: faults is how many of the red things there are. Figures of probes are those to the middle of its peers, so that one bad peer does not blame all. The name leads to the node.").size(24, 10).
			label("instance", "Node", wide(150), leadingTo(toNode("${__value.text}"))).
			column("Faults", faults(), wide(75), painted(), by("transparent", from(1, red))).
			column("Answers", `max by (instance) (`+answers+`)`, wide(75), painted(), by(red, from(1, "transparent")), says(state{"0", "no", red}, state{"1", "yes", "transparent"})).
			column("Rails up", `sum by (instance) (railscope_port_up{<node>})`, wide(75)).
			column("Rails lost", `count by (instance) (`+lost+`) or sum by (instance) (0 * railscope_build_info{<node>})`, bad(1)...).
			column("Degraded", `count by (instance) (`+degraded+`) or sum by (instance) (0 * railscope_build_info{<node>})`, bad(1)...).
			column("Misbound", `sum by (instance) (railscope_gid_misbound{<node>})`, bad(1)...).
			column("Slowest rail", slowestRail, wide(100), inUnit("percentunit"), prop("decimals", 0)).
			column("Sends", bits("port_transmit_bytes_total", "<node>", "instance"), inUnit("bps")).
			column("Receives", bits("port_receive_bytes_total", "<node>", "instance"), inUnit("bps")).
			column("By TCP", bits("rail_tcp_bytes_total", "<node>", "instance"), inUnit("bps")).
			column("Fallback", `max by (instance) (railscope_fallback_suspected{<node>})`, wide(95), painted(), by("transparent"), says(no, state{"1", "suspected", orange})).
			column("Not by RDMA", notByRDMA, wide(115), inUnit("percentunit"), prop("decimals", 0), painted(), by("transparent", from(0.5, red))).
			column("Of expected", ofExpectedMiddle, wide(105), inUnit("percentunit"), prop("decimals", 0), painted(), by(red, from(0.7, yellow), from(0.85, "transparent"))).
			column("Full GPUs", `count by (instance) (`+gpuFull+`) or sum by (instance) (0 * railscope_gpu_memory_free_bytes{<node>})`, bad(1)...).
			column("Sources failing", `sum by (instance) (1 - railscope_source_success{<node>})`, wide(120), painted(), by("transparent", from(1, orange))).
			sortedBy("Faults", true),
		table("Alerts firing", docDashboards, "The alerts of railscope's rules that fire now. Empty is good, if the rules are loaded.").size(12, 7).
			label("severity", "Severity", wide(85), painted(), says(state{"critical", "critical", red}, state{"warning", "warning", orange}, state{"info", "info", "blue"})).
			label("alert", "Alert").label("instance", "Node", wide(140), leadingTo(toNode("${__value.text}"))).label("rail", "Rail", wide(50)).label("peer", "Peer", wide(140)).
			labelled(`max by (severity, alert, instance, rail, peer) (label_replace(`+alertsFiring+`, "alert", "$1", "alertname", "Railscope(.*)"))`).nothing("none").sortedBy("Severity", false),
		table("Lost and misbound rails", docRDMA,
			"Rails that were up within the last day and are down or gone, and rails whose RoCE v2 addresses sit on another interface, so that connections leave by another port. Empty is good.").size(12, 7).
			label("instance", "Node", leadingTo(toNode("${__value.text}"))).label("rail", "Rail").label("device", "Device").
			label("fault", "Fault", painted(), says(state{"down", "down", red}, state{"gone", "gone", red}, state{"GIDs misbound", "GIDs misbound", orange})).
			labelled(`max by (instance, rail, device, fault) (label_replace(` + lost + ` and railscope_port_up{<node>}, "fault", "down", "", "") or label_replace(` + lost + ` unless railscope_port_up{<node>}, "fault", "gone", "", "") or ` +
				`label_replace(railscope_gid_misbound{<node>} == 1, "fault", "GIDs misbound", "", ""))`).nothing("none"),
	}
}

// faults counts what is red in a node's line.
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

// What 0 and 1 are called in cells.
var (
	no  = state{"0", "no", "transparent"}
	yes = state{"1", "yes", red}
)

func fleetPeers() []*panel {
	return []*panel{
		matrix("Goodput of expected, or the way where it was not by RDMA", docFigures,
			"Striped goodput of the last probe ÷ what the rails of both ends could carry. A line that is red is a node, a column a peer, a block a switch; an empty cell is a pair that does not probe.",
			`-1 * max by (instance, peer) (railscope_probe_transport{<node>, transport="tcp"} == 1) or -2 * max by (instance, peer) (railscope_probe_transport{<node>, transport="none"} == 1) or `+ofExpectedAll).
			unit("percentunit").decimals(0).colours("dark-red", from(0.7, orange), from(0.85, "dark-green")).states(state{"-1", "TCP", orange}, state{"-2", "none", red}),
	}
}

func fleetThen() []*panel {
	return []*panel{
		timeseries("Rails up", docRDMA, "By node. A step down is a cable, a switch or a driver; a comb is a link that flaps.").
			query(`sum by (instance) (railscope_port_up{<node>})`, "{{instance}}").unit("none").from(0).decimals(0).lowest().leads(toNode(ofInstance)),
		timeseries("Slowest rail", docSampler, "What the slowest rail of a node carries of what the best of its link layer and rate does, each by its capacity, in the worse direction, while there is traffic. 100 % is even; a node below the others has a rail that is slow, or not used: look which.").
			query(slowestRail, "{{instance}}").unit("percentunit").from(0).upTo(1).lowest().leads(toNode(ofInstance)),
		timeseries("Imbalanced part of the busy time", docSampler, "Of the seconds in which rails were busy, the part in which they were uneven, by node. Steadily above 50 %: not chance, but a fault.").
			query(`sum by (instance) (rate(railscope_rails_imbalanced_seconds_total{<node>}[$__rate_interval])) / sum by (instance) (rate(railscope_rails_busy_seconds_total{<node>}[$__rate_interval]))`, "{{instance}}").
			unit("percentunit").from(0).upTo(1).colours(green, from(0.5, red)).limits().leads(toNode(ofInstance)),
		timeseries("RDMA traffic", docRDMA, "By node, sent upwards, received downwards. Nodes of one job look alike; the one that does not holds up the others.").
			query(bits("port_transmit_bytes_total", "<node>", "instance"), "sends · {{instance}}").
			query(bits("port_receive_bytes_total", "<node>", "instance"), "receives · {{instance}}").unit("bps").style("receives · .*", below()).leads(toNode(ofInstance)),
		timeseries("TCP on the rails", docSampler, "What the rails' interfaces carried that was not RDMA, by node. Traffic here in step with the job is a job that fell back to TCP.").
			query(bits("rail_tcp_bytes_total", "<node>", "instance"), "{{instance}}").unit("bps").from(0).leads(toNode(ofInstance)),
		timeseries("Congestion", docRDMA, "Congestion notifications (CNP) that nodes slowed down for, by node. Some are the control loop at work; many times the others' is an incast, or a path that lost a link.").
			query(perSecond("port_cnp_handled_total", "<node>", "instance"), "{{instance}}").unit("pps").from(0).leads(toNode(ofInstance)),
		timeseries("Goodput of expected", docFigures, "To the middle of each node's peers. One node that falls is that node; all that fall at once are the fabric.").
			query(ofExpectedMiddle, "{{instance}}").unit("percentunit").from(0).worseBelow(0.85, 0.7).limits().lowest().
			atLeastEvery("1m").leads(toProbe(ofInstance, everyPeer)),
		timeseries("Peers not by RDMA", docReasons, "Part of each node's peers that the last probe did not reach by RDMA. One node at 100 %: that node; all a little: a peer that they share.").
			query(notByRDMA, "{{instance}}").unit("percentunit").from(0).upTo(1).colours(green, from(0.5, red)).limits().leads(toProbe(ofInstance, everyPeer)),
		timeseries("GPU memory", docGPU, "Memory in use ÷ total of the fullest GPU of each node. A steady rise without a new job is a leak.").
			query(`max by (instance) (`+gpuUsed+`)`, "{{instance}}").unit("percentunit").from(0).upTo(1).colours(green, from(0.98, yellow)).limits().leads(toNode(ofInstance)),
	}
}

func fleetLatency() []*panel {
	return []*panel{
		matrix("Latency, mean of the time shown", docFigures,
			"Round trip of 8 B RDMA writes. Some µs behind one switch, tens behind several; ms are retransmissions. The more blue, the more time: compare cells with each other.",
			mean("probe_latency_seconds", "<node>", "instance, peer")).unit("s").from(0).scheme("continuous-blues"),
		matrix("Latency, 99th percentile of the time shown", docFigures,
			"A pair whose 99th percentile is far above its mean meets congestion or loss now and then.",
			overall(0.99, "probe_latency_seconds", "<node>", "instance, peer")).unit("s").from(0).scheme("continuous-blues"),
		timeseries("Latency, 99th percentile", docFigures, "Of each node to all its peers. A step is a new path or a broken link; a slow rise is congestion.").
			query(quantile(0.99, "probe_latency_seconds", "<node>", "instance", "$__rate_interval"), "{{instance}}").size(24, 9).unit("s").from(0).
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
			query(perSecond("sampler_overruns_total", "<node>", "instance"), "{{instance}}").unit("eps").from(0).leads(toNode(ofInstance)),
		timeseries("Length of a scrape", docOwn, "How long the reads for a scrape took, by node. Near the 3 s after which a source is given up: a device hangs.").
			query(`max by (instance) (railscope_scrape_seconds{<node>})`, "{{instance}}").unit("s").from(0).leads(toNode(ofInstance)),
		timeseries("Memory of railscope", docOwn, "Resident, by node. It should not grow for days.").
			query(`max by (instance) (process_resident_memory_bytes{<node>} and on (job, instance) railscope_build_info{<node>})`, "{{instance}}").unit("bytes").from(0).leads(toNode(ofInstance)),
		timeseries("Configuration refused", docOwn, "1 while a node runs on an older configuration than the one it was last given: its log says what is wrong with the new one.").
			query(`max by (instance) (1 - railscope_config_last_reload_successful{<node>})`, "{{instance}}").unit("none").from(0).decimals(0).leads(toNode(ofInstance)),
	}
}
