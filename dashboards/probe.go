package dashboards

// probes shows the results of rounds between nodes.
func probes() *dashboard {
	d := &dashboard{
		name: "probe", title: "railscope / Probe", variables: ofOne(peerVariable(), probedRailVariable()),
		about: "What the rails to a peer can carry: goodput against expected goodput, latency, rails alone and " +
			"together, TCP, and why rounds fail.",
	}
	return d.
		section("Overview", probeNow()...).
		section("Goodput", probeGoodput()...).
		section("Latency", probeLatency()...).
		section("Comparison of rails", probeBalance()...).
		section("Failures", probeFailures()...).
		folded("Latency by rail", probeLatencyOfRails()...).
		folded("TCP", probeTCP()...).
		folded("Path and probe", probePath()...).
		folded("Extras", probeExtras()...)
}

func probeExtras() []*panel {
	const none = "not measured: probe.extras"
	return []*panel{
		timeseries("Loopback", docExtras,
			"Goodput of each rail to itself, without the wire. Low here too: the host or PCIe limits the rail.").
			query(`8 * min by (instance, rail) (railscope_probe_loopback_goodput_bytes_per_second{<rail>})`, perRail("")).
			unit("bps").from(0).lowest().nothing(none),
		timeseries("Loss on the worst path", docExtras,
			"Part of the packets that are lost on the worst of 16 paths (flow labels) of each rail. 100 %: nothing arrives.").
			query(`max by (instance, rail) (railscope_probe_path_loss_ratio{<path>})`, perRail("")).
			unit("percentunit").from(0).worseAbove(0.0001, 0.001).limits().nothing(none),
		timeseries("Lossy paths", docExtras, "Of 16 paths of each rail, those that lose packets while most do not.").
			query(`max by (instance, rail) (railscope_probe_paths_lossy{<path>})`, perRail("")).unit("none").from(0).
			nothing(none),
		timeseries("Two rails at once ÷ each alone", docExtras,
			"Below 0.9, the two rails share something, such as a PCIe switch.").
			query(`min by (instance, rail, other) (railscope_probe_contention_ratio{<rail>})`,
				perRail("and {{other}}")).unit("percentunit").from(0).worseBelow(0.9, 0.8).limits().lowest().
			nothing(none),
		timeseries("Memory of GPUs ÷ memory of hosts", docExtras,
			"Goodput of each rail between memory of GPUs ÷ that between memory of the hosts, by the kind that was achieved. "+
				"cuda_host is not on the GPU.").
			query(`min by (instance, rail, memory) (railscope_probe_gpu_ratio{<rail>})`,
				perRail("{{memory}}")).unit("percentunit").from(0).worseBelow(0.9, 0.7).limits().lowest().
			nothing(none),
	}
}

const (
	perPeer = "{{instance}} → {{peer}}"
)

func probeNow() []*panel {
	return []*panel{
		stat("Not by RDMA", docReasons,
			"Pairs whose last round used TCP or failed. Anything but 0 slows down every job that spans the two "+
				"nodes.").
			query(`sum(railscope_probe_transport{<peer>, transport!~"rdma|simulated"})`, "").unit("none").colours(green,
			from(1, red)).nothing("no probes"),
		stat("Goodput", docFigures, "RDMA payload over all rails at once in the last round, for the worst pair.").
			query(`8 * min(railscope_probe_goodput_bytes_per_second{<peer>, mode="stealing"})`, "").unit("bps").
			colours(grey).nothing("no RDMA"),
		stat("Of expected", docFigures,
			"Goodput ÷ what the rails of both ends could carry, for the worst pair. Well below 85 %, a rail is "+
				"slow, shared or missing.").
			query(`min(`+ofExpected+`)`, "").unit("percentunit").worseBelow(0.85, 0.7).nothing("no RDMA"),
		stat("Imbalance", docFigures,
			"1 − the smallest share in the last burst, for the worst pair. 39 %: a rail carried 61 % of the "+
				"best rail with the same link layer and rate. 100 %: a rail carried nothing. From 25 % on, a round "+
				"is degraded.").
			query(`max(railscope_probe_imbalance_ratio{<peer>})`, "").unit("percentunit").worseAbove(0.1, 0.25).
			nothing("no RDMA"),
		stat("Scaling", docFigures,
			"Goodput of all rails at once ÷ sum of the solo rates, for the worst pair. Below 0.9 the rails "+
				"share a bottleneck, such as a PCIe link.").
			query(`min(railscope_probe_scaling_ratio{<peer>})`, "").unit("percentunit").worseBelow(0.9, 0.8).
			nothing("no RDMA"),
		stat("RDMA ÷ TCP", docFigures,
			"Speed-up of RDMA over the best TCP result, for the worst pair. Near 1, RDMA brings no benefit.").
			query(`min(railscope_probe_speedup_ratio{<peer>})`, "").unit("none").decimals(1).worseBelow(2, 1).
			nothing("no RDMA"),
		stat("Latency p99", docFigures,
			"99th percentile of the round trip of 8 B RDMA writes in the selected time, for the worst pair and "+
				"rail.").
			query(`max(`+overall(0.99, "probe_latency_seconds", "<latency>", "instance, peer, rail")+`)`, "").unit("s").
			colours(grey).nothing("no RDMA"),
		stat("Last good round", docProbe,
			"Time since the last round with result ok, for the worst pair. Many times `interval`: a rail is "+
				"dead or slow, or the probe fails or is always skipped.").
			query(`max(time() - railscope_probe_last_success_timestamp_seconds{<peer>})`, "").unit("s").worseAbove(600,
			3600).nothing("never"),
	}
}

func probeGoodput() []*panel {
	return []*panel{
		timeseries("Goodput and expected goodput", docFigures,
			"To the worst peer, all rails at once: each rail what it can, and equal parts, against the expected goodput "+
				"(dashed). Stealing well below it: a rail is slow or shared. Equal parts below stealing: one rail "+
				"is slower than the others.").size(12, 9).
			query(`8 * min by (instance) (sum by (instance, peer) `+
				`(railscope_probe_goodput_bytes_per_second{<peer>, mode="stealing"}))`, "stealing · {{instance}}").
			query(`8 * min by (instance) (sum by (instance, peer) `+
				`(railscope_probe_goodput_bytes_per_second{<peer>, mode="static"}))`, "equal parts · {{instance}}").
			query(`8 * min by (instance) (sum by (instance, peer) `+
				`(railscope_probe_rail_expected_bytes_per_second{<peer>}))`, "expected · {{instance}}").
			unit("bps").from(0).lowest().style("expected .*", dashed()...),
		timeseries("Goodput of expected", docFigures,
			"By pair. If one pair drops, the pair is at fault; if all pairs of a node drop, the node.").size(12, 9).
			query(ofExpected, perPeer).unit("percentunit").from(0).worseBelow(0.85, 0.7).limits().lowest().
			leads(toNode(ofInstance)),
		timeseries("Each rail alone", docFigures,
			"To the worst peer: solo bursts, in every `solo_every`-th round, against the expected rate "+
				"(dashed). Below it: port, cable or PCIe link of that rail, at either end.").size(12, 9).
			query(`8 * min by (instance, rail) (railscope_probe_rail_goodput_bytes_per_second{<path>, mode="solo"})`,
				perRail("")).
			query(`8 * min by (instance, rail) (railscope_probe_rail_expected_bytes_per_second{<path>})`,
				perRail("expected")).
			unit("bps").from(0).lowest().style(".* expected · .*", dashed()...),
		timeseries("Each rail with all others", docFigures,
			"To the worst peer: the rail's part of the last striped burst, against the expected rate "+
				"(dashed). Good alone but slow here: the rails share a PCIe link, switch or CPU.").size(12, 9).
			query(`8 * min by (instance, rail) (railscope_probe_rail_goodput_bytes_per_second{<path>, `+
				`mode="stealing"})`, perRail("")).
			query(`8 * min by (instance, rail) (railscope_probe_rail_expected_bytes_per_second{<path>})`,
				perRail("expected")).
			unit("bps").from(0).lowest().style(".* expected · .*", dashed()...),
	}
}

func probeLatency() []*panel {
	quantiles := func(q float64) string {
		return quantile(q, "probe_latency_seconds", "<latency>", "instance, rail", "$__rate_interval")
	}
	return []*panel{
		heatmap("Latency", docFigures,
			"Round trips of 8 B RDMA writes for the selection. A second band is a second path or congestion; "+
				"single high values are retransmissions.", "s").size(12, 9).
			query(spread("probe_latency_seconds", "<latency>"), "{{le}}").atLeastEvery("2m"),
		timeseries("Latency by rail", docFigures,
			"Median and 99th percentile over the selected peers. Rails should differ by a few µs only. A 99th "+
				"percentile far above the median: congestion or loss. Without native histograms, of all rails.").size(12, 9).
			query(quantiles(0.5), perRail("p50")).query(quantiles(0.99), perRail("p99")).unit("s").from(0).
			atLeastEvery("2m"),
	}
}

func probeLatencyOfRails() []*panel {
	return []*panel{
		heatmap("Latency of rail $rail", docFigures,
			"Round trips of 8 B RDMA writes by rail. All rails should look alike. Needs native histograms: without "+
				"them, each shows all rails.", "s").size(6, 8).
			query(spread("probe_latency_seconds", "<latency>"), "{{le}}").atLeastEvery("2m").eachOf("rail", 4),
	}
}

func probeBalance() []*panel {
	return []*panel{
		timeseries("Imbalance and finish skew", docFigures,
			"Imbalance: 1 − the smallest share, by capacity. Skew: 1 − rate of the slowest rail ÷ "+
				"rate of the fastest.").
			query(`max by (instance, peer) (railscope_probe_imbalance_ratio{<peer>})`, "imbalance · "+perPeer).
			query(`max by (instance, peer) (railscope_probe_finish_skew_ratio{<peer>})`, "skew · "+perPeer).
			unit("percentunit").from(0).upTo(1),
		timeseries("Scaling", docFigures,
			"Goodput of all rails at once ÷ sum of the solo rates. Below 0.9 the rails share a bottleneck.").
			query(`min by (instance, peer) (railscope_probe_scaling_ratio{<peer>})`, perPeer).unit("percentunit").
			from(0).worseBelow(0.9, 0.8).limits().lowest(),
		timeseries("Solo goodput ÷ 24-hour median", docFigures,
			"To the worst peer. Below 1, the rail has become slower, even if it still reaches the expected "+
				"rate.").
			query(`min by (instance, rail) (railscope_probe_rail_degradation_ratio{<path>})`, perRail("")).
			unit("percentunit").from(0).worseBelow(0.9, 0.7).limits().lowest().nothing("too few solo bursts yet"),
		timeseries("Peers reached by rail", docReasons,
			"Share of the peers to which each rail carried RDMA in the last round. At 0, the rail is down on "+
				"this node; slightly below 100 %, at a peer: select it.").size(12, 8).
			query(`avg by (instance, rail) (railscope_probe_rail_up{<path>})`, perRail("")).unit("percentunit").from(0).
			upTo(1).lowest(),
		timeseries("Port counters against payload", docFigures,
			"Difference between the port's counter and the payload of the burst. 4 %: the MTU is not the "+
				"negotiated one. More: other traffic, retransmissions or another path.").size(12, 8).
			query(`max by (instance, rail) (railscope_probe_counter_mismatch_ratio{<path>})`, perRail("")).
			unit("percentunit").from(0),
	}
}

func probeFailures() []*panel {
	return []*panel{
		timeseries("Rounds by result", docProbe,
			"Per minute. Skipped is harmless: something else used the rails. Degraded (a rail is dead or slow), "+
				"fallback and failed are not.").
			query(`60 * sum by (result) (rate(railscope_probe_rounds_total{<peer>}[$__rate_interval]))`, "{{result}}").
			unit(perMinute).from(0).stacked().atLeastEvery("2m").
			style("ok", fixed(green)).style("degraded", fixed(yellow)).style("fallback", fixed(orange)).style("failed",
			fixed(red)).style("skipped", fixed("blue")),
		timeseries("Failures by stage and reason", docReasons,
			"Per minute, including single rails. The linked page explains each reason.").
			query(`60 * sum by (stage, reason) (rate(railscope_probe_failures_total{<peer>}[$__rate_interval]))`,
				"{{stage}}: {{reason}}").unit(perMinute).from(0).stacked().atLeastEvery("2m").nothing("none"),
		timeseries("Skipped rounds by reason", docBudget,
			"Per minute. `busy` is normal while a job runs. `budget` for hours: raise the budget or the "+
				"interval.").
			query(`60 * sum by (reason) (rate(railscope_probe_skipped_total{<peer>}[$__rate_interval]))`, "{{reason}}").
			unit(perMinute).from(0).stacked().atLeastEvery("2m").nothing("none"),
		table("Fallback reasons", docReasons,
			"Pairs whose last round did not use RDMA, with the reason. An empty table is good.").size(12, 7).
			label("instance", "Node", leadingTo(toNode("${__value.text}"))).label("peer", "Peer").label("reason",
			"Reason").
			labelled(`max by (instance, peer, reason) (railscope_probe_fallback_info{<peer>})`).nothing("none"),
		table("Incompatible versions", docProbe,
			"Components whose versions at the two ends are incompatible. An empty table is good.").size(12, 7).
			label("instance", "Node", leadingTo(toNode("${__value.text}"))).label("peer", "Peer").label("component",
			"Component").
			labelled(`max by (instance, peer, component) (railscope_probe_component_mismatch{<peer>}) == 1`).
			nothing("none"),
	}
}

func probeTCP() []*panel {
	return []*panel{
		timeseries("TCP", docFigures,
			"The same transfer over TCP, by connections per rail, from the last baseline or fallback.").
			query(`8 * max by (instance, peer, streams) (railscope_probe_tcp_goodput_bytes_per_second{<peer>})`,
				"{{streams}} streams · "+perPeer).unit("bps").from(0),
		timeseries("RDMA ÷ TCP", docFigures,
			"Speed-up of the last round with both. Near 1: RDMA is slow, or the link limits both.").
			query(`min by (instance, peer) (railscope_probe_speedup_ratio{<peer>})`, perPeer).unit("none").from(0),
		timeseries("TCP retransmissions", docFigures,
			"Loss on the path as seen by TCP. RDMA on the same path suffers more.").
			query(perSecond("probe_tcp_retransmits_total", "<peer>", "instance, peer"), perPeer).unit("pps").from(0).
			atLeastEvery("2m"),
	}
}

func probePath() []*panel {
	return []*panel{
		table("Path MTU", docProbe,
			"Largest payload of an RDMA packet, the minimum of both ends. 4096 is best. 1024 costs goodput and "+
				"means that the interface MTU is 1500.").size(8, 8).
			label("peer", "Peer").label("rail", "Rail", wide(50)).label("instance", "Node").
			column("Path MTU", `max by (instance, peer, rail) (railscope_probe_path_mtu_bytes{<path>})`, inUnit("none"),
				painted(), by(orange, from(4096, "transparent"))).sortedBy("Path MTU", false),
		table("GIDs", docProbe, "The GID that each rail used, and why it was chosen.").size(16, 8).
			label("peer", "Peer", wide(140)).label("rail", "Rail", wide(50)).label("gid_index", "Index", wide(60)).
			label("gid", "GID", wide(180)).label("reason", "Reason").label("instance", "Node", wide(140)).
			labelled(`max by (instance, peer, rail, gid_index, gid, reason) (railscope_probe_gid_info{<path>})`),
		timeseries("TCP path MTU", docFigures,
			"As discovered by TCP, the minimum of all streams. Below the interface MTU: a device on the path "+
				"has a smaller one.").
			query(`min by (instance, peer) (railscope_probe_tcp_path_mtu_bytes{<peer>})`, perPeer).unit("none").from(0),
		timeseries("Data corruption", docReasons,
			"Rounds in which the received data differed from the data sent. Never ignore this.").
			query(`sum by (instance, peer) `+
				`(increase(railscope_probe_verification_failures_total{<peer>}[$__rate_interval]))`, perPeer).
			unit("short").from(0).atLeastEvery("2m"),
		timeseries("Round duration", docProbe, "Near `timeout`, a stage hangs; the failures name it.").
			query(`max by (instance, peer) (railscope_probe_duration_seconds{<peer>})`, perPeer).unit("s").from(0),
		timeseries("Probe traffic", docBudget, "Traffic of the probe by rail.").
			query(`8 * sum by (instance, rail) (rate(railscope_probe_rail_bytes_total{<path>}[$__rate_interval]))`,
				perRail("")).unit("bps").from(0).atLeastEvery("2m"),
		timeseries("Remaining budget", docBudget,
			"Time of each rail that rounds may use now. At 0, rounds are skipped until the budget has refilled.").
			query(`min by (instance) (railscope_probe_budget_seconds{<node>})`, "{{instance}}").unit("s").from(0),
		timeseries("Leases and restarts", docBudget,
			"Leases that peers hold on this node, and restarts of the worker process. Repeated restarts: a "+
				"fault in the RDMA provider, check its version.").
			query(`max by (instance) (railscope_probe_leases{<node>})`, "leases · {{instance}}").
			query(`60 * sum by (instance) (rate(railscope_probe_worker_restarts_total{<node>}[$__rate_interval]))`,
				"restarts per minute · {{instance}}").unit("short").from(0),
	}
}
