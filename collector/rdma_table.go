package collector

import "fmt"

// Where the meaning of the counters below is written.
const (
	refABI   = "Documentation/ABI/stable/sysfs-class-infiniband; IBTA spec vol. 1, 16.1.3.5 PortCounters"
	refMlx5  = "drivers/infiniband/hw/mlx5/counters.c; mlx5 counters.rst"
	refBnxt  = "drivers/infiniband/hw/bnxt_re/hw_counters.c"
	refIrdma = "drivers/infiniband/hw/irdma/verbs.c"
	refEFA   = "drivers/infiniband/hw/efa/efa_verbs.c"
	refRXE   = "drivers/infiniband/sw/rxe/rxe_hw_counters.c"
)

// from makes the origins of a row of 64-bit counters in the base unit, or of
// counters whose width depends on the driver; see wide32.
func from(names ...string) []Origin {
	list := make([]Origin, len(names))
	for i, n := range names {
		list[i].Name = n
	}
	return list
}

// q32 is from for rows whose first name is an mlx5 queue counter: 32 bits wide
// there, and it wraps. The other drivers' counters of the row have 64 bits.
func q32(names ...string) []Origin {
	list := from(names...)
	list[0].Bits = 32
	return list
}

// sat is a counter of PortCounters that stays at its greatest value.
func sat(name string, bits int) []Origin {
	return []Origin{{Name: name, Bits: bits, Saturates: true}}
}

// words is a counter that the kernel keeps in 32-bit words, followed by the
// names under which other drivers keep the same in bytes.
func words(name string, bytes ...string) []Origin {
	return append([]Origin{{Name: name, Scale: 4}}, from(bytes...)...)
}

// portCounters are the rows of counters/ and hw_counters/ for every driver,
// under one name whatever the driver calls it.
func portCounters() []*Metric {
	rows := []*Metric{
		{Name: "port_receive_bytes_total", Help: "Bytes received over RDMA, headers included. On mlx5 of this function only; a software device (rxe) has no such counter, so there it is what its network interface received, TCP and all.", From: words("port_rcv_data", "rx_bytes", "rdma_rx_bytes", "ip4InOctets + ip6InOctets", netdevBytes), Ref: refABI},
		{Name: "port_transmit_bytes_total", Help: "Bytes sent over RDMA, headers included. On mlx5 of this function only; a software device (rxe) has no such counter, so there it is what its network interface sent, TCP and all.", From: words("port_xmit_data", "tx_bytes", "rdma_tx_bytes", "ip4OutOctets + ip6OutOctets", netdevBytes), Ref: refABI},
		{Name: "port_receive_packets_total", Help: "Packets received over RDMA, including ones with errors.", From: from("port_rcv_packets", "rx_pkts", "rdma_rx_packets", "rcvd_pkts"), Ref: refABI},
		{Name: "port_transmit_packets_total", Help: "Packets sent over RDMA, including ones with errors.", From: from("port_xmit_packets", "tx_pkts", "rdma_tx_packets", "sent_pkts"), Ref: refABI},
		{Name: "port_unicast_receive_packets_total", Help: "Unicast packets received over RDMA.", From: from("unicast_rcv_packets"), Ref: refABI},
		{Name: "port_unicast_transmit_packets_total", Help: "Unicast packets sent over RDMA.", From: from("unicast_xmit_packets"), Ref: refABI},
		{Name: "port_multicast_receive_packets_total", Help: "Multicast packets received over RDMA.", From: from("multicast_rcv_packets"), Ref: refABI},
		{Name: "port_multicast_transmit_packets_total", Help: "Multicast packets sent over RDMA.", From: from("multicast_xmit_packets"), Ref: refABI},

		{Name: "port_transmit_wait_ticks_total", Help: "Ticks in which the port had something to send and could not. The length of a tick is the device's own: compare with itself only.", From: sat("port_xmit_wait", 32), Ref: refABI},
		{Name: "port_symbol_errors_total", Help: "Minor link errors on one or more lanes; rising means a bad cable or transceiver.", From: sat("symbol_error", 16), Ref: refABI},
		{Name: "port_link_error_recovery_total", Help: "Times the link recovered from an error state by itself.", From: sat("link_error_recovery", 8), Ref: refABI},
		{Name: "port_link_downed_total", Help: "Times the link failed to recover and went down.", From: append(sat("link_downed", 8), Origin{Name: "link_down_events"}), Ref: refABI},
		{Name: "port_receive_errors_total", Help: "Packets received with an error.", From: append(sat("port_rcv_errors", 16), from("rx_roce_errors")...), Ref: refABI},
		{Name: "port_receive_remote_physical_errors_total", Help: "Packets received that the sender had marked bad.", From: sat("port_rcv_remote_physical_errors", 16), Ref: refABI},
		{Name: "port_receive_switch_relay_errors_total", Help: "Packets that a switch could not forward.", From: sat("port_rcv_switch_relay_errors", 16), Ref: refABI},
		{Name: "port_receive_discards_total", Help: "Received packets that the port dropped because it was down or congested.", From: append(sat("port_rcv_discards", 16), from("rx_roce_discards", "rx_drops")...), Ref: refABI},
		{Name: "port_transmit_discards_total", Help: "Packets to be sent that the port dropped because it was down or congested.", From: append(sat("port_xmit_discards", 16), from("tx_roce_discards")...), Ref: refABI},
		{Name: "port_transmit_errors_total", Help: "Packets that could not be sent because of an error.", From: from("tx_roce_errors", "send_err"), Ref: refBnxt},
		{Name: "port_receive_constraint_errors_total", Help: "Packets received that a partition or raw-packet rule turned away.", From: sat("port_rcv_constraint_errors", 8), Ref: refABI},
		{Name: "port_transmit_constraint_errors_total", Help: "Packets not sent because of a partition or raw-packet rule.", From: sat("port_xmit_constraint_errors", 8), Ref: refABI},
		{Name: "port_local_link_integrity_errors_total", Help: "Times local physical errors passed their threshold.", From: sat("local_link_integrity_errors", 4), Ref: refABI},
		{Name: "port_excessive_buffer_overrun_errors_total", Help: "Times receive buffers overran in several flow control periods in a row.", From: sat("excessive_buffer_overrun_errors", 4), Ref: refABI},
		{Name: "port_vl15_dropped_total", Help: "Management packets dropped for want of buffers.", From: sat("VL15_dropped", 16), Ref: refABI},

		{Name: "port_cnp_sent_total", Help: "Congestion notifications (CNP) we sent: our receive path was marked congested.", From: from("np_cnp_sent", "tx_cnp_pkts", "cnpSent", "cc_tx_cnp_pkts"), Ref: refMlx5},
		{Name: "port_cnp_handled_total", Help: "Congestion notifications (CNP) we received and slowed down for.", From: from("rp_cnp_handled", "rx_cnp_pkts", "cnpHandled", "cc_rx_cnp_pkts"), Ref: refMlx5},
		{Name: "port_cnp_ignored_total", Help: "Congestion notifications (CNP) we received and ignored; rising means that congestion control is off or misconfigured here.", From: from("rp_cnp_ignored", "cnpIgnored"), Ref: refMlx5},
		{Name: "port_ecn_marked_packets_total", Help: "RoCE packets received with the congestion mark (ECN CE).", From: from("np_ecn_marked_roce_packets", "rx_ecn_marked_pkts", "RxECNMrkd", "cc_rx_ce_pkts"), Ref: refMlx5},
		{Name: "port_out_of_sequence_packets_total", Help: "Packets that arrived out of order; rising means loss or spraying over several paths.", From: q32("out_of_sequence", "out_of_seq_request", "oos_drop_count"), Ref: refMlx5},
		{Name: "port_packet_sequence_errors_total", Help: "NAKs for a sequence error that we received: packets of ours were lost.", From: q32("packet_seq_err", "seq_err_naks_rcvd", "rcvd_seq_err"), Ref: refMlx5},
		{Name: "port_ack_timeouts_total", Help: "Times no acknowledgement came in time; rising means loss, a black hole or a PFC storm.", From: q32("local_ack_timeout_err", "to_retransmits"), Ref: refMlx5},
		{Name: "port_implied_nak_sequence_errors_total", Help: "Times an acknowledgement showed that a read or atomic response was lost.", From: q32("implied_nak_seq_err"), Ref: refMlx5},
		{Name: "port_duplicate_requests_total", Help: "Requests received a second time: an acknowledgement of ours was lost or late.", From: q32("duplicate_request", "dup_req"), Ref: refMlx5},
		{Name: "port_rnr_naks_received_total", Help: "Receiver-not-ready NAKs received: the peer's software is too slow.", From: q32("rnr_nak_retry_err", "rnr_naks_rcvd", "rcvd_rnr_err"), Ref: refMlx5},
		{Name: "port_rnr_naks_sent_total", Help: "Receiver-not-ready NAKs sent: software here is too slow.", From: from("send_rnr_err"), Ref: refRXE},
		{Name: "port_transport_retries_exceeded_total", Help: "Queue pairs that died because the peer never acknowledged.", From: q32("req_transport_retries_exceeded", "max_retry_exceeded", "retry_exceeded_err"), Ref: refMlx5},
		{Name: "port_rnr_retries_exceeded_total", Help: "Queue pairs that died because the peer never became ready.", From: q32("req_rnr_retries_exceeded", "retry_rnr_exceeded_err"), Ref: refMlx5},
		{Name: "port_adaptive_retransmits_total", Help: "Adaptive retransmissions.", From: q32("roce_adp_retrans"), Ref: refMlx5},
		{Name: "port_adaptive_retransmit_timeouts_total", Help: "Times adaptive retransmission ran into its timeout.", From: q32("roce_adp_retrans_to"), Ref: refMlx5},
		{Name: "port_slow_restarts_total", Help: "Times RoCE slow restart was used.", From: q32("roce_slow_restart"), Ref: refMlx5},
		{Name: "port_slow_restart_cnps_total", Help: "Congestion notifications that slow restart made.", From: q32("roce_slow_restart_cnps"), Ref: refMlx5},
		{Name: "port_slow_restart_transitions_total", Help: "Times RoCE went over to slow restart.", From: q32("roce_slow_restart_trans"), Ref: refMlx5},
		{Name: "port_icrc_errors_total", Help: "RoCE packets received with a bad checksum (ICRC): corruption on the way.", From: from("rx_icrc_encapsulated"), Ref: refMlx5},
		{Name: "port_out_of_buffer_total", Help: "Packets dropped because no receive buffer was posted; on mlx5 including those of plain Ethernet queues.", From: q32("out_of_buffer", "rx_out_of_buffer"), Ref: refMlx5},
	}
	rows = append(rows, requestCounters()...)
	rows = append(rows, driverCounters()...)
	for _, m := range rows {
		m.Labels = portLabels
		if o := m.From[0]; o.Bits != 0 && !o.Saturates {
			m.Help += fmt.Sprintf(" %d bits wide on mlx5: it wraps to 0, which rate() and increase() treat as a reset.", o.Bits)
		}
	}
	return rows
}

// requestCounters are what the verbs themselves did and how they failed.
func requestCounters() []*Metric {
	return []*Metric{
		{Name: "port_receive_write_requests_total", Help: "RDMA WRITE requests received.", From: q32("rx_write_requests", "rx_write_req", "iwInRdmaWrites"), Ref: refMlx5},
		{Name: "port_receive_read_requests_total", Help: "RDMA READ requests received.", From: q32("rx_read_requests", "rx_read_req", "iwInRdmaReads"), Ref: refMlx5},
		{Name: "port_receive_atomic_requests_total", Help: "Atomic requests received.", From: q32("rx_atomic_requests", "rx_atomic_req"), Ref: refMlx5},
		{Name: "port_receive_send_requests_total", Help: "SEND requests received.", From: from("rx_send_req", "iwInRdmaSends"), Ref: refBnxt},
		{Name: "port_receive_dct_connects_total", Help: "Connection requests received by dynamically connected transports.", From: q32("rx_dct_connect"), Ref: refMlx5},
		{Name: "port_transmit_write_requests_total", Help: "RDMA WRITE requests sent.", From: from("tx_write_req", "iwOutRdmaWrites", "rdma_write_wrs"), Ref: refBnxt},
		{Name: "port_transmit_read_requests_total", Help: "RDMA READ requests sent.", From: from("tx_read_req", "iwOutRdmaReads", "rdma_read_wrs"), Ref: refBnxt},
		{Name: "port_transmit_atomic_requests_total", Help: "Atomic requests sent.", From: from("tx_atomic_req"), Ref: refBnxt},
		{Name: "port_transmit_send_requests_total", Help: "SEND requests sent.", From: from("tx_send_req", "iwOutRdmaSends", "rdma_sends", "send_wrs"), Ref: refBnxt},
		{Name: "port_receive_completions_total", Help: "Receive work requests completed.", From: from("rdma_recvs", "recv_wrs"), Ref: refRXE},
		{Name: "port_read_responses_total", Help: "RDMA READ responses handled.", From: from("read_resp"), Ref: refBnxt},

		{Name: "port_responder_local_length_errors_total", Help: "Requests received that did not fit where they should go.", From: q32("resp_local_length_error"), Ref: refMlx5},
		{Name: "port_responder_completion_errors_total", Help: "Responder completions that ended in an error.", From: q32("resp_cqe_error"), Ref: refMlx5},
		{Name: "port_requester_completion_errors_total", Help: "Requester completions that ended in an error.", From: q32("req_cqe_error"), Ref: refMlx5},
		{Name: "port_responder_completion_flush_errors_total", Help: "Responder completions flushed when a queue pair went to the error state; part of every teardown.", From: q32("resp_cqe_flush_error"), Ref: refMlx5},
		{Name: "port_requester_completion_flush_errors_total", Help: "Requester completions flushed when a queue pair went to the error state; part of every teardown.", From: q32("req_cqe_flush_error"), Ref: refMlx5},
		{Name: "port_requester_remote_invalid_request_errors_total", Help: "Requests of ours that the peer called invalid.", From: q32("req_remote_invalid_request", "remote_invalid_req_err"), Ref: refMlx5},
		{Name: "port_requester_remote_access_errors_total", Help: "Requests of ours that the peer denied access.", From: q32("req_remote_access_errors", "remote_access_err"), Ref: refMlx5},
		{Name: "port_responder_remote_access_errors_total", Help: "Requests received that we denied access.", From: q32("resp_remote_access_errors"), Ref: refMlx5},
		{Name: "port_requester_remote_operation_errors_total", Help: "Requests of ours that failed at the peer.", From: from("remote_op_err"), Ref: refBnxt},
		{Name: "port_lifespan_seconds", Help: "How long the driver answers a counter from its cache: two reads closer than this may be equal.", Kind: Gauge, From: []Origin{{Name: "lifespan", Scale: 1e-3}}, Ref: "Documentation/ABI/stable/sysfs-class-infiniband"},
	}
}

// driverCounters are rows that only one driver feeds.
func driverCounters() []*Metric {
	rows := []*Metric{
		{Name: "port_roce_receive_bytes_total", Help: "Bytes of RoCE packets received.", From: from("rx_roce_only_bytes"), Ref: refBnxt},
		{Name: "port_roce_transmit_bytes_total", Help: "Bytes of RoCE packets sent.", From: from("tx_roce_only_bytes"), Ref: refBnxt},
		{Name: "port_roce_receive_packets_total", Help: "RoCE packets received.", From: from("rx_roce_only_pkts", "RxUDP"), Ref: refBnxt},
		{Name: "port_roce_transmit_packets_total", Help: "RoCE packets sent.", From: from("tx_roce_only_pkts", "TxUDP"), Ref: refBnxt},
		{Name: "port_roce_receive_good_bytes_total", Help: "Bytes of RoCE packets received without error.", From: from("rx_roce_good_bytes"), Ref: refBnxt},
		{Name: "port_roce_receive_good_packets_total", Help: "RoCE packets received without error.", From: from("rx_roce_good_pkts"), Ref: refBnxt},
		{Name: "port_recoverable_errors_total", Help: "Errors the device recovered from.", From: from("recoverable_errors"), Ref: refBnxt},
		{Name: "port_unrecoverable_errors_total", Help: "Errors the device could not recover from.", From: from("unrecoverable_err"), Ref: refBnxt},
		{Name: "port_missing_responses_total", Help: "Responses that never came.", From: from("missing_resp"), Ref: refBnxt},
		{Name: "port_bad_responses_total", Help: "Responses that made no sense.", From: from("bad_resp_err"), Ref: refBnxt},
		{Name: "port_pacing_alerts_total", Help: "Times doorbell pacing was triggered because the doorbell FIFO filled up.", From: from("pacing_alerts"), Ref: refBnxt},

		{Name: "port_ipv4_receive_bytes_total", Help: "Bytes received in IPv4 packets of RDMA.", From: from("ip4InOctets"), Ref: refIrdma},
		{Name: "port_ipv4_transmit_bytes_total", Help: "Bytes sent in IPv4 packets of RDMA.", From: from("ip4OutOctets"), Ref: refIrdma},
		{Name: "port_ipv4_receive_packets_total", Help: "IPv4 packets of RDMA received.", From: from("ip4InPkts"), Ref: refIrdma},
		{Name: "port_ipv4_transmit_packets_total", Help: "IPv4 packets of RDMA sent.", From: from("ip4OutPkts"), Ref: refIrdma},
		{Name: "port_ipv4_receive_discards_total", Help: "IPv4 packets of RDMA dropped on receive.", From: from("ip4InDiscards"), Ref: refIrdma},
		{Name: "port_ipv6_receive_bytes_total", Help: "Bytes received in IPv6 packets of RDMA.", From: from("ip6InOctets"), Ref: refIrdma},
		{Name: "port_ipv6_transmit_bytes_total", Help: "Bytes sent in IPv6 packets of RDMA.", From: from("ip6OutOctets"), Ref: refIrdma},
		{Name: "port_ipv6_receive_packets_total", Help: "IPv6 packets of RDMA received.", From: from("ip6InPkts"), Ref: refIrdma},
		{Name: "port_ipv6_transmit_packets_total", Help: "IPv6 packets of RDMA sent.", From: from("ip6OutPkts"), Ref: refIrdma},
		{Name: "port_ipv6_receive_discards_total", Help: "IPv6 packets of RDMA dropped on receive.", From: from("ip6InDiscards"), Ref: refIrdma},
		{Name: "port_tcp_retransmitted_segments_total", Help: "TCP segments that iWARP sent again.", From: from("tcpRetransSegs"), Ref: refIrdma},

		{Name: "port_send_bytes_total", Help: "Payload bytes of SEND requests sent.", From: from("send_bytes"), Ref: refEFA},
		{Name: "port_receive_payload_bytes_total", Help: "Payload bytes of receive requests.", From: from("recv_bytes"), Ref: refEFA},
		{Name: "port_read_bytes_total", Help: "Payload bytes read from peers.", From: from("rdma_read_bytes"), Ref: refEFA},
		{Name: "port_read_response_bytes_total", Help: "Payload bytes that peers read from here.", From: from("rdma_read_resp_bytes"), Ref: refEFA},
		{Name: "port_read_errors_total", Help: "RDMA READ requests that failed.", From: from("rdma_read_wr_err"), Ref: refEFA},
		{Name: "port_write_bytes_total", Help: "Payload bytes written to peers.", From: from("rdma_write_bytes"), Ref: refEFA},
		{Name: "port_write_receive_bytes_total", Help: "Payload bytes that peers wrote here.", From: from("rdma_write_recv_bytes"), Ref: refEFA},
		{Name: "port_write_errors_total", Help: "RDMA WRITE requests that failed.", From: from("rdma_write_wr_err"), Ref: refEFA},
		{Name: "port_retransmitted_bytes_total", Help: "Bytes sent again.", From: from("retrans_bytes"), Ref: refEFA},
		{Name: "port_retransmitted_packets_total", Help: "Packets sent again.", From: from("retrans_pkts"), Ref: refEFA},
		{Name: "port_retransmit_timeouts_total", Help: "Times a retransmission ran into its timeout.", From: from("retrans_timeout_events"), Ref: refEFA},
		{Name: "port_unresponsive_remote_events_total", Help: "Times a peer stopped answering.", From: from("unresponsive_remote_events"), Ref: refEFA},
		{Name: "port_impaired_remote_connections_total", Help: "Times the connection to a peer was impaired.", From: from("impaired_remote_conn_events"), Ref: refEFA},

		{Name: "port_acks_deferred_total", Help: "Acknowledgements put off.", From: from("ack_deferred"), Ref: refRXE},
		{Name: "port_completer_retries_total", Help: "Times the completer started a retry.", From: from("completer_retry_err"), Ref: refRXE},
	}
	for _, object := range []struct{ raw, name, plural string }{
		{"pds", "protection_domains", "Protection domains"}, {"ahs", "address_handles", "Address handles"},
		{"qps", "queue_pairs", "Queue pairs"}, {"rc_qps", "rc_queue_pairs", "RC queue pairs"}, {"ud_qps", "ud_queue_pairs", "UD queue pairs"},
		{"srqs", "shared_receive_queues", "Shared receive queues"}, {"cqs", "completion_queues", "Completion queues"},
		{"mrs", "memory_regions", "Memory regions"}, {"mws", "memory_windows", "Memory windows"},
	} {
		rows = append(rows,
			&Metric{Name: "port_" + object.name, Kind: Gauge, Help: object.plural + " in use, as the driver counts them.", From: from("active_" + object.raw), Ref: refBnxt},
			&Metric{Name: "port_" + object.name + "_peak", Kind: Gauge, Help: object.plural + " in use at most since the driver was loaded.", From: from("watermark_" + object.raw), Ref: refBnxt})
	}
	return rows
}

// legacyCounters are the rows of counters_ext/, which kernels before 4.5 had
// beside a counters/ with 32-bit values.
func legacyCounters() []*Metric {
	rows := []*Metric{
		{Name: "port_legacy_receive_bytes_total", Help: "Bytes received, from the directory counters_ext of old kernels.", From: words("port_rcv_data_64")},
		{Name: "port_legacy_transmit_bytes_total", Help: "Bytes sent, from the directory counters_ext of old kernels.", From: words("port_xmit_data_64")},
		{Name: "port_legacy_receive_packets_total", Help: "Packets received, from the directory counters_ext of old kernels.", From: from("port_rcv_packets_64")},
		{Name: "port_legacy_transmit_packets_total", Help: "Packets sent, from the directory counters_ext of old kernels.", From: from("port_xmit_packets_64")},
		{Name: "port_legacy_unicast_receive_packets_total", Help: "Unicast packets received, from the directory counters_ext of old kernels.", From: from("port_unicast_rcv_packets")},
		{Name: "port_legacy_unicast_transmit_packets_total", Help: "Unicast packets sent, from the directory counters_ext of old kernels.", From: from("port_unicast_xmit_packets")},
		{Name: "port_legacy_multicast_receive_packets_total", Help: "Multicast packets received, from the directory counters_ext of old kernels.", From: from("port_multicast_rcv_packets")},
		{Name: "port_legacy_multicast_transmit_packets_total", Help: "Multicast packets sent, from the directory counters_ext of old kernels.", From: from("port_multicast_xmit_packets")},
	}
	for _, m := range rows {
		m.Labels, m.Ref = portLabels, "drivers/infiniband/core/sysfs.c before Linux 4.5"
	}
	return rows
}

// deviceCounters are the rows of the hw_counters/ that some devices have beside
// their ports' (EFA: commands to the device).
func deviceCounters() []*Metric {
	rows := []*Metric{
		{Name: "device_commands_submitted_total", Help: "Commands submitted to the device.", From: from("submitted_cmds"), Ref: refEFA},
		{Name: "device_commands_completed_total", Help: "Commands the device completed.", From: from("completed_cmds"), Ref: refEFA},
		{Name: "device_command_errors_total", Help: "Commands the device failed.", From: from("cmds_err"), Ref: refEFA},
		{Name: "device_commands_without_completion_total", Help: "Commands the device never answered.", From: from("no_completion_cmds"), Ref: refEFA},
		{Name: "device_keep_alives_received_total", Help: "Signs of life received from the device.", From: from("keep_alive_rcvd"), Ref: refEFA},
	}
	rows = append(rows, &Metric{Name: "device_lifespan_seconds", Kind: Gauge, Help: "How long the driver answers a counter of the device from its cache.", From: []Origin{{Name: "lifespan", Scale: 1e-3}}, Ref: "Documentation/ABI/stable/sysfs-class-infiniband"})
	for _, m := range rows {
		m.Labels = []string{"device"}
	}
	return rows
}
