package dashboards

import "strings"

// probes shows the results of rounds between nodes.
func probes() *dashboard {
	d := &dashboard{
		name: "probe", title: "railscope / Probe", variables: ofOne(peerVariable(), probedRailVariable()),
		about: "What the rails to a peer can carry: goodput against expected goodput, latency, rails alone and " +
			"together, TCP, and why rounds fail.",
	}
	return d.
		section("Overview: the worst peers", probeNow()...).
		section("Peers", probePeers()...).
		section("Goodput", probeGoodput()...).
		section("Latency", probeLatency()...).
		section("Comparison of rails", probeBalance()...).
		section("Failures", probeFailures()...).
		folded("Latency by peer", probeLatencyOfPeers()...).
		folded("TCP", probeTCP()...).
		folded("Path and probe", probePath()...).
		folded("Extras", probeExtras()...)
}

const perPeer = "{{instance}} → {{peer}}"

// worstPeer returns a gauge of each rail to one peer: the peer with the smallest (min) or largest (max) value in
// the selected time. The peer is the same for a whole line.
func worstPeer(gauge, of string) string { return toWorstPeer(gauge, gauge, of) }

// toWorstPeer returns a gauge of each rail to the peer for which another gauge is worst.
func toWorstPeer(gauge, judged, of string) string {
	pick := map[string]string{"min": "bottomk", "max": "topk"}[of]
	return of + ` by (instance, peer, rail) (` + gauge + ` and on (cluster, job, instance, peer, rail) ` + pick +
		` by (cluster, job, instance, rail) (1, ` + of + `_over_time(` + judged + `[$__range] @ end())))`
}

func probeNow() []*panel {
	worst := func(title, docs, about, query string) *panel {
		p := stat(title, docs, about).size(4, 4).query(query, perPeer)
		p.options["textMode"], p.options["wideLayout"] = "value_and_name", false
		return p
	}
	return []*panel{
		worst("Goodput", docFigures, "RDMA payload over all rails at once in the last round, to the slowest peer.",
			`8 * bottomk(1, max by (instance, peer) (railscope_probe_goodput_bytes_per_second{<peer>, `+
				`mode="stealing"}))`).unit("bps").colours(grey).nothing("no RDMA"),
		worst("Of expected", docFigures,
			"Goodput ÷ what the rails of both ends could carry, to the worst peer. Well below 85 %, a rail is "+
				"slow, shared or missing.", `bottomk(1, `+ofExpected+`)`).
			unit("percentunit").decimals(0).worseBelow(0.85, 0.7).nothing("no RDMA"),
		worst("Imbalance", docFigures,
			"1 − the smallest share in the last burst, to the worst peer. 39 %: a rail carried 61 % of the "+
				"best rail with the same link layer and rate. 100 %: a rail carried nothing. From 25 % on, a round "+
				"is degraded.", `topk(1, max by (instance, peer) (railscope_probe_imbalance_ratio{<peer>}))`).
			unit("percentunit").decimals(0).worseAbove(0.1, 0.25).nothing("no RDMA"),
		worst("Scaling", docFigures,
			"Goodput of all rails at once ÷ sum of the solo rates, to the worst peer. Below 0.9 the rails "+
				"share a bottleneck, such as a PCIe link.",
			`bottomk(1, max by (instance, peer) (railscope_probe_scaling_ratio{<peer>}))`).
			unit("percentunit").decimals(0).worseBelow(0.9, 0.8).nothing("no RDMA"),
		worst("Latency p99", docFigures,
			"99th percentile of the round trip of 8 B RDMA writes in the selected time, to the slowest peer.",
			`topk(1, `+overall(0.99, "probe_latency_seconds", "<latency>", "instance, peer")+`)`).unit("s").
			colours(grey).nothing("no RDMA"),
		worst("Last burst", docProbe,
			"Time since the last round with a burst, with the peer where it is longest. While jobs fill the rails "+
				"there is none, which is no fault: rounds reach their peers, and figures older than 15 minutes are "+
				"absent.",
			`topk(1, max by (instance, peer) (time() - railscope_probe_last_burst_timestamp_seconds{<peer>}))`).
			unit("s").colours(grey).nothing("never"),
	}
}

func probePeers() []*panel {
	share := func(width int, doubtful, bad float64) []object {
		return []object{wide(width), inUnit("percentunit"), prop("decimals", 0), painted(),
			by(red, from(bad, yellow), from(doubtful, "transparent"))}
	}
	least := func(metric string) string { return `min by (instance, peer) (railscope_probe_` + metric + `{<peer>})` }
	is := func(transport string) string {
		return `railscope_probe_transport{<peer>, transport="` + transport + `"} == 1`
	}
	return []*panel{
		table("Peers", docFigures,
			"The last round with each peer: how it was reached, the rails that carried RDMA, and the figures above. "+
				"RDMA ÷ TCP is the speed-up: near 1, RDMA brings no benefit.").size(24, 10).
			label("peer", "Peer", leadingTo(toProbe("${__data.fields.instance}", "${__value.text}"))).
			column("Transport", `max by (instance, peer) (`+is("rdma")+` or 2 * (`+is("simulated")+`) or 3 * (`+
				is("tcp")+`) or 4 * (`+is("none")+`))`, wide(100), painted(), by("transparent"),
				says(state{"1", "RDMA", "transparent"}, state{"2", "simulated", "transparent"},
					state{"3", "TCP", orange}, state{"4", "none", red})).
			column("Rails", `sum by (instance, peer) (railscope_probe_rail_up{<path>})`, wide(65)).
			column("Goodput", `8 * max by (instance, peer) (railscope_probe_goodput_bytes_per_second{<peer>, `+
				`mode="stealing"})`, wide(100), inUnit("bps")).
			column("Of expected", ofExpected, share(105, 0.85, 0.7)...).
			column("Imbalance", `max by (instance, peer) (railscope_probe_imbalance_ratio{<peer>})`, wide(95),
				inUnit("percentunit"), prop("decimals", 0), painted(),
				by("transparent", from(0.1, yellow), from(0.25, red))).
			column("Scaling", least("scaling_ratio"), share(80, 0.9, 0.8)...).
			column("RDMA ÷ TCP", least("speedup_ratio"), wide(105), prop("decimals", 1), painted(),
				by(red, from(1, yellow), from(2, "transparent"))).
			column("Last burst",
				`max by (instance, peer) (time() - railscope_probe_last_burst_timestamp_seconds{<peer>})`,
				wide(110), inUnit("s")).
			label("instance", "Node", leadingTo(toNode("${__value.text}"))).
			nothing("no probes").sortedBy("Of expected", false),
	}
}

func probeGoodput() []*panel {
	const solo, stealing = `railscope_probe_rail_goodput_bytes_per_second{<path>, mode="solo"}`,
		`railscope_probe_rail_goodput_bytes_per_second{<path>, mode="stealing"}`
	const expected = `railscope_probe_rail_expected_bytes_per_second{<path>}`
	return []*panel{
		timeseries("Goodput", docFigures,
			"By peer, all rails at once: each rail what it can, and equal parts (dotted), against the expected "+
				"goodput (dashed). Equal parts below it: one rail is slower than the others.").size(12, 9).
			query(`8 * sum by (instance, peer) (railscope_probe_goodput_bytes_per_second{<peer>, mode="stealing"})`,
				perPeer).
			query(`8 * sum by (instance, peer) (railscope_probe_goodput_bytes_per_second{<peer>, mode="static"})`,
				toPeer("equal parts")).
			query(`8 * sum by (instance, peer) (railscope_probe_rail_expected_bytes_per_second{<peer>})`,
				toPeer("expected")).
			unit("bps").from(0).lowest().style("expected .*", dashed()...).style("equal parts .*", dotted()),
		timeseries("Goodput of expected", docFigures,
			"By peer. If one drops, the pair is at fault; if all drop, the node.").size(12, 9).
			query(ofExpected, perPeer).unit("percentunit").from(0).worseBelow(0.85, 0.7).limits().lowest().
			leads(toNode(ofInstance)),
		timeseries("Each rail alone", docFigures,
			"To the peer to which the rail was slowest: solo bursts, in every `solo_every`-th round, against the "+
				"expected rate (dashed). Below it: port, cable or PCIe link of that rail, at either end.").size(12, 9).
			query(`8 * `+worstPeer(solo, "min"), railTo("")).
			query(`8 * `+toWorstPeer(expected, solo, "min"), railTo("expected")).
			unit("bps").from(0).lowest().style(".* expected → .*", dashed()...),
		timeseries("Each rail with all others", docFigures,
			"To the peer to which the rail was slowest: its part of the last striped burst, against the expected rate "+
				"(dashed). Good alone but slow here: the rails share a PCIe link, switch or CPU.").size(12, 9).
			query(`8 * `+worstPeer(stealing, "min"), railTo("")).
			query(`8 * `+toWorstPeer(expected, stealing, "min"), railTo("expected")).
			unit("bps").from(0).lowest().style(".* expected → .*", dashed()...),
	}
}

func probeLatency() []*panel {
	of := func(q float64, by string) string {
		return quantile(q, "probe_latency_seconds", "<latency>", by, "$__rate_interval")
	}
	shown := strings.ReplaceAll(overall(0.99, "probe_latency_seconds", "<latency>", "instance, peer, rail"),
		"[$__range]", "[$__range] @ end()")
	return []*panel{
		timeseries("Latency by peer", docFigures,
			"Median and 99th percentile (dotted) of round trips of 8 B RDMA writes. Some peers above the others: a "+
				"longer path. A 99th percentile far above the median: congestion or loss.").size(12, 9).
			query(of(0.5, "instance, peer"), toPeer("p50")).query(of(0.99, "instance, peer"), toPeer("p99")).
			unit("s").from(0).atLeastEvery("2m").style("p99 .*", dotted()),
		timeseries("Latency by rail", docFigures,
			"99th percentile to the peer to which it was highest. Rails should differ by a few µs only. Without "+
				"native histograms, of all rails.").size(12, 9).
			query(`(`+of(0.99, "instance, peer, rail")+`) and topk by (instance, rail) (1, `+shown+`)`, railTo("p99")).
			unit("s").from(0).atLeastEvery("2m"),
	}
}

func probeLatencyOfPeers() []*panel {
	return []*panel{
		heatmap("Latency to $peer", docFigures,
			"Round trips of 8 B RDMA writes over the selected rails. A second band is a second path or congestion; "+
				"single high values are retransmissions.", "s").size(6, 8).
			query(spread("probe_latency_seconds", "<latency>"), "{{le}}").atLeastEvery("2m").eachOf("peer", 4),
	}
}

func probeBalance() []*panel {
	return []*panel{
		timeseries("Imbalance", docFigures, "1 − the smallest share, by capacity.").
			query(`max by (instance, peer) (railscope_probe_imbalance_ratio{<peer>})`, toPeer("imbalance")).
			unit("percentunit").from(0).upTo(1),
		timeseries("Scaling", docFigures,
			"Goodput of all rails at once ÷ sum of the solo rates. Below 0.9 the rails share a bottleneck.").
			query(`min by (instance, peer) (railscope_probe_scaling_ratio{<peer>})`, perPeer).unit("percentunit").
			from(0).worseBelow(0.9, 0.8).limits().lowest(),
		timeseries("Solo goodput ÷ 24-hour median", docFigures,
			"To the peer to which it was lowest. Below 1, the rail has become slower, even if it still reaches the "+
				"expected rate.").
			query(worstPeer(`railscope_probe_rail_degradation_ratio{<path>}`, "min"), railTo("")).
			unit("percentunit").from(0).worseBelow(0.9, 0.7).limits().lowest().nothing("too few solo bursts yet"),
		timeseries("Rails up by peer", docReasons,
			"Rails that carried RDMA in the last round. All peers lose one: it is down on this node. One peer: it is "+
				"down there, or between the two.").
			query(`sum by (instance, peer) (railscope_probe_rail_up{<path>})`, perPeer).unit("none").from(0).
			decimals(0).
			lowest(),
		table("Rails without RDMA", docReasons,
			"Rails that carried no RDMA in the last round to a peer that other rails reach. An empty table is good.").
			size(8, 8).
			label("rail", "Rail", wide(55)).label("peer", "Peer").
			label("instance", "Node", leadingTo(toNode("${__value.text}"))).
			labelled(`max by (instance, peer, rail) (railscope_probe_rail_up{<path>}) == 0 and on (instance, peer) `+
				`max by (instance, peer) (railscope_probe_transport{<peer>, transport="rdma"}) == 1`).nothing("none").
			sortedBy("Rail", false),
	}
}

func probeFailures() []*panel {
	rounds := func(counter, selector, by string) string {
		return `60 * sum by (instance, peer, ` + by + `) (rate(railscope_probe_` + counter + `{` + selector +
			`}[$__rate_interval])) > 0`
	}
	return []*panel{
		timeseries("Rounds that were not ok", docProbe,
			"Per minute, by result and peer. Degraded: a rail is dead or slow. Fallback: by TCP. Failed: not "+
				"reached, or corrupted data.").
			query(rounds("rounds_total", `<peer>, result!~"ok|reached|skipped"`, "result"), toPeer("{{result}}")).
			unit(perMinute).from(0).stacked().atLeastEvery("2m").nothing("none").
			style("degraded .*", fixed(yellow)).style("fallback .*", fixed(orange)).style("failed .*", fixed(red)),
		timeseries("Failures by stage and reason", docReasons,
			"Per minute and peer, including single rails. The linked page explains each reason.").
			query(rounds("failures_total", "<peer>", "stage, reason"), toPeer("{{stage}}: {{reason}}")).
			unit(perMinute).from(0).stacked().atLeastEvery("2m").nothing("none"),
		timeseries("Skipped rounds by reason", docBudget,
			"Per minute and peer: nothing was done. `busy`: a transfer slot was taken.").
			query(rounds("skipped_total", "<peer>", "reason"), toPeer("{{reason}}")).
			unit(perMinute).from(0).stacked().atLeastEvery("2m").nothing("none").style("busy .*", fixed("blue")),
		timeseries("Rounds without a burst by reason", docFigures,
			"Per minute and peer: rounds that reached the peer and made no burst over some rails, or any. `busy`, "+
				"`no_gap` and `collided`: jobs use the rails, which is no fault.").
			query(rounds("bursts_skipped_total", "<peer>", "reason"), toPeer("{{reason}}")).
			unit(perMinute).from(0).stacked().atLeastEvery("2m").nothing("none"),
		table("Fallback reasons", docReasons,
			"Peers whose last round did not use RDMA, with the reason. An empty table is good.").size(12, 7).
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
