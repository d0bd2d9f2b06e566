package demo

import (
	"io"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/railscope/railscope/internal/ethtool"
	"github.com/railscope/railscope/internal/ethtool/ethtooltest"
)

// Payload of a packet and its overhead, in bytes: RoCE v2 over IPv4 at the simulated MTU (Ethernet, IPv4, UDP, BTH
// and ICRC; IBTA 1.5, annex A17), and a TCP segment on an interface with an MTU of 9000.
const (
	rocePayload, roceHeader = 4096, 58
	tcpPayload, tcpHeader   = 8948, 66
)

// tcpPart is the share of a rail that TCP gets: a kernel does not fill a fast link with one connection.
const tcpPart = 0.4

const (
	piece = 64 << 10         // bytes that are passed on at once
	small = rocePayload      // a message up to this size ends before its sender can be late
	slack = time.Millisecond // time between two pieces of a sender that has more to send
)

// traffic counts what a port has carried in one direction.
type traffic struct{ bytes, packets uint64 }

func (t *traffic) add(bytes, packets uint64) { t.bytes, t.packets = t.bytes+bytes, t.packets+packets }

// port is one node's end of a link.
type port struct {
	sent, received       [2]traffic // indexed by transport
	marked, cnps, slowed uint64     // ECN-marked packets; CNPs sent and received
	paused               traffic    // pause frames, and µs instead of bytes
	down                 bool
}

const (
	byRDMA = iota
	byTCP
)

// link connects a rail of one node with the same rail of the other: full duplex, shaped, and counted at both ends.
type link struct {
	rate float64 // bytes per second on the wire in one direction, with headers

	mu    sync.Mutex // protects all following fields
	ports [Nodes]port
	free  [Nodes]time.Time     // time at which the wire is free, by sender
	late  [Nodes]time.Duration // delay of the sender
}

func (l *link) port(node int) port {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ports[node]
}

// carry counts payload that one node sends, in whole packets.
func (l *link) carry(from, transport int, payload float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	bytes, packets := onWire(transport, payload)
	l.ports[from].sent[transport].add(bytes, packets)
	l.ports[1-from].received[transport].add(bytes, packets)
}

func onWire(transport int, payload float64) (bytes, packets uint64) {
	each, header := rocePayload, roceHeader
	if transport == byTCP {
		each, header = tcpPayload, tcpHeader
	}
	packets = uint64(math.Ceil(payload / float64(each)))
	return uint64(payload) + packets*uint64(header), packets
}

// reserve takes the wire for a number of bytes, and returns the time until they are sent. A sender that is late
// because this machine was busy finds the wire as if it had been on time; one that had nothing to send finds it
// idle.
func (l *link) reserve(from int, bytes, rate float64) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if idle := now.Sub(l.free[from]); idle > l.late[from]+slack {
		l.free[from] = now
	}
	l.free[from] = l.free[from].Add(time.Duration(bytes / rate * float64(time.Second)))
	l.late[from] = max(now.Sub(l.free[from]), 0) // still to be caught up
	return l.free[from].Sub(now)
}

// delayed notes that a sender was delayed for longer than its wait.
func (l *link) delayed(from int, by time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late[from] = max(l.late[from], by)
}

// shaped is a writer that passes data on no faster than the link carries it, and counts it at both ends.
type shaped struct {
	link      *link
	from      int
	transport int
	to        io.Writer
	before    func() // called before each piece
}

// Write implements [io.Writer]. It waits a few milliseconds at a time, so that it ends soon after its connection.
func (s *shaped) Write(p []byte) (n int, err error) {
	rate := s.link.rate
	if s.transport == byTCP {
		rate *= tcpPart
	}
	for len(p) > 0 {
		s.before()
		part := p[:min(len(p), piece)]
		start := time.Now()
		bytes, _ := onWire(s.transport, float64(len(part)))
		wait := s.link.reserve(s.from, float64(bytes), rate)
		if wait > 0 {
			time.Sleep(wait)
		}
		s.link.carry(s.from, s.transport, float64(len(part)))
		m, err := s.to.Write(part)
		n += m
		if err != nil {
			return n, err
		}
		if len(part) > small {
			s.link.delayed(s.from, time.Since(start)-max(wait, 0))
		}
		p = p[len(part):]
	}
	return n, nil
}

// initialBytes is the start value of every port's byte counters: real adapters have been used before.
const initialBytes = 1 << 42

// counter is a file of a rail that changes.
type counter struct {
	name  string
	value uint64
}

// counters returns the files of a rail that change, always in this order.
func (n *Node) counters(r int) [14]counter {
	p := n.demo.links[r].port(n.index)
	sent, received := p.sent[byRDMA], p.received[byRDMA]
	const initialPackets = initialBytes / rocePayload
	return [...]counter{
		{"counters/port_xmit_data", (initialBytes + sent.bytes) / 4}, // in 4-byte words
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

// update writes the counters in place, because readers keep the files open. Values only increase, so no text is
// shorter than the previous one. On an error, a file keeps its content.
func (n *Node) update() {
	for r, files := range n.files {
		counters := n.counters(r)
		for i, f := range files {
			_, _ = f.WriteAt(append(strconv.AppendUint(nil, counters[i].value, 10), '\n'), 0)
		}
	}
}

// Ethtool answers for the drivers of the node's interfaces (drivers/net/ethernet/mellanox/mlx5/core/en_stats.c).
func (n *Node) Ethtool() ethtool.Ioctl {
	kernel := &ethtooltest.Kernel{Netdevs: map[string]*ethtooltest.Netdev{}}
	for r := range Rails {
		of := &ethtooltest.Netdev{Driver: driver, Bus: nicAddress(r)}
		of.Before = func(uint32) error {
			of.Stats = n.statistics(r)
			return nil
		}
		kernel.Netdevs[netdev(r)] = of
	}
	return kernel.Ioctl
}

// statistics returns the statistics of one interface, always in this order.
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
