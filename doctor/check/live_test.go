package check

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/doctor/doctortest"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/fingerprint"
)

// sightings returns the findings of a running railscope.
func sightings(f *facts.Facts) (list []string) {
	for _, c := range liveChecks() {
		for _, found := range c.Find(f) {
			list = append(list, fmt.Sprintf("%s %s, %s: %s", found.Severity, found.Check, found.Subject, found.Evidence))
			if lacks := doctortest.Incomplete(found); lacks != "" {
				list = append(list, lacks)
			}
		}
	}
	return list
}

// TestLive: each fault that only a running railscope sees is its own and only finding.
func TestLive(t *testing.T) {
	const over = 10 * time.Minute
	increases := func(list ...facts.Increase) *facts.Live { return &facts.Live{Over: over, Increases: list} }
	rise := func(row string, by float64, labels ...string) facts.Increase {
		return facts.Increase{Row: row, Labels: labels, By: by, Ever: by}
	}
	tested := map[string]bool{}
	for _, tt := range []struct {
		name string
		live *facts.Live
		want []string
	}{
		{"nothing", &facts.Live{}, nil},
		{"a cable that was pulled and plugged in, twice", increases(rise("netdev_carrier_changes_total", 4, "1")), nil},
		{"a rail that carries less", &facts.Live{Imbalance: map[string]float64{"receive": 0.1, "transmit": 0.6},
			Shares: []facts.Share{{Rail: "0", Direction: "transmit", Value: 1}, {Rail: "1", Direction: "transmit", Value: 0.4},
				{Rail: "0", Direction: "receive", Value: 1}, {Rail: "1", Direction: "receive", Value: 0.9}}},
			[]string{"warning traffic_uneven, rail 1: real traffic of the last 10 s: it carries 40 % of the best rail's share, " +
				"transmit"}},
		{"rails that are even", &facts.Live{Imbalance: map[string]float64{"transmit": 0.2},
			Shares: []facts.Share{{Rail: "0", Direction: "transmit", Value: 1}, {Rail: "1", Direction: "transmit", Value: 0.8}}}, nil},
		{"five flaps", increases(rise("netdev_carrier_changes_total", 10, "1")),
			[]string{"warning link_flapping, rail 1: the link of eth1 changed 10 times in 10 min"}},
		{"flaps of what is no rail", increases(rise("netdev_carrier_changes_total", 10, "7")), nil},
		{"1 % of loss", increases(rise("port_transmit_packets_total", 1e6, "1"),
			rise("port_packet_sequence_errors_total", 1e4, "1"), rise("port_transmit_packets_total", 1e6, "0")),
			[]string{"warning lossy_rail, rail 1: 10000 retransmissions and sequence errors in 1e+06 packets (1 %) in 10 min"}},
		{"0.1 % of loss", increases(rise("port_transmit_packets_total", 1e9, "1"),
			rise("port_retransmitted_packets_total", 5e5, "1"), rise("port_adaptive_retransmits_total", 5e5, "1")),
			[]string{"warning lossy_rail, rail 1: 1000000 retransmissions and sequence errors in 1e+09 packets (0.1 %) in 10 min"}},
		{"packets that overtake each other: retransmitted, not lost", increases(rise("port_transmit_packets_total", 1e6, "1"),
			rise("port_packet_sequence_errors_total", 2e3, "1"), rise("port_receive_packets_total", 1e6, "1"),
			rise("port_out_of_sequence_packets_total", 1e5, "1")), []string{"warning out_of_sequence, rail 1: 100000 packets " +
			"out of sequence for 1e+06 packets (10 %) in 10 min"}},
		{"a killed job's last packets", increases(rise("port_transmit_packets_total", 1e9, "1"),
			rise("port_packet_sequence_errors_total", 900, "1")), nil},
		{"an idle rail", increases(rise("port_transmit_packets_total", 100, "1"),
			rise("port_packet_sequence_errors_total", 20, "1")), nil},
		{"a pause storm", increases(rise("port_pause_seconds_total", 301, "1", "eth1", "3", "transmit"),
			rise("port_pause_seconds_total", 299, "1", "eth1", "4", "receive")),
			[]string{"critical pfc_storm, rail 1: pause frames blocked priority 3 of eth1 for 50 % of 10 min (sent: this node " +
				"blocks others)"}},
		{"an adapter that gave up pausing", increases(rise("port_pause_storm_events_total", 2, "1", "eth1", "error"),
			rise("port_pause_storm_events_total", 9, "0", "eth0", "warning")),
			[]string{"critical pfc_storm, rail 1: the adapter paused the network for too long and then dropped packets, 2 " +
				"times in 10 min"}},
		{"pauses", increases(rise("port_global_pause_seconds_total", 60, "1", "eth1", "receive")),
			[]string{"warning pfc_pause, rail 1: pause frames blocked eth1 for 10 % of 10 min (received: the network blocks " +
				"this rail)"}},
		{"few pauses of each of 8 priorities", increases(rise("port_pause_seconds_total", 29, "1", "eth1", "0", "receive"),
			rise("port_pause_seconds_total", 29, "1", "eth1", "1", "receive")), nil},
		{"packets out of sequence", increases(rise("port_receive_packets_total", 1e6, "1"),
			rise("port_out_of_sequence_packets_total", 2e3, "1")), []string{"warning out_of_sequence, rail 1: 2000 packets " +
			"out of sequence for 1e+06 packets (0.2 %) in 10 min"}},
		{"0.1 % out of sequence, and an idle rail", increases(rise("port_receive_packets_total", 1e6, "1"),
			rise("port_out_of_sequence_packets_total", 1e3, "1"), rise("port_receive_packets_total", 6e4, "0"),
			rise("port_out_of_sequence_packets_total", 6e4, "0")), nil},
		{"no buffers", increases(rise("port_receive_packets_total", 1e6, "1"), rise("port_out_of_buffer_total", 2e3, "1"),
			rise("netdev_phy_discards_total", 3e3, "1", "eth1", "receive"),
			rise("netdev_phy_discards_total", 9e3, "1", "eth1", "transmit")),
			[]string{"warning receive_discards, rail 1: 3000 packets dropped for 1e+06 packets (0.3 %) in 10 min"}},
		{"a receiver that is not ready", increases(rise("port_transmit_packets_total", 1e6, "1"),
			rise("port_rnr_naks_received_total", 2e3, "1")), []string{"warning rnr_naks, rail 1: 2000 receiver-not-ready " +
			"NAKs for 1e+06 packets (0.2 %) in 10 min"}},
		{"queue pairs", increases(rise("port_transport_retries_exceeded_total", 3, "1"),
			rise("port_rnr_retries_exceeded_total", 1, "1")), []string{"info queue_pairs_failed, rail 1: in 10 " +
			"min: 3 queue pairs gave up on a silent peer; 1 queue pair gave up on a peer that posted no " +
			"receive buffers"}},
		{"a killed peer, and others before", &facts.Live{Over: over, Faults: map[string][]fingerprint.Fault{"1": {
			{Rose: fingerprint.Counts{fingerprint.Failed: 1, fingerprint.Access: 1}},
			{Rose: fingerprint.Counts{fingerprint.Timeouts: 2}},
			{Rose: fingerprint.Counts{fingerprint.Failed: 2, fingerprint.Silent: 2, fingerprint.Timeouts: 12,
				fingerprint.Adaptive: 16}}}}}, []string{"info queue_pairs_failed, rail 1: in 10 min: 2 queue pairs gave up on a " +
			"silent peer, after 12 timeouts and 16 adaptive retransmissions; 1 request to which the peer denied access; " +
			"2 timeouts after which no queue pair failed"}},
		{"RDMA in priority 0", increases(rise("port_transmit_bytes_total", 1e12, "1"),
			rise("port_priority_bytes_total", 1e12, "1", "eth1", "0", "transmit")), []string{"warning rdma_on_lossy_priority, " +
			"rail 1: at least 100 % of the RDMA bytes that it sent in 10 min were on priorities without PFC (0); PFC is on " +
			"for 3"}},
		{"late acknowledgements", &facts.Live{Over: over, Faults: map[string][]fingerprint.Fault{"1": {
			{Rose: fingerprint.Counts{fingerprint.Timeouts: 2, fingerprint.Adaptive: 3}}}}}, nil},
		{"a request that this end refuses", increases(rise("port_requester_completion_errors_total", 1, "1")),
			[]string{"info queue_pairs_failed, rail 1: in 10 min: 1 request failed at this end"}},
		{"the end of a job", increases(rise("port_requester_completion_errors_total", 64, "1"),
			rise("port_requester_completion_flush_errors_total", 64, "1")), nil},
		{"congestion control at work", increases(rise("port_cnp_handled_total", 1e9, "1"),
			rise("port_ecn_marked_packets_total", 1e9, "1"), rise("port_receive_packets_total", 1e9, "1"),
			rise("port_transmit_packets_total", 1e9, "1")), nil},
		{"a bad cable", increases(rise("port_symbol_errors_total", 10, "1"), rise("port_link_error_recovery_total", 3, "0")),
			[]string{"warning link_errors, rail 0: 0 symbol errors and 3 recoveries of the link in 10 min",
				"warning link_errors, rail 1: 10 symbol errors and 0 recoveries of the link in 10 min"}},
		{"blocks that FEC cannot correct", increases(rise("netdev_fec_uncorrectable_blocks_total", 40, "1", "eth1"),
			rise("netdev_phy_symbol_errors_total", 30, "1", "eth1"), rise("port_symbol_errors_total", 9, "0"),
			rise("port_link_error_recovery_total", 2, "0")),
			[]string{"warning link_errors, rail 1: 40 symbol errors and 0 recoveries of the link in 10 min"}},
		{"errors of a link that was pulled", increases(rise("port_symbol_errors_total", 1e3, "1"),
			rise("port_link_downed_total", 1, "1"), rise("netdev_phy_symbol_errors_total", 1e3, "0", "eth0"),
			rise("netdev_carrier_changes_total", 2, "0", "eth0")), nil},
		{"hardware", increases(rise("kernel_events_total", 1, "rail 0", "command_timeout"),
			rise("kernel_events_total", 2, "rail 0", "module_high_temperature"),
			rise("kernel_events_total", 1, "gpu 0000:1b:00.0", "xid_79"), rise("kernel_events_total", 9, "rail 1", "aer_correctable"),
			rise("kernel_events_total", 4, "rail 1", "insufficient_power")),
			[]string{"critical hardware_event, gpu 0000:1b:00.0: 1 × xid_79 since railscope started",
				"warning hardware_event, rail 0: 1 × command_timeout and 2 × module_high_temperature in 10 min"}},
		{"XIDs of the kernel log and of NVML", increases(rise("kernel_events_total", 1, "gpu 0000:1b:00.0", "xid_79"),
			rise("gpu_xid_events_total", 2, "gpu 0000:1b:00.0", "xid_79"), rise("gpu_xid_events_total", 1, "gpu 0000:1b:00.0",
				"xid_48"), rise("gpu_xid_events_total", 3, "gpu 1", "xid_63")),
			[]string{"critical hardware_event, gpu 0000:1b:00.0: 2 × xid_79 since railscope started; " +
				"1 × xid_48 in 10 min",
				"warning hardware_event, gpu 1: 3 × xid_63 in 10 min"}},
		{"what was long ago", increases(facts.Increase{Row: "kernel_events_total", Ever: 1,
			Labels: []string{"gpu 0000:1b:00.0", "xid_79"}}, facts.Increase{Row: "kernel_events_total", Ever: 3,
			Labels: []string{"gpu 0000:1b:00.0", "xid_48"}}, facts.Increase{Row: "kernel_events_total", Ever: 3,
			Labels: []string{"rail 0", "command_timeout"}}),
			[]string{"critical hardware_event, gpu 0000:1b:00.0: 1 × xid_79 since railscope started"}},
		{"faults of applications", increases(rise("gpu_xid_events_total", 9, "gpu 0000:1b:00.0", "xid_31"),
			rise("kernel_events_total", 9, "gpu 0000:1b:00.0", "xid_13")), nil},
		{"a hot module", &facts.Live{Hot: []facts.Hot{{Rail: "1", Sensor: "Module0", Excess: 3.25}, {Rail: "7"}}},
			[]string{"warning temperature_critical, rail 1: sensors are above their critical temperature: Module0 by 3.2 °C"}},
		{"uneven traffic", &facts.Live{Imbalance: map[string]float64{"transmit": 0.3, "receive": 0.2}},
			[]string{"warning traffic_uneven, node: a rail carries 70 % of the best one's share, transmit"}},
		{"a rail that lags", &facts.Live{Lags: []facts.Lag{{Rail: "1", Direction: "receive", Rate: 4e9, Equals: 46e9},
			{Rail: "1", Direction: "transmit", Rate: 5e9, Equals: 46e9}, {Rail: "7", Rate: 1, Equals: 4}}},
			[]string{"warning rail_lags, rail 1: in the last hour it carried as much as its equals for the same jobs, but " +
				"more slowly: at most 32 Gb/s, where they reached 368 Gb/s (median), receive; at most 40 Gb/s, where they " +
				"reached 368 Gb/s (median), transmit"}},
		{"TCP instead of RDMA", &facts.Live{Suspected: []string{"rdma_idle_tcp_busy"}},
			[]string{"warning rdma_idle_tcp_busy, node: the traffic looks like a fallback to TCP: GPUs are busy, the rails " +
				"carry no RDMA, and their interfaces carry other traffic"}},
		{"one rail", &facts.Live{Suspected: []string{"single_rail"}},
			[]string{"warning single_rail, node: traffic was even, and now one rail carries nearly all of it"}},
		{"NCCL by sockets", &facts.Live{Sockets: []string{"train"}},
			[]string{"critical nccl_fallback, job train: NCCL uses sockets instead of RDMA, according to its log"}},
		{"a source", &facts.Live{Failed: map[string]string{"rdma": "mlx5_1: io"}},
			[]string{"warning source_failed, source rdma: it could not be read completely: mlx5_1: io"}},
		{"a configuration", &facts.Live{Refused: true}, []string{"warning config_refused, configuration: the last " +
			"configuration was refused, the previous one is still active"}},
	} {
		f := &facts.Facts{Live: tt.live}
		f.Rails = []facts.Rail{{Name: "0", Device: "mlx5_0", Netdev: "eth0"}, {Name: "1", Device: "mlx5_1", Netdev: "eth1"}}
		f.QoS = []facts.QoS{{Device: "mlx5_1", Settings: []facts.Setting{{Name: "pfc", Value: "3"}}}}
		got := sightings(f)
		slices.Sort(got)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, diff)
		}
		for _, c := range liveChecks() {
			tested[c.ID] = tested[c.ID] || len(c.Find(f)) > 0
		}
	}
	for _, c := range liveChecks() {
		if !tested[c.ID] {
			t.Errorf("no case for %s", c.ID)
		}
	}
	if got := sightings(&facts.Facts{}); got != nil {
		t.Errorf("without a running railscope: %q", got)
	}
}
