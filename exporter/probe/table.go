package probe

import "github.com/railscope/railscope/collector"

type rows struct {
	collector.Table
	// Rows of a peer.
	rounds, soloRounds, failures, skipped, verification, retransmits *collector.Metric
	transport, fallback, mismatch, lastResult, lastRound, duration   *collector.Metric
	lastBurst, burstsSkipped                                         *collector.Metric
	goodput, imbalance, scaling, speedup, tcp, tcpMTU                *collector.Metric
	// Rows of a peer and a rail.
	latency, railUp, railGoodput, railBytes, railExpected *collector.Metric
	pathMTU, gid, degradation, railRetransmits            *collector.Metric
	// Rows of extras.
	loopback, pathLoss, pathsLossy, contention, gpu *collector.Metric
	// Rows of the probe.
	budget, leases, restarts, up, interval, refused *collector.Metric
	// Rows of a DNS name.
	dnsPeers, dnsLookups *collector.Metric
}

// Documentation of the values.
const (
	figures = "probe/result/result.go"
	words   = "probe/internal/failure/failure.go"
	here    = "exporter/probe/peer.go"
)

func newRows() *rows {
	r := &rows{Table: collector.Table{Source: "probe"}}
	peer := r.Group(figures, "peer")
	r.rounds = peer.With("result").Counter("probe_rounds_total", "Rounds by result: ok (by RDMA), degraded (by RDMA, "+
		"with a rail that is dead or slow), reached (by RDMA, without a burst: the rails are busy), fallback "+
		"(reachable, but not by RDMA), failed (not reachable, or corrupted data) and skipped (nothing was done).")
	r.soloRounds = peer.Ref(here).Counter("probe_solo_rounds_total", "Rounds by RDMA in which each rail was measured "+
		"alone, one in probe.solo_every. Solo goodput, scaling and degradation are updated with each.")
	r.failures = peer.With("stage", "reason").Ref(words).Counter("probe_failures_total",
		"Failures in rounds, of single rails too. other is a stage or reason that this version does not know.")
	r.skipped = peer.With("reason").Ref(words).Counter("probe_skipped_total",
		"Rounds that were skipped, by a reason that says nothing of the rails.")
	r.burstsSkipped = peer.With("reason").Ref(words).Counter("probe_bursts_skipped_total", "Rounds by RDMA that made "+
		"no burst over a rail, or any, by the first reason: busy, no_gap, collided, budget, disturbed.")
	r.verification = peer.Counter("probe_verification_failures_total",
		"Rounds in which the received data was not the data sent. Any is abnormal.")
	r.retransmits = peer.Ref("tcp(7), TCP_INFO tcpi_total_retrans").Counter("probe_tcp_retransmits_total",
		"Segments that the probe's TCP bursts retransmitted: loss on the path.")
	r.transport = peer.With("transport").Gauge("probe_transport",
		"1 for the transport of the last round that was not skipped: rdma (in the demo: simulated), tcp or none; 0 "+
			"for the others.")
	r.fallback = peer.With("reason").Ref(words).Gauge("probe_fallback_info", "Why the last round that was not skipped "+
		"fell back to TCP or failed; always 1. Absent when it did not.")
	r.mismatch = peer.With("component").Gauge("probe_component_mismatch",
		"1 when the two ends run incompatible versions of a component; absent when they do not.")
	r.lastResult = peer.Gauge("probe_last_result_timestamp_seconds", "When the last round that was not skipped "+
		"ended, Unix time: the age of probe_transport, probe_fallback_info and probe_rail_up.")
	r.lastRound = peer.Gauge("probe_last_round_timestamp_seconds",
		"When the last round ended, Unix time, whatever its result, skipped included. Absent before the first.")
	r.lastBurst = peer.Ref(here).Gauge("probe_last_burst_timestamp_seconds", "When the last round with a burst ended, "+
		"Unix time: the age of the figures of bursts, which are absent after 15 minutes or two full rounds without "+
		"one. Absent before the first.")
	r.duration = peer.Gauge("probe_duration_seconds", "Duration of the last round that was not skipped.")
	r.goodput = peer.With("mode").Gauge("probe_goodput_bytes_per_second", "RDMA goodput over all rails at once in "+
		"the last round. mode=stealing: each rail carries what it can. mode=static: rails × the slowest, which a job "+
		"with equal parts would reach. Absent when the last round did not measure it.")
	r.imbalance = peer.Ref("internal/rail/balance.go").Gauge("probe_imbalance_ratio",
		"1 − the smallest share of a rail in the last striped burst; a share is goodput ÷ capacity, relative to the "+
			"best rail of its group (role, link layer and rate). Of the worst group. 0.39 when one rail carried 61 % "+
			"of the others, 1 when one carried nothing. Absent where no group has two rails.")
	r.scaling = peer.Gauge("probe_scaling_ratio",
		"Goodput of all rails at once ÷ the sum of each alone. Below 0.9 the rails share a bottleneck, such as a "+
			"PCIe link. Of the last round with solo bursts; absent after a round that was not by RDMA.")
	r.speedup = peer.Gauge("probe_speedup_ratio", "RDMA goodput ÷ the best TCP goodput, of the last round with both; "+
		"absent after a round that was not by RDMA.")
	r.tcp = peer.With("streams").Gauge("probe_tcp_goodput_bytes_per_second",
		"TCP goodput with this many streams per rail, of the last baseline or fallback.")
	r.tcpMTU = peer.Ref("tcp(7), TCP_INFO tcpi_pmtu").Gauge("probe_tcp_path_mtu_bytes",
		"Path MTU that TCP found, the smallest of all streams.")

	rail := r.Group(figures, "peer", "rail")
	r.latency = rail.With("load").Row(collector.Histogram, "probe_latency_seconds",
		"Round-trip time of 8 B RDMA writes at random times, from post to completion: what traffic meets. "+
			"load=busy: others used the rail in the seconds before. Per rail where the scrape negotiates native "+
			"histograms; else of all rails, with an empty rail.")
	r.railUp = rail.Gauge("probe_rail_up",
		"1 when the rail carried RDMA to the peer in the last round, 0 when it did not. Absent for a rail without a "+
			"partner because the peer has fewer rails.")
	r.railGoodput = rail.With("mode").Gauge("probe_rail_goodput_bytes_per_second", "RDMA goodput of the rail at "+
		"full depth. mode=solo: alone, in the last round that measured it (absent when the rail fails). "+
		"mode=stealing: in the last round, with all other rails.")
	r.railBytes = rail.Counter("probe_rail_bytes_total",
		"Payload that the probe sent over the rail by RDMA, in all bursts: its part of the port's traffic.")
	r.railRetransmits = rail.Ref("internal/rail/status.go").Counter("probe_rail_retransmits_total",
		"Events after which the adapter retransmits, as the counters of the rail show them, during striped bursts. "+
			"Absent where the driver does not count them.")
	r.railExpected = rail.Gauge("probe_rail_expected_bytes_per_second",
		"Expected goodput of the rail: the least of port and PCIe link, of both ends. Absent for software devices "+
			"(rxe, siw), for which none is expected.")
	r.pathMTU = rail.Gauge("probe_path_mtu_bytes",
		"Largest payload of an RDMA packet on the path, the smaller of both ends.")
	r.gid = rail.With("gid_index", "gid", "reason").Ref("internal/rail/choose.go").Gauge("probe_gid_info",
		"GID that the rail used, and why; always 1.")
	r.degradation = rail.Ref("internal/baseline/baseline.go").Gauge("probe_rail_degradation_ratio",
		"Solo goodput of the rail ÷ its median of the last 24 h: below 1 the rail is slower than it was. Absent "+
			"before 5 solo bursts. With --state.dir a restart forgets nothing.")

	extra := r.Group("probe/result/extras_judged.go")
	r.loopback = extra.With("rail").Gauge("probe_loopback_goodput_bytes_per_second", "RDMA goodput of the rail to "+
		"itself, without the wire to a peer. Low as well: the host or PCIe limits the rail. With `probe.extras: "+
		"[loopback]`, of the last round that measured it.")
	r.pathLoss = extra.With("peer", "rail").Gauge("probe_path_loss_ratio", "Part of the packets after which "+
		"something was sent again, on the worst of the rail's paths (flow labels); 1 where one carries nothing. With "+
		"`probe.extras: [paths]`.")
	r.pathsLossy = extra.With("peer", "rail").Gauge("probe_paths_lossy", "Paths (flow labels) of the rail that lose "+
		"packets, of 16, unless all do. With `probe.extras: [paths]`.")
	r.contention = extra.With("rail", "other").Gauge("probe_contention_ratio", "Goodput of two rails at once ÷ the "+
		"sum of each alone: 1 where they share nothing. With `probe.extras: [contention]`.")

	r.gpu = extra.With("rail", "memory").Gauge("probe_gpu_ratio", "RDMA goodput of the rail alone between memory of "+
		"GPUs ÷ that between memory of the hosts. memory is what was achieved: cuda_dmabuf, cuda_peermem or "+
		"rocm_dmabuf; cuda_host or rocm_host on the host; cuda_staged, copied over it. With `probe.extras: [gpu]`.")

	probe := r.Group("probe/options/options.go")
	r.budget = probe.Gauge("probe_budget_seconds", "Remaining probe time of each rail in this hour: the smaller "+
		"of asking and answering.")
	r.leases = probe.Gauge("probe_leases", "Leases of this node's scratch memory that peers hold.")
	r.restarts = probe.Counter("probe_worker_restarts_total",
		"Restarts of the worker process after it crashed or was killed.")
	r.up = probe.Ref("probe/service.go").Gauge("probe_up", "1 when the probe runs as configured: it listens on "+
		"probe.listen and asks its peers. 0 when it cannot listen; it retries at least every 30 s. Absent when no "+
		"probe is configured.")
	r.interval = probe.Ref("probe/internal/schedule/schedule.go").Gauge("probe_interval_seconds",
		"Time between two rounds with one peer: probe.interval, or a multiple when there are too many peers for that. "+
			"Absent when there are no peers to ask.")
	r.refused = probe.With("reason").Ref("probe/internal/node/node.go").Counter("probe_refused_total",
		"Clients that the probe port refused. unauthorized: neither a valid token nor a peer's certificate. "+
			"connections: all 64 places, or the 32 for unauthenticated clients, are taken. address: one address has "+
			"half of them. timeout: no proof, request or read of the answer within 10 s. version: another protocol "+
			"version. malformed: not a request of railscope.")
	name := r.Group("probe/internal/schedule/directory.go", "name")
	r.dnsPeers = name.Gauge("probe_dns_peers", "Nodes that a DNS name (dns+NAME) or files (file:PATTERN) of the "+
		"configuration list, this node excluded; probe.fanout of them are asked. An address of a name counts for 5 "+
		"minutes after its last answer; when a lookup fails, all are kept.")
	r.dnsLookups = name.With("result").Counter("probe_dns_lookups_total", "Lookups of the name, one every 30 s, or "+
		"reads of the files, every 5 s: ok, not_found (no such name or file, or no address), timeout, failed (of a "+
		"file: invalid or unreadable).")
	return r
}
