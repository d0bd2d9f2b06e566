package main

import (
	"fmt"
	"math"
	"strconv"
)

// fanout is how many peers a node asks where there are many.
const fanout, manyNodes = 4, 32

// prober adds what the probe of a node says of its peers: all other nodes, or those that follow it.
func (n node) prober(nodes int) {
	n.gauge("probe_budget_seconds", func(t float64) float64 { return 18 - math.Mod(t*5e-4, 5) })
	n.gauge("probe_leases", is(1))
	n.counter("probe_worker_restarts_total", is(0))
	for k := 1; k < nodes && (k <= fanout || nodes <= manyNodes); k++ {
		to := (n.n-1+k)%nodes + 1
		n.pair(to, to == nodes && nodes > 2)
	}
}

func (n node) pair(to int, gone bool) {
	of := func(more ...string) []string { return append([]string{"peer", name(to) + ":10092"}, more...) }
	missing := func(t float64) bool { return gone && n.before(t) < goneSince }
	tcp := func(t float64) bool { return !missing(t) && n.byTCP(n.n, to, t) }
	rdma := func(t float64) bool { return !missing(t) && !tcp(t) }
	degraded := func(t float64) bool { return rdma(t) && n.least(to, t) < 0.7 }
	good := func(t float64) bool { return rdma(t) && !degraded(t) }
	results := map[string]func(float64) bool{"ok": good, "degraded": degraded, "fallback": tcp, "failed": missing}
	for result, when := range results {
		n.counter("probe_rounds_total", func(t float64) float64 {
			return flag01(when(t)) * 0.8 / 60
		}, of("result", result)...)
	}
	n.counter("probe_rounds_total", is(0.2/60), of("result", "skipped")...)
	n.counter("probe_solo_rounds_total", func(t float64) float64 { return flag01(rdma(t)) * 0.16 / 60 }, of()...)
	n.counter("probe_skipped_total", is(0.2/60), of("reason", "busy")...)
	for transport, when := range map[string]func(float64) bool{"rdma": rdma, "tcp": tcp, "none": missing} {
		n.gauge("probe_transport", func(t float64) float64 { return flag01(when(t)) }, of("transport", transport)...)
	}
	n.gauge("probe_fallback_info", is(1), of("reason", "no_gid")...).only(tcp)
	n.gauge("probe_fallback_info", is(1), of("reason", "peer_unreachable")...).only(missing)
	n.counter("probe_failures_total", func(t float64) float64 { return flag01(tcp(t)) / 75 },
		of("stage", "open", "reason", "no_gid")...)
	n.counter("probe_failures_total", func(t float64) float64 {
		return flag01(missing(t)) / 75
	}, of("stage", "hello", "reason", "peer_unreachable")...)
	n.gauge("probe_last_success_timestamp_seconds", func(t float64) float64 {
		last := t
		switch {
		case tcp(t):
			last = n.lasts - fallenSince*60
		case missing(t):
			last = n.lasts - goneSince*60
		case degraded(t) && (n.n == slow || to == slow):
			last = n.lasts - slowSince*60
		case degraded(t):
			last = n.lasts - deadSince*60
		}
		return n.began + last
	}, of()...)
	n.figures(to, of, rdma)
	n.gauge("probe_tcp_goodput_bytes_per_second", is(3.1e9), of("streams", "1")...)
	n.gauge("probe_tcp_goodput_bytes_per_second", is(9.6e9), of("streams", "4")...)
	n.gauge("probe_tcp_path_mtu_bytes", is(9000), of()...)
	n.counter("probe_tcp_retransmits_total", func(t float64) float64 {
		return 0.05 * flag01(n.n == congested || to == congested)
	}, of()...)
	n.counter("probe_verification_failures_total", is(0), of()...)
	n.gauge("probe_duration_seconds", func(t float64) float64 {
		return 1.4 + 0.2*noise("d", n.n, to, int(t/60))
	}, of()...)
}

// least is what the worst rail of a pair gives, of its capacity.
func (n node) least(to int, t float64) float64 {
	l := 1.0
	for r := range rails {
		l = math.Min(l, n.gives(n.n, to, r, t))
	}
	return l
}

// figures are those of rounds that went by RDMA.
func (n node) figures(to int, of func(...string) []string, rdma func(float64) bool) {
	sum := func(of func(float64) float64) func(float64) float64 {
		return func(t float64) float64 { return capacity * rails * of(t) }
	}
	mean := func(t float64) float64 {
		s := 0.0
		for r := range rails {
			s += n.gives(n.n, to, r, t)
		}
		return s / rails
	}
	least := func(t float64) float64 { return n.least(to, t) }
	n.gauge("probe_goodput_bytes_per_second", sum(mean), of("mode", "stealing")...).only(rdma)
	n.gauge("probe_goodput_bytes_per_second", sum(least), of("mode", "static")...).only(rdma)
	n.gauge("probe_imbalance_ratio", func(t float64) float64 { return 1 - least(t)/0.955 }, of()...).only(rdma)
	n.gauge("probe_finish_skew_ratio", func(t float64) float64 { return 1 - least(t)/0.955 }, of()...).only(rdma)
	n.gauge("probe_scaling_ratio", func(t float64) float64 {
		return 0.975 + 0.01*noise("scale", n.n, to, int(t/60))
	}, of()...).only(rdma)
	n.gauge("probe_speedup_ratio", func(t float64) float64 { return sum(mean)(t) / 9.6e9 }, of()...).only(rdma)
	for r := range rails {
		path := func(more ...string) []string { return append(of("rail", strconv.Itoa(r)), more...) }
		gives := func(t float64) float64 { return capacity * n.gives(n.n, to, r, t) }
		up := func(t float64) bool { return rdma(t) && gives(t) > 0 }
		n.gauge("probe_rail_expected_bytes_per_second", is(capacity), path()...).only(rdma)
		n.gauge("probe_rail_goodput_bytes_per_second", gives, path("mode", "solo")...).only(up)
		n.gauge("probe_rail_goodput_bytes_per_second", gives, path("mode", "stealing")...).only(rdma)
		n.gauge("probe_rail_goodput_bytes_per_second", gives, path("mode", "static")...).only(rdma)
		n.gauge("probe_rail_up", func(t float64) float64 { return flag01(up(t)) }, path()...)
		n.gauge("probe_rail_degradation_ratio", func(t float64) float64 {
			return math.Min(1.02, gives(t)/capacity/0.94)
		}, path()...).only(up)
		n.gauge("probe_counter_mismatch_ratio", is(0.004), path()...).only(up)
		n.gauge("probe_path_mtu_bytes", is(4096), path()...).only(up)
		n.gauge("probe_gid_info", is(1), path("gid_index", "3", "gid", fmt.Sprintf("::ffff:10.0.%d.%d", r, n.n),
			"reason", "RoCE v2, IPv4, on the rail's interface, in the peer's subnet")...).only(up)
		n.counter("probe_rail_bytes_total", func(t float64) float64 { return gives(t) / capacity * 1e6 }, path()...)
		n.latency(to, up, path)
	}
}

// latency counts 200 round trips a minute, with a tail.
func (n node) latency(to int, up func(float64) bool, path func(...string) []string) {
	below := func(t, bound float64) float64 { // part of them
		us := n.microseconds(n.n, to, t)
		return 0.985/(1+math.Exp(-(bound*1e6-us)/(us*0.12))) + 0.015*(1-math.Exp(-bound*1e6/(us*6)))
	}
	rate := func(t float64) float64 { return flag01(up(t)) * 200 / 60 }
	for i := range 18 {
		bound := math.Ldexp(1e-6, i)
		n.counter("probe_latency_seconds_bucket", func(t float64) float64 {
			return rate(t) * below(t, bound)
		}, path("le", strconv.FormatFloat(bound, 'g', -1, 64))...)
	}
	n.counter("probe_latency_seconds_bucket", rate, path("le", "+Inf")...)
	n.counter("probe_latency_seconds_sum", func(t float64) float64 {
		return rate(t) * n.microseconds(n.n, to, t) * 1.1e-6
	}, path()...)
	n.counter("probe_latency_seconds_count", rate, path()...)
}
