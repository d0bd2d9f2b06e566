package collector

import (
	"slices"
	"strconv"
	"strings"
)

// netdevRow is one row of the netdev source: of a file of class/net/<netdev>,
// or of ethtool statistics.
type netdevRow struct {
	name    string
	kind    Kind
	file    string // read as a number
	scale   float64
	labels  []string        // after rail and netdev
	strings []ethtoolString // the first that a driver has is used, for each set of label values
	ref     string
	help    string
}

// ethtoolString is a driver's name for a statistic. A # in it stands for a
// digit from 0 to 7, which takes the place of # in the label values.
type ethtoolString struct {
	name   string
	scale  float64
	values []string // of the row's labels after rail and netdev
}

// The rows that netdev.go treats by name; all others are numbers as they are.
const (
	netdevUp = iota
	netdevCarrier
	netdevSpeed
	netdevNamed // how many these are
)

const (
	refNet         = "Documentation/ABI/testing/sysfs-class-net"
	refStats       = "Documentation/ABI/testing/sysfs-class-net-statistics"
	refMlx5Ethtool = "Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst"
	refBnxtEthtool = "drivers/net/ethernet/broadcom/bnxt/bnxt_ethtool.c"
	microsecs      = 1e-6
)

// mlx5 counts once in each direction, as rx_ and tx_ of the same name.
func mlx5Both(name string, scale float64, more ...string) []ethtoolString {
	return []ethtoolString{
		{"rx_" + name, scale, append(slices.Clip(more), "receive")},
		{"tx_" + name, scale, append(slices.Clip(more), "transmit")},
	}
}

func joined(lists ...[]ethtoolString) (all []ethtoolString) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

func ethtoolNames(names ...string) (list []ethtoolString) {
	for _, n := range names {
		list = append(list, ethtoolString{name: n})
	}
	return list
}

func netdevRows() []netdevRow {
	return append([]netdevRow{
		netdevUp: {name: "netdev_up", kind: Gauge, file: "operstate", ref: refNet,
			help: "1 while the interface's operational state is up, 0 in any other; absent while the driver does not say (unknown)."},
		netdevCarrier: {name: "netdev_carrier", kind: Gauge, file: "carrier", ref: refNet,
			help: "1 while the interface has carrier; absent while it is administratively down."},
		netdevSpeed: {name: "netdev_speed_bytes_per_second", kind: Gauge, file: "speed", scale: 125000, ref: refNet,
			help: "Link speed as negotiated, of all members together on a bond; absent while it is unknown, as on a link that is down."},
		{name: "netdev_mtu_bytes", kind: Gauge, file: "mtu", ref: refNet,
			help: "Largest packet that the interface takes; RoCE uses the next smaller of 1024, 2048 and 4096."},
		{name: "netdev_carrier_changes_total", kind: Counter, file: "carrier_changes", ref: refNet,
			help: "Times that the carrier came or went; a rising value is a flapping link."},
		{name: "netdev_carrier_up_total", kind: Counter, file: "carrier_up_count", ref: refNet,
			help: "Times that the carrier came."},
		{name: "netdev_carrier_down_total", kind: Counter, file: "carrier_down_count", ref: refNet,
			help: "Times that the carrier went."},
		{name: "netdev_receive_bytes_total", kind: Counter, file: "statistics/rx_bytes", ref: refStats,
			help: "Bytes that the kernel's network stack received; most drivers leave RDMA traffic out, software RDMA does not."},
		{name: "netdev_transmit_bytes_total", kind: Counter, file: "statistics/tx_bytes", ref: refStats,
			help: "Bytes that the kernel's network stack sent; most drivers leave RDMA traffic out, software RDMA does not."},
		{name: "netdev_receive_packets_total", kind: Counter, file: "statistics/rx_packets", ref: refStats,
			help: "Packets that the kernel's network stack received."},
		{name: "netdev_transmit_packets_total", kind: Counter, file: "statistics/tx_packets", ref: refStats,
			help: "Packets that the kernel's network stack sent."},
		{name: "netdev_receive_errors_total", kind: Counter, file: "statistics/rx_errors", ref: refStats,
			help: "Packets received damaged or otherwise bad; a rising value points at cable, optics or switch port."},
		{name: "netdev_transmit_errors_total", kind: Counter, file: "statistics/tx_errors", ref: refStats,
			help: "Packets that could not be sent."},
		{name: "netdev_receive_dropped_total", kind: Counter, file: "statistics/rx_dropped", ref: refStats,
			help: "Good packets received but dropped by the host."},
		{name: "netdev_transmit_dropped_total", kind: Counter, file: "statistics/tx_dropped", ref: refStats,
			help: "Packets dropped on their way out."},
		{name: "netdev_receive_missed_total", kind: Counter, file: "statistics/rx_missed_errors", ref: refStats,
			help: "Packets lost because the host had no buffer for them; a rising value means that the host is too slow."},
		{name: "netdev_receive_crc_errors_total", kind: Counter, file: "statistics/rx_crc_errors", ref: refStats,
			help: "Packets received with a bad checksum; a rising value points at cable or optics."},
		{name: "netdev_receive_multicast_packets_total", kind: Counter, file: "statistics/multicast", ref: refStats,
			help: "Multicast packets received."},
		{name: "netdev_transmit_carrier_errors_total", kind: Counter, file: "statistics/tx_carrier_errors", ref: refStats,
			help: "Packets not sent because the carrier was lost."},
	}, ethtoolRows()...)
}

func ethtoolRows() []netdevRow {
	priority, direction := []string{"priority", "direction"}, []string{"direction"}
	bnxtBoth := func(before, after string, scale float64) []ethtoolString {
		return []ethtoolString{{before + "rx" + after, scale, []string{"#", "receive"}}, {before + "tx" + after, scale, []string{"#", "transmit"}}}
	}
	return []netdevRow{
		{name: "port_pause_frames_total", kind: Counter, labels: priority, ref: refMlx5Ethtool + ", " + refBnxtEthtool, strings: joined(mlx5Both("prio#_pause", 0, "#"), bnxtBoth("", "_pfc_ena_frames_pri#", 0)),
			help: "PFC pause frames per priority: received ones mean that the network cannot take what we send, sent ones that this host cannot take what it gets. mlx5 counts only priorities with PFC on."},
		{name: "port_pause_seconds_total", kind: Counter, labels: priority, ref: refMlx5Ethtool + ", " + refBnxtEthtool, strings: joined(mlx5Both("prio#_pause_duration", microsecs, "#"), bnxtBoth("pfc_pri#_", "_duration_us", microsecs)),
			help: "Time for which PFC held a priority: received is time that we could not send; a rate near 1 is a port that stands still."},
		{name: "port_pause_transitions_total", kind: Counter, labels: priority, ref: refMlx5Ethtool + ", " + refBnxtEthtool, strings: joined(mlx5Both("prio#_pause_transition", 0, "#"), bnxtBoth("pfc_pri#_", "_transitions", 0)),
			help: "Times that PFC let a priority go on after holding it."},
		{name: "port_global_pause_frames_total", kind: Counter, labels: direction, ref: refMlx5Ethtool + ", " + refBnxtEthtool, strings: joined(mlx5Both("global_pause", 0), mlx5Both("pause_frames", 0)),
			help: "Pause frames of the whole port (IEEE 802.3x), which hold all priorities at once; any at all on a port meant for PFC is a wrong setting."},
		{name: "port_global_pause_seconds_total", kind: Counter, labels: direction, ref: refMlx5Ethtool, strings: mlx5Both("global_pause_duration", microsecs),
			help: "Time for which pause frames held the whole port."},
		{name: "port_global_pause_transitions_total", kind: Counter, labels: direction, ref: refMlx5Ethtool, strings: mlx5Both("global_pause_transition", 0),
			help: "Times that the whole port went on after being held."},
		{name: "port_pause_storm_events_total", kind: Counter, labels: []string{"severity"}, ref: refMlx5Ethtool, strings: []ethtoolString{{"tx_pause_storm_warning_events", 0, []string{"warning"}}, {"tx_pause_storm_error_events", 0, []string{"error"}}},
			help: "Times that this host paused the network for long: severity error means so long that the adapter stopped pausing, and then drops."},
		{name: "port_priority_receive_discards_total", kind: Counter, labels: []string{"priority", "cause"}, ref: refMlx5Ethtool, strings: []ethtoolString{{"rx_prio#_buf_discard", 0, []string{"#", "host_buffer"}}, {"rx_prio#_cong_discard", 0, []string{"#", "host_congestion"}}, {"rx_prio#_discards", 0, []string{"#", "port_buffer"}}},
			help: "Packets received and discarded for lack of buffers, per priority; RoCE pays for each with a retransmission. The causes may overlap, so do not add them up."},
		{name: "port_priority_ecn_marked_total", kind: Counter, labels: []string{"priority"}, ref: refMlx5Ethtool, strings: []ethtoolString{{"rx_prio#_marked", 0, []string{"#"}}},
			help: "Packets that this adapter marked as having met congestion, because the host took them too slowly."},
		{name: "port_priority_bytes_total", kind: Counter, labels: priority, ref: refMlx5Ethtool + ", " + refBnxtEthtool, strings: joined(mlx5Both("prio#_bytes", 0, "#"), mlx5Both("bytes_pri#", 0, "#")),
			help: "Bytes on the physical port per priority; RoCE outside the lossless priority is a wrong setting."},
		{name: "port_priority_packets_total", kind: Counter, labels: priority, ref: refMlx5Ethtool + ", " + refBnxtEthtool, strings: joined(mlx5Both("prio#_packets", 0, "#"), mlx5Both("packets_pri#", 0, "#")),
			help: "Packets on the physical port per priority."},
		{name: "netdev_receive_out_of_buffer_total", kind: Counter, ref: refMlx5Ethtool, strings: ethtoolNames("rx_out_of_buffer"),
			help: "Times that a receive queue of the network stack had no buffer for a packet; a rising value means that the host is too slow."},
		{name: "netdev_device_out_of_buffer_total", kind: Counter, ref: refMlx5Ethtool, strings: ethtoolNames("dev_out_of_buffer"),
			help: "Times that a queue owned by the device itself had no buffer."},
		{name: "netdev_phy_bytes_total", kind: Counter, labels: direction, ref: refMlx5Ethtool, strings: mlx5Both("bytes_phy", 0),
			help: "Bytes on the physical port: RDMA, network stack and every function on it; functions that share a port show the same."},
		{name: "netdev_phy_packets_total", kind: Counter, labels: direction, ref: refMlx5Ethtool, strings: mlx5Both("packets_phy", 0),
			help: "Packets on the physical port, of every function on it."},
		{name: "netdev_phy_discards_total", kind: Counter, labels: direction, ref: refMlx5Ethtool, strings: mlx5Both("discards_phy", 0),
			help: "Packets discarded on the physical port: received for lack of buffers, which is congestion of this adapter; transmitted because of link down or pause."},
		{name: "netdev_phy_crc_errors_total", kind: Counter, ref: refMlx5Ethtool + ", " + refBnxtEthtool, strings: ethtoolNames("rx_crc_errors_phy", "rx_fcs_err_frames"),
			help: "Packets received on the physical port with a bad checksum; a rising value points at cable or optics."},
		{name: "netdev_phy_symbol_errors_total", kind: Counter, ref: refMlx5Ethtool, strings: ethtoolNames("rx_pcs_symbol_err_phy"),
			help: "Symbols that forward error correction could not mend; a rising value loses packets: replace cable or optics."},
		{name: "netdev_phy_fec_corrected_errors_total", kind: Counter, ref: refMlx5Ethtool, strings: ethtoolNames("rx_corrected_bits_phy"),
			help: "Bits that forward error correction mended; some are normal at 100 Gbit/s and more, a rise of the rate is a link that ages."},
		{name: "netdev_phy_receivable_bytes_total", kind: Counter, ref: refMlx5Ethtool, strings: []ethtoolString{{name: "rx_bits_phy", scale: 1. / 8}},
			help: "Bytes that could have been received; what corrected errors and symbol errors are to be divided by, times 8."},
		{name: "netdev_phy_lane_errors_total", kind: Counter, labels: []string{"lane"}, ref: refMlx5Ethtool, strings: []ethtoolString{{"rx_err_lane_#_phy", 0, []string{"#"}}},
			help: "Raw errors per lane before correction; one lane far above the others points at one fibre or contact."},
		{name: "netdev_phy_link_down_events_total", kind: Counter, ref: refMlx5Ethtool + ", " + refBnxtEthtool, strings: ethtoolNames("link_down_events_phy", "link_down_events"),
			help: "Times that the physical link went down; a rising value is a flapping link."},
		{name: "netdev_rdma_bytes_total", kind: Counter, labels: []string{"cast", "direction"}, ref: refMlx5Ethtool, strings: joined(mlx5Both("vport_rdma_unicast_bytes", 0, "unicast"), mlx5Both("vport_rdma_multicast_bytes", 0, "multicast")),
			help: "RDMA bytes of this function."},
		{name: "netdev_rdma_packets_total", kind: Counter, labels: []string{"cast", "direction"}, ref: refMlx5Ethtool, strings: joined(mlx5Both("vport_rdma_unicast_packets", 0, "unicast"), mlx5Both("vport_rdma_multicast_packets", 0, "multicast")),
			help: "RDMA packets of this function."},
		{name: "netdev_non_rdma_unicast_bytes_total", kind: Counter, labels: direction, ref: refMlx5Ethtool, strings: mlx5Both("vport_unicast_bytes", 0),
			help: "Unicast bytes of this function that are not RDMA: mostly TCP. A rise where RDMA falls is a job that fell back."},
		{name: "netdev_non_rdma_unicast_packets_total", kind: Counter, labels: direction, ref: refMlx5Ethtool, strings: mlx5Both("vport_unicast_packets", 0),
			help: "Unicast packets of this function that are not RDMA."},
		{name: "netdev_pci_stalled_ratio", kind: Gauge, labels: []string{"operation"}, ref: refMlx5Ethtool, strings: []ethtoolString{{"outbound_pci_stalled_rd", 0.01, []string{"read"}}, {"outbound_pci_stalled_wr", 0.01, []string{"write"}}},
			help: "Part of the last second in which the adapter wanted to use PCIe and could not for lack of credits; a rising value means that the host's PCIe or memory is the bottleneck."},
		{name: "netdev_pci_stalled_seconds_total", kind: Counter, labels: []string{"operation"}, ref: refMlx5Ethtool, strings: []ethtoolString{{"outbound_pci_stalled_rd_events", 0, []string{"read"}}, {"outbound_pci_stalled_wr_events", 0, []string{"write"}}},
			help: "Seconds in which the adapter could not use PCIe for more than 30 % of the time."},
		{name: "netdev_pci_buffer_overflow_packets_total", kind: Counter, ref: refMlx5Ethtool, strings: ethtoolNames("outbound_pci_buffer_overflow"),
			help: "Packets dropped because PCIe took them too slowly."},
		{name: "netdev_pci_signal_integrity_errors_total", kind: Counter, labels: direction, ref: refMlx5Ethtool, strings: mlx5Both("pci_signal_integrity", 0),
			help: "Errors on the PCIe link that made it recover; a rising value points at slot, riser or card."},
	}
}

// netdevMatch is where an ethtool string goes.
type netdevMatch struct {
	row    int
	rank   int // of strings for the same row and label values, the lowest is used
	scale  float64
	values []string
}

// netdevTable turns the rows into metrics, and into an index of the strings
// they are made of.
func netdevTable(rows []netdevRow) (metrics []Metric, index map[string]netdevMatch) {
	metrics, index = make([]Metric, len(rows)), make(map[string]netdevMatch)
	for i, r := range rows {
		m := Metric{Name: r.name, Help: r.help, Kind: r.kind, Ref: r.ref, Labels: append([]string{"rail", "netdev"}, r.labels...)}
		if r.file != "" {
			m.From = []Origin{{Name: r.file, Scale: r.scale}}
		}
		for rank, s := range r.strings {
			m.From = append(m.From, Origin{Name: s.name, Scale: s.scale})
			for digit := range 8 {
				put := func(text string) string { return strings.ReplaceAll(text, "#", strconv.Itoa(digit)) }
				match := netdevMatch{row: i, rank: rank, scale: s.scale}
				for _, v := range s.values {
					match.values = append(match.values, put(v))
				}
				if index[put(s.name)] = match; !strings.Contains(s.name, "#") {
					break
				}
			}
		}
		metrics[i] = m
	}
	return metrics, index
}
