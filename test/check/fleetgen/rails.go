package fleetgen

import (
	"fmt"
	"math"
	"strconv"

	ours "github.com/railscope/railscope/internal/rail"
)

// target adds what Prometheus and Kubernetes know about a node, and railscope's own metrics.
func (n *node) target() {
	n.add(false, "up", func(t float64) float64 { return flag01(!n.w.Gone(n.n, t)) })
	if n.Kube {
		n.add(false, "kube_node_spec_unschedulable", is(0), "node", n.nameOf(n.n), "job", "kube-state-metrics",
			"instance", "kube-state-metrics:8080")
	}
	n.add(false, "process_start_time_seconds", is(float64(n.Begin.Unix()-86400*30)))
	n.add(false, "process_resident_memory_bytes", func(t float64) float64 {
		return 28e6 * (1 + 0.05*n.w.Noise("rss", n.n, int(t/300)))
	})
	n.add(true, "process_cpu_seconds_total", func(t float64) float64 {
		return 0.012 * (1 + 0.1*n.w.Noise("cpu", n.n, int(t)))
	})
	n.add(false, "go_goroutines", is(41))
	n.gauge("build_info", is(1), "version", "0.1.0")
	n.gauge("maintenance", is(0))
	for _, name := range []string{"config_last_reload_successful", "state_saved"} {
		n.gauge(name, is(1))
	}
	for _, source := range []string{"rdma", "netdev", "pcie", "gpu", "sampler", "bond", "process", "kmsg", "nccl",
		"events"} {
		n.gauge("source_success", is(1), "source", source)
		n.gauge("source_read_seconds", func(t float64) float64 {
			return 0.003 * float64(len(source)) * (1 + 0.2*n.w.Noise(source, n.n, int(t)))
		}, "source", source)
	}
	n.gauge("scrape_seconds", func(t float64) float64 { return 0.02 * (1 + 0.2*n.w.Noise("scrape", n.n, int(t))) })
	suspected := func(t float64) bool { return n.w.Suspected(n.n, t) }
	n.gauge("fallback_suspected", on(suspected), "reason", "rdma_idle_tcp_busy")
	n.gauge("fallback_suspected", is(0), "reason", "single_rail")
}

// of returns the labels of a rail.
func of(r int, more ...string) []string {
	return append([]string{"rail", strconv.Itoa(r), "device", fmt.Sprintf("mlx5_%d", r), "port", "1"}, more...)
}

var netdevs = []string{"enp26s0np0", "enp60s0np0", "enp77s0np0", "enp94s0np0", "enp156s0np0", "enp188s0np0",
	"enp204s0np0", "enp220s0np0"}

func ofNetdev(r int, more ...string) []string {
	return append([]string{"rail", strconv.Itoa(r), "netdev", netdevs[r]}, more...)
}

func (n *node) rails() {
	for r := range n.w.Rails() {
		n.port(r)
		n.traffic(r)
		n.trouble(r)
		device := of(r)[2:4]
		n.counter("sampler_overruns_total", is(0), device...)
		n.counter("sampler_read_seconds_total", func(t float64) float64 {
			return 0.004 * (1 + 0.2*n.w.Noise("read", n.n, r, int(t)))
		}, device...)
		n.gauge("sampler_interval_seconds", is(0.1), device...)
	}
	for _, reason := range []string{"reset", "gap", "slow"} {
		n.counter("sampler_dropped_samples_total", is(0), "reason", reason)
	}
	busy := func(t float64) bool { return n.w.Load(n.n, 0, t) > 0.01 }
	for _, d := range []string{"transmit", "receive"} {
		n.gauge("rails_imbalance_ratio", n.imbalance, "direction", d, "role", "compute").only(busy)
		n.counter("rails_busy_seconds_total", on(busy), "direction", d)
		n.counter("rails_imbalanced_seconds_total", on(func(t float64) bool {
			return busy(t) && n.imbalance(t) > ours.ImbalancedAbove
		}), "direction", d)
	}
}

// imbalance returns the imbalance of all rails, which form one group.
func (n *node) imbalance(t float64) float64 {
	loads := make([]ours.Load, n.w.Rails())
	for r := range loads {
		loads[r] = ours.Load{Rate: n.w.Load(n.n, r, t), Capacity: 1}
	}
	imbalance, _ := ours.Imbalance(loads)
	return imbalance
}

// port adds the properties of a rail.
func (n *node) port(r int) {
	up := func(t float64) bool { return n.w.PortUp(n.n, r, t) }
	capacity := n.w.Capacity(r)
	n.gauge("port_up", on(up), of(r)...)
	n.gauge("port_state_id", func(t float64) float64 { return 1 + 3*flag01(up(t)) }, of(r)...)
	n.gauge("port_rate_bytes_per_second", is(capacity), of(r)...).only(up)
	n.gauge("rail_capacity_bytes_per_second", func(t float64) float64 { return capacity * flag01(up(t)) }, of(r)...)
	n.gauge("rail_expected_bytes_per_second", is(capacity), of(r)...)
	if leaf := n.w.Leaf(n.n, r); leaf != "" {
		n.gauge("rail_leaf_info", is(1), of(r, "leaf", leaf)...)
	}
	n.gauge("gid_misbound", on(func(t float64) bool { return n.w.Misbound(n.n, r, t) }), of(r)...)
	n.counter("gid_changes_total", is(0), of(r)...)
	n.counter("port_link_downed_total", is(0), of(r)...)
	n.counter("netdev_carrier_down_total", is(0), ofNetdev(r)...)
	if v, ok := n.w.Loopback(n.n, r); ok {
		n.gauge("probe_loopback_goodput_bytes_per_second", is(v), "rail", strconv.Itoa(r))
	}
	if v, ok := n.w.GPUPath(n.n, r); ok {
		n.gauge("probe_gpu_ratio", is(v), "rail", strconv.Itoa(r), "memory", "cuda_dmabuf")
	}
}

// packetSize is the size of a job's packets in bytes.
const packetSize = 4096

// traffic adds the traffic of a rail.
func (n *node) traffic(r int) {
	load := func(t float64) float64 { return n.w.Load(n.n, r, t) }
	bytes := func(t float64) float64 { return n.w.Capacity(r) * load(t) }
	received := func(t float64) float64 { return bytes(t) * (1 + 0.01*n.w.Noise("rx", n.n, r, int(t))) }
	n.counter("port_transmit_bytes_total", bytes, of(r)...)
	n.counter("port_receive_bytes_total", received, of(r)...)
	n.counter("port_transmit_packets_total", func(t float64) float64 { return bytes(t) / packetSize }, of(r)...)
	n.counter("port_receive_packets_total", func(t float64) float64 { return received(t) / packetSize }, of(r)...)
	for _, d := range []string{"transmit", "receive"} {
		direction := []string{"rail", strconv.Itoa(r), "direction", d}
		n.counter("rail_busy_seconds_total", func(t float64) float64 {
			return flag01(load(t) > 0.01) * math.Min(1, 1.4*load(t))
		}, direction...)
		n.counter("rail_saturated_seconds_total", func(t float64) float64 {
			return math.Max(0, load(t)-0.4) * 0.5
		}, direction...)
		n.gauge("rail_peak_bytes_per_second",
			func(t float64) float64 { return n.w.Capacity(r) * math.Min(0.97, 1.5*load(t)) },
			append(direction[:4:4], "window", "1s")...)
		n.counter("rail_tcp_bytes_total", func(t float64) float64 { return n.w.TCP(n.n, t) }, direction...)
		n.utilisation(load, direction)
	}
}

// utilisation adds the sampler's samples, ten per second: a job computes, and then sends as fast as it can.
func (n *node) utilisation(load func(float64) float64, direction []string) {
	full := func(t float64) float64 { return math.Max(0.3, math.Min(0.97, 1.5*load(t))) } // while it sends
	share := func(t, bound float64) float64 {
		sends := math.Min(1, load(t)/full(t))
		return 10 * ((1 - sends) + sends/(1+math.Exp(-(bound-full(t))/0.04)))
	}
	for _, bound := range []float64{0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, math.Inf(1)} {
		le := strconv.FormatFloat(bound, 'g', -1, 64)
		n.counter("rail_utilization_ratio_bucket", func(t float64) float64 { return share(t, bound) },
			append(direction[:4:4], "le", le)...)
	}
	n.counter("rail_utilization_ratio_sum", func(t float64) float64 { return 10 * load(t) }, direction...)
	n.counter("rail_utilization_ratio_count", is(10), direction...)
}

// trouble adds congestion, and the effects of a bad cable.
func (n *node) trouble(r int) {
	marked := func(t float64) float64 { return n.w.Marked(n.n, r, t) }
	held := func(part float64) func(float64) float64 {
		return func(t float64) float64 { return part * (0.01 + math.Max(0, marked(t)-500)/9000) }
	}
	broken := func(v float64) func(float64) float64 {
		return func(t float64) float64 { return v * n.w.Errors(n.n, r, t) }
	}
	pause := ofNetdev(r, "priority", "3")
	n.counter("port_cnp_handled_total", marked, of(r)...)
	n.counter("port_cnp_sent_total", func(t float64) float64 { return marked(t) * 0.8 }, of(r)...)
	n.counter("port_ecn_marked_packets_total", func(t float64) float64 { return marked(t) * 3 }, of(r)...)
	n.counter("port_pause_seconds_total", held(0.12), append(pause, "direction", "receive")...)
	n.counter("port_pause_seconds_total", held(0.01), append(pause, "direction", "transmit")...)
	n.counter("port_pause_frames_total", held(4000), append(pause, "direction", "receive")...)
	n.counter("port_pause_frames_total", held(300), append(pause, "direction", "transmit")...)
	n.counter("port_out_of_sequence_packets_total", func(t float64) float64 { return 0.02 + broken(40)(t) }, of(r)...)
	n.counter("port_packet_sequence_errors_total", broken(35), of(r)...)
	n.counter("port_adaptive_retransmits_total", is(0), of(r)...)
	n.counter("port_ack_timeouts_total", broken(0.4), of(r)...)
	n.counter("port_icrc_errors_total", broken(3), of(r)...)
	n.counter("netdev_phy_symbol_errors_total", broken(12), ofNetdev(r)...)
	n.counter("netdev_phy_fec_corrected_errors_total", func(t float64) float64 {
		return 900*(1+0.1*n.w.Noise("fec", r, int(t))) + broken(40000)(t)
	}, ofNetdev(r)...)
	// Of the blocks of RS(544,514) at 400 Gb/s most have no error, and each further error is rarer.
	for i, errors := range []string{"0", "1-3", "4-7", "8-11", "12-15"} {
		n.counter("netdev_fec_codewords_total", func(t float64) float64 {
			return 7.8e7*math.Pow(10, -5*float64(i))*(1+0.1*n.w.Noise("codewords"+errors, r, int(t))) +
				broken(40000*math.Pow(10, -float64(i)))(t)
		}, ofNetdev(r, "errors", errors)...)
	}
	n.counter("netdev_phy_discards_total", is(0), ofNetdev(r, "direction", "receive")...)
	n.counter("netdev_pci_stalled_seconds_total", is(0.002), ofNetdev(r, "operation", "write")...)
	// A port that goes down is counted once.
	every := n.Every.Seconds()
	n.counter("netdev_carrier_changes_total", func(t float64) float64 {
		return math.Abs(flag01(n.w.PortUp(n.n, r, t))-flag01(n.w.PortUp(n.n, r, t-every))) / every
	}, ofNetdev(r)...)
}

func (n *node) findings() {
	for _, f := range n.w.Findings(n.n) {
		n.gauge("finding", is(1), "check", f.Check, "severity", f.Severity, "subject", f.Subject, "rail", f.Rail).
			only(f.When)
	}
}
