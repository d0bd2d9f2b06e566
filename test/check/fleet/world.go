package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"

	ours "github.com/railscope/railscope/internal/rail"
)

// world is all series of the fleet.
type world struct {
	lasts  float64 // seconds
	began  float64 // seconds of Unix
	sound  bool    // without faults
	series []*series
	named  map[string]bool // series that are there
}

// node adds series of one.
type node struct {
	*world
	n        int
	instance string
	gone     bool
}

func name(n int) string { return fmt.Sprintf("node-%02d", n) }

// behind is the leaf switch of a rail.
func (n node) behind(r int) string { return fmt.Sprintf("leaf-%d-%d", (n.n-1)/32, r) }

func (n node) add(counts bool, metric string, value func(float64) float64, pairs ...string) *series {
	b := labels.NewBuilder(labels.FromStrings(pairs...))
	s := &series{labels: b.Set(model.MetricNameLabel, metric).Set("cluster", "a").Set("job", "railscope").
		Set("instance", n.instance).Labels(), counts: counts, value: value}
	if n.gone {
		s.there = func(t float64) bool { return n.before(t) > goneSince }
	}
	if key := s.labels.String(); !n.named[key] {
		n.named[key] = true
		n.series = append(n.series, s)
	}
	return s
}

func (n node) gauge(metric string, value func(float64) float64, pairs ...string) *series {
	return n.add(false, "railscope_"+metric, value, pairs...)
}

func (n node) counter(metric string, perSecond func(float64) float64, pairs ...string) {
	n.add(true, "railscope_"+metric, perSecond, pairs...)
}

// only lets a series be there for some of the time.
func (s *series) only(when func(float64) bool) {
	before := s.there
	s.there = func(t float64) bool { return (before == nil || before(t)) && when(t) }
}

func is(v float64) func(float64) float64 { return func(float64) float64 { return v } }

func flag01(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (w *world) fill(nodes int, testdata string) error {
	w.named = map[string]bool{}
	for i := 1; i <= nodes; i++ {
		n := node{world: w, n: i, instance: name(i) + ":10091", gone: i == nodes && nodes > 2 && !w.sound}
		n.traffic()
		n.trouble()
		n.gpus()
		n.findings()
		n.prober(nodes)
		if err := n.template(filepath.Join(testdata, "hgx.prom")); err != nil {
			return err
		}
		up := n.add(false, "up", func(t float64) float64 { return flag01(!n.gone || w.before(t) > goneSince) })
		up.there = nil
	}
	return nil
}

// template adds what nothing else has said of the machine, as it is there.
func (n node) template(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	p, err := textparse.New(text, "text/plain", labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		return err
	}
	kind := model.MetricTypeUnknown
	for {
		entry, err := p.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", file, err)
		case entry == textparse.EntryType:
			_, kind = p.Type()
		case entry == textparse.EntrySeries:
			var l labels.Labels
			_, _, v := p.Series()
			p.Labels(&l)
			b := labels.NewBuilder(l)
			b.Del(model.MetricNameLabel, "job", "instance")
			var pairs []string
			b.Labels().Range(func(l labels.Label) { pairs = append(pairs, l.Name, l.Value) })
			value := is(v)
			switch {
			case kind == model.MetricTypeCounter || l.Get(model.MetricNameLabel) == "railscope_nccl_fallback":
				value = is(0)
			case l.Get(model.MetricNameLabel) == "railscope_source_success": // that machine has no NVML
				value = is(1)
			}
			n.add(kind == model.MetricTypeCounter, l.Get(model.MetricNameLabel), value, pairs...)
		}
	}
}

// rail returns the labels of one.
func rail(r int, more ...string) []string {
	return append([]string{"rail", strconv.Itoa(r), "device", fmt.Sprintf("mlx5_%d", r), "port", "1"}, more...)
}

var netdevs = []string{"enp26s0np0", "enp60s0np0", "enp77s0np0", "enp94s0np0", "enp156s0np0", "enp188s0np0",
	"enp204s0np0", "enp220s0np0"}

func ofNetdev(r int, more ...string) []string {
	return append([]string{"rail", strconv.Itoa(r), "netdev", netdevs[r]}, more...)
}

func (n node) traffic() {
	for r := range rails {
		load := func(t float64) float64 { return n.load(n.n, r, t) }
		bytes := func(t float64) float64 { return capacity * load(t) }
		up := func(t float64) bool { return n.up(n.n, r, t) }
		n.counter("port_transmit_bytes_total", bytes, rail(r)...)
		n.counter("port_receive_bytes_total", func(t float64) float64 {
			return bytes(t) * (1 + 0.01*noise("rx", n.n, r, int(t)))
		}, rail(r)...)
		n.gauge("port_up", func(t float64) float64 { return flag01(up(t)) }, rail(r)...)
		n.gauge("rail_leaf_info", is(1), rail(r, "leaf", n.behind(r))...)
		n.gauge("port_state_id", func(t float64) float64 { return 1 + 3*flag01(up(t)) }, rail(r)...)
		n.gauge("port_rate_bytes_per_second", is(capacity), rail(r)...).only(up)
		for _, d := range []string{"transmit", "receive"} {
			of := []string{"rail", strconv.Itoa(r), "direction", d}
			n.counter("rail_busy_seconds_total", func(t float64) float64 {
				return flag01(load(t) > 0.01) * math.Min(1, 1.4*load(t))
			}, of...)
			n.counter("rail_saturated_seconds_total", func(t float64) float64 {
				return math.Max(0, load(t)-0.4) * 0.5
			}, of...)
			n.counter("rail_tcp_bytes_total", func(t float64) float64 { return n.tcp(n.n, t) }, of...)
			n.utilisation(r, load, of)
		}
	}
	for _, d := range []string{"transmit", "receive"} {
		imbalance := func(t float64) float64 { return n.imbalance(n.n, t) }
		busy := func(t float64) bool { return n.load(n.n, 0, t) > 0.01 }
		n.gauge("rails_imbalance_ratio", imbalance, "direction", d, "role", "compute").only(busy)
		n.counter("rails_busy_seconds_total", func(t float64) float64 { return flag01(busy(t)) }, "direction", d)
		n.counter("rails_imbalanced_seconds_total", func(t float64) float64 {
			return flag01(busy(t) && imbalance(t) > ours.ImbalancedAbove)
		}, "direction", d)
	}
	for r := range rails {
		device := rail(r)[2:4]
		n.counter("sampler_overruns_total", is(0), device...)
		n.counter("sampler_read_seconds_total", func(t float64) float64 {
			return 0.004 * (1 + 0.2*noise("read", n.n, r, int(t)))
		}, device...)
		n.gauge("sampler_interval_seconds", is(0.1), device...)
	}
	for _, reason := range []string{"reset", "gap", "slow"} {
		n.counter("sampler_dropped_samples_total", is(0), "reason", reason)
	}
	for _, source := range []string{"rdma", "netdev", "pcie", "gpu", "sampler"} {
		n.gauge("source_read_seconds", func(t float64) float64 {
			return 0.003 * float64(len(source)) * (1 + 0.2*noise(source, n.n, int(t)))
		}, "source", source)
	}
	n.gauge("scrape_seconds", func(t float64) float64 { return 0.02 * (1 + 0.2*noise("scrape", n.n, int(t))) })
	n.add(false, "process_resident_memory_bytes", func(t float64) float64 {
		return 28e6 * (1 + 0.05*noise("rss", n.n, int(t/300)))
	})
	n.add(true, "process_cpu_seconds_total", func(t float64) float64 {
		return 0.012 * (1 + 0.1*noise("cpu", n.n, int(t)))
	})
	n.add(false, "go_goroutines", is(41))
	fell := func(t float64) float64 { return flag01(n.n == fallen && n.before(t) < fallenSince) }
	n.gauge("fallback_suspected", fell, "reason", "rdma_idle_tcp_busy")
	n.gauge("fallback_suspected", is(0), "reason", "single_rail")
}

// utilisation is what the sampler saw ten times a second: a job computes, and
// then sends as fast as it can.
func (n node) utilisation(r int, load func(float64) float64, of []string) {
	full := func(t float64) float64 { return math.Max(0.3, math.Min(0.97, 1.5*load(t))) } // while it sends
	share := func(t, bound float64) float64 {
		sends := math.Min(1, load(t)/full(t))
		return 10 * ((1 - sends) + sends/(1+math.Exp(-(bound-full(t))/0.04)))
	}
	for _, bound := range []float64{0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, math.Inf(1)} {
		le := strconv.FormatFloat(bound, 'g', -1, 64)
		n.counter("rail_utilization_ratio_bucket", func(t float64) float64 { return share(t, bound) },
			append(of[:4:4], "le", le)...)
	}
	n.counter("rail_utilization_ratio_sum", func(t float64) float64 { return 10 * load(t) }, of...)
	n.counter("rail_utilization_ratio_count", is(10), of...)
}

func (n node) trouble() {
	for r := range rails {
		marked := func(t float64) float64 { // per second
			if n.n == congested && n.before(t) < congestedSince {
				return 9000 * (1 + 0.3*noise("cnp", r, int(t/30)))
			}
			return 60 * n.job(n.n, t) * (1 + 0.5*noise("cnp", n.n, r, int(t/30)))
		}
		of := ofNetdev(r, "priority", "3")
		held := func(part float64) func(float64) float64 {
			return func(t float64) float64 { return part * math.Max(0, marked(t)-500) / 9000 }
		}
		broken := func(v float64) func(float64) float64 {
			return func(t float64) float64 {
				return v * flag01(n.n == slow && r == slowRail && n.before(t) < slowSince) * (1 + 0.3*noise("bad",
					int(t/30)))
			}
		}
		n.counter("port_cnp_handled_total", marked, rail(r)...)
		n.counter("port_cnp_sent_total", func(t float64) float64 { return marked(t) * 0.8 }, rail(r)...)
		n.counter("port_ecn_marked_packets_total", func(t float64) float64 { return marked(t) * 3 }, rail(r)...)
		n.counter("port_pause_seconds_total", held(0.12), append(of, "direction", "receive")...)
		n.counter("port_pause_seconds_total", held(0.01), append(of, "direction", "transmit")...)
		n.counter("port_pause_frames_total", held(4000), append(of, "direction", "receive")...)
		n.counter("port_pause_frames_total", held(300), append(of, "direction", "transmit")...)
		n.counter("port_out_of_sequence_packets_total", broken(40), rail(r)...)
		n.counter("port_packet_sequence_errors_total", broken(35), rail(r)...)
		n.counter("port_ack_timeouts_total", broken(0.4), rail(r)...)
		n.counter("port_icrc_errors_total", broken(3), rail(r)...)
		n.counter("netdev_phy_symbol_errors_total", broken(12), ofNetdev(r)...)
		n.counter("netdev_phy_fec_corrected_errors_total", func(t float64) float64 {
			return 900*(1+0.1*noise("fec", r, int(t))) + broken(40000)(t)
		}, ofNetdev(r)...)
		n.counter("netdev_phy_discards_total", is(0), ofNetdev(r, "direction", "receive")...)
		n.counter("netdev_pci_stalled_seconds_total", is(0.002), ofNetdev(r, "operation", "write")...)
		n.gauge("gid_misbound", func(t float64) float64 {
			return flag01(n.n == misbound && r == misboundRail && n.before(t) < misboundSince)
		}, rail(r)...)
		n.counter("netdev_carrier_changes_total", func(t float64) float64 {
			return flag01(n.n == dead && r == deadRail && math.Abs(n.before(t)-deadSince) < 0.6) / 30
		}, ofNetdev(r)...)
	}
}

func (n node) gpus() {
	for g := range 8 {
		of := []string{"gpu", strconv.Itoa(g)}
		busy := func(t float64) float64 { return flag01(n.job(n.n, t) > 0.05) }
		used := func(t float64) float64 {
			u := 0.08 + busy(t)*(0.72+0.03*math.Sin(t/40+float64(g)))
			if n.n == full && g == 3 && !n.sound {
				u = math.Min(0.992, 0.8+t/n.lasts*0.2)
			}
			return memory * u
		}
		n.gauge("gpu_memory_total_bytes", is(memory), of...)
		n.gauge("gpu_memory_used_bytes", used, of...)
		n.gauge("gpu_memory_free_bytes", func(t float64) float64 { return memory - used(t) }, of...)
		n.gauge("gpu_memory_source_info", is(1), append(of, "source", "nvml")...)
		n.gauge("gpu_memory_used_peak_bytes", func(t float64) float64 { return used(t) * 1.005 },
			append(of, "window", "1m")...)
		n.gauge("gpu_memory_used_peak_bytes", is(memory*0.86), append(of, "window", "start")...)
		n.gauge("gpu_bar1_memory_total_bytes", is(128<<30), of...)
		n.gauge("gpu_bar1_memory_used_bytes", is(1<<30), of...)
		n.gauge("gpu_utilization_ratio", func(t float64) float64 {
			return busy(t) * (0.96 + 0.03*noise("gpu", n.n, g, int(t)))
		}, of...)
		n.gauge("gpu_power_watts", func(t float64) float64 {
			return 90 + busy(t)*(540+20*noise("w", n.n, g, int(t)))
		}, of...)
		n.gauge("gpu_temperature_celsius", func(t float64) float64 { return 34 + busy(t)*(28+float64(g%4)) }, of...)
		n.gauge("gpu_clock_hertz", func(t float64) float64 {
			return 1.98e9 - flag01(g == 6)*busy(t)*2e8
		}, append(of, "clock", "sm")...)
		n.gauge("gpu_clocks_throttled", func(t float64) float64 {
			return flag01(g == 6) * busy(t)
		}, append(of, "reason", "sw_power_cap")...)
		n.counter("gpu_ecc_errors_total", is(0), append(of, "kind", "corrected")...)
		n.counter("gpu_pcie_replays_total", is(0), of...)
		n.gauge("gpu_remapped_rows", is(0), append(of, "cause", "correctable")...)
	}
}
