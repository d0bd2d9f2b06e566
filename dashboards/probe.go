package dashboards

// probes is what rounds between nodes came to.
func probes() *dashboard {
	d := &dashboard{
		name: "probe", title: "railscope / Probe", variables: ofOne(peerVariable(), probedRailVariable()),
		about: "What the rails to a peer could carry right now: goodput against what is expected, latency, each rail alone and all together, TCP beside it, and why rounds fail.",
	}
	return d.
		section("Is anything wrong?", probeNow()...).
		section("Goodput", probeGoodput()...).
		section("Latency", probeLatency()...).
		section("Rails against each other", probeBalance()...).
		section("Failures", probeFailures()...).
		folded("Latency, rail by rail", probeLatencyOfRails()...).
		folded("TCP beside it", probeTCP()...).
		folded("Path and probe", probePath()...)
}

const (
	perPeer = "{{instance}} → {{peer}}"
)

func probeNow() []*panel {
	return []*panel{
		stat("Not by RDMA", docReasons, "Pairs whose last round went by TCP, or not at all. Anything but 0 slows every job that spans the two.").
			query(`sum(railscope_probe_transport{<peer>, transport!="rdma"})`, "").unit("none").colours(green, from(1, red)).nothing("no probes"),
		stat("Goodput", docFigures, "Payload by RDMA over all rails at once, in the last round, of the worst pair.").
			query(`8 * min(railscope_probe_goodput_bytes_per_second{<peer>, mode="stealing"})`, "").unit("bps").colours(grey).nothing("none by RDMA"),
		stat("Of expected", docFigures, "Goodput ÷ what the rails of both ends could carry, of the worst pair. Well below 85 % a rail is slow, shared or missing.").
			query(`min(`+ofExpected+`)`, "").unit("percentunit").worseBelow(0.85, 0.7).nothing("none by RDMA"),
		stat("Imbalance", docFigures, "1 − the smallest share in the last burst, of the worst pair: 39 % when a rail carried 61 % of what the best of its link layer and rate did, 100 % when one carried nothing. From 25 % on a round is degraded.").
			query(`max(railscope_probe_imbalance_ratio{<peer>})`, "").unit("percentunit").worseAbove(0.1, 0.25).nothing("none by RDMA"),
		stat("Scaling", docFigures, "All rails at once ÷ the sum of each alone, of the worst pair. Below 0.9 they share a bottleneck, such as a PCIe link.").
			query(`min(railscope_probe_scaling_ratio{<peer>})`, "").unit("percentunit").worseBelow(0.9, 0.8).nothing("none by RDMA"),
		stat("RDMA ÷ TCP", docFigures, "How much faster RDMA was than the best over TCP, of the worst pair. Near 1, RDMA is not worth its name here.").
			query(`min(railscope_probe_speedup_ratio{<peer>})`, "").unit("none").decimals(1).worseBelow(2, 1).nothing("none by RDMA"),
		stat("Latency p99", docFigures, "99th percentile: "+"round trip of 8 B RDMA writes over the time shown, of the worst pair and rail.").
			query(`max(`+overall(0.99, "probe_latency_seconds", "<path>", "instance, peer, rail")+`)`, "").unit("s").colours(grey).nothing("none by RDMA"),
		stat("Last good round", docProbe, "How long ago the last round ended with result ok, of the worst pair. Many times `interval`: a rail is dead or slow, the probe fails, or is never let in.").
			query(`max(time() - railscope_probe_last_success_timestamp_seconds{<peer>})`, "").unit("s").worseAbove(600, 3600).nothing("never"),
	}
}

func probeGoodput() []*panel {
	return []*panel{
		timeseries("Goodput, and what is expected", docFigures,
			"To the worst peer, all rails at once: work stealing, and equal parts, against what the rails could carry (dashed). Stealing well below it: a rail is slow or shared; equal parts below stealing: one rail is slower than the others.").size(12, 9).
			query(`8 * min by (instance) (sum by (instance, peer) (railscope_probe_goodput_bytes_per_second{<peer>, mode="stealing"}))`, "stealing · {{instance}}").
			query(`8 * min by (instance) (sum by (instance, peer) (railscope_probe_goodput_bytes_per_second{<peer>, mode="static"}))`, "equal parts · {{instance}}").
			query(`8 * min by (instance) (sum by (instance, peer) (railscope_probe_rail_expected_bytes_per_second{<peer>}))`, "expected · {{instance}}").
			unit("bps").from(0).lowest().style("expected .*", dashed()...),
		timeseries("Goodput of expected", docFigures, "By pair. Falls of one pair are that pair's, of all pairs of a node that node's.").size(12, 9).
			query(ofExpected, perPeer).unit("percentunit").from(0).worseBelow(0.85, 0.7).limits().lowest().leads(toNode(ofInstance)),
		timeseries("Each rail alone", docFigures, "To the worst peer: solo bursts, in every `solo_every`-th round, against what the rail could carry (dashed). Below it alone: port, cable, PCIe link of that rail, here or at the peer.").size(12, 9).
			query(`8 * min by (instance, rail) (railscope_probe_rail_goodput_bytes_per_second{<path>, mode="solo"})`, perRail("")).
			query(`8 * min by (instance, rail) (railscope_probe_rail_expected_bytes_per_second{<path>})`, perRail("expected")).
			unit("bps").from(0).lowest().style(".* expected · .*", dashed()...),
		timeseries("Each rail with all others", docFigures, "To the worst peer: the rail's part of the last burst of all, by work stealing, against what it could carry (dashed). Good alone and bad here: the rails share something, a PCIe link, a switch, a processor.").size(12, 9).
			query(`8 * min by (instance, rail) (railscope_probe_rail_goodput_bytes_per_second{<path>, mode="stealing"})`, perRail("")).
			query(`8 * min by (instance, rail) (railscope_probe_rail_expected_bytes_per_second{<path>})`, perRail("expected")).
			unit("bps").from(0).lowest().style(".* expected · .*", dashed()...),
	}
}

func probeLatency() []*panel {
	quantiles := func(q float64) string {
		return quantile(q, "probe_latency_seconds", "<path>", "instance, rail", "$__rate_interval")
	}
	return []*panel{
		heatmap("Latency", docFigures, "Round trips of 8 B RDMA writes, all that is chosen. A second band is a second path, or congestion; single marks far up are retransmissions.", "s").size(12, 9).
			query(spread("probe_latency_seconds", "<path>"), "{{le}}").atLeastEvery("2m"),
		timeseries("Latency by rail", docFigures, "Median and 99th percentile, to all peers that are chosen. Rails should be alike to some µs. A 99th percentile that leaves the median: congestion or loss.").size(12, 9).
			query(quantiles(0.5), perRail("p50")).query(quantiles(0.99), perRail("p99")).unit("s").from(0).atLeastEvery("2m"),
	}
}

func probeLatencyOfRails() []*panel {
	return []*panel{
		heatmap("Latency of rail $rail", docFigures, "The same for each rail: side by side they should look alike.", "s").size(6, 8).
			query(spread("probe_latency_seconds", "<path>"), "{{le}}").atLeastEvery("2m").eachOf("rail", 4),
	}
}

func probeBalance() []*panel {
	return []*panel{
		timeseries("Imbalance and finish skew", docFigures, "Imbalance: 1 − the smallest share, by capacity. Skew, of equal parts: 1 − rate of the slowest rail ÷ rate of the fastest.").
			query(`max by (instance, peer) (railscope_probe_imbalance_ratio{<peer>})`, "imbalance · "+perPeer).
			query(`max by (instance, peer) (railscope_probe_finish_skew_ratio{<peer>})`, "skew · "+perPeer).unit("percentunit").from(0).upTo(1),
		timeseries("Scaling", docFigures, "All rails at once ÷ the sum of each alone. Below 0.9 they share a bottleneck.").
			query(`min by (instance, peer) (railscope_probe_scaling_ratio{<peer>})`, perPeer).unit("percentunit").from(0).worseBelow(0.9, 0.8).limits().lowest(),
		timeseries("Against the rail's own past", docFigures, "Solo goodput ÷ its median of the last 24 h, to the worst peer. Below 1 the rail has lost something since, even if it is still within what is expected.").
			query(`min by (instance, rail) (railscope_probe_rail_degradation_ratio{<path>})`, perRail("")).unit("percentunit").from(0).worseBelow(0.9, 0.7).limits().lowest().nothing("too few solo bursts yet"),
		timeseries("Peers reached by rail", docReasons, "Part of the peers to which each rail carried RDMA in the last round. A rail at 0 is down here; a little less than all: at a peer, choose it.").size(12, 8).
			query(`avg by (instance, rail) (railscope_probe_rail_up{<path>})`, perRail("")).unit("percentunit").from(0).upTo(1).lowest(),
		timeseries("Counters against payload", docFigures, "How far the port's counter is from what the burst sent. 4 %: another MTU than negotiated; more: other traffic, retransmissions, or another way.").size(12, 8).
			query(`max by (instance, rail) (railscope_probe_counter_mismatch_ratio{<path>})`, perRail("")).unit("percentunit").from(0),
	}
}

func probeFailures() []*panel {
	return []*panel{
		timeseries("Rounds by result", docProbe, "Per minute. Skipped is harmless: somebody else was at work. Degraded (a rail is dead or slow), fallback and failed are not.").
			query(`60 * sum by (result) (rate(railscope_probe_rounds_total{<peer>}[$__rate_interval]))`, "{{result}}").unit(perMinute).from(0).stacked().atLeastEvery("2m").
			style("ok", fixed(green)).style("degraded", fixed(yellow)).style("fallback", fixed(orange)).style("failed", fixed(red)).style("skipped", fixed("blue")),
		timeseries("Failures by stage and reason", docReasons, "Per minute, of single rails too. The page has what each reason usually means.").
			query(`60 * sum by (stage, reason) (rate(railscope_probe_failures_total{<peer>}[$__rate_interval]))`, "{{stage}}: {{reason}}").unit(perMinute).from(0).stacked().atLeastEvery("2m").nothing("none"),
		timeseries("Skipped, and why", docHarm, "Per minute. `busy` while a job runs is as it should be; `budget` for hours: raise it, or lengthen the interval.").
			query(`60 * sum by (reason) (rate(railscope_probe_skipped_total{<peer>}[$__rate_interval]))`, "{{reason}}").unit(perMinute).from(0).stacked().atLeastEvery("2m").nothing("none"),
		table("Why not by RDMA", docReasons, "Pairs whose last round was not by RDMA, with the reason. Empty is good.").size(12, 7).
			label("instance", "Node", leadingTo(toNode("${__value.text}"))).label("peer", "Peer").label("reason", "Reason").
			labelled(`max by (instance, peer, reason) (railscope_probe_fallback_info{<peer>})`).nothing("none"),
		table("Versions that do not go together", docProbe, "Components of which both ends run versions that do not go together. Empty is good.").size(12, 7).
			label("instance", "Node", leadingTo(toNode("${__value.text}"))).label("peer", "Peer").label("component", "Component").
			labelled(`max by (instance, peer, component) (railscope_probe_component_mismatch{<peer>}) == 1`).nothing("none"),
	}
}

func fixed(colour string) object { return prop("color", object{"mode": "fixed", "fixedColor": colour}) }

func probeTCP() []*panel {
	return []*panel{
		timeseries("TCP", docFigures, "The same transfer over TCP, by connections per rail: of the last baseline, or of the fallback. Beside RDMA it says what would be lost.").
			query(`8 * max by (instance, peer, streams) (railscope_probe_tcp_goodput_bytes_per_second{<peer>})`, "{{streams}} streams · "+perPeer).unit("bps").from(0),
		timeseries("RDMA ÷ TCP", docFigures, "Speed-up of the last round with both. Near 1: RDMA is slow, or the link is the bottleneck for both.").
			query(`min by (instance, peer) (railscope_probe_speedup_ratio{<peer>})`, perPeer).unit("none").from(0),
		timeseries("TCP segments sent again", docFigures, "Loss on the way, as TCP sees it. RDMA on the same way suffers more.").
			query(perSecond("probe_tcp_retransmits_total", "<peer>", "instance, peer"), perPeer).unit("pps").from(0).atLeastEvery("2m"),
	}
}

func probePath() []*panel {
	return []*panel{
		table("Path MTU", docProbe, "Largest payload of an RDMA packet, the least of both ends. 4096 is best; 1024 costs goodput: the interface's MTU is 1500.").size(8, 8).
			label("peer", "Peer").label("rail", "Rail", wide(50)).label("instance", "Node").
			column("Path MTU", `max by (instance, peer, rail) (railscope_probe_path_mtu_bytes{<path>})`, inUnit("none"), painted(), by(orange, from(4096, "transparent"))).sortedBy("Path MTU", false),
		table("GIDs", docProbe, "The GID that each rail used, and why that one.").size(16, 8).
			label("peer", "Peer", wide(140)).label("rail", "Rail", wide(50)).label("gid_index", "Index", wide(60)).label("gid", "GID", wide(180)).label("reason", "Reason").label("instance", "Node", wide(140)).
			labelled(`max by (instance, peer, rail, gid_index, gid, reason) (railscope_probe_gid_info{<path>})`),
		timeseries("TCP path MTU", docFigures, "As TCP found it, the least of all streams. Below the interface's: something on the way has a smaller one.").
			query(`min by (instance, peer) (railscope_probe_tcp_path_mtu_bytes{<peer>})`, perPeer).unit("none").from(0),
		timeseries("Data not as sent", docReasons, "Rounds in which what arrived was not what was sent. Not one is normal: never ignore it.").
			query(`sum by (instance, peer) (increase(railscope_probe_verification_failures_total{<peer>}[$__rate_interval]))`, perPeer).unit("short").from(0).atLeastEvery("2m"),
		timeseries("Length of a round", docProbe, "Near `timeout`: a stage hangs; the failures have it by name.").
			query(`max by (instance, peer) (railscope_probe_duration_seconds{<peer>})`, perPeer).unit("s").from(0),
		timeseries("What the probe moves", docHarm, "Its own part of the rails' traffic, by rail.").
			query(`8 * sum by (instance, rail) (rate(railscope_probe_rail_bytes_total{<path>}[$__rate_interval]))`, perRail("")).unit("bps").from(0).atLeastEvery("2m"),
		timeseries("Budget left", docHarm, "Bytes that may be moved now. At 0 rounds are skipped until it has filled up again.").
			query(`min by (instance) (railscope_probe_budget_bytes{<node>})`, "{{instance}}").unit("bytes").from(0),
		timeseries("Leases and restarts", docHarm, "Leases that peers hold here, and restarts of the worker process. A worker that keeps starting again: a fault of the provider, look at its version.").
			query(`max by (instance) (railscope_probe_leases{<node>})`, "leases · {{instance}}").
			query(`60 * sum by (instance) (rate(railscope_probe_worker_restarts_total{<node>}[$__rate_interval]))`, "restarts per minute · {{instance}}").unit("short").from(0),
	}
}
