package probe

import "github.com/railscope/railscope/collector"

// rows are the metrics of the probe.
type rows struct {
	// Of a peer.
	rounds, failures, skipped, verification, retransmits *collector.Metric
	soloRounds                                           *collector.Metric
	transport, fallback, mismatch, success, duration     *collector.Metric
	lastRound                                            *collector.Metric
	goodput, imbalance, scaling, skew, speedup           *collector.Metric
	tcp, tcpMTU                                          *collector.Metric
	// Of a peer and a rail.
	latency, railUp, railGoodput, railBytes, railExpected *collector.Metric
	counters, pathMTU, gid, degradation                   *collector.Metric
	// Of the probe.
	budget, leases, restarts *collector.Metric
	up, interval, refused    *collector.Metric
	// Of a DNS name.
	dnsPeers, dnsLookups *collector.Metric
}

func newRows() rows {
	const result, here, options = "probe/result.go", "exporter/probe_peer.go", "probe/options.go"
	const directory = "probe/directory.go"
	const words = "probe/internal/failure/failure.go"
	row := func(kind collector.Kind, name, ref, help string, labels ...string) *collector.Metric {
		return &collector.Metric{Name: name, Kind: kind, Help: help, Ref: ref, Labels: labels}
	}
	const counter, gauge = collector.Counter, collector.Gauge
	const peer, rail = "peer", "rail"
	return rows{
		rounds:       row(counter, "probe_rounds_total", result, "Rounds: ok (by RDMA), degraded (by RDMA, with a rail that is dead or slow), fallback (the peer can be reached, but not by RDMA), failed (neither way, or what arrived is not what was sent) and skipped (it was not the time).", peer, "result"),
		soloRounds:   row(counter, "probe_solo_rounds_total", here, "Rounds by RDMA in which rails were measured alone, one in probe.solo_every: figures of solo bursts, scaling and degradation are new with each.", peer),
		failures:     row(counter, "probe_failures_total", words, "What went wrong in rounds, of single rails too. What is none of our stages or reasons is other.", peer, "stage", "reason"),
		skipped:      row(counter, "probe_skipped_total", words, "Rounds that were skipped although nothing is wrong.", peer, "reason"),
		verification: row(counter, "probe_verification_failures_total", result, "Rounds in which what arrived was not what was sent. Not one is normal.", peer),
		retransmits:  row(counter, "probe_tcp_retransmits_total", "tcp(7), TCP_INFO tcpi_total_retrans", "Segments that the probe's bursts over TCP sent again: loss on the way.", peer),

		transport: row(gauge, "probe_transport", result, "1 for the way that the last round took that was not skipped: rdma, tcp or none; 0 for the others.", peer, "transport"),
		fallback:  row(gauge, "probe_fallback_info", words, "Why the last round that was not skipped did not go by RDMA, or failed; always 1, and absent when all is well.", peer, "reason"),
		mismatch:  row(gauge, "probe_component_mismatch", result, "1 when both ends run versions of a component that do not go together; absent when they do.", peer, "component"),
		success:   row(gauge, "probe_last_success_timestamp_seconds", result, "When the last round with result ok ended, Unix time.", peer),
		lastRound: row(gauge, "probe_last_round_timestamp_seconds", result, "When the last round ended, Unix time, whatever its result: skipped ones count. Absent until one has.", peer),
		duration:  row(gauge, "probe_duration_seconds", result, "How long the last round took that was not skipped.", peer),

		goodput:   row(gauge, "probe_goodput_bytes_per_second", result, "Payload by RDMA over all rails at once in the last round: mode=stealing gives the next chunk to the rail that has room, mode=static an equal part to each. Absent when the last round did not measure it.", peer, "mode"),
		imbalance: row(gauge, "probe_imbalance_ratio", "internal/rail/balance.go", "1 − the smallest share of a rail in the last stealing burst, share being goodput ÷ capacity relative to the best rail of its group (link layer and rate); of the worst group. 0.39 when one carried 61 % of the others, 1 when one carried nothing. Absent where no group has two rails.", peer),
		scaling:   row(gauge, "probe_scaling_ratio", result, "All rails at once ÷ the sum of each alone. Below 0.9 they share a bottleneck, such as a PCIe link. Of the last round with solo bursts; gone with the first round not by RDMA.", peer),
		skew:      row(gauge, "probe_finish_skew_ratio", result, "Of the last burst with equal parts: 1 − rate of the slowest rail ÷ rate of the fastest.", peer),
		speedup:   row(gauge, "probe_speedup_ratio", result, "Goodput by RDMA ÷ the best over TCP, of the last round with both; gone with the first round not by RDMA.", peer),
		tcp:       row(gauge, "probe_tcp_goodput_bytes_per_second", result, "The same transfer over TCP with so many streams per rail: of the last baseline, or of the fallback.", peer, "streams"),
		tcpMTU:    row(gauge, "probe_tcp_path_mtu_bytes", "tcp(7), TCP_INFO tcpi_pmtu", "Path MTU that TCP found, the least of all streams.", peer),

		latency:      row(collector.Histogram, "probe_latency_seconds", result, "Full round trips of 8 B RDMA writes, one outstanding, from post to completion.", peer, rail),
		railUp:       row(gauge, "probe_rail_up", result, "1 when the rail carried RDMA to the peer in the last round, 0 when it did not.", peer, rail),
		railGoodput:  row(gauge, "probe_rail_goodput_bytes_per_second", result, "Payload by RDMA over the rail while it was active: mode=solo alone, in the last round that tried (gone when the rail fails); mode=stealing and mode=static in the last round with all others at once.", peer, rail, "mode"),
		railBytes:    row(counter, "probe_rail_bytes_total", result, "Payload that the probe has moved over the rail in all bursts, by RDMA or TCP: what of the ports' traffic is ours.", peer, rail),
		railExpected: row(gauge, "probe_rail_expected_bytes_per_second", result, "What the rail should carry: the least of port and PCIe link, of both ends. Absent for software devices (rxe, siw), of which nothing is expected.", peer, rail),
		counters:     row(gauge, "probe_counter_mismatch_ratio", result, "How far the port's counter is from the bytes that the last stealing burst sent: other traffic, packets sent again, or bytes that took another way.", peer, rail),
		pathMTU:      row(gauge, "probe_path_mtu_bytes", result, "Largest payload of an RDMA packet on the way, the least of both ends.", peer, rail),
		gid:          row(gauge, "probe_gid_info", "internal/rail/choose.go", "The GID that the rail used, and why that one; always 1.", peer, rail, "gid_index", "gid", "reason"),
		degradation:  row(gauge, "probe_rail_degradation_ratio", here, "Solo goodput of the rail ÷ the median of its solos of the last 24 h: below 1 it has lost something against its own past. Absent until there are 5.", peer, rail),

		budget:   row(gauge, "probe_budget_bytes", options, "Bytes that may be moved now before the hourly budget is used up, by rounds of this node or by its answers to those of peers, whichever has less."),
		leases:   row(gauge, "probe_leases", options, "Leases of this node's scratch memory that peers hold."),
		restarts: row(counter, "probe_worker_restarts_total", options, "Times the worker process was started again after it crashed or was killed."),

		up:       row(gauge, "probe_up", "probe/service.go", "1 when the probe does what the configuration says: it answers where probe.listen says, and asks its peers. 0 when it cannot listen there; it tries again at least every 30 s. Absent without a probe in the configuration."),
		interval: row(gauge, "probe_interval_seconds", "probe/schedule.go", "Time from one round with a peer to the next: probe.interval, or longer when there are too many nodes for that. Absent when no peers are asked."),
		refused:  row(counter, "probe_refused_total", "probe/refusals.go", "Clients that the probe port refused: unauthorized (neither token nor certificate of a peer), connections (its 64 places, or the 32 for clients that have not proven to be peers, are taken), address (one address has half of them), timeout (no proof, request or read of the answer in 10 s), version (another version of the protocol), malformed (not a request of railscope).", "reason"),

		dnsPeers:   row(gauge, "probe_dns_peers", directory, "Peers that a DNS name of the configuration (dns+NAME) stands for, this node left out. An address is counted for 5 minutes after it was in an answer; when a lookup fails, all remain.", "name"),
		dnsLookups: row(counter, "probe_dns_lookups_total", directory, "Lookups of the name: ok, not_found (no such name, or no address), timeout, failed. One every 30 s.", "name", "result"),
	}
}

func (r *rows) all() []*collector.Metric {
	return []*collector.Metric{
		r.rounds, r.soloRounds, r.failures, r.skipped, r.verification, r.retransmits, r.transport, r.fallback, r.mismatch, r.success, r.lastRound, r.duration,
		r.goodput, r.imbalance, r.scaling, r.skew, r.speedup, r.tcp, r.tcpMTU,
		r.latency, r.railUp, r.railGoodput, r.railBytes, r.railExpected, r.counters, r.pathMTU, r.gid, r.degradation,
		r.budget, r.leases, r.restarts, r.up, r.interval, r.refused, r.dnsPeers, r.dnsLookups,
	}
}
