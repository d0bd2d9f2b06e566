package dashboards

// The folded rows of the probe dashboard: TCP, path, cost of the probe, extras.

func probeTCP() []*panel {
	return []*panel{
		timeseries("TCP", docFigures,
			"The same transfer over TCP, by connections per rail, from the last baseline or fallback.").
			query(`8 * max by (instance, peer, streams) (railscope_probe_tcp_goodput_bytes_per_second{<peer>})`,
				toPeer("{{streams}} streams")).unit("bps").from(0),
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
		timeseries("Probe traffic", docBudget, "Traffic of the probe by peer, over the selected rails.").
			query(`8 * sum by (instance, peer) (rate(railscope_probe_rail_bytes_total{<path>}[$__rate_interval]))`,
				perPeer).unit("bps").from(0).atLeastEvery("2m"),
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

func probeExtras() []*panel {
	const none = "not measured: probe.extras"
	return []*panel{
		timeseries("Loopback", docExtras,
			"Goodput of each rail to itself, without the wire. Low here too: the host or PCIe limits the rail.").
			query(`8 * min by (instance, rail) (railscope_probe_loopback_goodput_bytes_per_second{<rail>})`,
				perRail("")).
			unit("bps").from(0).lowest().nothing(none),
		timeseries("Loss on the worst path", docExtras,
			"Part of the packets that are lost on the worst of 16 paths (flow labels) of each rail to its worst peer. "+
				"100 %: nothing arrives.").
			query(worstPeer(`railscope_probe_path_loss_ratio{<path>}`, "max"), railTo("")).
			unit("percentunit").from(0).worseAbove(0.0001, 0.001).limits().nothing(none),
		timeseries("Lossy paths", docExtras,
			"Of 16 paths of each rail to its worst peer, those that lose packets while most do not.").
			query(worstPeer(`railscope_probe_paths_lossy{<path>}`, "max"), railTo("")).unit("none").from(0).
			nothing(none),
		timeseries("Two rails at once ÷ each alone", docExtras,
			"Below 0.9, the two rails share something, such as a PCIe switch.").
			query(`min by (instance, rail, other) (railscope_probe_contention_ratio{<rail>})`,
				perRail("and {{other}}")).unit("percentunit").from(0).worseBelow(0.9, 0.8).limits().lowest().
			nothing(none),
		timeseries("Memory of GPUs ÷ memory of hosts", docExtras,
			"Goodput of each rail between memory of GPUs ÷ that between memory of the hosts, by the kind that was "+
				"achieved. cuda_host and rocm_host are not on the GPU.").
			query(`min by (instance, rail, memory) (railscope_probe_gpu_ratio{<rail>})`,
				perRail("{{memory}}")).unit("percentunit").from(0).worseBelow(0.9, 0.7).limits().lowest().
			nothing(none),
	}
}
