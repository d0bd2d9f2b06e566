package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// twin is a metric of node_exporter and the one of railscope with the same value.
type twin struct {
	theirs, ours string            // without node_ and railscope_
	labels       map[string]string // their label → ours; nil means that device and port are the same
	rounded      bool              // node_exporter uses integer division, so its value is ours rounded down
}

// twins are all metrics of node_exporter 1.12.1 for infiniband and bonding (collector/infiniband_linux.go,
// collector/bonding_linux.go).
var twins = []twin{
	{theirs: "infiniband_info", ours: "rail_info", labels: map[string]string{"device": "device", "board_id": "board_id",
		"firmware_version": "firmware", "hca_type": "hca_type"}},
	{theirs: "infiniband_state_id", ours: "port_state_id"},
	{theirs: "infiniband_physical_state_id", ours: "port_physical_state_id"},
	{theirs: "infiniband_rate_bytes_per_second", ours: "port_rate_bytes_per_second"},
	{theirs: "infiniband_lifespan_seconds", ours: "port_lifespan_seconds", rounded: true},

	{theirs: "infiniband_port_data_received_bytes_total", ours: "port_receive_bytes_total"},
	{theirs: "infiniband_port_data_transmitted_bytes_total", ours: "port_transmit_bytes_total"},
	{theirs: "infiniband_port_packets_received_total", ours: "port_receive_packets_total"},
	{theirs: "infiniband_port_packets_transmitted_total", ours: "port_transmit_packets_total"},
	{theirs: "infiniband_unicast_packets_received_total", ours: "port_unicast_receive_packets_total"},
	{theirs: "infiniband_unicast_packets_transmitted_total", ours: "port_unicast_transmit_packets_total"},
	{theirs: "infiniband_multicast_packets_received_total", ours: "port_multicast_receive_packets_total"},
	{theirs: "infiniband_multicast_packets_transmitted_total", ours: "port_multicast_transmit_packets_total"},
	{theirs: "infiniband_port_errors_received_total", ours: "port_receive_errors_total"},
	{theirs: "infiniband_port_receive_remote_physical_errors_total", ours: "port_receive_remote_physical_errors_total"},
	{theirs: "infiniband_port_receive_switch_relay_errors_total", ours: "port_receive_switch_relay_errors_total"},
	{theirs: "infiniband_port_discards_received_total", ours: "port_receive_discards_total"},
	{theirs: "infiniband_port_discards_transmitted_total", ours: "port_transmit_discards_total"},
	{theirs: "infiniband_port_constraint_errors_received_total", ours: "port_receive_constraint_errors_total"},
	{theirs: "infiniband_port_constraint_errors_transmitted_total", ours: "port_transmit_constraint_errors_total"},
	{theirs: "infiniband_port_transmit_wait_total", ours: "port_transmit_wait_ticks_total"},
	{theirs: "infiniband_symbol_error_total", ours: "port_symbol_errors_total"},
	{theirs: "infiniband_link_error_recovery_total", ours: "port_link_error_recovery_total"},
	{theirs: "infiniband_link_downed_total", ours: "port_link_downed_total"},
	{theirs: "infiniband_local_link_integrity_errors_total", ours: "port_local_link_integrity_errors_total"},
	{theirs: "infiniband_excessive_buffer_overrun_errors_total", ours: "port_excessive_buffer_overrun_errors_total"},
	{theirs: "infiniband_vl15_dropped_total", ours: "port_vl15_dropped_total"},

	{theirs: "infiniband_duplicate_requests_packets_total", ours: "port_duplicate_requests_total"},
	{theirs: "infiniband_implied_nak_seq_errors_total", ours: "port_implied_nak_sequence_errors_total"},
	{theirs: "infiniband_local_ack_timeout_errors_total", ours: "port_ack_timeouts_total"},
	{theirs: "infiniband_np_cnp_packets_sent_total", ours: "port_cnp_sent_total"},
	{theirs: "infiniband_np_ecn_marked_roce_packets_received_total", ours: "port_ecn_marked_packets_total"},
	{theirs: "infiniband_out_of_buffer_drops_total", ours: "port_out_of_buffer_total"},
	{theirs: "infiniband_out_of_sequence_packets_received_total", ours: "port_out_of_sequence_packets_total"},
	{theirs: "infiniband_packet_sequence_errors_total", ours: "port_packet_sequence_errors_total"},
	{theirs: "infiniband_req_cqes_errors_total", ours: "port_requester_completion_errors_total"},
	{theirs: "infiniband_req_cqes_flush_errors_total", ours: "port_requester_completion_flush_errors_total"},
	{theirs: "infiniband_req_remote_access_errors_total", ours: "port_requester_remote_access_errors_total"},
	{theirs: "infiniband_req_remote_invalid_request_errors_total",
		ours: "port_requester_remote_invalid_request_errors_total"},
	{theirs: "infiniband_resp_cqes_errors_total", ours: "port_responder_completion_errors_total"},
	{theirs: "infiniband_resp_cqes_flush_errors_total", ours: "port_responder_completion_flush_errors_total"},
	{theirs: "infiniband_resp_local_length_errors_total", ours: "port_responder_local_length_errors_total"},
	{theirs: "infiniband_resp_remote_access_errors_total", ours: "port_responder_remote_access_errors_total"},
	{theirs: "infiniband_rnr_nak_retry_packets_received_total", ours: "port_rnr_naks_received_total"},
	{theirs: "infiniband_roce_adp_retransmits_total", ours: "port_adaptive_retransmits_total"},
	{theirs: "infiniband_roce_adp_retransmits_timeout_total", ours: "port_adaptive_retransmit_timeouts_total"},
	{theirs: "infiniband_roce_slow_restart_used_total", ours: "port_slow_restarts_total"},
	{theirs: "infiniband_roce_slow_restart_cnps_total", ours: "port_slow_restart_cnps_total"},
	{theirs: "infiniband_roce_slow_restart_total", ours: "port_slow_restart_transitions_total"},
	{theirs: "infiniband_rp_cnp_packets_handled_total", ours: "port_cnp_handled_total"},
	{theirs: "infiniband_rp_cnp_ignored_packets_received_total", ours: "port_cnp_ignored_total"},
	{theirs: "infiniband_rx_atomic_requests_total", ours: "port_receive_atomic_requests_total"},
	{theirs: "infiniband_rx_dct_connect_requests_total", ours: "port_receive_dct_connects_total"},
	{theirs: "infiniband_rx_read_requests_total", ours: "port_receive_read_requests_total"},
	{theirs: "infiniband_rx_write_requests_total", ours: "port_receive_write_requests_total"},
	{theirs: "infiniband_rx_icrc_encapsulated_errors_total", ours: "port_icrc_errors_total"},

	{theirs: "bonding_slaves", ours: "bond_members", labels: map[string]string{"master": "bond"}},
	{theirs: "bonding_active", ours: "bond_members_up", labels: map[string]string{"master": "bond"}},
}

// compare looks up every value of node_exporter's infiniband and bonding collectors in railscope's exposition. It
// returns the number of values and the differences.
func compare(theirs, ours io.Reader) (values int, wrong []string, err error) {
	their, err := parse(theirs)
	if err != nil {
		return 0, nil, fmt.Errorf("parse node_exporter's exposition: %w", err)
	}
	our, err := parse(ours)
	if err != nil {
		return 0, nil, fmt.Errorf("parse railscope's exposition: %w", err)
	}
	byName := map[string]twin{}
	for _, t := range twins {
		byName["node_"+t.theirs] = t
	}
	for _, name := range slices.Sorted(maps.Keys(their)) {
		if !strings.HasPrefix(name, "node_infiniband_") && !strings.HasPrefix(name, "node_bonding_") {
			continue
		}
		t, known := byName[name]
		for _, s := range their[name] {
			values++
			if !known {
				wrong = append(wrong, name+" is in no row of the table of twins")
			} else if why := t.differs(s, our["railscope_"+t.ours]); why != "" {
				wrong = append(wrong, s.Metric.String()+": "+why)
			}
		}
	}
	return values, wrong, nil
}

// parse returns the series of an exposition by metric name.
func parse(text io.Reader) (map[string]model.Vector, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return nil, err
	}
	series := map[string]model.Vector{}
	for name, f := range families {
		series[name], err = expfmt.ExtractSamples(&expfmt.DecodeOptions{}, f)
		if err != nil {
			return nil, err
		}
	}
	return series, nil
}

// differs returns the difference between our twin and their series, or "".
func (t twin) differs(their *model.Sample, ours model.Vector) string {
	labels := t.labels
	if labels == nil {
		labels = map[string]string{"device": "device", "port": "port"}
	}
	want := model.LabelSet{}
	for name, value := range their.Metric {
		ourName, known := labels[string(name)]
		switch {
		case name == model.MetricNameLabel:
		case !known:
			return fmt.Sprintf("label %s has no twin", name)
		default:
			want[model.LabelName(ourName)] = value
		}
	}
	for _, our := range ours {
		if !has(our.Metric, want) {
			continue
		}
		if our.Value == their.Value || t.rounded && math.Floor(float64(our.Value)) == float64(their.Value) {
			return ""
		}
		return fmt.Sprintf("%v, but railscope_%s is %v", their.Value, t.ours, our.Value)
	}
	return fmt.Sprintf("railscope_%s has no such series", t.ours)
}

func has(m model.Metric, want model.LabelSet) bool {
	for name, value := range want {
		if m[name] != value {
			return false
		}
	}
	return true
}
