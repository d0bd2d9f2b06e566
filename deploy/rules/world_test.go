package rules

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// world holds scraped values by series, in promtool's notation, one sample per minute.
type world map[string]string

// A world is healthy for this many minutes, and then has a test's changes for this many.
const healthy, after = 40, 60

// scraped adds the exposition of a target. It skips metrics that no rule uses, because promtool is slow with many.
func (w world) scraped(t *testing.T, file, instance string, named map[string]bool) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^(\w+)(?:\{(.*)\})? (\S+)$`)
	own := regexp.MustCompile(`(^|,)(job|instance)=`) // the target sets these labels
	for _, m := range line.FindAllStringSubmatch(string(text), -1) {
		if named[m[1]] {
			value := m[3]
			if m[1] == "railscope_source_errors_total" { // a failed source keeps failing
				value += "+1"
			}
			w[key(m[1], instance, own.ReplaceAllString(m[2], "${1}exported_$2="))] = value + fmt.Sprintf("x%d",
				healthy+after)
		}
	}
	w[key("up", instance, "")] = fmt.Sprintf("1x%d", healthy+after)
	w[key("process_start_time_seconds", instance, "")] = fmt.Sprintf("-86400x%d", healthy+after)
}

func key(name, instance, labels string) string {
	return strings.TrimSuffix(fmt.Sprintf(`%s{job="railscope",instance=%q,%s`, name, instance, labels), ",") + "}"
}

// named returns the words in the rules that could be metric names.
func named(t *testing.T) map[string]bool {
	t.Helper()
	words := map[string]bool{}
	for _, name := range Sources() {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range regexp.MustCompile(`\w+`).FindAllString(string(text), -1) {
			words[w] = true
		}
	}
	return words
}

// set changes the value, from the end of the healthy time, of the metric's series with all of these labels. If there is
// none, it adds one.
func (w world) set(value, name string, labels ...string) {
	found := false
	for k, was := range w {
		has := strings.HasPrefix(k, name+"{")
		for _, l := range labels {
			has = has && strings.Contains(k, l)
		}
		if has {
			found = true
			w[k] = before(was) + value
		}
	}
	if !found {
		w[name+`{job="railscope",`+strings.Join(labels, ",")+"}"] = fmt.Sprintf("_x%d ", healthy) + value
	}
}

// before returns the healthy part of values.
func before(values string) string {
	if first, _, ok := strings.Cut(values, " "); ok {
		return first + " "
	}
	first, _, _ := strings.Cut(values, "x")
	return fmt.Sprintf("%sx%d ", first, healthy)
}

// Values for the time after the healthy part.
var (
	zero   = fmt.Sprintf("0x%d", after)
	one    = fmt.Sprintf("1x%d", after)
	rising = fmt.Sprintf("%d+1x%d", healthy, after)
)

const gone = "stale"

// twoNodes returns two healthy machines that probe each other every minute, with two of the captured machine's rails.
// It adds the NVML that the capture lacks, and removes its job that fell back.
func twoNodes(t *testing.T, words map[string]bool) world {
	w, all, others := world{}, healthy+after, regexp.MustCompile(`rail="[2-7]"`)
	for _, pair := range [][2]string{{"a", "b"}, {"b", "a"}} {
		node, peer := pair[0], fmt.Sprintf(`peer=%q`, pair[1])
		w.scraped(t, "../../exporter/testdata/hgx.prom", node, words)
		w[key("railscope_source_success", node, `source="gpu"`)] = fmt.Sprintf("1x%d", all)
		put := func(value, name string, labels ...string) {
			w[key("railscope_"+name, node, strings.Join(labels, ","))] = value
		}
		steady := func(value string) string { return fmt.Sprintf("%sx%d", value, all) }
		for _, r := range []string{"ok", "degraded", "fallback", "failed", "skipped"} {
			put(steady("0"), "probe_rounds_total", peer, fmt.Sprintf(`result=%q`, r))
		}
		put(fmt.Sprintf("0+1x%d", all), "probe_rounds_total", peer, `result="ok"`)
		put(fmt.Sprintf("0+1x%d", all), "probe_solo_rounds_total", peer)
		for _, tr := range []string{"rdma", "tcp", "none"} {
			put(steady("0"), "probe_transport", peer, fmt.Sprintf(`transport=%q`, tr))
		}
		put(steady("1"), "probe_transport", peer, `transport="rdma"`)
		put(steady("0"), "probe_verification_failures_total", peer)
		put(steady("0.02"), "probe_imbalance_ratio", peer)
		put(steady("0.98"), "probe_scaling_ratio", peer)
		put(steady("95e9"), "probe_goodput_bytes_per_second", peer, `mode="stealing"`)
		put(steady("1"), "config_last_reload_successful")
		put(steady("0"), "fallback_suspected", `reason="single_rail"`)
		for r := range 2 {
			rail := fmt.Sprintf(`rail="%d"`, r)
			put(steady("1"), "probe_rail_up", peer, rail)
			put(steady("48e9"), "probe_rail_goodput_bytes_per_second", peer, rail, `mode="solo"`)
			put(steady("50e9"), "probe_rail_expected_bytes_per_second", peer, rail)
			put(steady("1"), "probe_rail_degradation_ratio", peer, rail)
			put(steady("4096"), "probe_path_mtu_bytes", peer, rail)
		}
		for _, d := range []string{"transmit", "receive"} {
			put(fmt.Sprintf("0+50x%d", all), "rails_busy_seconds_total", fmt.Sprintf("direction=%q", d))
			put(fmt.Sprintf("0+5x%d", all), "rails_imbalanced_seconds_total", fmt.Sprintf("direction=%q", d))
		}
	}
	maps.DeleteFunc(w, func(k, _ string) bool {
		return others.MatchString(k) || strings.HasPrefix(k, "railscope_nccl_")
	})
	return w
}

// Labels for short.
const (
	a, b      = `instance="a"`, `instance="b"`
	rail1     = `rail="1"`
	device1   = `device="mlx5_1"`
	probeRail = "railscope_probe_rail_"
)

// transport sets how later rounds end, in both directions or from one node.
func (w world) transport(how, result, reason string, nodes ...string) {
	for _, n := range nodes {
		peer := map[string]string{a: `peer="b"`, b: `peer="a"`}[n]
		w.set(zero, "railscope_probe_transport", n)
		w.set(one, "railscope_probe_transport", n, fmt.Sprintf("transport=%q", how))
		w.set(fmt.Sprintf("%dx%d", healthy, after), "railscope_probe_rounds_total", n, `result="ok"`)
		w.set(fmt.Sprintf("1+1x%d", after), "railscope_probe_rounds_total", n, fmt.Sprintf("result=%q", result))
		w.set(one, "railscope_probe_fallback_info", n, peer, fmt.Sprintf("reason=%q", reason))
		for _, m := range []string{"imbalance_ratio", "scaling_ratio", "goodput_bytes_per_second",
			"rail_goodput_bytes_per_second", "rail_degradation_ratio", "path_mtu_bytes"} {
			w.set(gone, "railscope_probe_"+m, n)
		}
		w.set(zero, probeRail+"up", n)
	}
}

// degraded makes all later rounds degraded. This alone raises no alert: the faults of rails do.
func (w world) degraded() {
	w.set(fmt.Sprintf("%dx%d", healthy, after), "railscope_probe_rounds_total", `result="ok"`)
	w.set(fmt.Sprintf("1+1x%d", after), "railscope_probe_rounds_total", `result="degraded"`)
}

// lose removes a device of node a.
func (w world) lose() {
	for k := range w {
		if strings.Contains(k, a) && strings.Contains(k, rail1) && !strings.Contains(k, "peer=") {
			w[k] = before(w[k]) + gone
		}
	}
	w.set(gone, probeRail+"up", a, rail1)
	w.set(zero, probeRail+"up", b, rail1)
	w.set(one, "railscope_probe_imbalance_ratio", b)
	w.degraded()
}

// faults are faults of the two nodes, and everything that fires for each: its own alert, and no other of severity
// critical.
var faults = []struct {
	name  string
	plant func(w world)
	fires string
}{
	{"nothing", func(world) {}, ""},
	{"a rail of a is down", func(w world) {
		w.set(zero, "railscope_port_up", a, rail1)
		w.set(gone, "railscope_port_rate_bytes_per_second", a, rail1)
		w.set(one, "railscope_port_link_downed_total", a, rail1)
		w.set(zero, probeRail+"up", rail1)
		w.set(one, "railscope_probe_imbalance_ratio")
		w.set(gone, probeRail+"goodput_bytes_per_second", rail1)
		w.degraded()
	}, "critical RailscopeRailDown"},
	{"a device of a is gone", func(w world) {
		w.lose()
		w.set(one, "railscope_rail_missing_info", a, rail1, device1, `port="1"`)
	}, "critical RailscopeRailDown"},
	{"a device of a is gone when railscope starts anew without its state", func(w world) {
		w.lose()
		w.set(fmt.Sprintf("%dx%d", healthy*60, after), "process_start_time_seconds", a)
	}, "critical RailscopeRailDown"},
	{"a device of a is left out by rails.include", func(w world) {
		w.lose()
		w.set(one, "railscope_rail_excluded_info", a, device1)
	}, "warning RailscopeProbeFailing"}, // on b, whose rail has lost its partner
	{"a node has 2 rails, and its peer 8", func(w world) {
		for r := 2; r < 8; r++ { // other rails of b, without series of the probe
			rail := fmt.Sprintf(`rail="%d",device="mlx5_%[1]d",port="1"`, r)
			w[key("railscope_port_up", "b", rail)] = fmt.Sprintf("1x%d", healthy+after)
		}
		w[key("railscope_finding", "b", `check="unpaired",severity="info",subject="rails 2, 3, 4, 5, 6 and 7"`)] =
			fmt.Sprintf("1x%d", healthy+after)
	}, ""},
	{"all rails of a are down", func(w world) {
		w.set(zero, "railscope_port_up", a)
		w.set(gone, "railscope_port_rate_bytes_per_second", a)
		w.transport("tcp", "fallback", "port_down", a, b)
	}, "critical RailscopeRailDown"},
	{"RDMA is filtered", func(w world) {
		w.transport("tcp", "fallback", "retry_exceeded", a, b)
	}, "critical RailscopeProbeFallback"},
	{"railscope on a may not open devices", func(w world) {
		w.transport("tcp", "fallback", "dev_perm", a, b)
	}, "warning RailscopeExporterImpaired"},
	{"RDMA is filtered on one rail", func(w world) {
		w.set(zero, probeRail+"up", rail1)
		w.set(one, "railscope_probe_imbalance_ratio")
		w.degraded()
	}, "warning RailscopeProbeFailing"},
	{"a rail is shaped to a third", func(w world) {
		w.set(fmt.Sprintf("0.66x%d", after), "railscope_probe_imbalance_ratio")
		w.set(fmt.Sprintf("16e9x%d", after), probeRail+"goodput_bytes_per_second", rail1)
		w.set(fmt.Sprintf("0.33x%d", after), probeRail+"degradation_ratio", rail1)
		w.degraded()
	}, "critical RailscopeGoodputLow"},
	{"a rail of a is shaped to a half while a job uses it", func(w world) {
		w.set(fmt.Sprintf("25e9x%d", after), probeRail+"goodput_bytes_per_second", a, rail1)
		w.set(fmt.Sprintf("2000+60x%d", after), "railscope_rails_imbalanced_seconds_total", a)
		w.set(fmt.Sprintf("2000+60x%d", after), "railscope_rails_busy_seconds_total", a)
	}, "warning RailscopeGoodputLow"},
	{"a port of a trained at a quarter of its rate", func(w world) {
		w.set(fmt.Sprintf("12.5e9x%d", after), "railscope_rail_capacity_bytes_per_second", a, rail1)
		w.set(one, "railscope_finding", a, `check="rate_lost"`, `severity="critical"`, `subject="rail 1"`, rail1)
		w.set(fmt.Sprintf("12e9x%d", after), probeRail+"goodput_bytes_per_second", a, rail1)
	}, "critical RailscopeRailDegraded"},
	{"a is in maintenance, and all rails are down", func(w world) {
		w.set(one, "railscope_maintenance", a)
		w.set(zero, "railscope_port_up", a)
		w.transport("none", "failed", "peer_unreachable", b)
	}, ""},
	{"a is cordoned, and railscope ends there", func(w world) {
		w[`kube_node_spec_unschedulable{job="kube-state-metrics",instance="x",node="a"}`] =
			fmt.Sprintf("_x%d ", healthy) + one
		w.set(zero, "up", a)
		w.transport("none", "failed", "peer_unreachable", b)
	}, ""},
	{"rounds are degraded, and what is wrong is not", func(w world) { w.degraded() }, ""},
	{"the rails share a link that carries a quarter", func(w world) {
		w.set(fmt.Sprintf("0.25x%d", after), "railscope_probe_scaling_ratio")
		w.set(fmt.Sprintf("24e9x%d", after), "railscope_probe_goodput_bytes_per_second")
	}, "critical RailscopeGoodputLow"},
	{"the rails share a link", func(w world) {
		w.set(fmt.Sprintf("0.5x%d", after), "railscope_probe_scaling_ratio")
		w.set(fmt.Sprintf("48e9x%d", after), "railscope_probe_goodput_bytes_per_second")
	}, "warning RailscopeGoodputLow"},
	{"the MTU of a rail of a is 1500", func(w world) {
		w.set(one, "railscope_finding", a, `check="mtu_lost"`, `severity="warning"`, `subject="rail 1"`, rail1)
		w.set(fmt.Sprintf("1024x%d", after), "railscope_probe_path_mtu_bytes", rail1)
	}, "warning RailscopeRailDegraded"},
	{"a rail of a is put into a bond", func(w world) {
		w.set(one, "railscope_gid_misbound", a, rail1)
		w.set(fmt.Sprintf("4x%d", after), "railscope_gid_changes_total", a, rail1)
		w.set(one, "railscope_finding", a, `check="gid_misbound"`, `severity="critical"`, `subject="rail 1"`, rail1)
	}, "critical RailscopeGIDFault"},
	{"a port of a trained at half its rate, of which its PCIe link carries little more", func(w world) {
		w.set(fmt.Sprintf("25e9x%d", after), "railscope_rail_capacity_bytes_per_second", a, rail1)
		w.set(fmt.Sprintf("31.5e9x%d", after), "railscope_rail_expected_bytes_per_second", a, rail1)
		w.set(one, "railscope_finding", a, `check="rate_lost"`, `severity="warning"`, `subject="rail 1"`, rail1)
	}, "warning RailscopeRailDegraded"},
	{"the PCIe link of a rail of a never was better than a third", func(w world) {
		w.set(one, "railscope_finding", a, `check="pcie_link_low"`, `severity="critical"`, `subject="rail 1"`, rail1)
	}, "critical RailscopeRailDegraded"},
	{"a has adapters, and no RDMA device", func(w world) {
		w.set(one, "railscope_finding", a, `check="no_rails"`, `severity="critical"`, `subject="node"`)
	}, "critical RailscopeRailDown"},
	{"the interface of a rail that nobody knows lacks its device", func(w world) {
		w.set(one, "railscope_finding", a, `check="rail_missing"`, `severity="warning"`, `subject="rail 1"`, rail1)
	}, "warning RailscopeFinding"},
	{"a is down", func(w world) {
		for k := range w {
			if strings.Contains(k, a) {
				w[k] = before(w[k]) + gone
			}
		}
		w.set(zero, "up", a)
		w.transport("none", "failed", "peer_unreachable", b)
	}, "warning RailscopeExporterDown"},
	{"a pauses the network", func(w world) {
		w[key("railscope_port_pause_seconds_total", "a",
			`rail="1",netdev="ens1",priority="3",direction="transmit"`)] = fmt.Sprintf("0x%d 0+50x%d", healthy, after)
		w[key("railscope_port_pause_seconds_total", "b",
			`rail="1",netdev="ens1",priority="3",direction="receive"`)] = fmt.Sprintf("0x%d 0+50x%d", healthy, after)
		w[key("railscope_port_ack_timeouts_total", "b",
			`rail="1",device="mlx5_1",port="1"`)] = fmt.Sprintf("0x%d 0+30x%d", healthy, after)
	}, "critical RailscopePFC, warning RailscopePFC"}, // RailscopePFC fires as a warning on b
	{"what a sends is corrupted", func(w world) {
		w.set(fmt.Sprintf("1+1x%d", after), "railscope_probe_verification_failures_total", a)
		w.set(fmt.Sprintf("%dx%d", healthy, after), "railscope_probe_rounds_total", a, `result="ok"`)
		w.set(fmt.Sprintf("1+1x%d", after), "railscope_probe_rounds_total", a, `result="failed"`)
		w.set(one, "railscope_probe_fallback_info", a, `peer="b"`, `reason="data_mismatch"`)
	}, "critical RailscopeVerificationFailed"},
	{"a job keeps the rails busy", func(w world) {
		w.set(fmt.Sprintf("%dx%d", healthy, after), "railscope_probe_rounds_total", `result="ok"`)
		w.set(fmt.Sprintf("1+1x%d", after), "railscope_probe_rounds_total", `result="skipped"`)
	}, ""},
	{"a loses a rail while a job keeps the others busy", func(w world) {
		w.set(fmt.Sprintf("%dx%d", healthy, after), "railscope_probe_rounds_total", `result="ok"`)
		w.set(fmt.Sprintf("1+1x%d", after), "railscope_probe_rounds_total", `result="skipped"`)
		w.set(zero, "railscope_port_up", a, rail1)
		w.set(fmt.Sprintf("2000+60x%d", after), "railscope_rails_imbalanced_seconds_total", a)
		w.set(fmt.Sprintf("2000+60x%d", after), "railscope_rails_busy_seconds_total", a)
		w.set(one, "railscope_fallback_suspected", a)
	}, "critical RailscopeRailDown"},
	{"railscope on a starts anew", func(w world) {
		for k, v := range w {
			if !strings.Contains(k, a) {
				continue
			}
			if strings.Contains(k, "_total{") {
				w[k] = before(v) + zero
			}
			if strings.Contains(k, "_probe_") { // no round yet
				w[k] = before(v) + gone
			}
		}
		w.set(fmt.Sprintf("%dx%d", healthy*60, after), "process_start_time_seconds", a)
		for _, r := range []string{"ok", "degraded", "fallback", "failed", "skipped"} {
			w.set(fmt.Sprintf("0+1x%d", after), "railscope_probe_rounds_total", a, fmt.Sprintf("result=%q", r))
		}
		w.set(zero, "railscope_probe_rounds_total", a, `result="fallback"`)
		w.set(zero, "railscope_probe_rounds_total", a, `result="failed"`)
	}, ""},
	{"b is taken out of a's peers", func(w world) {
		for k := range w {
			if strings.Contains(k, a) && strings.Contains(k, "peer=") {
				w[k] = before(w[k]) + gone
			}
		}
	}, ""},
	{"a GPU of a has bad memory", func(w world) {
		w.set(one, "railscope_gpu_row_remap_failure", a, `gpu="0"`)
		w.set(one, "railscope_gpu_row_remap_pending", a, `gpu="0"`)
	}, "critical RailscopeGPUMemoryErrors"},
	{"a job of a uses sockets", func(w world) {
		w.set(one, "railscope_nccl_fallback", a, `exported_job="train"`)
	}, "critical RailscopeFallback"},
	{"a device of a hangs", func(w world) {
		for k := range w {
			if strings.Contains(k, a) && strings.Contains(k, rail1) && strings.Contains(k, device1) {
				w[k] = before(w[k]) + gone
			}
		}
		w.set(zero, "railscope_source_success", a, `source="rdma"`)
		w.set(rising, "railscope_source_errors_total", a, `source="rdma"`, device1, `reason="timeout"`)
	}, "warning RailscopeExporterImpaired"},
}

// TestFaults checks which alerts fire at any time in the hour after a fault.
func TestFaults(t *testing.T) {
	nodes := twoNodes(t, named(t))
	var tests []promtoolTest
	for _, f := range faults {
		w := maps.Clone(nodes)
		f.plant(w)
		tests = append(tests, w.test(f.name, f.fires))
		if n := strings.Count(f.fires, "critical "); n > 1 {
			t.Errorf("%s: %d alerts of severity critical", f.name, n)
		}
	}
	promtool(t, tests)
}

// captures maps the machines with an exposition in exporter/testdata to the alerts that fire while they do not change.
var captures = map[string]string{
	"bnxt":   "",
	"bonded": "warning RailscopeBondDegraded", // one of two members is down
	"efa":    "",
	// a job's log says so; its NVML cannot be loaded here
	"hgx": "critical RailscopeFallback, warning RailscopeExporterImpaired",
	// no performance agent is no failure
	"i40iw":         "",
	"irdma":         "",
	"no-rdma":       "",
	"one-rail-dead": "", // it was never seen up
	"probe":         "",
	"rxe-bond-trap": "warning RailscopeGIDFault",
	// made so that there is something of everything
	"sampler": "warning RailscopeExporterImpaired, warning RailscopeFallback",
	// half of its ports have no cable; NVML as above
	"spark": "warning RailscopeExporterImpaired",
}

// TestCaptures: no captured machine raises an alert that does not apply to it.
func TestCaptures(t *testing.T) {
	files, err := filepath.Glob("../../exporter/testdata/*.prom")
	if err != nil {
		t.Fatal(err)
	}
	words := named(t)
	var tests []promtoolTest
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".prom")
		fires, ok := captures[name]
		if !ok {
			t.Errorf("what fires on %s is not said in captures", name)
		}
		w := world{}
		w.scraped(t, file, name, words)
		tests = append(tests, w.test(name, fires))
	}
	promtool(t, tests)
}
