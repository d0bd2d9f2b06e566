package rdma

import "github.com/railscope/railscope/collector"

// addCounters adds the rows of counters/ and hw_counters/. Counters of several drivers with one meaning share a
// row.
func (t *table) addCounters(port collector.Group) {
	abi := counters{port.Ref(refABI), t.ports}
	mlx5 := counters{port.Ref(refMlx5), t.ports}
	bnxt := counters{port.Ref(refBnxt), t.ports}
	rxe := counters{port.Ref(refRXE), t.ports}
	t.receiveBytes = abi.words("port_receive_bytes_total", "Bytes received over RDMA, headers included. On mlx5 of "+
		"this function only; a software device (rxe) has no such counter, so there it is what its network interface "+
		"received, TCP included.",
		"port_rcv_data", "rx_bytes", "rdma_rx_bytes", ionicReceiveBytes, "rx_bytes_cnt", "hw_rx_bytes_cnt",
		"ip4InOctets + ip6InOctets", netdevBytes)
	t.transmitBytes = abi.words("port_transmit_bytes_total", "Bytes sent over RDMA, headers included. On mlx5 of this "+
		"function only; a software device (rxe) has no such counter, so there it is what its network interface sent, "+
		"TCP included.", "port_xmit_data", "tx_bytes", "rdma_tx_bytes", ionicTransmitBytes, "tx_bytes_cnt",
		"hw_tx_bytes_cnt", "ip4OutOctets + ip6OutOctets", netdevBytes)
	abi.counter("port_receive_packets_total", "Packets received over RDMA, including ones with errors.",
		"port_rcv_packets", "rx_pkts", "rdma_rx_packets", "rx_packets", "rx_packets_cnt", "hw_rx_packets_cnt", "rx_pkt",
		"rcvd_pkts")
	abi.counter("port_transmit_packets_total", "Packets sent over RDMA, including ones with errors.",
		"port_xmit_packets",
		"tx_pkts", "rdma_tx_packets", "tx_packets", "tx_packets_cnt", "hw_tx_packets_cnt", "tx_pkt", "sent_pkts")
	abi.counter("port_unicast_receive_packets_total", "Unicast packets received over RDMA.", "unicast_rcv_packets",
		"rx_rdma_ucast_pkts")
	abi.counter("port_unicast_transmit_packets_total", "Unicast packets sent over RDMA.", "unicast_xmit_packets",
		"tx_rdma_ucast_pkts")
	abi.counter("port_multicast_receive_packets_total", "Multicast packets received over RDMA.",
		"multicast_rcv_packets", "rx_rdma_mcast_pkts")
	abi.counter("port_multicast_transmit_packets_total", "Multicast packets sent over RDMA.", "multicast_xmit_packets",
		"tx_rdma_mcast_pkts")

	abi.saturating(32, "port_transmit_wait_ticks_total", "Ticks in which the port had data to send and could not. The "+
		"length of a tick depends on the device: compare a device only with itself.", "port_xmit_wait")
	abi.saturating(16, "port_symbol_errors_total", "Minor link errors; rising means a bad cable or optics.",
		"symbol_error")
	abi.saturating(8, "port_link_error_recovery_total", "Times the link recovered from an error.",
		"link_error_recovery")
	abi.saturating(8, "port_link_downed_total", "Times the link went down.", "link_downed", "link_down_events")
	abi.saturating(16, "port_receive_errors_total", "Packets received with an error.", "port_rcv_errors",
		"rx_roce_errors")
	abi.saturating(16, "port_receive_remote_physical_errors_total", "Packets received that the sender had marked as "+
		"bad.", "port_rcv_remote_physical_errors")
	abi.saturating(16, "port_receive_switch_relay_errors_total", "Packets that a switch could not forward.",
		"port_rcv_switch_relay_errors")
	abi.saturating(16, "port_receive_discards_total", "Received packets that the port dropped because it was down or "+
		"congested.", "port_rcv_discards", "rx_roce_discards", "rx_drops")
	abi.saturating(16, "port_transmit_discards_total", "Packets to be sent that the port dropped because it was down "+
		"or congested.", "port_xmit_discards", "tx_roce_discards")
	bnxt.counter("port_transmit_errors_total", "Packets not sent because of an error.", "tx_roce_errors", "send_err")
	abi.saturating(8, "port_receive_constraint_errors_total", "Received packets rejected by a partition or raw-packet "+
		"rule.", "port_rcv_constraint_errors")
	abi.saturating(8, "port_transmit_constraint_errors_total", "Packets not sent because of a partition or raw-packet "+
		"rule.", "port_xmit_constraint_errors")
	abi.saturating(4, "port_local_link_integrity_errors_total", "Times local physical errors passed their threshold.",
		"local_link_integrity_errors")
	abi.saturating(4, "port_excessive_buffer_overrun_errors_total", "Times receive buffers overran in several flow "+
		"control periods in a row.", "excessive_buffer_overrun_errors")
	abi.saturating(16, "port_vl15_dropped_total", "Management packets dropped for lack of buffers.", "VL15_dropped")

	mlx5.counter("port_cnp_sent_total", "Congestion notifications (CNP) sent: packets received here were marked "+
		"congested.", "np_cnp_sent", "tx_cnp_pkts", "cnpSent", "cc_tx_cnp_pkts", "tx_rdma_cnp_pkts", "tx_cnp_pkt")
	mlx5.counter("port_cnp_handled_total", "Congestion notifications (CNP) received that slowed down sending. mlx5: "+
		"also retransmissions (measured on ConnectX-6, firmware 20.43.4100).", "rp_cnp_handled", "rx_cnp_pkts",
		"cnpHandled", "cc_rx_cnp_pkts", "rx_rdma_cnp_pkts", "rx_cnp_pkt", "received_cnps")
	mlx5.counter("port_cnp_ignored_total", "Congestion notifications (CNP) received and ignored; rising means that "+
		"congestion control is off or misconfigured here.", "rp_cnp_ignored", "cnpIgnored")
	mlx5.counter("port_ecn_marked_packets_total", "RoCE packets received with the congestion mark (ECN CE).",
		"np_ecn_marked_roce_packets", "rx_ecn_marked_pkts", "RxECNMrkd", "cc_rx_ce_pkts", "rx_rdma_ecn_pkts")
	mlx5.narrow("port_out_of_sequence_packets_total", "Packets that arrived out of order; rising means loss or "+
		"spraying over several paths.", "out_of_sequence", "out_of_seq_request", "oos_drop_count", "resp_rx_outouf_seq",
		"responder_oos")
	mlx5.narrow("port_packet_sequence_errors_total", "Sequence error NAKs received: packets sent were lost.",
		"packet_seq_err", "seq_err_naks_rcvd", "rcvd_seq_err", "req_rx_pkt_seq_err", "requester_oos_nak")
	mlx5.narrow("port_ack_timeouts_total", "Times an acknowledgement did not arrive in time; rising means loss, a "+
		"black hole or a PFC storm.",
		"local_ack_timeout_err", "to_retransmits", "tx_rdma_ack_timeout", "requester_timeout")
	mlx5.narrow("port_implied_nak_sequence_errors_total", "Times an acknowledgement showed that a read or atomic "+
		"response was lost.", "implied_nak_seq_err", "req_rx_impl_nak_seq_err")
	mlx5.narrow("port_duplicate_requests_total", "Requests received a second time: an acknowledgement was lost or "+
		"late.", "duplicate_request", "dup_req", "resp_rx_dup_request", "responder_dup_request")
	mlx5.narrow("port_rnr_naks_received_total", "Receiver-not-ready NAKs received: the peer's software is too slow.",
		"rnr_nak_retry_err", "rnr_naks_rcvd", "rcvd_rnr_err", "req_rx_rnr_retry_err", "requester_rnr_nak")
	rxe.counter("port_rnr_naks_sent_total", "Receiver-not-ready NAKs sent: software here is too slow.", "send_rnr_err")
	mlx5.narrow("port_transport_retries_exceeded_total", "Queue pairs that failed because the peer did not answer.",
		"req_transport_retries_exceeded", "max_retry_exceeded", "retry_exceeded_err", "req_tx_retry_excd_err")
	mlx5.narrow("port_rnr_retries_exceeded_total", "Queue pairs that failed because the peer never became ready.",
		"req_rnr_retries_exceeded", "retry_rnr_exceeded_err")
	mlx5.narrow("port_adaptive_retransmits_total", "Adaptive retransmissions.", "roce_adp_retrans")
	mlx5.narrow("port_adaptive_retransmit_timeouts_total", "Timeouts of adaptive retransmissions.",
		"roce_adp_retrans_to")
	mlx5.narrow("port_slow_restarts_total", "Times RoCE slow restart was used.", "roce_slow_restart")
	mlx5.narrow("port_slow_restart_cnps_total", "Congestion notifications of slow restart.", "roce_slow_restart_cnps")
	mlx5.narrow("port_slow_restart_transitions_total", "Times RoCE changed to slow restart.", "roce_slow_restart_trans")
	mlx5.counter("port_icrc_errors_total", "RoCE packets received with a bad checksum (ICRC).", "rx_icrc_encapsulated")
	mlx5.narrow("port_out_of_buffer_total", "Packets dropped because no receive buffer was posted; on mlx5 including "+
		"those of Ethernet queues.", "out_of_buffer", "rx_out_of_buffer", "resp_rx_outof_buf")

	// Verbs that were executed, and their errors.
	mlx5.narrow("port_receive_write_requests_total", "RDMA WRITE requests received.", "rx_write_requests",
		"rx_write_req", "iwInRdmaWrites")
	mlx5.narrow("port_receive_read_requests_total", "RDMA READ requests received.", "rx_read_requests", "rx_read_req",
		"iwInRdmaReads")
	mlx5.narrow("port_receive_atomic_requests_total", "Atomic requests received.", "rx_atomic_requests",
		"rx_atomic_req")
	bnxt.counter("port_receive_send_requests_total", "SEND requests received.", "rx_send_req", "iwInRdmaSends")
	mlx5.narrow("port_receive_dct_connects_total", "Connection requests received by dynamically connected transports.",
		"rx_dct_connect")
	bnxt.counter("port_transmit_write_requests_total", "RDMA WRITE requests sent.", "tx_write_req", "iwOutRdmaWrites",
		"rdma_write_wrs")
	bnxt.counter("port_transmit_read_requests_total", "RDMA READ requests sent.", "tx_read_req", "iwOutRdmaReads",
		"rdma_read_wrs")
	bnxt.counter("port_transmit_atomic_requests_total", "Atomic requests sent.", "tx_atomic_req")
	bnxt.counter("port_transmit_send_requests_total", "SEND requests sent.", "tx_send_req", "iwOutRdmaSends",
		"rdma_sends", "send_wrs")
	rxe.counter("port_receive_completions_total", "Receive work requests completed.", "rdma_recvs", "recv_wrs")
	bnxt.counter("port_read_responses_total", "RDMA READ responses handled.", "read_resp")

	mlx5.narrow("port_responder_local_length_errors_total", "Requests received that were longer than their buffer.",
		"resp_local_length_error", "resp_rx_loc_len_err")
	mlx5.narrow("port_responder_completion_errors_total", "Responder completions with an error.", "resp_cqe_error",
		"resp_rx_cqe_err")
	mlx5.narrow("port_requester_completion_errors_total", "Requester completions with an error.", "req_cqe_error",
		"req_rx_cqe_err")
	mlx5.narrow("port_responder_completion_flush_errors_total", "Responder completions flushed when a queue pair went "+
		"to the error state; part of every teardown.", "resp_cqe_flush_error", "resp_rx_cqe_flush")
	mlx5.narrow("port_requester_completion_flush_errors_total", "Requester completions flushed when a queue pair went "+
		"to the error state; part of every teardown.", "req_cqe_flush_error", "req_rx_cqe_flush")
	mlx5.narrow("port_requester_remote_invalid_request_errors_total", "Requests sent that the peer rejected as "+
		"invalid.", "req_remote_invalid_request", "remote_invalid_req_err", "req_rx_rmt_req_err")
	mlx5.narrow("port_requester_remote_access_errors_total", "Requests sent to which the peer denied access.",
		"req_remote_access_errors", "remote_access_err", "req_rx_rmt_acc_err")
	mlx5.narrow("port_responder_remote_access_errors_total", "Requests received to which access was denied.",
		"resp_remote_access_errors", "resp_tx_rmt_acc_err")
	bnxt.counter("port_requester_remote_operation_errors_total", "Requests sent that failed at the peer.",
		"remote_op_err", "req_rx_oper_err")
	t.lifespan = counters{port.Ref(refLifespan).Scaled(1e-3, "lifespan"), t.ports}.gauge("port_lifespan_seconds",
		"How long the driver answers a counter from its cache: two reads closer than this may be equal.")
	t.addDriverCounters(port)
}

// addDriverCounters adds the rows that only one driver has.
func (t *table) addDriverCounters(port collector.Group) {
	bnxt, rxe := counters{port.Ref(refBnxt), t.ports}, counters{port.Ref(refRXE), t.ports}
	irdma, efa := counters{port.Ref(refIrdma), t.ports}, counters{port.Ref(refEFA), t.ports}
	bnxt.counter("port_roce_receive_bytes_total", "Bytes of RoCE packets received.", "rx_roce_only_bytes")
	bnxt.counter("port_roce_transmit_bytes_total", "Bytes of RoCE packets sent.", "tx_roce_only_bytes")
	bnxt.counter("port_roce_receive_packets_total", "RoCE packets received.", "rx_roce_only_pkts", "RxUDP")
	bnxt.counter("port_roce_transmit_packets_total", "RoCE packets sent.", "tx_roce_only_pkts", "TxUDP")
	bnxt.counter("port_roce_receive_good_bytes_total", "Bytes of good RoCE packets received.", "rx_roce_good_bytes")
	bnxt.counter("port_roce_receive_good_packets_total", "Good RoCE packets received.", "rx_roce_good_pkts")
	bnxt.counter("port_recoverable_errors_total", "Errors the device recovered from.", "recoverable_errors")
	bnxt.counter("port_unrecoverable_errors_total", "Errors the device could not recover from.", "unrecoverable_err")
	bnxt.counter("port_missing_responses_total", "Responses that did not arrive.", "missing_resp")
	bnxt.counter("port_bad_responses_total", "Bad responses received.", "bad_resp_err")
	bnxt.counter("port_pacing_alerts_total", "Times a full doorbell FIFO triggered pacing.", "pacing_alerts")

	t.ipv4ReceiveBytes = irdma.counter("port_ipv4_receive_bytes_total", "Bytes received in IPv4 packets of RDMA.",
		"ip4InOctets")
	irdma.counter("port_ipv4_transmit_bytes_total", "Bytes sent in IPv4 packets of RDMA.", "ip4OutOctets")
	irdma.counter("port_ipv4_receive_packets_total", "IPv4 packets of RDMA received.", "ip4InPkts")
	irdma.counter("port_ipv4_transmit_packets_total", "IPv4 packets of RDMA sent.", "ip4OutPkts")
	irdma.counter("port_ipv4_receive_discards_total", "IPv4 packets of RDMA dropped on receive.", "ip4InDiscards")
	irdma.counter("port_ipv6_receive_bytes_total", "Bytes received in IPv6 packets of RDMA.", "ip6InOctets")
	irdma.counter("port_ipv6_transmit_bytes_total", "Bytes sent in IPv6 packets of RDMA.", "ip6OutOctets")
	irdma.counter("port_ipv6_receive_packets_total", "IPv6 packets of RDMA received.", "ip6InPkts")
	irdma.counter("port_ipv6_transmit_packets_total", "IPv6 packets of RDMA sent.", "ip6OutPkts")
	irdma.counter("port_ipv6_receive_discards_total", "IPv6 packets of RDMA dropped on receive.", "ip6InDiscards")
	irdma.counter("port_tcp_retransmitted_segments_total", "TCP segments that iWARP retransmitted.", "tcpRetransSegs")

	efa.counter("port_send_bytes_total", "Payload bytes of SEND requests sent.", "send_bytes")
	efa.counter("port_receive_payload_bytes_total", "Payload bytes of receive requests.", "recv_bytes")
	efa.counter("port_read_bytes_total", "Payload bytes read from peers.", "rdma_read_bytes")
	efa.counter("port_read_response_bytes_total", "Payload bytes that peers read from this node.",
		"rdma_read_resp_bytes")
	efa.counter("port_read_errors_total", "RDMA READ requests that failed.", "rdma_read_wr_err")
	efa.counter("port_write_bytes_total", "Payload bytes written to peers.", "rdma_write_bytes")
	efa.counter("port_write_receive_bytes_total", "Payload bytes that peers wrote to this node.",
		"rdma_write_recv_bytes")
	efa.counter("port_write_errors_total", "RDMA WRITE requests that failed.", "rdma_write_wr_err")
	efa.counter("port_retransmitted_bytes_total", "Bytes retransmitted.", "retrans_bytes", "tx_rdma_retx_bytes")
	efa.counter("port_retransmitted_packets_total", "Packets retransmitted.", "retrans_pkts", "tx_rdma_retx_pkts")
	efa.counter("port_retransmit_timeouts_total", "Retransmissions that timed out.", "retrans_timeout_events")
	efa.counter("port_unresponsive_remote_events_total", "Times a peer stopped responding.",
		"unresponsive_remote_events")
	efa.counter("port_impaired_remote_connections_total", "Times the connection to a peer was impaired.",
		"impaired_remote_conn_events")

	rxe.counter("port_acks_deferred_total", "Acknowledgements deferred.", "ack_deferred")
	rxe.counter("port_completer_retries_total", "Times the completer started a retry.", "completer_retry_err")
	for _, object := range []struct{ raw, name, plural string }{
		{"pds", "protection_domains", "Protection domains"}, {"ahs", "address_handles", "Address handles"},
		{"qps", "queue_pairs", "Queue pairs"}, {"rc_qps", "rc_queue_pairs", "RC queue pairs"},
		{"ud_qps", "ud_queue_pairs", "UD queue pairs"}, {"srqs", "shared_receive_queues", "Shared receive queues"},
		{"cqs", "completion_queues", "Completion queues"}, {"mrs", "memory_regions", "Memory regions"},
		{"mws", "memory_windows", "Memory windows"},
	} {
		bnxt.gauge("port_"+object.name, object.plural+" in use.", "active_"+object.raw)
		// the peak since driver load; Prometheus computes peaks of any period
		t.ports.ignored["watermark_"+object.raw] = true
	}
}

// addDeviceCounters adds the rows of the hw_counters/ that some devices have in addition to their ports' (EFA).
func (t *table) addDeviceCounters() {
	efa := counters{t.Group(refEFA, "device"), t.deviceWide}
	efa.counter("device_commands_submitted_total", "Commands submitted to the device.", "submitted_cmds")
	efa.counter("device_commands_completed_total", "Commands the device completed.", "completed_cmds")
	efa.counter("device_command_errors_total", "Commands the device failed.", "cmds_err")
	efa.counter("device_commands_without_completion_total", "Commands without a completion.", "no_completion_cmds")
	efa.counter("device_keep_alives_received_total", "Keep-alives received from the device.", "keep_alive_rcvd")
	counters{efa.Ref(refLifespan).Scaled(1e-3, "lifespan"), t.deviceWide}.gauge("device_lifespan_seconds",
		"How long the driver answers a counter of the device from its cache.")
	t.deviceWide.native = efa.Ref(refABI).With("counter").Row(collector.Untyped, "device_native_value", "A counter of "+
		"the device without its own metric, under the driver's name and in the driver's unit.", "any other file of "+
		"<device>/hw_counters/")
}
