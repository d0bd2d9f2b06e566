package machines

import (
	"fmt"
	"path"
	"strings"
)

// Counters selects the counters of a port.
type Counters int

// Kinds of counters.
const (
	MlxCounters   Counters = iota // counters/ and hw_counters/ of mlx5
	PMACounters                   // only counters/: mlx4, hfi1
	NoCounters                    // neither directory
	RefusedPMA                    // counters/ whose files all refuse reads, and no hw_counters/
	BnxtCounters                  // hw_counters/ of bnxt_re
	BnxtAndPMA                    // BnxtCounters and a counters/ that refuses reads
	EFACounters                   // hw_counters/ of efa
	EFAWithoutPMA                 // EFACounters and a counters/ with "N/A (no PMA)"
	IrdmaCounters                 // hw_counters/ of irdma
	IonicCounters                 // hw_counters/ of ionic
	ErdmaCounters                 // hw_counters/ of erdma
	ManaCounters                  // hw_counters/ of mana_ib
	HnsCounters                   // hw_counters/ of hns_roce: only packets
	RXECounters                   // hw_counters/ of rxe: only packets
)

// Port is a port of an RDMA device. Zero values: ACTIVE Ethernet at 400 Gb/s, counters of mlx5, and the GIDs of an
// interface with an IPv4 address.
type Port struct {
	Number     int // 0: port 1
	Netdev     string
	Down       bool   // DOWN, physical state Polling
	Disabled   bool   // DOWN, physical state Disabled
	Rate       string // in the kernel's format
	InfiniBand bool
	Layer      string // in the kernel's format; empty: Ethernet, or InfiniBand
	Counters   Counters
	GIDNetdev  string // interface in the GIDs, if it differs
	NoGIDs     bool   // no GID table, as for an uplink in switchdev mode
	EmptyGIDs  bool   // GID table without entries
	LinkLocal  bool   // only GIDs of fe80:: and 169.254.0.0/16
	OnlyFE80   bool   // only GIDs of fe80::
}

// RDMA is an RDMA device.
type RDMA struct {
	HCA, Board, Firmware, NodeType string // empty: no file; empty NodeType: 1: CA
	GUID, SystemGUID               string // empty: generated; both are equal
	Ports                          []Port // empty: one port
}

// RDMA creates an RDMA device of the function at dir, or a virtual one if dir is empty.
func (t *Tree) RDMA(dir, name string, d RDMA) {
	at := path.Join("devices/virtual/infiniband", name)
	if dir != "" {
		at = path.Join(dir, "infiniband", name)
		t.Link(path.Join(at, "device"), dir)
	}
	t.Link(path.Join("class/infiniband", name), at)
	t.netdevs++
	guid := d.GUID
	if guid == "" {
		guid = fmt.Sprintf("0200:5e00:%04x:%04x", t.netdevs, 1)
	}
	system := d.SystemGUID
	if system == "" {
		system = guid
	}
	kind := d.NodeType
	if kind == "" {
		kind = "1: CA"
	}
	t.Files(at, "node_type", kind, "node_guid", guid, "sys_image_guid", system, "node_desc", name)
	for file, value := range map[string]string{"hca_type": d.HCA, "board_id": d.Board, "fw_ver": d.Firmware} {
		if value != "" {
			t.File(path.Join(at, file), value)
		}
	}
	if len(d.Ports) == 0 {
		d.Ports = []Port{{}}
	}
	for i, p := range d.Ports {
		if p.Number == 0 {
			p.Number = i + 1
		}
		t.port(path.Join(at, "ports", fmt.Sprint(p.Number)), guid, p)
	}
}

func (t *Tree) port(dir, guid string, p Port) {
	state, physical, rate, layer := "4: ACTIVE", "5: LinkUp", p.Rate, p.Layer
	if rate == "" {
		rate = "400 Gb/sec (4X NDR)"
	}
	switch {
	case p.Disabled:
		state, physical, rate = "1: DOWN", "3: Disabled", "40 Gb/sec (4X QDR)"
	case p.Down:
		state, physical, rate = "1: DOWN", "2: Polling", "40 Gb/sec (4X QDR)"
	}
	if layer == "" {
		layer = "Ethernet"
		if p.InfiniBand {
			layer = "InfiniBand"
		}
	}
	t.Files(dir, "state", state, "phys_state", physical, "rate", rate, "link_layer", layer, "pkeys/0", "0xffff")
	t.gids(dir, guid, p)
	t.counters(dir, p)
}

func (t *Tree) gids(dir, guid string, p Port) {
	gid := func(i int, address, kind, netdev string) {
		t.File(path.Join(dir, "gids", fmt.Sprint(i)), address)
		if kind != "" {
			t.File(path.Join(dir, "gid_attrs/types", fmt.Sprint(i)), kind)
			t.File(path.Join(dir, "gid_attrs/ndevs", fmt.Sprint(i)), netdev)
		}
	}
	netdev := p.GIDNetdev
	if netdev == "" {
		netdev = p.Netdev
	}
	local := "fe80:0000:0000:0000:0000:5eff:fe00:0001"
	switch {
	case p.NoGIDs:
	case p.EmptyGIDs:
		gid(0, "0000:0000:0000:0000:0000:0000:0000:0000", "", "")
	case p.InfiniBand:
		gid(0, "fe80:0000:0000:0000:"+guid, "", "")
	case netdev == "":
		gid(0, local, "", "")
	default:
		gid(0, local, "IB/RoCE v1", netdev)
		gid(1, local, "RoCE v2", netdev)
		address := fmt.Sprintf("0000:0000:0000:0000:0000:ffff:c612:%04x", t.netdevs*256+1)
		if p.LinkLocal {
			address = fmt.Sprintf("0000:0000:0000:0000:0000:ffff:a9fe:%04x", t.netdevs*256+1)
		}
		if !p.OnlyFE80 {
			gid(2, address, "IB/RoCE v1", netdev)
			gid(3, address, "RoCE v2", netdev)
		}
	}
}

// Names of files in counters/ (drivers/infiniband/core/sysfs.c).
const pmaNames = "symbol_error link_error_recovery link_downed port_rcv_errors port_rcv_remote_physical_errors " +
	"port_rcv_switch_relay_errors port_xmit_discards port_xmit_constraint_errors port_rcv_constraint_errors " +
	"local_link_integrity_errors excessive_buffer_overrun_errors VL15_dropped port_xmit_wait port_xmit_data " +
	"port_rcv_data port_xmit_packets port_rcv_packets unicast_xmit_packets unicast_rcv_packets"

// hwNames returns the relevant names in hw_counters/ for each driver.
func hwNames(c Counters) string {
	return map[Counters]string{
		MlxCounters: "out_of_sequence packet_seq_err local_ack_timeout_err np_cnp_sent rp_cnp_handled lifespan",
		BnxtCounters: "rx_bytes tx_bytes rx_pkts tx_pkts to_retransmits seq_err_naks_rcvd dup_req rx_cnp_pkts " +
			"tx_cnp_pkts active_qps lifespan",
		EFACounters: "tx_bytes rx_bytes tx_pkts rx_pkts rx_drops send_bytes recv_bytes rdma_read_bytes " +
			"rdma_write_bytes lifespan",
		IrdmaCounters: "ip4InOctets ip4OutOctets ip6InOctets ip6OutOctets ip4InPkts cnpHandled cnpSent RxECNMrkd " +
			"lifespan",
		IonicCounters: "tx_rdma_ucast_bytes tx_rdma_ucast_pkts tx_rdma_mcast_bytes tx_rdma_mcast_pkts " +
			"tx_rdma_cnp_pkts rx_rdma_ucast_bytes rx_rdma_ucast_pkts rx_rdma_mcast_bytes rx_rdma_mcast_pkts " +
			"rx_rdma_ecn_pkts req_rx_pkt_seq_err resp_rx_outouf_seq tx_rdma_ack_timeout lifespan",
		ErdmaCounters: "tx_reqs_cnt tx_packets_cnt tx_bytes_cnt rx_packets_cnt rx_bytes_cnt lifespan",
		ManaCounters: "tx_bytes rx_bytes tx_packets rx_packets requester_timeout requester_oos_nak responder_oos " +
			"received_cnps lifespan",
		HnsCounters: "rx_rc_pkt rx_pkt rx_err_pkt rx_cnp_pkt tx_rc_pkt tx_pkt tx_cnp_pkt lifespan",
		RXECounters: "sent_pkts rcvd_pkts duplicate_request out_of_seq_request send_err lifespan",
	}[c]
}

func (t *Tree) counters(dir string, p Port) {
	pma, hw := "", p.Counters
	switch p.Counters {
	case MlxCounters, PMACounters:
		pma = "value"
	case RefusedPMA:
		pma = "refuse"
	case BnxtAndPMA:
		pma, hw = "refuse", BnxtCounters
	case EFAWithoutPMA:
		pma, hw = "N/A (no PMA)", EFACounters
	}
	for i, name := range strings.Fields(pmaNames) {
		file := path.Join(dir, "counters", name)
		switch {
		case pma == "":
		case pma == "refuse":
			t.Refuse(file)
		case pma != "value":
			t.File(file, pma)
		case i < 13 || p.Down || p.Disabled:
			t.File(file, 0)
		default:
			t.File(file, 1000*i)
		}
	}
	for i, name := range strings.Fields(hwNames(hw)) {
		value := 1000 * (i + 1)
		if name == "lifespan" {
			value = 10
		}
		t.File(path.Join(dir, "hw_counters", name), value)
	}
}
