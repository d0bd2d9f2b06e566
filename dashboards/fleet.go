package dashboards

import "strconv"

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
	docFleet                 = "fleet.md#what-is-blamed"
)

// Queries that several dashboards share, by node or by peer.
const (
	ofExpected = `sum by (instance, peer) (railscope_probe_goodput_bytes_per_second{<peer>, mode="stealing"}) / ` +
		`sum by (instance, peer) (railscope_probe_rail_expected_bytes_per_second{<peer>})`
	gpuUsed = `railscope_gpu_memory_used_bytes{<node>} / railscope_gpu_memory_total_bytes{<node>}`
	// Condition of RailscopeGPUMemoryFull, without its wait.
	gpuFull = `((railscope_gpu_memory_free_bytes{<node>} < 1073741824 or railscope_gpu_memory_free_bytes{<node>} and ` +
		`ignoring (source) railscope_gpu_memory_source_info{<node>, source!~"nvml|amdgpu"}) / ` +
		`railscope_gpu_memory_total_bytes{<node>} < 0.02)`
	// Share of a node's slowest rail: load ÷ capacity, relative to the best rail of its group. Absent while idle.
	slowestRail = `1 - max by (instance) (avg_over_time(railscope_rails_imbalance_ratio{<node>}[$__rate_interval]))`
)

// Queries of the Fleet dashboard. They use what deploy/rules records: one series per cluster for graphs, and one
// per node or pair for tables, which show the worst.
const (
	none    = `sum(0 * cluster:railscope_nodes:count{<fleet>})` // 0 if the rules are loaded
	worst   = ` and on (cluster, job, instance) topk(20, node:railscope_fault:rank{<fleet>})`
	firing  = `ALERTS{alertstate="firing", alertname=~"Railscope.+", <alert>}`
	started = `ALERTS_FOR_STATE{alertname=~"Railscope.+", <alert>} and ignoring (alertstate) ` + firing
	most    = 32 // maximum number of nodes in a matrix
)

// what returns the name of a fault: a finding's check, or the fault of an alert about many nodes.
func what(expr string) string {
	return `label_replace(label_replace(` + expr + `, "what", "$1", "fault", "(.*)"), "what", "$1", "check", "(.+)")`
}

// fleet shows all nodes, to find the faulty one.
func fleet() *dashboard {
	d := &dashboard{
		name: "fleet", title: "railscope / Fleet", variables: ofAll(),
		about: "All nodes, by the recording rules of railscope: what is wrong, where, and since when.",
	}
	return d.
		section("Overview", fleetNow()...).
		section("What is wrong", fleetFaults()...).
		section("Where", fleetWhere()...).
		section("Pairs of nodes", fleetPairs()...).
		section("History", fleetThen()...).
		folded("Pair by pair, up to 32 nodes, and latency", fleetMatrices()...).
		folded("railscope itself", fleetOwn()...)
}

func fleetNow() []*panel {
	return []*panel{
		stat("Nodes", docAlerts, "Nodes that Prometheus scrapes. This dashboard needs the recording rules of "+
			"deploy/rules.").
			query(`sum(cluster:railscope_nodes:count{<fleet>})`, "").unit("none").colours(grey).
			nothing("load the rules"),
		stat("Do not answer", docDashboards,
			"Nodes that Prometheus could not scrape. Anything but 0 is a blind spot.").
			query(`sum(cluster:railscope_nodes:count{<fleet>}) - sum(cluster:railscope_nodes_up:sum{<fleet>})`, "").
			unit("none").colours(green, from(1, red)),
		stat("Nodes with a fault", docAlerts,
			"Nodes with at least one fault of railscope's alerts, before the time that the alert waits. Nodes in "+
				"maintenance do not count.").
			query(`count(node:railscope_fault:count{<fleet>}) or `+none, "").unit("none").
			colours(green, from(1, orange)),
		stat("Alerts firing", docAlerts, "Alerts of railscope's rules. One that many nodes share counts once.").
			query(`count(`+firing+`) or `+none, "").unit("none").colours(green, from(1, orange)),
		stat("Rails lost", docRDMA,
			"Rails that were up within the last 7 days and are now down or missing. Ports that never had a cable "+
				"do not count.").
			query(`count(max by (cluster, job, instance, device, port) (rail:railscope_lost{<fleet>})) or `+none, "").
			unit("none").colours(green, from(1, red)),
		stat("Not by RDMA", docReasons,
			"Pairs of nodes whose last probe used TCP or failed. Anything but 0 slows down every job that spans "+
				"the two nodes.").
			query(`count(pair:railscope_probe_fault{<fleet>, reason=~"failing|fallback"}) or `+none, "").unit("none").
			colours(green, from(1, red)),
		stat("Fallback suspected", docSampler,
			"Nodes on which a job seems to have lost RDMA: NCCL says so, processes have no queue pairs, or the rails "+
				"carry TCP while GPUs are busy.").
			query(`count(max by (cluster, job, instance) (railscope:fault{<fleet>, fault="Fallback"})) or `+none, "").
			unit("none").colours(green, from(1, orange)),
		stat("Worst of expected", docFigures,
			"Goodput of all rails at once ÷ expected goodput of the worst node, the median over its peers. Well below "+
				"85 %, a rail is slow, shared or missing.").
			query(`min(cluster:railscope_probe_goodput:ratio{<fleet>, quantile="0"})`, "").unit("percentunit").
			worseBelow(0.85, 0.7).nothing("no probes"),
	}
}

// severities returns names and colours of severities in cells.
func severities() object {
	return says(state{"critical", "critical", red}, state{"warning", "warning", orange}, state{"info", "info", "blue"})
}

func fleetFaults() []*panel {
	return []*panel{
		table("Alerts", docAlerts,
			"Firing alerts of railscope's rules, the critical ones first. An alert about many nodes names their "+
				"fault, and their nodes are in the table beside. The name of an alert links to its runbook.").
			size(12, 9).
			label("severity", "Severity", wide(75), painted(), severities()).
			label("alert", "Alert", leadingTo(toRunbook("${__value.text}"))).label("what", "Fault").
			label("cluster", "Cluster", wide(80)).
			label("instance", "Node", wide(150), leadingTo(toNode("${__value.text}"))).
			label("rail", "Rail", wide(50)).label("gpu", "GPU", wide(50)).
			column("Since", `1000 * max by (severity, alert, what, cluster, instance, rail, gpu) (label_replace(`+
				what(started)+`, "alert", "$1", "alertname", "Railscope(.*)"))`, wide(140), inUnit("dateTimeFromNow")).
			nothing("none").sortedBy("Severity", false),
		table("Faults", docAlerts,
			"Faults of nodes and their rails as the alerts see them, also those that have not lasted long enough to "+
				"fire, and the nodes of an alert about many. At most 100.").size(12, 9).
			label("severity", "Severity", wide(75), painted(), severities()).label("what", "Fault").
			label("cluster", "Cluster", wide(80)).
			label("instance", "Node", wide(150), leadingTo(toNode("${__value.text}"))).
			label("rail", "Rail", wide(50)).label("reason", "Reason", wide(110)).
			labelled(`topk(100, max by (severity, what, cluster, instance, rail, reason) (`+
				what(`railscope:condition:active{<fleet>}`)+`))`).nothing("none").sortedBy("Severity", false),
		table("Nodes", docDashboards,
			"The 20 worst nodes: those with most faults, then those with the least goodput of what is expected. The "+
				"name links to the node.").size(24, 9).
			label("cluster", "Cluster", wide(80)).
			label("instance", "Node", wide(150), leadingTo(toNode("${__value.text}"))).
			column("Faults", ofWorst(`node:railscope_fault:count{<fleet>}`), wide(75), painted(),
				by("transparent", from(1, red))).
			column("Rails up", ofWorst(`node:railscope_port_up:sum{<fleet>}`), wide(75)).
			column("Of expected", ofWorst(`node:railscope_probe_goodput:ratio{<fleet>}`), wide(105),
				inUnit("percentunit"),
				prop("decimals", 0), painted(), by(red, from(0.7, yellow), from(0.85, "transparent"))).
			column("Slowest rail", `1 - `+ofWorst(`node:railscope_rails_imbalance_ratio:max5m{<fleet>}`), wide(100),
				inUnit("percentunit"), prop("decimals", 0)).
			column("Transmit", `8 * `+ofWorst(`node:railscope_port_transmit_bytes:rate5m{<fleet>}`), inUnit("bps")).
			column("Receive", `8 * `+ofWorst(`node:railscope_port_receive_bytes:rate5m{<fleet>}`), inUnit("bps")).
			column("TCP", `8 * `+ofWorst(`node:railscope_rail_tcp_bytes:rate5m{<fleet>}`), inUnit("bps")).
			column("Maintenance", ofWorst(`railscope_maintenance{<fleet>}`), wide(110),
				says(no, state{"1", "yes", "blue"})).
			nothing("none").sortedBy("Faults", true),
	}
}

// ofWorst reduces a series per node to the worst nodes.
func ofWorst(expr string) string { return `max by (cluster, instance) (` + expr + worst + `)` }

// Names of 0 and 1 in cells.
var (
	no  = state{"0", "no", "transparent"}
	yes = state{"1", "yes", red}
)

func fleetWhere() []*panel {
	where := func(title, label, column, labels, about string) *panel {
		count := `cluster:railscope_rail_fault:count{<fleet>, by="` + label + `"}`
		return table(title, docAlerts, about).size(12, 7).
			label("cluster", "Cluster", wide(80)).label(label, column).label("fault", "Fault").
			column("Rails", `topk(10, max by (cluster, `+label+`, fault) (`+count+`))`, wide(60)).
			column("Share", `topk(10, max by (cluster, `+label+`, fault) (`+count+` / on (cluster, job, `+label+
				`) group_left () count by (cluster, job, `+label+`) (`+labels+`{<fleet>})))`, wide(70),
				inUnit("percentunit"), prop("decimals", 0), painted(),
				by("transparent", from(0.1, yellow), from(0.5, red))).
			nothing("none").sortedBy("Share", true)
	}
	return []*panel{
		table("To blame", docFleet,
			"What explains most of the bad rounds, in the words of railscope fleet, which can tell more. At most 50.").
			size(12, 7).label("kind", "Kind", wide(110)).label("cluster", "Cluster", wide(80)).
			label("instance", "Node", leadingTo(toNode("${__value.text}"))).label("rail", "Rail", wide(50)).
			label("peer", "Peer").label("leaf", "Leaf").
			labelled(`topk(50, max by (kind, cluster, instance, rail, peer, leaf) (railscope:blame{<fleet>}))`).
			nothing("none").sortedBy("Kind", false),
		where("By leaf switch", "leaf", "Leaf", "railscope_rail_leaf_info",
			"Rails with a fault behind each leaf switch, and their share of its rails. Most rails of one leaf: the "+
				"leaf. The leaves are those of rails.leaf in the configuration."),
		where("By rail number", "rail", "Rail", "railscope_port_up",
			"Rails with a fault by their number. One number on many nodes: its leaf switches, or its place in the "+
				"chassis."),
		where("By firmware", "firmware", "Firmware", "railscope_rail_info",
			"Rails with a fault by the firmware of their adapter. One version that stands out: an upgrade, or one "+
				"that was missed."),
	}
}

func fleetPairs() []*panel {
	pair := func(p *panel) *panel {
		return p.label("cluster", "Cluster", wide(80)).
			label("instance", "From", leadingTo(toNode("${__value.text}"))).
			label("peer", "To", leadingTo(toProbe("${__data.fields.From}", "${__value.text}")))
	}
	return []*panel{
		pair(table("Slowest pairs", docFigures,
			"Goodput of all rails at once in the last round ÷ what the rails of both ends could carry, of the 20 "+
				"worst pairs. One node in all rows is at fault, as From or as To.").size(12, 8)).
			column("Of expected", `bottomk(20, max by (cluster, instance, peer) `+
				`(pair:railscope_probe_goodput:ratio{<fleet>}))`, wide(105), inUnit("percentunit"), prop("decimals", 0),
				painted(), by(red, from(0.7, yellow), from(0.85, "transparent"))).
			nothing("no probes").sortedBy("Of expected", false),
		pair(table("Pairs with a fault", docReasons,
			"Pairs whose last rounds failed, used TCP, lost a rail or were corrupted, slow or uneven. At most 50.").
			size(12, 8)).
			label("rail", "Rail", wide(50)).label("reason", "Reason", wide(110)).
			labelled(`topk(50, max by (cluster, instance, peer, rail, reason) (pair:railscope_probe_fault{<fleet>}))`).
			nothing("none").sortedBy("From", false),
	}
}

// few restricts an expression to small fleets.
func few(expr string) string {
	return expr + ` and on () sum(cluster:railscope_nodes:count{<fleet>}) <= ` + strconv.Itoa(most)
}

func fleetThen() []*panel {
	graph := func(title, docs, about string) *panel { return timeseries(title, docs, about).size(6, 7) }
	return []*panel{
		graph("Nodes by fault", docAlerts,
			"Nodes with a fault, by fault. Many nodes at once share something: a switch, power, a new version.").
			query(`sum by (fault) (cluster:railscope_fault:nodes{<fleet>}) or label_replace(`+none+
				`, "fault", "none", "", "")`, "{{fault}}").unit("none").from(0).decimals(0).stacked(),
		graph("Nodes that do not answer", docDashboards, "Nodes that Prometheus could not scrape, by cluster.").
			query(`cluster:railscope_nodes:count{<fleet>} - cluster:railscope_nodes_up:sum{<fleet>}`,
				"nodes {{cluster}}").unit("none").from(0).decimals(0),
		graph("Rails up", docRDMA, "Active rails by cluster. A step down is a switch, power or a driver.").
			query(`cluster:railscope_rails_up:sum{<fleet>}`, "rails {{cluster}}").unit("none").from(0).decimals(0).
			lowest(),
		graph("Goodput of expected", docFigures,
			"Of each node the median over its peers. If only the worst drops, a node is at fault; if the median "+
				"drops, the fabric.").
			query(quantileOfNodes("0"), "worst node {{cluster}}").query(quantileOfNodes("0.05"), "5 % {{cluster}}").
			query(quantileOfNodes("0.5"), "median {{cluster}}").unit("percentunit").from(0).worseBelow(0.85, 0.7).
			limits().
			lowest(),
		graph("RDMA traffic", docRDMA, "Sum over all rails of a cluster; transmit upwards, receive downwards.").
			query(`8 * cluster:railscope_port_transmit_bytes:rate5m{<fleet>}`, "transmit {{cluster}}").
			query(`8 * cluster:railscope_port_receive_bytes:rate5m{<fleet>}`, "receive {{cluster}}").unit("bps").
			style("receive .*", below()),
		graph("TCP on the rails", docSampler,
			"Traffic of the rails' interfaces that is not RDMA. If it rises with the jobs, they have fallen back to "+
				"TCP.").
			query(`8 * cluster:railscope_rail_tcp_bytes:rate5m{<fleet>}`, "TCP {{cluster}}").unit("bps").from(0),
		graph("Congestion", docRDMA,
			"Congestion notifications (CNP) that adapters sent because packets arrived marked. Some are normal; a "+
				"step is incast, or a path that lost a link.").
			query(`cluster:railscope_port_cnp_sent:rate5m{<fleet>}`, "CNP {{cluster}}").unit("pps").from(0),
		graph("Slowest rail", docSampler,
			"Share of the slowest rail of the worst node relative to the best rail of that node, under load. 100 % "+
				"is even.").
			query(`1 - cluster:railscope_rails_imbalance_ratio:max5m{<fleet>}`, "worst node {{cluster}}").
			unit("percentunit").from(0).upTo(1).lowest(),
	}
}

// quantileOfNodes returns the quantile q of the nodes' goodput relative to expected.
func quantileOfNodes(q string) string {
	return `cluster:railscope_probe_goodput:ratio{<fleet>, quantile="` + q + `"}`
}

func fleetMatrices() []*panel {
	return []*panel{
		matrix("Goodput of expected, from node (row) to peer (column): up to 32 nodes", docFigures,
			"Goodput of all rails at once in the last round ÷ what the rails of both ends could carry. A red row is "+
				"a node, a red column a peer, a red block a switch. Pairs without a probe are empty. In larger "+
				"fleets it is empty.",
			few(`max by (instance, peer) (pair:railscope_probe_goodput:ratio{<fleet>})`)).
			unit("percentunit").decimals(0).colours("dark-red", from(0.7, orange), from(0.85, "dark-green")).
			nothing("more than 32 nodes, or no probes"),
		table("Nodes with the highest latency", docFigures,
			"99th percentile of 8 B RDMA writes over 20 minutes, to the peer where it is lowest, every 30 minutes. "+
				"Of the 20 worst nodes.").
			size(12, 9).label("cluster", "Cluster", wide(80)).
			label("instance", "Node", leadingTo(toNode("${__value.text}"))).
			column("99th percentile", `topk(20, max by (cluster, instance) `+
				`(rail:railscope_probe_latency_seconds:p99_20m{<fleet>}))`, inUnit("s")).
			nothing("no probes").sortedBy("99th percentile", true),
		matrix("Mean latency in the selected time: up to 32 nodes", docFigures,
			"Round trip of 8 B RDMA writes. A few µs behind one switch, tens of µs behind several; milliseconds are "+
				"retransmissions. Darker blue is slower: compare cells with each other. In larger fleets it is empty.",
			few(`(`+mean("probe_latency_seconds", "<fleet>", "instance, peer")+`)`)).size(12, 9).unit("s").from(0).
			scheme("continuous-blues").nothing("more than 32 nodes, or no probes"),
	}
}

func fleetOwn() []*panel {
	return []*panel{
		bars("Versions", docOwn,
			"Nodes by railscope version. More than one version outside an upgrade: a node was missed.").
			query(`count by (version) (railscope_build_info{<fleet>})`, "{{version}}").unit("none").from(0).
			colours("blue"),
		table("Sources failing", docOwn,
			"Nodes on which a source could not read some of its data. The data that could be read is shown. At most "+
				"50.").
			size(8, 8).label("cluster", "Cluster", wide(80)).
			label("instance", "Node", leadingTo(toNode("${__value.text}"))).label("source", "Source").
			labelled(`topk(50, max by (cluster, instance, source) (railscope_source_success{<fleet>} == 0))`).
			nothing("none").sortedBy("Node", false),
		table("Memory of railscope", docOwn, "Resident memory of the 20 nodes on which railscope has most.").size(8, 8).
			label("cluster", "Cluster", wide(80)).label("instance", "Node", leadingTo(toNode("${__value.text}"))).
			column("Resident", `topk(20, max by (cluster, instance) (process_resident_memory_bytes{<fleet>} and on `+
				`(cluster, job, instance) railscope_build_info{<fleet>}))`, inUnit("bytes")).sortedBy("Resident", true),
	}
}
