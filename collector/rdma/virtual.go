package rdma

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/railscope/railscope/collector"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/sysfs"
)

// maxVirtual is the maximum number of ports of virtual functions: an adapter can have hundreds.
const maxVirtual = 256

// addVirtual adds the rows of virtual functions. There are only a few rows because a node can have hundreds of
// these functions.
func (t *table) addVirtual() {
	g := t.Group(refABI, "device", "port", "pf", "vf")
	t.virtualReceive = g.Scaled(4, "port_rcv_data").Counter("vf_port_receive_bytes_total", "Bytes that a virtual "+
		"function received over RDMA, headers included. pf is the RDMA device of the physical function, or its PCI "+
		"address, vf the number of the virtual function. Only with rails.virtual_functions: report, for at most 256 "+
		"ports.", "rx_bytes", "rdma_rx_bytes", "ip4InOctets + ip6InOctets")
	t.virtualTransmit = g.Scaled(4, "port_xmit_data").Counter("vf_port_transmit_bytes_total", "Bytes that a virtual "+
		"function sent over RDMA, headers included.", "tx_bytes", "rdma_tx_bytes", "ip4OutOctets + ip6OutOctets")
	t.virtual = []*collector.Metric{
		g.Counter("vf_port_receive_packets_total", "Packets that a virtual function received over RDMA.",
			"port_rcv_packets", "rx_pkts", "rdma_rx_packets"),
		g.Counter("vf_port_transmit_packets_total", "Packets that a virtual function sent over RDMA.",
			"port_xmit_packets", "tx_pkts", "rdma_tx_packets"),
		g.Ref(refMlx5).Counter("vf_port_out_of_sequence_packets_total", "Packets that arrived out of order at a "+
			"virtual function; rising means loss.", "out_of_sequence", "out_of_seq_request", "oos_drop_count"),
		g.Ref(refMlx5).Counter("vf_port_packet_sequence_errors_total", "Sequence error NAKs that a virtual function "+
			"received: packets sent were lost.", "packet_seq_err", "seq_err_naks_rcvd", "rcvd_seq_err"),
	}
}

type virtualPort struct {
	table  *table
	port   *rail.Port
	labels []string
	counts []virtualCounter
}

// virtualCounter is the first file of a row that the driver has.
type virtualCounter struct {
	row    *collector.Metric
	origin collector.Origin
	file   sysfs.Attr
}

// readVirtual reads the ports of virtual functions, up to maxVirtual.
func (s *Source) readVirtual(ports []rail.VirtualFunction, emit func(collector.Sample)) []error {
	var over []error
	if len(ports) > maxVirtual {
		over = append(over, &collector.Fault{Reason: sysfs.ReasonTooLarge, Err: fmt.Errorf("%d ports of virtual "+
			"functions, of which the first %d are read: leave others out with rails.exclude", len(ports), maxVirtual)})
		ports = ports[:maxVirtual]
	}
	_, faults := s.virtual.Read(ports, emit)
	return append(faults, over...)
}

func (s *Source) openVirtual(v rail.VirtualFunction) *virtualPort {
	number := ""
	if v.VF >= 0 {
		number = strconv.Itoa(v.VF)
	}
	p := &virtualPort{table: s.table, port: rail.NewPort(s.sysfs, v.Rail, nil),
		labels: []string{v.Device, strconv.Itoa(v.Port), v.PF, number}}
	for _, row := range s.table.virtual {
		if c, found := findVirtual(filepath.Join(v.Dir, "ports", strconv.Itoa(v.Port)), row); found {
			p.counts = append(p.counts, c)
		}
	}
	return p
}

func findVirtual(dir string, row *collector.Metric) (c virtualCounter, found bool) {
	for _, origin := range row.From {
		for _, kind := range []string{"counters", "hw_counters"} {
			path := filepath.Join(dir, kind, origin.Name)
			if sysfs.Exists(path) == nil {
				return virtualCounter{row, origin, sysfs.Attr{File: sysfs.File{Path: path}}}, true
			}
		}
	}
	return c, false
}

func (p *virtualPort) Close() {
	p.port.Close()
	for i := range p.counts {
		p.counts[i].file.Close()
	}
}

func (p *virtualPort) Read(r *collector.Reading) {
	for direction, row := range [...]*collector.Metric{
		rail.Receive: p.table.virtualReceive, rail.Transmit: p.table.virtualTransmit,
	} {
		if v, _, err := p.port.Bytes(direction); !errors.Is(err, rail.ErrUncounted) {
			r.Record(row, float64(v), err, p.labels)
		}
	}
	for i := range p.counts {
		c := &p.counts[i]
		v, err := c.file.Counter(r.Time)
		r.Record(c.row, c.origin.Value(v), err, p.labels)
	}
}
