package sysfstest

import (
	"fmt"
	"os"
	"path/filepath"
)

// counterFiles and hwCounterFiles are the counters of a ConnectX port on Linux 6.8
// (drivers/infiniband/core/sysfs.c, drivers/infiniband/hw/mlx5/counters.c).
var (
	counterFiles = []string{"VL15_dropped", "excessive_buffer_overrun_errors", "link_downed", "link_error_recovery",
		"local_link_integrity_errors",
		"multicast_rcv_packets", "multicast_xmit_packets", "port_rcv_constraint_errors", "port_rcv_data",
		"port_rcv_errors", "port_rcv_packets",
		"port_rcv_remote_physical_errors", "port_rcv_switch_relay_errors", "port_xmit_constraint_errors",
		"port_xmit_data", "port_xmit_discards",
		"port_xmit_packets", "port_xmit_wait", "symbol_error", "unicast_rcv_packets", "unicast_xmit_packets"}
	hwCounterFiles = []string{"duplicate_request", "implied_nak_seq_err", "lifespan", "local_ack_timeout_err",
		"np_cnp_sent", "np_ecn_marked_roce_packets",
		"out_of_buffer", "out_of_sequence", "packet_seq_err", "req_cqe_error", "req_cqe_flush_error",
		"req_remote_access_errors",
		"req_remote_invalid_request", "req_rnr_retries_exceeded", "req_transport_retries_exceeded", "resp_cqe_error",
		"resp_cqe_flush_error",
		"resp_local_length_error", "resp_remote_access_errors", "rnr_nak_retry_err", "roce_adp_retrans",
		"roce_adp_retrans_to", "roce_slow_restart",
		"roce_slow_restart_cnps", "roce_slow_restart_trans", "rp_cnp_handled", "rp_cnp_ignored", "rx_atomic_requests",
		"rx_dct_connect",
		"rx_icrc_encapsulated", "rx_read_requests", "rx_write_requests"}
)

// WriteMlx5 writes a synthetic /sys of n one-port mlx5 devices, 21 counters and 32 hw_counters each, every value
// different, and a bond of two interfaces. Benchmarks use this tree.
func WriteMlx5(sys string, n int) error {
	w := treeWriter{}
	for d := range n {
		dev := filepath.Join(sys, "class/infiniband", fmt.Sprintf("mlx5_%d", d))
		for name, value := range map[string]string{"board_id": "MT_0000000838", "fw_ver": "28.39.1002",
			"hca_type":       "MT4129",
			"node_guid":      fmt.Sprintf("e8eb:d303:00a0:%04x", d),
			"sys_image_guid": fmt.Sprintf("e8eb:d303:00a0:%04x", d)} {
			w.file(value, dev, name)
		}
		port := filepath.Join(dev, "ports/1")
		for name, value := range map[string]string{"link_layer": "Ethernet", "state": "4: ACTIVE",
			"phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)"} {
			w.file(value, port, name)
		}
		for i, name := range counterFiles {
			w.file(fmt.Sprint(1000*(d+1)+i), port, "counters", name)
		}
		for i, name := range hwCounterFiles {
			w.file(fmt.Sprint(1000*(d+1)+100+i), port, "hw_counters", name)
		}
	}
	net := filepath.Join(sys, "class/net")
	w.file("bond0", net, "bonding_masters")
	w.file("eth0 eth1", net, "bond0/bonding/slaves")
	w.file("balance-xor 2", net, "bond0/bonding/mode")
	w.file("up", net, "bond0/bonding/mii_status")
	for _, member := range []string{"eth0", "eth1"} {
		w.file("1", net, member, "carrier")
		w.file("up", net, member, "bonding_slave/mii_status")
		w.link("../"+member, net, "bond0", "lower_"+member)
	}
	return w.err
}

// treeWriter writes files until the first error.
type treeWriter struct{ err error }

func (w *treeWriter) file(content string, elem ...string) {
	path := filepath.Join(elem...)
	if w.err == nil {
		w.err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if w.err == nil {
		w.err = os.WriteFile(path, []byte(content+"\n"), 0o644)
	}
}

func (w *treeWriter) link(target string, elem ...string) {
	if w.err == nil {
		w.err = os.Symlink(target, filepath.Join(elem...))
	}
}
