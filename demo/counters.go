package demo

import (
	"os"
	"strconv"

	"github.com/railscope/railscope/internal/ethtool"
	"github.com/railscope/railscope/internal/ethtool/ethtooltest"
)

// initialBytes is what every port has carried when the demo begins: real adapters have been used before.
const initialBytes = 1 << 42

// counter is a file of a rail that changes.
type counter struct {
	name  string
	value uint64
}

// counters returns a rail's files that change, always in this order.
func (n *Node) counters(r int) [14]counter {
	p := n.demo.links[r].port(n.index)
	sent, received := p.sent[byRDMA], p.received[byRDMA]
	const initialPackets = initialBytes / rocePayload
	return [...]counter{
		{"counters/port_xmit_data", (initialBytes + sent.bytes) / 4}, // in words
		{"counters/port_rcv_data", (initialBytes + received.bytes) / 4},
		{"counters/port_xmit_packets", initialPackets + sent.packets},
		{"counters/port_rcv_packets", initialPackets + received.packets},
		{"counters/unicast_xmit_packets", initialPackets + sent.packets},
		{"counters/unicast_rcv_packets", initialPackets + received.packets},
		{"hw_counters/np_ecn_marked_roce_packets", p.marked},
		{"hw_counters/np_cnp_sent", p.cnps},
		{"hw_counters/rp_cnp_handled", p.slowed},
		{"hw_counters/rx_write_requests", received.bytes >> 20 & (1<<32 - 1)},
		{"statistics/tx_bytes", p.sent[byTCP].bytes},
		{"statistics/rx_bytes", p.received[byTCP].bytes},
		{"statistics/tx_packets", p.sent[byTCP].packets},
		{"statistics/rx_packets", p.received[byTCP].packets},
	}
}

// counterFile is the file of a counter. It is written in place, because readers keep it open.
type counterFile struct {
	file    *os.File
	content []byte // nil: nothing was written yet
	value   uint64
}

// write writes a value that has changed; a longer one, as values only grow. On an error the file keeps its content.
func (f *counterFile) write(value uint64) {
	if f.content != nil && f.value == value {
		return
	}
	f.content = append(strconv.AppendUint(f.content[:0], value, 10), '\n')
	if _, err := f.file.WriteAt(f.content, 0); err == nil {
		f.value = value
	}
}

func (n *Node) update() {
	for r := range n.files {
		for i, c := range n.counters(r) {
			n.files[r][i].write(c.value)
		}
	}
}

// Ethtool answers for the drivers of the node's interfaces (drivers/net/ethernet/mellanox/mlx5/core/en_stats.c).
func (n *Node) Ethtool() ethtool.Ioctl {
	kernel := &ethtooltest.Kernel{Netdevs: map[string]*ethtooltest.Netdev{}}
	for r := range Rails {
		of := &ethtooltest.Netdev{Driver: driver, Bus: nicAddress(r)}
		of.Before = func(uint32) { of.Stats = n.statistics(r) }
		kernel.Netdevs[netdev(r)] = of
	}
	return kernel.Ioctl
}

// statistics returns those of one interface, always in this order.
func (n *Node) statistics(r int) []ethtooltest.Stat {
	p := n.demo.links[r].port(n.index)
	list := []ethtooltest.Stat{
		{Name: "rx_prio3_pause", Value: p.paused.packets}, {Name: "rx_prio3_pause_duration", Value: p.paused.bytes},
		{Name: "tx_prio3_pause"}, {Name: "tx_prio3_pause_duration"},
		{Name: "rx_out_of_buffer"}, {Name: "rx_crc_errors_phy"}, {Name: "link_down_events_phy"},
	}
	for i, prefix := range []string{"rx_", "tx_"} {
		of := [][2]traffic{p.received, p.sent}[i]
		rdma, tcp := of[byRDMA], of[byTCP]
		for _, s := range []struct {
			name    string
			traffic traffic
		}{
			{"vport_unicast", tcp}, {"vport_rdma_unicast", rdma}, {"prio3", rdma}, {"prio0", tcp},
		} {
			list = append(list, ethtooltest.Stat{Name: prefix + s.name + "_bytes", Value: s.traffic.bytes},
				ethtooltest.Stat{Name: prefix + s.name + "_packets", Value: s.traffic.packets})
		}
		list = append(list, ethtooltest.Stat{Name: prefix + "bytes_phy", Value: rdma.bytes + tcp.bytes},
			ethtooltest.Stat{Name: prefix + "packets_phy", Value: rdma.packets + tcp.packets},
			ethtooltest.Stat{Name: prefix + "discards_phy"})
	}
	return list
}
