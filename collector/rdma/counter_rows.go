package rdma

import "github.com/railscope/railscope/collector"

// addPortCounters adds the rows of counters/ and hw_counters/ for every driver,
// under one name whatever the driver calls it.
func (t *table) addPortCounters(port collector.Group) {
	from := collector.From
	abi := counters{port.Ref(refABI), t.ports}
	mlx5 := counters{port.Ref(refMlx5), t.ports}
	bnxt := counters{port.Ref(refBnxt), t.ports}
	rxe := counters{port.Ref(refRXE), t.ports}
	t.receiveBytes = abi.counter("port_receive_bytes_total", "Bytes received over RDMA, headers included. On mlx5 of "+
		"this function only; a software device (rxe) has no such counter, so there it is what its network interface "+
		"received, TCP and all.",
		words("port_rcv_data", "rx_bytes", "rdma_rx_bytes", "ip4InOctets + ip6InOctets", netdevBytes)...)
	t.transmitBytes = abi.counter("port_transmit_bytes_total", "Bytes sent over RDMA, headers included. On mlx5 of "+
		"this function only; a software device (rxe) has no such counter, so there it is what its network interface "+
		"sent, TCP and all.",
		words("port_xmit_data", "tx_bytes", "rdma_tx_bytes", "ip4OutOctets + ip6OutOctets", netdevBytes)...)
	abi.counter("port_receive_packets_total", "Packets received over RDMA, including ones with errors.",
		from("port_rcv_packets", "rx_pkts", "rdma_rx_packets", "rcvd_pkts")...)
	abi.counter("port_transmit_packets_total", "Packets sent over RDMA, including ones with errors.",
		from("port_xmit_packets", "tx_pkts", "rdma_tx_packets", "sent_pkts")...)
	abi.counter("port_unicast_receive_packets_total", "Unicast packets received over RDMA.",
		from("unicast_rcv_packets")...)
	abi.counter("port_unicast_transmit_packets_total", "Unicast packets sent over RDMA.",
		from("unicast_xmit_packets")...)
	abi.counter("port_multicast_receive_packets_total", "Multicast packets received over RDMA.",
		from("multicast_rcv_packets")...)
	abi.counter("port_multicast_transmit_packets_total", "Multicast packets sent over RDMA.",
		from("multicast_xmit_packets")...)

	abi.counter("port_transmit_wait_ticks_total", "Ticks in which the port had data to send and could not. The "+
		"length of a tick depends on the device: compare a device only with itself.",
		saturating("port_xmit_wait", 32)...)
	abi.counter("port_symbol_errors_total", "Minor link errors on one or more lanes; rising means a bad cable or "+
		"transceiver.", saturating("symbol_error", 16)...)
	abi.counter("port_link_error_recovery_total", "Times the link recovered from an error state by itself.",
		saturating("link_error_recovery", 8)...)
	abi.counter("port_link_downed_total", "Times the link failed to recover and went down.",
		saturating("link_downed", 8, "link_down_events")...)
	abi.counter("port_receive_errors_total", "Packets received with an error.",
		saturating("port_rcv_errors", 16, "rx_roce_errors")...)
	abi.counter("port_receive_remote_physical_errors_total", "Received packets that the sender had marked as bad.",
		saturating("port_rcv_remote_physical_errors", 16)...)
	abi.counter("port_receive_switch_relay_errors_total", "Packets that a switch could not forward.",
		saturating("port_rcv_switch_relay_errors", 16)...)
	abi.counter("port_receive_discards_total", "Received packets that the port dropped because it was down or "+
		"congested.", saturating("port_rcv_discards", 16, "rx_roce_discards", "rx_drops")...)
	abi.counter("port_transmit_discards_total", "Packets to be sent that the port dropped because it was down or "+
		"congested.", saturating("port_xmit_discards", 16, "tx_roce_discards")...)
	bnxt.counter("port_transmit_errors_total", "Packets that could not be sent because of an error.",
		from("tx_roce_errors", "send_err")...)
	abi.counter("port_receive_constraint_errors_total", "Received packets rejected by a partition or raw-packet rule.",
		saturating("port_rcv_constraint_errors", 8)...)
	abi.counter("port_transmit_constraint_errors_total", "Packets not sent because of a partition or raw-packet rule.",
		saturating("port_xmit_constraint_errors", 8)...)
	abi.counter("port_local_link_integrity_errors_total", "Times local physical errors passed their threshold.",
		saturating("local_link_integrity_errors", 4)...)
	abi.counter("port_excessive_buffer_overrun_errors_total", "Times receive buffers overran in several flow control "+
		"periods in a row.", saturating("excessive_buffer_overrun_errors", 4)...)
	abi.counter("port_vl15_dropped_total", "Management packets dropped for lack of buffers.",
		saturating("VL15_dropped", 16)...)

	mlx5.counter("port_cnp_sent_total", "Congestion notifications (CNP) we sent: our receive path was marked "+
		"congested.", from("np_cnp_sent", "tx_cnp_pkts", "cnpSent", "cc_tx_cnp_pkts")...)
	mlx5.counter("port_cnp_handled_total", "Congestion notifications (CNP) we received and slowed down for.",
		from("rp_cnp_handled", "rx_cnp_pkts", "cnpHandled", "cc_rx_cnp_pkts")...)
	mlx5.counter("port_cnp_ignored_total", "Congestion notifications (CNP) we received and ignored; rising means "+
		"that congestion control is off or misconfigured here.", from("rp_cnp_ignored", "cnpIgnored")...)
	mlx5.counter("port_ecn_marked_packets_total", "RoCE packets received with the congestion mark (ECN CE).",
		from("np_ecn_marked_roce_packets", "rx_ecn_marked_pkts", "RxECNMrkd", "cc_rx_ce_pkts")...)
	mlx5.narrow("port_out_of_sequence_packets_total", "Packets that arrived out of order; rising means loss or "+
		"spraying over several paths.", "out_of_sequence", "out_of_seq_request", "oos_drop_count")
	mlx5.narrow("port_packet_sequence_errors_total", "Sequence error NAKs received: packets that we sent were lost.",
		"packet_seq_err", "seq_err_naks_rcvd", "rcvd_seq_err")
	mlx5.narrow("port_ack_timeouts_total", "Times no acknowledgement came in time; rising means loss, a black hole "+
		"or a PFC storm.", "local_ack_timeout_err", "to_retransmits")
	mlx5.narrow("port_implied_nak_sequence_errors_total", "Times an acknowledgement showed that a read or atomic "+
		"response was lost.", "implied_nak_seq_err")
	mlx5.narrow("port_duplicate_requests_total", "Requests received a second time: an acknowledgement of ours was "+
		"lost or late.", "duplicate_request", "dup_req")
	mlx5.narrow("port_rnr_naks_received_total", "Receiver-not-ready NAKs received: the peer's software is too slow.",
		"rnr_nak_retry_err", "rnr_naks_rcvd", "rcvd_rnr_err")
	rxe.counter("port_rnr_naks_sent_total", "Receiver-not-ready NAKs sent: software here is too slow.",
		from("send_rnr_err")...)
	mlx5.narrow("port_transport_retries_exceeded_total", "Queue pairs that died because the peer never acknowledged.",
		"req_transport_retries_exceeded", "max_retry_exceeded", "retry_exceeded_err")
	mlx5.narrow("port_rnr_retries_exceeded_total", "Queue pairs that died because the peer never became ready.",
		"req_rnr_retries_exceeded", "retry_rnr_exceeded_err")
	mlx5.narrow("port_adaptive_retransmits_total", "Adaptive retransmissions.", "roce_adp_retrans")
	mlx5.narrow("port_adaptive_retransmit_timeouts_total", "Times adaptive retransmission ran into its timeout.",
		"roce_adp_retrans_to")
	mlx5.narrow("port_slow_restarts_total", "Times RoCE slow restart was used.", "roce_slow_restart")
	mlx5.narrow("port_slow_restart_cnps_total", "Congestion notifications that slow restart made.",
		"roce_slow_restart_cnps")
	mlx5.narrow("port_slow_restart_transitions_total", "Times RoCE went over to slow restart.",
		"roce_slow_restart_trans")
	mlx5.counter("port_icrc_errors_total", "RoCE packets received with a bad checksum (ICRC): corruption on the way.",
		from("rx_icrc_encapsulated")...)
	mlx5.narrow("port_out_of_buffer_total", "Packets dropped because no receive buffer was posted; on mlx5 including "+
		"those of plain Ethernet queues.", "out_of_buffer", "rx_out_of_buffer")
}

// addRequestCounters adds what the verbs themselves did and how they failed.
func (t *table) addRequestCounters(port collector.Group) {
	from := collector.From
	mlx5 := counters{port.Ref(refMlx5), t.ports}
	bnxt := counters{port.Ref(refBnxt), t.ports}
	rxe := counters{port.Ref(refRXE), t.ports}
	lifespan := counters{port.Ref(refLifespan), t.ports}
	mlx5.narrow("port_receive_write_requests_total", "RDMA WRITE requests received.", "rx_write_requests",
		"rx_write_req", "iwInRdmaWrites")
	mlx5.narrow("port_receive_read_requests_total", "RDMA READ requests received.", "rx_read_requests", "rx_read_req",
		"iwInRdmaReads")
	mlx5.narrow("port_receive_atomic_requests_total", "Atomic requests received.", "rx_atomic_requests",
		"rx_atomic_req")
	bnxt.counter("port_receive_send_requests_total", "SEND requests received.", from("rx_send_req", "iwInRdmaSends")...)
	mlx5.narrow("port_receive_dct_connects_total", "Connection requests received by dynamically connected transports.",
		"rx_dct_connect")
	bnxt.counter("port_transmit_write_requests_total", "RDMA WRITE requests sent.",
		from("tx_write_req", "iwOutRdmaWrites", "rdma_write_wrs")...)
	bnxt.counter("port_transmit_read_requests_total", "RDMA READ requests sent.",
		from("tx_read_req", "iwOutRdmaReads", "rdma_read_wrs")...)
	bnxt.counter("port_transmit_atomic_requests_total", "Atomic requests sent.", from("tx_atomic_req")...)
	bnxt.counter("port_transmit_send_requests_total", "SEND requests sent.",
		from("tx_send_req", "iwOutRdmaSends", "rdma_sends", "send_wrs")...)
	rxe.counter("port_receive_completions_total", "Receive work requests completed.", from("rdma_recvs", "recv_wrs")...)
	bnxt.counter("port_read_responses_total", "RDMA READ responses handled.", from("read_resp")...)

	mlx5.narrow("port_responder_local_length_errors_total", "Requests received that did not fit where they should go.",
		"resp_local_length_error")
	mlx5.narrow("port_responder_completion_errors_total", "Responder completions that ended in an error.",
		"resp_cqe_error")
	mlx5.narrow("port_requester_completion_errors_total", "Requester completions that ended in an error.",
		"req_cqe_error")
	mlx5.narrow("port_responder_completion_flush_errors_total", "Responder completions flushed when a queue pair "+
		"went to the error state; part of every teardown.", "resp_cqe_flush_error")
	mlx5.narrow("port_requester_completion_flush_errors_total", "Requester completions flushed when a queue pair "+
		"went to the error state; part of every teardown.", "req_cqe_flush_error")
	mlx5.narrow("port_requester_remote_invalid_request_errors_total", "Our requests that the peer rejected as invalid.",
		"req_remote_invalid_request", "remote_invalid_req_err")
	mlx5.narrow("port_requester_remote_access_errors_total", "Our requests to which the peer denied access.",
		"req_remote_access_errors", "remote_access_err")
	mlx5.narrow("port_responder_remote_access_errors_total", "Received requests to which we denied access.",
		"resp_remote_access_errors")
	bnxt.counter("port_requester_remote_operation_errors_total", "Our requests that failed at the peer.",
		from("remote_op_err")...)
	t.lifespan = lifespan.gauge("port_lifespan_seconds", "How long the driver answers a counter from its cache: two "+
		"reads closer than this may be equal.", collector.Scaled(1e-3, "lifespan")...)
}

// addDriverCounters adds rows that only one driver has.
func (t *table) addDriverCounters(port collector.Group) {
	from := collector.From
	bnxt := counters{port.Ref(refBnxt), t.ports}
	irdma := counters{port.Ref(refIrdma), t.ports}
	efa := counters{port.Ref(refEFA), t.ports}
	rxe := counters{port.Ref(refRXE), t.ports}
	bnxt.counter("port_roce_receive_bytes_total", "Bytes of RoCE packets received.", from("rx_roce_only_bytes")...)
	bnxt.counter("port_roce_transmit_bytes_total", "Bytes of RoCE packets sent.", from("tx_roce_only_bytes")...)
	bnxt.counter("port_roce_receive_packets_total", "RoCE packets received.", from("rx_roce_only_pkts", "RxUDP")...)
	bnxt.counter("port_roce_transmit_packets_total", "RoCE packets sent.", from("tx_roce_only_pkts", "TxUDP")...)
	bnxt.counter("port_roce_receive_good_bytes_total", "Bytes of RoCE packets received without error.",
		from("rx_roce_good_bytes")...)
	bnxt.counter("port_roce_receive_good_packets_total", "RoCE packets received without error.",
		from("rx_roce_good_pkts")...)
	bnxt.counter("port_recoverable_errors_total", "Errors the device recovered from.", from("recoverable_errors")...)
	bnxt.counter("port_unrecoverable_errors_total", "Errors the device could not recover from.",
		from("unrecoverable_err")...)
	bnxt.counter("port_missing_responses_total", "Responses that did not arrive.", from("missing_resp")...)
	bnxt.counter("port_bad_responses_total", "Bad responses received.", from("bad_resp_err")...)
	bnxt.counter("port_pacing_alerts_total", "Times doorbell pacing was triggered because the doorbell FIFO filled up.",
		from("pacing_alerts")...)

	t.ipv4ReceiveBytes = irdma.counter("port_ipv4_receive_bytes_total", "Bytes received in IPv4 packets of RDMA.",
		from("ip4InOctets")...)
	irdma.counter("port_ipv4_transmit_bytes_total", "Bytes sent in IPv4 packets of RDMA.", from("ip4OutOctets")...)
	irdma.counter("port_ipv4_receive_packets_total", "IPv4 packets of RDMA received.", from("ip4InPkts")...)
	irdma.counter("port_ipv4_transmit_packets_total", "IPv4 packets of RDMA sent.", from("ip4OutPkts")...)
	irdma.counter("port_ipv4_receive_discards_total", "IPv4 packets of RDMA dropped on receive.",
		from("ip4InDiscards")...)
	irdma.counter("port_ipv6_receive_bytes_total", "Bytes received in IPv6 packets of RDMA.", from("ip6InOctets")...)
	irdma.counter("port_ipv6_transmit_bytes_total", "Bytes sent in IPv6 packets of RDMA.", from("ip6OutOctets")...)
	irdma.counter("port_ipv6_receive_packets_total", "IPv6 packets of RDMA received.", from("ip6InPkts")...)
	irdma.counter("port_ipv6_transmit_packets_total", "IPv6 packets of RDMA sent.", from("ip6OutPkts")...)
	irdma.counter("port_ipv6_receive_discards_total", "IPv6 packets of RDMA dropped on receive.",
		from("ip6InDiscards")...)
	irdma.counter("port_tcp_retransmitted_segments_total", "TCP segments that iWARP sent again.",
		from("tcpRetransSegs")...)

	efa.counter("port_send_bytes_total", "Payload bytes of SEND requests sent.", from("send_bytes")...)
	efa.counter("port_receive_payload_bytes_total", "Payload bytes of receive requests.", from("recv_bytes")...)
	efa.counter("port_read_bytes_total", "Payload bytes read from peers.", from("rdma_read_bytes")...)
	efa.counter("port_read_response_bytes_total", "Payload bytes that peers read from here.",
		from("rdma_read_resp_bytes")...)
	efa.counter("port_read_errors_total", "RDMA READ requests that failed.", from("rdma_read_wr_err")...)
	efa.counter("port_write_bytes_total", "Payload bytes written to peers.", from("rdma_write_bytes")...)
	efa.counter("port_write_receive_bytes_total", "Payload bytes that peers wrote here.",
		from("rdma_write_recv_bytes")...)
	efa.counter("port_write_errors_total", "RDMA WRITE requests that failed.", from("rdma_write_wr_err")...)
	efa.counter("port_retransmitted_bytes_total", "Bytes sent again.", from("retrans_bytes")...)
	efa.counter("port_retransmitted_packets_total", "Packets sent again.", from("retrans_pkts")...)
	efa.counter("port_retransmit_timeouts_total", "Times a retransmission ran into its timeout.",
		from("retrans_timeout_events")...)
	efa.counter("port_unresponsive_remote_events_total", "Times a peer stopped answering.",
		from("unresponsive_remote_events")...)
	efa.counter("port_impaired_remote_connections_total", "Times the connection to a peer was impaired.",
		from("impaired_remote_conn_events")...)

	rxe.counter("port_acks_deferred_total", "Acknowledgements deferred.", from("ack_deferred")...)
	rxe.counter("port_completer_retries_total", "Times the completer started a retry.", from("completer_retry_err")...)
	for _, object := range []struct{ raw, name, plural string }{
		{"pds", "protection_domains", "Protection domains"}, {"ahs", "address_handles", "Address handles"},
		{"qps", "queue_pairs", "Queue pairs"}, {"rc_qps", "rc_queue_pairs", "RC queue pairs"},
		{"ud_qps", "ud_queue_pairs", "UD queue pairs"}, {"srqs", "shared_receive_queues", "Shared receive queues"},
		{"cqs", "completion_queues", "Completion queues"}, {"mrs", "memory_regions", "Memory regions"},
		{"mws", "memory_windows", "Memory windows"},
	} {
		bnxt.gauge("port_"+object.name, object.plural+" in use, as the driver counts them.",
			from("active_"+object.raw)...)
		bnxt.gauge("port_"+object.name+"_peak", object.plural+" in use at most since the driver was loaded.",
			from("watermark_"+object.raw)...)
	}
}

// addLegacyCounters adds the rows of counters_ext/, which kernels before 4.5 had
// beside a counters/ with 32-bit values.
func (t *table) addLegacyCounters(port collector.Group) {
	from, ext := collector.From, counters{port.Ref(refOldExt), t.legacy}
	ext.counter("port_legacy_receive_bytes_total", "Bytes received, from the directory counters_ext of old kernels.",
		words("port_rcv_data_64")...)
	ext.counter("port_legacy_transmit_bytes_total", "Bytes sent, from the directory counters_ext of old kernels.",
		words("port_xmit_data_64")...)
	ext.counter("port_legacy_receive_packets_total", "Packets received, from the directory counters_ext of old "+
		"kernels.", from("port_rcv_packets_64")...)
	ext.counter("port_legacy_transmit_packets_total", "Packets sent, from the directory counters_ext of old kernels.",
		from("port_xmit_packets_64")...)
	ext.counter("port_legacy_unicast_receive_packets_total", "Unicast packets received, from the directory "+
		"counters_ext of old kernels.", from("port_unicast_rcv_packets")...)
	ext.counter("port_legacy_unicast_transmit_packets_total", "Unicast packets sent, from the directory counters_ext "+
		"of old kernels.", from("port_unicast_xmit_packets")...)
	ext.counter("port_legacy_multicast_receive_packets_total", "Multicast packets received, from the directory "+
		"counters_ext of old kernels.", from("port_multicast_rcv_packets")...)
	ext.counter("port_legacy_multicast_transmit_packets_total", "Multicast packets sent, from the directory "+
		"counters_ext of old kernels.", from("port_multicast_xmit_packets")...)
}

// addDeviceCounters adds the rows of the hw_counters/ that some devices have
// beside their ports' (EFA: commands to the device).
func (t *table) addDeviceCounters() {
	from, efa := collector.From, counters{t.Group(refEFA, "device"), t.deviceWide}
	efa.counter("device_commands_submitted_total", "Commands submitted to the device.", from("submitted_cmds")...)
	efa.counter("device_commands_completed_total", "Commands the device completed.", from("completed_cmds")...)
	efa.counter("device_command_errors_total", "Commands the device failed.", from("cmds_err")...)
	efa.counter("device_commands_without_completion_total", "Commands without a completion.",
		from("no_completion_cmds")...)
	efa.counter("device_keep_alives_received_total", "Keep-alives received from the device.",
		from("keep_alive_rcvd")...)
	counters{efa.Ref(refLifespan), t.deviceWide}.gauge("device_lifespan_seconds", "How long the driver answers a "+
		"counter of the device from its cache.", collector.Scaled(1e-3, "lifespan")...)
	t.deviceWide.native = efa.Ref(refABI).With("counter").Untyped("device_native_value",
		"A counter of the whole device without a metric of its own, under the driver's name and in the driver's unit.",
		from("any other file of <device>/hw_counters/")...)
}
