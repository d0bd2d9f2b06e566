package dashboards

// The top of the node dashboard: what is faulty, and which rail is slow.

// Alerts and findings of the selected nodes and rails, and those without a rail.
const (
	alertsHere = `{alertname=~"Railscope.+", cluster=~"$cluster", job=~"$job", instance=~"$instance", rail=~"$rail|"}`
	firingHere = `ALERTS{alertstate="firing", alertname=~"Railscope.+", cluster=~"$cluster", job=~"$job", ` +
		`instance=~"$instance", rail=~"$rail|"}`
	findingsHere = `railscope_finding{<node>, rail=~"$rail|"} == 1`
)

func nodeFaults() []*panel {
	const key = "severity, alert, rail, gpu, peer, instance"
	alerts := func(expr string) string {
		return `max by (` + key + `) (label_replace(` + expr + `, "alert", "$1", "alertname", "Railscope(.*)"))`
	}
	return []*panel{
		table("Alerts", docAlerts,
			"Firing alerts of railscope's rules, and since when the condition holds. The name links to the runbook. "+
				"An empty table is good if the rules are loaded.").size(12, 7).
			label("severity", "Severity", wide(85), painted(), severities()).
			label("alert", "Alert", wide(150), leadingTo(toRunbook("${__value.text}"))).
			column("Since", `1000 * `+alerts(`ALERTS_FOR_STATE`+alertsHere+` and ignoring (alertstate) `+firingHere),
				wide(125), inUnit("dateTimeFromNow"), prop("custom.align", "left")).
			label("rail", "Rail", wide(55)).label("gpu", "GPU", wide(55)).label("peer", "Peer", wide(130)).
			label("instance", "Node").
			labelled(alerts(firingHere)).nothing("none").sortedBy("Severity", false),
		table("Findings", "doctor.md#findings",
			"What the checks of `railscope doctor` find wrong now, also without the rules. The check links to its "+
				"meaning, `railscope doctor` prints the fix. An empty table is good.").size(12, 7).
			label("severity", "Severity", wide(85), painted(), severities()).
			label("check", "Check", leadingTo(toCheck())).label("subject", "Subject").label("rail", "Rail", wide(55)).
			label("instance", "Node").
			labelled(`max by (severity, check, subject, rail, instance) (`+findingsHere+`)`).
			nothing("none").sortedBy("Severity", false),
	}
}

// ofBestRail returns the traffic of each rail ÷ capacity, relative to the best selected rail of its role and link
// layer, in the worse direction. Absent while idle.
func ofBestRail() string {
	share := func(direction string) string {
		load := `(max by (instance, rail) (rate(railscope_port_` + direction +
			`_bytes_total{<rail>}[$__rate_interval]) / ` +
			`railscope_rail_capacity_bytes_per_second{<rail>}) * on (instance, rail) group_left (role, link_layer) ` +
			`max by (instance, rail, role, link_layer) (railscope_rail_info{<rail>}))`
		return `label_replace(` + load + ` / on (instance, role, link_layer) group_left () (max by (instance, role, ` +
			`link_layer) ` + load + ` > 0.01), "direction", "` + direction + `", "", "")`
	}
	return `min by (instance, rail) (` + share("transmit") + ` or ` + share("receive") + `)`
}

// lostPackets returns the share of packets that each rail retransmits, by the condition of
// RailscopeRetransmissions.
func lostPackets() string {
	packets := func(counter string) string { return `rate(railscope_port_` + counter + `{<rail>}[$__rate_interval])` }
	return `max by (instance, rail) ((` + packets("packet_sequence_errors_total") + ` or ` +
		packets("retransmitted_packets_total") + ` or ` + packets("adaptive_retransmits_total") + `) / (` +
		packets("transmit_packets_total") + ` > 100))`
}

func nodeRails() []*panel {
	const (
		key  = "instance, rail"
		held = `max by (` + key + `) (rate(railscope_port_pause_seconds_total{<rail>}[$__rate_interval]) or ` +
			`rate(railscope_port_global_pause_seconds_total{<rail>}[$__rate_interval]))`
	)
	share := func(width int, high ...step) []object {
		return []object{wide(width), inUnit("percentunit"), prop("decimals", 0), painted(), by(red, high...)}
	}
	return []*panel{
		table("Rails", docRDMA,
			"A slow rail has coloured cells; yellow and red are near the thresholds of the alerts. Load: traffic ÷ "+
				"capacity, relative to the best rail of the same role and link layer, in the worse direction. Probe: "+
				"solo goodput ÷ expected, the median over the peers. Peak: the highest rate over 1 s of jobs, which "+
				"the rail can therefore carry. Last proof: time since the last burst over the rail, or since "+
				"such a peak reached 0.7 of what is expected of it.").size(24, 10).
			label("rail", "Rail", wide(60), leadingTo(toRailOf("${__data.fields.instance}", "${__value.text}"))).
			column("State", `max by (`+key+`) (railscope_port_state_id{<rail>})`, wide(85), painted(),
				by("transparent"), says(append([]state{{"4", "active", "transparent"}}, portStates[1:]...)...)).
			column("Capacity ÷ expected", `min by (`+key+`) (railscope_rail_capacity_bytes_per_second{<rail>} / `+
				`railscope_rail_expected_bytes_per_second{<rail>})`,
				share(175, from(0.5, yellow), from(0.95, "transparent"))...).
			column("Load ÷ best rail", ofBestRail(), share(150, from(0.5, yellow), from(0.75, "transparent"))...).
			column("Probe ÷ expected", `quantile by (`+key+`) (0.5, `+
				`railscope_probe_rail_goodput_bytes_per_second{<rail>, mode="solo"} / ignoring (mode) `+
				`railscope_probe_rail_expected_bytes_per_second{<rail>})`,
				share(155, from(0.7, yellow), from(0.85, "transparent"))...).
			column("Retransmitted", lostPackets(), wide(130), inUnit("percentunit"), painted(),
				by("transparent", from(0.0001, yellow), from(0.001, red))).
			column("Paused", held, wide(75), inUnit("percentunit"), painted(),
				by("transparent", from(0.05, yellow), from(0.5, red))).
			column("Transmit", bits("port_transmit_bytes_total", "<rail>", key), wide(95), inUnit("bps")).
			column("Receive", bits("port_receive_bytes_total", "<rail>", key), wide(95), inUnit("bps")).
			column("Peak of 1 h", `8 * max by (`+key+`) (railscope_rail_peak_bytes_per_second{<rail>, window="1s"})`,
				wide(95), inUnit("bps")).
			column("Last proof", lastProof(key), wide(95), inUnit("s")).
			column("Capacity", `8 * max by (`+key+`) (railscope_rail_capacity_bytes_per_second{<rail>})`, wide(85),
				inUnit("bps")).
			label("device", "Device").label("netdev", "Interface").label("instance", "Node").
			labelled(`max by (instance, rail, device, netdev) (railscope_rail_info{<rail>})`),
	}
}

// lastProof returns the time since the last burst over each rail, or since the traffic of jobs over 1 s reached the
// part of what is expected at which a rail is not slow.
func lastProof(by string) string {
	const second = `{<rail>, window="1s"}`
	return `min by (` + by + `) ((time() - railscope_rail_peak_timestamp_seconds` + second + ` and ` +
		`railscope_rail_peak_bytes_per_second` + second + ` >= ignoring (direction, window) group_left () ` +
		`(0.7 * railscope_rail_expected_bytes_per_second{<rail>})) or ` +
		`0 * railscope_probe_rail_goodput_bytes_per_second{<rail>, mode="solo"} + ` +
		`on (cluster, job, instance, peer) group_left () ` +
		`(time() - railscope_probe_last_burst_timestamp_seconds{<node>}))`
}

var portStates = []state{
	{"4", "active", green}, {"1", "down", orange}, {"2", "init", orange}, {"3", "armed", yellow},
	{"5", "active defer", yellow}, {"0", "no change", grey},
}

func nodeProperties() []*panel {
	const key = "instance, rail"
	return []*panel{
		table("Properties of rails", docRDMA,
			"Rails of one node should differ only in names and addresses. Capacity is the minimum of port rate and "+
				"PCIe link.").size(24, 10).
			label("rail", "Rail", wide(60), leadingTo(toRailOf("${__data.fields.instance}", "${__value.text}"))).
			column("Rate", `8 * max by (`+key+`) (railscope_port_rate_bytes_per_second{<rail>})`, wide(85),
				inUnit("bps")).
			column("PCIe link", `8 * max by (`+key+`) (railscope_pcie_link_bytes_per_second{<rail>, kind="nic"})`,
				wide(85), inUnit("bps")).
			column("MTU", `max by (`+key+`) (railscope_port_mtu_bytes{<rail>, kind="netdev"})`, wide(65),
				inUnit("none")).
			column("RoCE MTU", `max by (`+key+`) (railscope_port_mtu_bytes{<rail>, kind="active"})`,
				wide(90), inUnit("none"), painted(), by(orange, from(4096, "transparent"))).
			column("Misbound", `max by (`+key+`) (railscope_gid_misbound{<rail>})`, wide(85), painted(),
				by("transparent", from(1, red)), says(no, yes)).
			label("device", "Device").label("netdev", "Interface").label("pci_address", "PCI address").
			label("numa_node", "NUMA", wide(65)).label("firmware", "Firmware").
			label("instance", "Node").
			labelled(`max by (instance, rail, device, netdev, pci_address, numa_node, firmware) ` +
				`(railscope_rail_info{<rail>})`),
	}
}
