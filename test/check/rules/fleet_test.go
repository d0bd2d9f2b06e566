package rules

import (
	"fmt"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	prom "github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
)

// A generated node has eight rails and GPUs, and asks four peers, as by default.
const (
	railsOfNode = 8
	fanout      = 4
)

// generated is a fleet of which only the series that rules read are stored, as far back as rules look, with a sample
// every minute.
type generated struct {
	app   storage.Appender
	nodes int
	end   time.Time
	last  time.Duration // how long before end the rules are evaluated first
	every time.Duration // between samples; 0: a minute
	few   bool          // without GPUs and latencies
	slow  int           // a node of which rail 3 carries half to every peer, and from every asker; 0: none
	dead  int           // a node of which the probe answers nobody and reaches nobody; 0: none
	gpus  bool          // with GPUs although few
	kube  bool          // the instance is the name of the node, which kube-state-metrics reports as well
	begin time.Time     // what a change counts from
	off   func(since time.Duration) bool
	// change returns what becomes of a series over time; nil: what it always is.
	change func(node int, l labels.Labels) change
	err    error
}

// change turns a healthy value, so long after the begin, into what a scrape has; false: the series is gone.
type change func(since time.Duration, v float64) (float64, bool)

// look is how far back the longest range of the rules on a metric looks.
type look time.Duration

const (
	instant = look(5 * time.Minute)
	ten     = look(11 * time.Minute)
	twenty  = look(21 * time.Minute)
	half    = look(31 * time.Minute)
	hour    = look(61 * time.Minute)
)

// generatedNode adds the series of one node.
type generatedNode struct {
	*generated
	n int
}

func nodeName(n int) string { return fmt.Sprintf("node-%05d", n) }

// add stores a series: gauges have the value, counters rise by it every minute.
func (n generatedNode) add(back look, counter bool, value float64, name string, pairs ...string) {
	if n.err != nil {
		return
	}
	b := labels.NewBuilder(labels.EmptyLabels())
	for i := 0; i+1 < len(pairs); i += 2 {
		b.Set(pairs[i], pairs[i+1])
	}
	b.Set(model.MetricNameLabel, name).Set("cluster", "a")
	if b.Get("job") == "" {
		b.Set("job", "railscope").Set("instance", n.instance())
	}
	n.store(back, counter, value, b.Labels())
}

func (n generatedNode) instance() string {
	if n.kube {
		return nodeName(n.n)
	}
	return nodeName(n.n) + ":10091"
}

func (n generatedNode) store(back look, counter bool, value float64, l labels.Labels) {
	var becomes change
	if n.change != nil {
		becomes = n.change(n.n, l)
	}
	var ref storage.SeriesRef
	gone := true
	every := max(n.every, time.Minute)
	for ago := (time.Duration(back) + n.last).Truncate(every); ago >= 0; ago -= every {
		at, v, kept := n.end.Add(-ago), value, true
		if n.off != nil && n.off(at.Sub(n.begin)) {
			continue
		}
		if counter {
			v *= float64(at.Unix()) / 60
		}
		if becomes != nil {
			v, kept = becomes(at.Sub(n.begin), v)
		}
		if !kept && gone {
			continue
		}
		if gone = !kept; gone {
			v = math.Float64frombits(prom.StaleNaN) // as Prometheus does
		}
		if ref, n.err = n.app.Append(ref, l, at.UnixMilli(), v); n.err != nil {
			return
		}
	}
}

func (n generatedNode) gauge(value float64, name string, pairs ...string) {
	n.add(instant, false, value, "railscope_"+name, pairs...)
}

func (n generatedNode) counter(back look, perMinute float64, name string, pairs ...string) {
	n.add(back, true, perMinute, "railscope_"+name, pairs...)
}

// fill stores all nodes, and commits often: what is not committed takes memory.
func (g *generated) fill(t *testing.T, db *tsdb.DB) {
	t.Helper()
	for i := 1; i <= g.nodes; i++ {
		g.app = db.Appender(t.Context())
		n := generatedNode{g, i}
		n.self()
		for r := range railsOfNode {
			n.rail(strconv.Itoa(r))
		}
		for p := range fanout {
			n.pair((i-1+1+p*p*7)%g.nodes + 1)
		}
		if g.err == nil {
			g.err = g.app.Commit()
		}
		if g.err != nil {
			t.Fatal(g.err)
		}
	}
}

func (n generatedNode) self() {
	n.add(instant, false, 1, "up")
	if n.kube {
		n.add(ten, false, 0, "kube_node_spec_unschedulable", "node", nodeName(n.n), "job", "kube-state-metrics",
			"instance", "kube-state-metrics:8080")
	}
	n.add(hour, false, float64(n.end.Unix()-86400*30), "process_start_time_seconds")
	n.gauge(1, "build_info", "version", "0.1.0")
	n.add(ten, false, 0, "railscope_maintenance")
	for _, name := range []string{"config_last_reload_successful", "state_saved", "probe_up"} {
		n.gauge(1, name)
	}
	n.gauge(60, "probe_interval_seconds")
	for _, s := range []string{"rdma", "netdev", "pcie", "gpu", "sampler", "bond", "process", "kmsg", "nccl"} {
		n.gauge(1, "source_success", "source", s)
	}
	for _, d := range []string{"transmit", "receive"} {
		n.counter(ten, 50, "rails_busy_seconds_total", "direction", d)
		n.counter(ten, 5, "rails_imbalanced_seconds_total", "direction", d)
	}
	n.gauge(0, "fallback_suspected", "reason", "single_rail")
	n.gauge(0, "fallback_suspected", "reason", "rdma_idle_tcp_busy")
	n.gauge(1, "gpudirect_supported")
	n.gauge(1, "gpudirect_info", "mode", "peermem", "reason", "loaded")
	for g := range railsOfNode {
		if n.few && !n.gpus {
			break
		}
		gpu := strconv.Itoa(g)
		n.gauge(20e9, "gpu_memory_free_bytes", "gpu", gpu)
		n.gauge(80e9, "gpu_memory_total_bytes", "gpu", gpu)
		n.gauge(1, "gpu_memory_source_info", "gpu", gpu, "source", "nvml")
		n.gauge(0, "gpu_row_remap_pending", "gpu", gpu)
		n.gauge(0, "gpu_row_remap_failure", "gpu", gpu)
		n.counter(hour, 0, "gpu_ecc_errors_total", "gpu", gpu, "kind", "uncorrected")
	}
}

func (n generatedNode) rail(r string) {
	of := []string{"rail", r, "device", "mlx5_" + r, "port", "1"}
	for name, v := range map[string]float64{"port_up": 1, "gid_misbound": 0, "rail_capacity_bytes_per_second": 50e9,
		"rail_expected_bytes_per_second": 50e9} {
		n.gauge(v, name, of...)
	}
	n.counter(half, 0, "port_link_downed_total", of...)
	n.counter(half, 0, "netdev_carrier_down_total", "rail", r, "netdev", "ens"+r)
	for name, v := range map[string]float64{"port_transmit_packets_total": 6e7, "port_receive_packets_total": 6e7,
		"port_packet_sequence_errors_total": 0, "port_adaptive_retransmits_total": 0,
		"port_out_of_sequence_packets_total": 1, "port_ack_timeouts_total": 0, "port_out_of_buffer_total": 0,
		"gid_changes_total": 0} {
		n.counter(ten, v, name, of...)
	}
	for _, d := range []string{"transmit", "receive"} {
		n.counter(ten, 0.1, "port_pause_seconds_total", "rail", r, "netdev", "ens"+r, "priority", "3", "direction", d)
	}
	n.counter(ten, 0, "sampler_overruns_total", "device", "mlx5_"+r)
	n.gauge(0.1, "sampler_interval_seconds", "device", "mlx5_"+r)
	n.load(r)
}

// load is what a rail carries, and where it is, for the Fleet dashboard.
func (n generatedNode) load(r string) {
	of := []string{"rail", r, "device", "mlx5_" + r, "port", "1"}
	for _, name := range []string{"port_transmit_bytes_total", "port_receive_bytes_total"} {
		n.counter(instant, 1e12, name, of...)
	}
	n.counter(instant, 100, "port_cnp_handled_total", of...)
	n.gauge(1, "rail_leaf_info", append(of, "leaf", fmt.Sprintf("leaf-%d-%s", n.n/32, r))...)
	n.gauge(1, "rail_info", append(of, "firmware", "28.39.1002")...)
	for _, d := range []string{"transmit", "receive"} {
		n.counter(instant, 1e6, "rail_tcp_bytes_total", "rail", r, "direction", d)
		if r == "0" {
			n.gauge(0.02, "rails_imbalance_ratio", "direction", d, "role", "compute")
		}
	}
}

// pair is what this node's probe says of a peer.
func (n generatedNode) pair(to int) {
	peer := []string{"peer", nodeName(to) + ":10092"}
	of := func(more ...string) []string { return append(append([]string{}, peer...), more...) }
	dead := n.dead > 0 && (n.n == n.dead || to == n.dead)
	slow := n.slow > 0 && (n.n == n.slow || to == n.slow)
	rdma, none, good, bad := 1.0, 0.0, 1.0, 0.0
	if dead {
		rdma, none, good, bad = 0, 1, 0, 1
	}
	n.add(hour, false, rdma, "railscope_probe_transport", of("transport", "rdma")...)
	n.gauge(0, "probe_transport", of("transport", "tcp")...)
	n.gauge(none, "probe_transport", of("transport", "none")...)
	for result, v := range map[string]float64{"ok": good, "failed": bad, "degraded": 0, "fallback": 0, "skipped": 0} {
		n.counter(half, v, "probe_rounds_total", of("result", result)...)
	}
	n.counter(twenty, good, "probe_solo_rounds_total", peer...)
	n.counter(hour, 0, "probe_verification_failures_total", peer...)
	n.counter(instant, 60, "probe_last_round_timestamp_seconds", peer...) // every round is a minute later
	if !dead {
		n.gauge(0.02, "probe_imbalance_ratio", peer...)
		n.gauge(0.98, "probe_scaling_ratio", peer...)
		n.gauge(380e9, "probe_goodput_bytes_per_second", of("mode", "stealing")...)
	}
	for r := range railsOfNode {
		path, v := of("rail", strconv.Itoa(r)), 1.0
		if slow && r == 3 {
			v = 0.5
		}
		if dead {
			n.gauge(0, "probe_rail_up", path...)
			continue
		}
		n.gauge(1, "probe_rail_up", path...)
		n.gauge(50e9, "probe_rail_expected_bytes_per_second", path...)
		n.gauge(v, "probe_rail_degradation_ratio", path...)
		n.gauge(48e9*v, "probe_rail_goodput_bytes_per_second", append(path, "mode", "solo")...)
	}
	if n.few {
		return
	}
	for i := range 18 {
		le := strconv.FormatFloat(1e-6*float64(int(1)<<i), 'g', -1, 64)
		n.counter(twenty, min(float64(i), 5)*40, "probe_latency_seconds_bucket", of("rail", "", "le", le)...)
	}
	n.counter(twenty, 200, "probe_latency_seconds_bucket", of("rail", "", "le", "+Inf")...)
}

// database is a storage without a log, which is removed when the test ends.
func database(t *testing.T) *tsdb.DB {
	t.Helper()
	o := tsdb.DefaultOptions()
	o.WALSegmentSize = -1
	o.OutOfOrderTimeWindow = (2 * time.Hour).Milliseconds()
	o.MinBlockDuration, o.MaxBlockDuration = (48 * time.Hour).Milliseconds(), (48 * time.Hour).Milliseconds()
	db, err := tsdb.Open(t.TempDir(), promslog.NewNopLogger(), nil, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}
