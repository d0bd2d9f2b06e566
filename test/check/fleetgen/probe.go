package fleetgen

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

// probe adds the results of a node's probe with its peers.
func (n *node) probe() {
	n.gauge("probe_up", is(1))
	n.gauge("probe_interval_seconds", is(60))
	n.gauge("probe_budget_seconds", func(t float64) float64 { return 18 - math.Mod(t*5e-4, 5) })
	n.gauge("probe_leases", is(1))
	n.counter("probe_worker_restarts_total", is(0))
	for _, to := range n.w.Peers(n.n) {
		p := pair{n, to}
		p.rounds()
		p.figures()
		for r := range n.w.Rails() {
			if _, known := n.w.Path(n.n, to, r, n.From.Seconds()); known {
				p.rail(r)
			}
		}
		if !n.Native {
			p.latency(p.rdma, p.labels("rail", "", "load", "idle")...)
		}
	}
}

// pair is a node and one of its peers.
type pair struct {
	*node
	to int
}

func (p pair) labels(more ...string) []string {
	return append([]string{"peer", p.nameOf(p.to) + ":10092"}, more...)
}

func (p pair) by(transport string) func(float64) bool {
	return func(t float64) bool { return p.w.Transport(p.n, p.to, t) == transport }
}

func (p pair) rdma(t float64) bool { return p.by("rdma")(t) }

// gives returns the solo goodput of a rail, as a fraction of its capacity.
func (p pair) gives(rail int, t float64) float64 {
	part, _ := p.w.Path(p.n, p.to, rail, t)
	return part
}

// over returns the minimum and the mean of the rails that were measured.
func (p pair) over(t float64) (least, mean float64) {
	least, known := 1.0, 0
	for r := range p.w.Rails() {
		if part, ok := p.w.Path(p.n, p.to, r, t); ok {
			least, mean, known = math.Min(least, part), mean+part, known+1
		}
	}
	return least, mean / math.Max(1, float64(known))
}

// rounds adds the outcomes of rounds.
func (p pair) rounds() {
	tcp, missing := p.by("tcp"), p.by("none")
	degraded := func(t float64) bool { least, _ := p.over(t); return p.rdma(t) && least < 0.7 }
	good := func(t float64) bool { return p.rdma(t) && !degraded(t) }
	for result, when := range map[string]func(float64) bool{"ok": good, "degraded": degraded, "fallback": tcp,
		"failed": missing} {
		p.counter("probe_rounds_total", func(t float64) float64 { return flag01(when(t)) * 0.8 / 60 },
			p.labels("result", result)...)
	}
	p.counter("probe_rounds_total", is(0.2/60), p.labels("result", "skipped")...)
	p.counter("probe_solo_rounds_total", func(t float64) float64 { return flag01(p.rdma(t)) * 0.16 / 60 },
		p.labels()...)
	p.counter("probe_skipped_total", is(0.2/60), p.labels("reason", "busy")...)
	for transport, when := range map[string]func(float64) bool{"rdma": p.rdma, "tcp": tcp, "none": missing} {
		p.gauge("probe_transport", on(when), p.labels("transport", transport)...)
	}
	p.gauge("probe_fallback_info", is(1), p.labels("reason", "no_gid")...).only(tcp)
	p.gauge("probe_fallback_info", is(1), p.labels("reason", "peer_unreachable")...).only(missing)
	p.counter("probe_failures_total", func(t float64) float64 { return flag01(tcp(t)) / 75 },
		p.labels("stage", "open", "reason", "no_gid")...)
	p.counter("probe_failures_total", func(t float64) float64 { return flag01(missing(t)) / 75 },
		p.labels("stage", "hello", "reason", "peer_unreachable")...)
	began := float64(p.Begin.Unix())
	p.gauge("probe_last_round_timestamp_seconds", func(t float64) float64 { return began + t }, p.labels()...)
	p.gauge("probe_last_burst_timestamp_seconds", func(t float64) float64 { return began + t }, p.labels()...).
		only(p.rdma)
	p.gauge("probe_last_result_timestamp_seconds", func(t float64) float64 { return began + t }, p.labels()...)
	p.counter("probe_verification_failures_total", is(0), p.labels()...)
	p.gauge("probe_duration_seconds", func(t float64) float64 {
		return 1.4 + 0.2*p.w.Noise("d", p.n, p.to, int(t/60))
	}, p.labels()...)
}

// figures adds the values of rounds by RDMA, and of their TCP measurements.
func (p pair) figures() {
	sum := 0.0
	for r := range p.w.Rails() {
		sum += p.w.Capacity(r)
	}
	least := func(t float64) float64 { l, _ := p.over(t); return l }
	mean := func(t float64) float64 { _, m := p.over(t); return m }
	uneven := func(t float64) float64 { return math.Max(0, 1-least(t)/0.955) }
	for name, value := range map[string]func(float64) float64{
		"probe_imbalance_ratio": uneven,
		"probe_scaling_ratio": func(t float64) float64 {
			return 0.975 + 0.01*p.w.Noise("scale", p.n, p.to, int(t/60))
		},
		"probe_speedup_ratio": func(t float64) float64 { return sum * mean(t) / 9.6e9 },
	} {
		p.gauge(name, value, p.labels()...).only(p.rdma)
	}
	p.gauge("probe_goodput_bytes_per_second", func(t float64) float64 { return sum * mean(t) },
		p.labels("mode", "stealing")...).only(p.rdma)
	p.gauge("probe_goodput_bytes_per_second", func(t float64) float64 { return sum * least(t) },
		p.labels("mode", "static")...).only(p.rdma)
	p.gauge("probe_tcp_goodput_bytes_per_second", is(3.1e9), p.labels("streams", "1")...)
	p.gauge("probe_tcp_goodput_bytes_per_second", is(9.6e9), p.labels("streams", "4")...)
	p.gauge("probe_tcp_path_mtu_bytes", is(9000), p.labels()...)
	p.counter("probe_tcp_retransmits_total", func(t float64) float64 {
		return 0.05 * flag01(p.w.Marked(p.n, 0, t) > 1000 || p.w.Marked(p.to, 0, t) > 1000)
	}, p.labels()...)
}

// rail adds the results of rounds for one rail.
func (p pair) rail(r int) {
	path := func(more ...string) []string { return append(p.labels("rail", strconv.Itoa(r)), more...) }
	capacity := p.w.Capacity(r)
	gives := func(t float64) float64 { return capacity * p.gives(r, t) }
	up := func(t float64) bool { return p.rdma(t) && gives(t) > 0 }
	p.gauge("probe_rail_up", on(up), path()...)
	p.gauge("probe_rail_expected_bytes_per_second", is(capacity), path()...).only(p.rdma)
	p.gauge("probe_rail_goodput_bytes_per_second", gives, path("mode", "solo")...).only(up)
	p.gauge("probe_rail_goodput_bytes_per_second", gives, path("mode", "stealing")...).only(p.rdma)
	p.gauge("probe_rail_degradation_ratio", func(t float64) float64 {
		return math.Min(1.02, gives(t)/capacity/usual)
	}, path()...).only(up)
	lost := func(t float64) float64 { return p.w.Retransmits(p.n, p.to, r, t) }
	p.counter("probe_rail_retransmits_total", lost, path()...)
	p.gauge("probe_path_mtu_bytes", is(4096), path()...).only(up)
	p.gauge("probe_gid_info", is(1), path("gid_index", "3", "gid", fmt.Sprintf("::ffff:10.0.%d.%d", r, p.n%256),
		"reason", "RoCE v2, IPv4, on the rail's interface, in the peer's subnet")...).only(up)
	p.counter("probe_rail_bytes_total", func(t float64) float64 { return gives(t) / capacity * 1e6 }, path()...)
	if p.Native {
		p.latency(up, append(path(), "load", "idle")...)
	}
}

// latency adds 200 round trips a minute, with a tail.
func (p pair) latency(when func(float64) bool, of ...string) {
	below := func(t, bound float64) float64 { // fraction of them below a bound
		us := p.w.RoundTrip(p.n, p.to, t)
		return 0.985/(1+math.Exp(-(bound*1e6-us)/(us*0.12))) + 0.015*(1-math.Exp(-bound*1e6/(us*6)))
	}
	rate := func(t float64) float64 { return flag01(when(t)) * 200 / 60 }
	for i := range 18 {
		bound := math.Ldexp(1e-6, i)
		p.counter("probe_latency_seconds_bucket", func(t float64) float64 { return rate(t) * below(t, bound) },
			append(slices.Clip(of), "le", strconv.FormatFloat(bound, 'g', -1, 64))...)
	}
	p.counter("probe_latency_seconds_bucket", rate, append(slices.Clip(of), "le", "+Inf")...)
	p.counter("probe_latency_seconds_sum", func(t float64) float64 {
		return rate(t) * p.w.RoundTrip(p.n, p.to, t) * 1.1e-6
	}, of...)
	p.counter("probe_latency_seconds_count", rate, of...)
}
