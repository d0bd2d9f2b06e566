package netdev

import (
	"strconv"
	"strings"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/rtnl"
)

type table struct {
	collector.Table
	up, carrier, speed *collector.Metric
	numbers            []number
	statistics         map[string]statistic // keyed by the driver's name

	fecMode, fecCorrected, fecUncorrectable, fecBits *collector.Metric
	fecCodewords, fecLaneCodewords                   *collector.Metric // by number of errors
	moduleTemperature, modulePower                   *collector.Metric
}

type number struct {
	row   *collector.Metric
	file  string // relative to the interface's directory
	index int    // netlink's index of the same number
}

type statistic struct {
	row    *collector.Metric
	rank   int // if several statistics have the same row and label values, the lowest rank is used
	origin collector.Origin
	values []string // values of the row's labels after rail and netdev
}

const (
	refStats = "Documentation/ABI/testing/sysfs-class-net-statistics"
	refMlx5  = "Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst"
	refBnxt  = "drivers/net/ethernet/broadcom/bnxt/bnxt_ethtool.c"
)

func newTable() *table {
	t := &table{Table: collector.Table{Source: "netdev"}, statistics: map[string]statistic{}}
	g := t.Group("Documentation/ABI/testing/sysfs-class-net", "rail", "netdev")
	t.up = g.Gauge("netdev_up", "1 while the interface's operational state is up, 0 in any other; absent while the "+
		"driver does not report it (unknown).", "operstate")
	t.carrier = g.Gauge("netdev_carrier", "1 with carrier, else 0; absent while administratively down.", "carrier")
	t.speed = g.Scaled(125000, "speed").Gauge("netdev_speed_bytes_per_second", "Negotiated link speed, that of all "+
		"members together on a bond; absent while it is unknown, as on a link that is down.")
	t.number(g, "carrier_changes", "netdev_carrier_changes_total", "Carrier changes; a rising value is a "+
		"flapping link.")
	t.number(g, "carrier_down_count", "netdev_carrier_down_total", "Times that the carrier was lost.")
	s := g.Ref(refStats)
	t.number(s, "statistics/rx_bytes", "netdev_receive_bytes_total", "Bytes that the kernel's network stack "+
		"received; most drivers leave RDMA traffic out, software RDMA does not.")
	t.number(s, "statistics/tx_bytes", "netdev_transmit_bytes_total", "Bytes that the kernel's network stack "+
		"sent; most drivers leave RDMA traffic out, software RDMA does not.")
	t.number(s, "statistics/rx_packets", "netdev_receive_packets_total", "Packets that the network stack "+
		"received.")
	t.number(s, "statistics/tx_packets", "netdev_transmit_packets_total", "Packets that the network stack sent.")
	t.number(s, "statistics/rx_errors", "netdev_receive_errors_total", "Packets received damaged or otherwise "+
		"bad; a rising value points to cable, optics or switch port.")
	t.number(s, "statistics/tx_errors", "netdev_transmit_errors_total", "Packets that could not be sent.")
	t.number(s, "statistics/rx_dropped", "netdev_receive_dropped_total", "Good packets that the host dropped.")
	t.number(s, "statistics/tx_dropped", "netdev_transmit_dropped_total", "Packets dropped before transmission.")
	t.number(s, "statistics/rx_missed_errors", "netdev_receive_missed_total", "Packets lost because the host had "+
		"no buffer for them; a rising value means that the host is too slow.")
	t.number(s, "statistics/rx_crc_errors", "netdev_receive_crc_errors_total", "Packets received with a bad "+
		"checksum; a rising value points to cable or optics.")
	t.addStatistics(g.Ref(refMlx5), g.Ref(refMlx5+", "+refBnxt))
	t.addModule(g)
	return t
}

func (t *table) number(g collector.Group, file, name, help string) {
	index, _ := rtnl.Index(file) // a test compares each
	t.numbers = append(t.numbers, number{g.Counter(name, help, file), file, index})
}

// counter adds a row of ethtool statistics, with a scale unless it is 0. In the driver's names, % stands for r and
// t, and # for a digit from 0 to 7. The label values after rail and netdev are the digit, the text after =, and the
// direction. If several names match the same label values, the first that a driver has is used.
func (t *table) counter(g collector.Group, scale float64, name, help string, from ...string) {
	t.index(g.Counter(name, help), scale, from)
}

// index adds the driver's names to a row, and each name to the statistics.
func (t *table) index(row *collector.Metric, scale float64, from []string) {
	for _, pattern := range from {
		pattern, value, hasValue := strings.Cut(pattern, "=")
		for _, direction := range []string{"receive", "transmit"}[:1+strings.Count(pattern, "%")] {
			name := strings.Replace(pattern, "%", direction[:1], 1)
			s := statistic{row: row, rank: len(row.From), origin: collector.Origin{Name: name, Scale: scale}}
			row.From = append(row.From, s.origin)
			for digit := range 8 {
				s.values = nil
				if strings.Contains(name, "#") {
					s.values = append(s.values, strconv.Itoa(digit))
				}
				if hasValue {
					s.values = append(s.values, value)
				}
				if name != pattern {
					s.values = append(s.values, direction)
				}
				t.statistics[strings.Replace(name, "#", strconv.Itoa(digit), 1)] = s
			}
		}
	}
}

// addFEC adds the rows of forward error correction.
func (t *table) addFEC(both collector.Group) {
	fec := both.Ref("include/uapi/linux/ethtool.h, net/ethtool/fec.c, " + refBnxt)
	t.fecMode = fec.With("mode").Gauge("netdev_fec_info", "Active forward error correction of the port, always 1: "+
		"rs, baser, llrs, off, auto, or none where the port has no modes. Read every 30 s and when the carrier "+
		"changed; absent while it is unknown.", "ETHTOOL_GFECPARAM")
	t.fecCorrected = fec.Counter("netdev_fec_corrected_blocks_total", "Blocks (codewords) that forward error "+
		"correction corrected; a rising rate means that the link degrades. Read every 30 s, by netlink (Linux 5.13), "+
		"unless it is one of the driver's statistics.", "ETHTOOL_A_FEC_STAT_CORRECTED")
	t.index(t.fecCorrected, 0, []string{"rx_fec_corrected_blocks"})
	t.fecUncorrectable = fec.Counter("netdev_fec_uncorrectable_blocks_total", "Blocks (codewords) that forward error "+
		"correction could not correct; each loses packets. Read as the corrected ones are.",
		"ETHTOOL_A_FEC_STAT_UNCORR")
	t.index(t.fecUncorrectable, 0, []string{"rx_fec_uncorrectable_blocks"})
	t.fecBits = fec.Counter("netdev_phy_fec_corrected_errors_total", "Bits that forward error correction corrected; "+
		"some are normal at 100 Gb/s and more, a rising rate means that the link degrades. One of the driver's "+
		"statistics, else read every 30 s by netlink (Linux 5.13).", "ETHTOOL_A_FEC_STAT_CORR_BITS")
	t.index(t.fecBits, 0, []string{"rx_corrected_bits_phy", "rx_corrected_bits"})
	t.fecCodewords = fec.With("errors").Counter("netdev_fec_codewords_total", "Codewords received with this number of "+
		"symbol errors, from Linux 6.18 on where the driver counts them. Codewords near the most that the code "+
		"corrects (15 errors at 50 Gb/s per lane and more, 7 at 25) show how little margin is left. Read every 30 s.",
		"ETHTOOL_A_FEC_HIST_BIN_VAL")
	t.fecLaneCodewords = fec.With("errors", "lane").Counter("netdev_fec_lane_codewords_total", "Codewords of a "+
		"lane with this number of symbol errors, where the driver counts lanes.", "ETHTOOL_A_FEC_HIST_BIN_VAL_PER_LANE")
}

// addModule adds the rows of modules.
func (t *table) addModule(g collector.Group) {
	module := g.Ref("net/ethtool/eeprom.c, SFF-8472, SFF-8636, CMIS 5.2")
	t.moduleTemperature = module.Gauge("netdev_module_temperature_celsius", "Temperature of the module, with "+
		"--source.netdev.modules and CAP_NET_ADMIN (Linux 5.13). Read every 30 s while there is a carrier.",
		"ETHTOOL_A_MODULE_EEPROM_DATA")
	t.modulePower = module.With("lane", "direction").Gauge("netdev_module_power_watts", "Optical power of a lane of "+
		"the module, 0 without light: receive is the light that arrives, transmit that of the laser. Absent for "+
		"copper. Read with the temperature.", "ETHTOOL_A_MODULE_EEPROM_DATA")
}

// addStatistics adds the rows of ethtool statistics: g is for mlx5, both for mlx5 and bnxt.
func (t *table) addStatistics(g, both collector.Group) {
	priority, direction := both.With("priority", "direction"), g.With("direction")
	t.counter(priority, 0, "port_pause_frames_total", "PFC pause frames per priority: received ones mean that the "+
		"network is congested, sent ones that this host receives too slowly. mlx5 counts only priorities with PFC on.",
		"%x_prio#_pause", "%x_pfc_ena_frames_pri#")
	t.counter(priority, 1e-6, "port_pause_seconds_total", "Time for which PFC paused a priority: receive is time in "+
		"which this port could not send; at a rate near 1 it is blocked.", "%x_prio#_pause_duration",
		"pfc_pri#_%x_duration_us")
	t.counter(both.With("direction"), 0, "port_global_pause_frames_total", "Pause frames of the whole port (IEEE "+
		"802.3x), which pause all priorities at once; any on a port that should use PFC is a misconfiguration.",
		"%x_global_pause", "%x_pause_frames")
	t.counter(direction, 1e-6, "port_global_pause_seconds_total", "Time in which the whole port was paused.",
		"%x_global_pause_duration")
	t.counter(g.With("severity"), 0, "port_pause_storm_events_total", "Times that this host paused the network for "+
		"long: severity error means so long that the adapter stopped sending pause frames and drops instead.",
		"tx_pause_storm_warning_events=warning", "tx_pause_storm_error_events=error")
	t.counter(g.With("priority", "cause"), 0, "port_priority_receive_discards_total", "Packets received and "+
		"discarded for lack of buffers, per priority; each costs RoCE a retransmission. The causes may overlap, so "+
		"do not add them up.",
		"rx_prio#_buf_discard=host_buffer", "rx_prio#_cong_discard=host_congestion", "rx_prio#_discards=port_buffer")
	t.counter(g.With("priority"), 0, "port_priority_ecn_marked_total", "Packets that this adapter marked as "+
		"congested, because the host received them too slowly.", "rx_prio#_marked")
	t.counter(priority, 0, "port_priority_bytes_total", "Bytes on the physical port per priority; RoCE outside the "+
		"lossless priority is a misconfiguration.", "%x_prio#_bytes", "%x_bytes_pri#")
	t.counter(priority, 0, "port_priority_packets_total", "Packets on the physical port.", "%x_prio#_packets",
		"%x_packets_pri#")
	t.counter(g, 0, "netdev_receive_out_of_buffer_total", "Times that a receive queue of the network stack had no "+
		"buffer for a packet; a rising value means that the host is too slow.", "rx_out_of_buffer")
	t.counter(g, 0, "netdev_device_out_of_buffer_total", "Times that a queue of the device had no buffer.",
		"dev_out_of_buffer")
	t.counter(direction, 0, "netdev_phy_bytes_total", "Bytes on the physical port: RDMA, network stack and every "+
		"function on it; functions that share a port show the same.", "%x_bytes_phy")
	t.counter(direction, 0, "netdev_phy_packets_total", "Packets on the physical port.", "%x_packets_phy")
	t.counter(direction, 0, "netdev_phy_discards_total", "Packets discarded on the physical port: received for lack "+
		"of buffers, which is congestion of this adapter; transmitted because of link down or pause.",
		"%x_discards_phy")
	t.counter(both, 0, "netdev_phy_crc_errors_total", "Packets received on the physical port with a bad checksum; a "+
		"rising value points to cable or optics.", "rx_crc_errors_phy", "rx_fcs_err_frames")
	t.counter(g, 0, "netdev_phy_symbol_errors_total", "Symbols that forward error correction could not correct; a "+
		"rising value loses packets: replace cable or optics.", "rx_pcs_symbol_err_phy")
	t.addFEC(both)
	t.counter(g, 1.0/8, "netdev_phy_receivable_bytes_total", "Bytes that could have been received; divide corrected "+
		"bits and symbol errors by 8 times this.", "rx_bits_phy")
	t.counter(g.With("lane"), 0, "netdev_phy_lane_errors_total", "Raw errors per lane before correction; one lane far "+
		"above the others points to one fibre or contact.", "rx_err_lane_#_phy")
	t.counter(both, 0, "netdev_phy_link_down_events_total", "Times that the physical link went down; a rising value "+
		"is a flapping link.", "link_down_events_phy", "link_down_events")
	t.counter(g.With("cast", "direction"), 0, "netdev_rdma_bytes_total", "RDMA bytes of this function.",
		"%x_vport_rdma_unicast_bytes=unicast", "%x_vport_rdma_multicast_bytes=multicast")
	t.counter(g.With("cast", "direction"), 0, "netdev_rdma_packets_total", "RDMA packets of this function.",
		"%x_vport_rdma_unicast_packets=unicast", "%x_vport_rdma_multicast_packets=multicast")
	t.counter(direction, 0, "netdev_non_rdma_unicast_bytes_total", "Unicast bytes of this function that are not RDMA: "+
		"mostly TCP. A rise where RDMA falls is a job that fell back.", "%x_vport_unicast_bytes")
	t.counter(direction, 0, "netdev_non_rdma_unicast_packets_total", "Unicast packets that are not RDMA.",
		"%x_vport_unicast_packets")
	stalled := g.With("operation").Gauge("netdev_pci_stalled_ratio", "Part of the last second in which the adapter "+
		"wanted to use PCIe and could not for lack of credits; a rising value means that the host's PCIe or memory is "+
		"the bottleneck.")
	t.index(stalled, 0.01, []string{"outbound_pci_stalled_rd=read", "outbound_pci_stalled_wr=write"})
	t.counter(g.With("operation"), 0, "netdev_pci_stalled_seconds_total", "Seconds in which the adapter could not "+
		"use PCIe for more than 30 % of the time.", "outbound_pci_stalled_rd_events=read",
		"outbound_pci_stalled_wr_events=write")
	t.counter(g, 0, "netdev_pci_buffer_overflow_packets_total", "Packets dropped because PCIe was too slow.",
		"outbound_pci_buffer_overflow")
	t.counter(direction, 0, "netdev_pci_signal_integrity_errors_total", "Errors on the PCIe link that made it "+
		"recover; a rising value points to slot, riser or card.", "%x_pci_signal_integrity")
}
