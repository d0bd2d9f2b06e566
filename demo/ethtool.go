package demo

import (
	"github.com/railscope/railscope/internal/ethtool"
	"github.com/railscope/railscope/internal/ethtool/ethtooltest"
)

// Ethtool answers for the drivers of the node's interfaces: what they count
// beside the files (drivers/net/ethernet/mellanox/mlx5/core/en_stats.c).
func (n *Node) Ethtool() ethtool.Ioctl {
	kernel := &ethtooltest.Kernel{Netdevs: map[string]*ethtooltest.Netdev{}}
	for r := range Rails {
		of := &ethtooltest.Netdev{Driver: driver, Bus: nicAddress(r)}
		of.Before = func(uint32) { of.Stats = n.statistics(r) }
		kernel.Netdevs[netdev(r)] = of
	}
	return kernel.Ioctl
}

// statistics are those of one interface, always in this order.
func (n *Node) statistics(r int) []ethtooltest.Stat {
	l := n.demo.links[r]
	l.mu.Lock()
	p := l.ports[n.index]
	l.mu.Unlock()
	list := make([]ethtooltest.Stat, 0, 32)
	add := func(name string, value uint64) { list = append(list, ethtooltest.Stat{Name: name, Value: value}) }
	for _, d := range []struct {
		prefix string
		of     [2]traffic
	}{{"rx", p.received}, {"tx", p.sent}} {
		rdma, tcp := d.of[byRDMA], d.of[byTCP]
		add(d.prefix+"_vport_unicast_bytes", tcp.bytes)
		add(d.prefix+"_vport_unicast_packets", tcp.packets)
		add(d.prefix+"_vport_rdma_unicast_bytes", rdma.bytes)
		add(d.prefix+"_vport_rdma_unicast_packets", rdma.packets)
		add(d.prefix+"_bytes_phy", rdma.bytes+tcp.bytes)
		add(d.prefix+"_packets_phy", rdma.packets+tcp.packets)
		add(d.prefix+"_discards_phy", 0)
		add(d.prefix+"_prio3_bytes", rdma.bytes)
		add(d.prefix+"_prio3_packets", rdma.packets)
		add(d.prefix+"_prio0_bytes", tcp.bytes)
		add(d.prefix+"_prio0_packets", tcp.packets)
	}
	add("rx_prio3_pause", p.paused.packets)
	add("rx_prio3_pause_duration", p.paused.bytes)
	add("tx_prio3_pause", 0)
	add("tx_prio3_pause_duration", 0)
	add("rx_out_of_buffer", 0)
	add("rx_crc_errors_phy", 0)
	add("link_down_events_phy", 0)
	return list
}
