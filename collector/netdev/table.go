package netdev

import (
	"slices"
	"strconv"
	"strings"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/rtnl"
)

type table struct {
	collector.Table
	up, carrier, speed *collector.Metric
	numbers            []number
	statistics         map[string]match // by the driver's name
}

// number is a row of a file that is read as a number without a lock.
type number struct {
	row   *collector.Metric
	file  string // below the interface's directory
	index int    // of the same number by netlink
}

// statistic is a driver's name for an ethtool statistic. A # in it stands for a
// digit from 0 to 7, which takes the place of # in the label values.
type statistic struct {
	name   string
	scale  float64
	values []string // of the row's labels after rail and netdev
}

// match is where an ethtool statistic goes.
type match struct {
	row    *collector.Metric
	rank   int // of statistics for the same row and label values, the lowest is used
	origin collector.Origin
	values []string
}

const (
	refStats  = "Documentation/ABI/testing/sysfs-class-net-statistics"
	refMlx5   = "Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst"
	refBnxt   = "drivers/net/ethernet/broadcom/bnxt/bnxt_ethtool.c"
	microsecs = 1e-6
)

func newTable() *table {
	t := &table{statistics: map[string]match{}}
	g := t.Group("Documentation/ABI/testing/sysfs-class-net", "rail", "netdev")
	t.up = g.Gauge("netdev_up", "1 while the interface's operational state is up, 0 in any other; absent while the "+
		"driver does not report it (unknown).", collector.From("operstate")...)
	t.carrier = g.Gauge("netdev_carrier", "1 while the interface has carrier; absent while it is administratively "+
		"down.", collector.From("carrier")...)
	t.speed = g.Gauge("netdev_speed_bytes_per_second", "Link speed as negotiated, of all members together on a bond; "+
		"absent while it is unknown, as on a link that is down.", collector.Scaled(125000, "speed")...)
	t.number(g.Gauge, "mtu", "netdev_mtu_bytes", "Largest packet that the interface takes; RoCE uses the next "+
		"smaller of 1024, 2048 and 4096.")
	t.number(g.Counter, "carrier_changes", "netdev_carrier_changes_total", "Times that the carrier was gained or "+
		"lost; a rising value is a flapping link.")
	t.number(g.Counter, "carrier_up_count", "netdev_carrier_up_total", "Times that the carrier was gained.")
	t.number(g.Counter, "carrier_down_count", "netdev_carrier_down_total", "Times that the carrier was lost.")
	s := g.Ref(refStats)
	t.number(s.Counter, "statistics/rx_bytes", "netdev_receive_bytes_total", "Bytes that the kernel's network stack "+
		"received; most drivers leave RDMA traffic out, software RDMA does not.")
	t.number(s.Counter, "statistics/tx_bytes", "netdev_transmit_bytes_total", "Bytes that the kernel's network stack "+
		"sent; most drivers leave RDMA traffic out, software RDMA does not.")
	t.number(s.Counter, "statistics/rx_packets", "netdev_receive_packets_total", "Packets that the kernel's network "+
		"stack received.")
	t.number(s.Counter, "statistics/tx_packets", "netdev_transmit_packets_total", "Packets that the kernel's network "+
		"stack sent.")
	t.number(s.Counter, "statistics/rx_errors", "netdev_receive_errors_total", "Packets received damaged or "+
		"otherwise bad; a rising value points at cable, optics or switch port.")
	t.number(s.Counter, "statistics/tx_errors", "netdev_transmit_errors_total", "Packets that could not be sent.")
	t.number(s.Counter, "statistics/rx_dropped", "netdev_receive_dropped_total", "Good packets received but dropped "+
		"by the host.")
	t.number(s.Counter, "statistics/tx_dropped", "netdev_transmit_dropped_total", "Packets dropped on their way out.")
	t.number(s.Counter, "statistics/rx_missed_errors", "netdev_receive_missed_total", "Packets lost because the host "+
		"had no buffer for them; a rising value means that the host is too slow.")
	t.number(s.Counter, "statistics/rx_crc_errors", "netdev_receive_crc_errors_total",
		"Packets received with a bad checksum; a rising value points at cable or optics.")
	t.number(s.Counter, "statistics/multicast", "netdev_receive_multicast_packets_total", "Multicast packets received.")
	t.number(s.Counter, "statistics/tx_carrier_errors", "netdev_transmit_carrier_errors_total",
		"Packets not sent because the carrier was lost.")
	t.addStatistics(g.Ref(refMlx5), g.Ref(refMlx5+", "+refBnxt))
	return t
}

// number adds a row of a file.
func (t *table) number(add func(name, help string, from ...collector.Origin) *collector.Metric,
	file, name, help string) {
	index, _ := rtnl.Index(file) // a test compares each
	t.numbers = append(t.numbers, number{add(name, help, collector.From(file)...), file, index})
}

// counter adds a row of ethtool statistics; the first that a driver has is used,
// for each set of label values.
func (t *table) counter(g collector.Group, name, help string, from ...statistic) {
	t.index(g.Counter(name, help, origins(from)...), from)
}

func (t *table) gauge(g collector.Group, name, help string, from ...statistic) {
	t.index(g.Gauge(name, help, origins(from)...), from)
}

func origins(list []statistic) (from []collector.Origin) {
	for _, s := range list {
		from = append(from, collector.Origin{Name: s.name, Scale: s.scale})
	}
	return from
}

// index enters every name that the statistics of a row can have.
func (t *table) index(row *collector.Metric, list []statistic) {
	for rank, s := range list {
		for digit := range 8 {
			put := func(text string) string { return strings.ReplaceAll(text, "#", strconv.Itoa(digit)) }
			m := match{row: row, rank: rank, origin: row.From[rank]}
			for _, v := range s.values {
				m.values = append(m.values, put(v))
			}
			if t.statistics[put(s.name)] = m; !strings.Contains(s.name, "#") {
				break
			}
		}
	}
}

func one(name string, scale float64, values ...string) statistic {
	return statistic{name, scale, values}
}

func names(names ...string) (list []statistic) {
	for _, n := range names {
		list = append(list, one(n, 0))
	}
	return list
}

// mlx5Both is what mlx5 counts once in each direction, as rx_ and tx_ of a name.
func mlx5Both(name string, scale float64, more ...string) []statistic {
	return directions("rx_"+name, "tx_"+name, scale, more...)
}

// bnxtBoth is what bnxt counts for each priority in each direction.
func bnxtBoth(before, after string, scale float64) []statistic {
	return directions(before+"rx"+after, before+"tx"+after, scale, "#")
}

func directions(receive, transmit string, scale float64, more ...string) []statistic {
	return []statistic{{receive, scale, append(slices.Clip(more), "receive")},
		{transmit, scale, append(slices.Clip(more), "transmit")}}
}

// addStatistics adds the rows of ethtool statistics, of mlx5 alone or of mlx5 and
// bnxt.
func (t *table) addStatistics(mlx5, both collector.Group) {
	t.counter(both.With("priority", "direction"), "port_pause_frames_total", "PFC pause frames per priority: "+
		"received ones mean that the network is congested, sent ones that this host receives too slowly. mlx5 counts "+
		"only priorities with PFC on.",
		slices.Concat(mlx5Both("prio#_pause", 0, "#"), bnxtBoth("", "_pfc_ena_frames_pri#", 0))...)
	t.counter(both.With("priority", "direction"), "port_pause_seconds_total", "Time for which PFC paused a priority: "+
		"receive is time in which this port could not send; at a rate near 1 it is blocked.",
		slices.Concat(mlx5Both("prio#_pause_duration", microsecs, "#"),
			bnxtBoth("pfc_pri#_", "_duration_us", microsecs))...)
	t.counter(both.With("priority", "direction"), "port_pause_transitions_total", "Times that PFC resumed a priority "+
		"after pausing it.",
		slices.Concat(mlx5Both("prio#_pause_transition", 0, "#"), bnxtBoth("pfc_pri#_", "_transitions", 0))...)
	t.counter(both.With("direction"), "port_global_pause_frames_total", "Pause frames of the whole port (IEEE "+
		"802.3x), which pause all priorities at once; any on a port that should use PFC is a misconfiguration.",
		slices.Concat(mlx5Both("global_pause", 0), mlx5Both("pause_frames", 0))...)
	t.counter(mlx5.With("direction"), "port_global_pause_seconds_total", "Time for which pause frames paused the "+
		"whole port.", mlx5Both("global_pause_duration", microsecs)...)
	t.counter(mlx5.With("direction"), "port_global_pause_transitions_total", "Times that the whole port resumed "+
		"after a pause.", mlx5Both("global_pause_transition", 0)...)
	t.counter(mlx5.With("severity"), "port_pause_storm_events_total", "Times that this host paused the network for "+
		"long: severity error means so long that the adapter stopped sending pause frames and drops instead.",
		one("tx_pause_storm_warning_events", 0, "warning"), one("tx_pause_storm_error_events", 0, "error"))
	t.counter(mlx5.With("priority", "cause"), "port_priority_receive_discards_total", "Packets received and "+
		"discarded for lack of buffers, per priority; RoCE pays for each with a retransmission. The causes may "+
		"overlap, so do not add them up.", one("rx_prio#_buf_discard", 0, "#", "host_buffer"),
		one("rx_prio#_cong_discard", 0, "#", "host_congestion"), one("rx_prio#_discards", 0, "#", "port_buffer"))
	t.counter(mlx5.With("priority"), "port_priority_ecn_marked_total", "Packets that this adapter marked as "+
		"congested, because the host received them too slowly.", one("rx_prio#_marked", 0, "#"))
	t.counter(both.With("priority", "direction"), "port_priority_bytes_total", "Bytes on the physical port per "+
		"priority; RoCE outside the lossless priority is a misconfiguration.",
		slices.Concat(mlx5Both("prio#_bytes", 0, "#"), mlx5Both("bytes_pri#", 0, "#"))...)
	t.counter(both.With("priority", "direction"), "port_priority_packets_total", "Packets on the physical port per "+
		"priority.", slices.Concat(mlx5Both("prio#_packets", 0, "#"), mlx5Both("packets_pri#", 0, "#"))...)
	t.counter(mlx5, "netdev_receive_out_of_buffer_total", "Times that a receive queue of the network stack had no "+
		"buffer for a packet; a rising value means that the host is too slow.", names("rx_out_of_buffer")...)
	t.counter(mlx5, "netdev_device_out_of_buffer_total", "Times that a queue owned by the device itself had no buffer.",
		names("dev_out_of_buffer")...)
	t.counter(mlx5.With("direction"), "netdev_phy_bytes_total", "Bytes on the physical port: RDMA, network stack and "+
		"every function on it; functions that share a port show the same.", mlx5Both("bytes_phy", 0)...)
	t.counter(mlx5.With("direction"), "netdev_phy_packets_total", "Packets on the physical port, of every function "+
		"on it.", mlx5Both("packets_phy", 0)...)
	t.counter(mlx5.With("direction"), "netdev_phy_discards_total", "Packets discarded on the physical port: received "+
		"for lack of buffers, which is congestion of this adapter; transmitted because of link down or pause.",
		mlx5Both("discards_phy", 0)...)
	t.counter(both, "netdev_phy_crc_errors_total", "Packets received on the physical port with a bad checksum; a "+
		"rising value points at cable or optics.", names("rx_crc_errors_phy", "rx_fcs_err_frames")...)
	t.counter(mlx5, "netdev_phy_symbol_errors_total", "Symbols that forward error correction could not correct; a "+
		"rising value loses packets: replace cable or optics.", names("rx_pcs_symbol_err_phy")...)
	t.counter(mlx5, "netdev_phy_fec_corrected_errors_total", "Bits that forward error correction corrected; some are "+
		"normal at 100 Gb/s and more, a rising rate means that the link degrades.", names("rx_corrected_bits_phy")...)
	t.counter(mlx5, "netdev_phy_receivable_bytes_total", "Bytes that could have been received; what corrected errors "+
		"and symbol errors are to be divided by, times 8.", one("rx_bits_phy", 1./8))
	t.counter(mlx5.With("lane"), "netdev_phy_lane_errors_total", "Raw errors per lane before correction; one lane "+
		"far above the others points at one fibre or contact.", one("rx_err_lane_#_phy", 0, "#"))
	t.counter(both, "netdev_phy_link_down_events_total", "Times that the physical link went down; a rising value is "+
		"a flapping link.", names("link_down_events_phy", "link_down_events")...)
	t.counter(mlx5.With("cast", "direction"), "netdev_rdma_bytes_total", "RDMA bytes of this function.",
		slices.Concat(mlx5Both("vport_rdma_unicast_bytes", 0, "unicast"),
			mlx5Both("vport_rdma_multicast_bytes", 0, "multicast"))...)
	t.counter(mlx5.With("cast", "direction"), "netdev_rdma_packets_total", "RDMA packets of this function.",
		slices.Concat(mlx5Both("vport_rdma_unicast_packets", 0, "unicast"),
			mlx5Both("vport_rdma_multicast_packets", 0, "multicast"))...)
	t.counter(mlx5.With("direction"), "netdev_non_rdma_unicast_bytes_total", "Unicast bytes of this function that "+
		"are not RDMA: mostly TCP. A rise where RDMA falls is a job that fell back.",
		mlx5Both("vport_unicast_bytes", 0)...)
	t.counter(mlx5.With("direction"), "netdev_non_rdma_unicast_packets_total", "Unicast packets of this function "+
		"that are not RDMA.", mlx5Both("vport_unicast_packets", 0)...)
	t.gauge(mlx5.With("operation"), "netdev_pci_stalled_ratio", "Part of the last second in which the adapter wanted "+
		"to use PCIe and could not for lack of credits; a rising value means that the host's PCIe or memory is the "+
		"bottleneck.", one("outbound_pci_stalled_rd", 0.01, "read"), one("outbound_pci_stalled_wr", 0.01, "write"))
	t.counter(mlx5.With("operation"), "netdev_pci_stalled_seconds_total", "Seconds in which the adapter could not "+
		"use PCIe for more than 30 % of the time.", one("outbound_pci_stalled_rd_events", 0, "read"),
		one("outbound_pci_stalled_wr_events", 0, "write"))
	t.counter(mlx5, "netdev_pci_buffer_overflow_packets_total", "Packets dropped because PCIe was too slow.",
		names("outbound_pci_buffer_overflow")...)
	t.counter(mlx5.With("direction"), "netdev_pci_signal_integrity_errors_total", "Errors on the PCIe link that made "+
		"it recover; a rising value points at slot, riser or card.", mlx5Both("pci_signal_integrity", 0)...)
}
