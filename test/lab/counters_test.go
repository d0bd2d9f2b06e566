//go:build lab

package lab

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"
)

// TestTrafficCounted sends a known amount over one rail and checks the counters at both ends. rxe has no byte
// counters: railscope uses those of the netdev, which include headers, so the expected value includes them (burst).
// The acknowledgements go the other way and are in neither value.
func TestTrafficCounted(t *testing.T) {
	freshRails(t, 2)
	meet(t, 0, 1)
	sender, receiver := serve(t, 1), serve(t, 2)
	known := want{`port_transmit_bytes_total{rail="0"}`: some, `port_receive_bytes_total{rail="0"}`: some,
		`port_transmit_bytes_total{rail="1"}`: some}
	sent, received := sender.shows(t, known), receiver.shows(t, known)
	b := burst{rail: 0, messages: 200, size: 64 << 10}
	t.Logf("payload at %.1f MB/s", b.send(t)/1e6)
	sentAfter, receivedAfter := sender.shows(t, known), receiver.shows(t, known)

	for _, c := range []struct {
		series        string
		before, after metrics
		want          int
	}{
		{`port_transmit_bytes_total{rail="0"}`, sent, sentAfter, b.wireBytes()},
		{`port_receive_bytes_total{rail="0"}`, received, receivedAfter, b.wireBytes()},
		{`port_transmit_packets_total{rail="0"}`, sent, sentAfter, b.packets()},
		{`port_receive_packets_total{rail="0"}`, received, receivedAfter, b.packets()},
	} {
		got := c.after.must(t, c.series) - c.before.must(t, c.series)
		off := got/float64(c.want) - 1
		t.Logf("%s rose by %.0f, expected %d: %+.3f %%", c.series, got, c.want, 100*off)
		if math.Abs(off) > 0.02 {
			t.Errorf("%s rose by %.0f, want %d within 2 %%", c.series, got, c.want)
		}
	}
	idle := `port_transmit_bytes_total{rail="1"}`
	if got := sentAfter.must(t, idle) - sent.must(t, idle); got > 0.02*float64(b.wireBytes()) {
		t.Errorf("%s rose by %.0f, but only rail 0 had traffic", idle, got)
	}
}

// rxeCounters maps every hw_counter of rxe to its series.
var rxeCounters = map[string]string{
	"ack_deferred":           "port_acks_deferred_total",
	"completer_retry_err":    "port_completer_retries_total",
	"duplicate_request":      "port_duplicate_requests_total",
	"link_downed":            "port_link_downed_total",
	"out_of_seq_request":     "port_out_of_sequence_packets_total",
	"rcvd_pkts":              "port_receive_packets_total",
	"rcvd_rnr_err":           "port_rnr_naks_received_total",
	"rcvd_seq_err":           "port_packet_sequence_errors_total",
	"rdma_recvs":             "port_receive_completions_total",
	"rdma_sends":             "port_transmit_send_requests_total",
	"retry_exceeded_err":     "port_transport_retries_exceeded_total",
	"retry_rnr_exceeded_err": "port_rnr_retries_exceeded_total",
	"send_err":               "port_transmit_errors_total",
	"send_rnr_err":           "port_rnr_naks_sent_total",
	"sent_pkts":              "port_transmit_packets_total",
}

// TestCountersEqualNetlink compares every hw_counter with the rdma tool's netlink values, after traffic with losses
// and a link that was down, so that many of them are not 0.
func TestCountersEqualNetlink(t *testing.T) {
	freshRails(t, 2)
	meet(t, 0, 1)
	for _, n := range []node{1, 2} {
		n.Run(t, "tc", "qdisc", "replace", "dev", "eth0", "root", "netem", "loss", "1%")
	}
	e := serve(t, 1)
	burst{rail: 0, messages: 100, size: 64 << 10, timeout: 15}.send(t)
	node(1).Shell(t, "ip link set eth0 down; ip link set eth0 up")
	m := e.shows(t, want{`port_up{rail="0"}`: 1})

	moved := 0
	for rail := range 2 {
		var answer []map[string]any
		out := node(1).Run(t, "rdma", "-j", "statistic", "show", "link", fmt.Sprintf("rxe%d/1", rail))
		if err := json.Unmarshal([]byte(out), &answer); err != nil || len(answer) != 1 {
			t.Fatalf("rdma statistic: %v: %s", err, out)
		}
		delete(answer[0], "ifname")
		delete(answer[0], "port")
		for counter, value := range answer[0] {
			name, known := rxeCounters[counter]
			if !known {
				t.Errorf("the kernel has a counter %s that this test does not know", counter)
				continue
			}
			got, err := m.value(fmt.Sprintf(`%s{rail="%d"}`, name, rail))
			if err != nil {
				t.Error(err)
			} else if got != value.(float64) {
				t.Errorf("rail %d: %s is %v, netlink says %s is %v", rail, name, got, counter, value)
			}
			if got != 0 {
				t.Logf("rail %d: %s = %v", rail, counter, value)
				moved++
			}
		}
	}
	if moved < 4 {
		t.Errorf("only %d counters are not 0: the comparison proves little", moved)
	}
}
