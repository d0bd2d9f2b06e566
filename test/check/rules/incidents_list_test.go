package rules

import (
	"fmt"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/railscope/railscope/test/check/fleetgen"
)

// oneRail: rail 3 of node 17 is down for 30 minutes.
func oneRail() event {
	return event{lost: func(n int, rail string, since time.Duration) bool {
		return n == 17 && rail == "3" && between(since, 0, 30)
	}}
}

// leaf: the switch of rail 5 of nodes 1 to 32 is down for 30 minutes.
func leaf() event {
	return event{lost: func(n int, rail string, since time.Duration) bool {
		return n <= 32 && rail == "5" && between(since, 0, 30)
	}}
}

// storm: rail 3 of node 17 pauses the network for 80 % of 30 minutes, and the network pauses rail 3 of nodes 41 to
// 52 for 20 %.
func storm() event {
	return event{is: func(n int, l labels.Labels) fleetgen.Change {
		share := 0.0
		switch direction := l.Get("direction"); {
		case l.Get(model.MetricNameLabel) != "railscope_port_pause_seconds_total", l.Get("rail") != "3":
		case n == 17 && direction == "transmit":
			share = 0.8
		case n >= 41 && n <= 52 && direction == "receive":
			share = 0.2
		}
		if share == 0 {
			return nil
		}
		return func(since time.Duration, v float64) (float64, bool) {
			return v + share*min(max(since, 0), minutes(30)).Seconds(), true
		}
	}}
}

// sockets: a job on nodes 21 to 24 uses TCP for 30 minutes.
func sockets() event {
	return event{is: func(n int, l labels.Labels) fleetgen.Change {
		if n < 21 || n > 24 || l.Get("reason") != "rdma_idle_tcp_busy" {
			return nil
		}
		return func(since time.Duration, v float64) (float64, bool) {
			if between(since, 0, 30) {
				return 1, true
			}
			return v, true
		}
	}}
}

// firmware: nodes 1 to 12, then 13 to 24 have the maintenance file. 2 minutes later they are away for 8 minutes,
// and start without the file, which was in /run. Ports are up one minute later, and get their GIDs within 5
// minutes. The PCIe link of rail 2 of node 7 then has half of its rate.
func firmware() event {
	wave := func(n int) int { return (n - 1) / 12 * 20 }
	in := func(n, from, to int) func(since time.Duration) bool {
		return func(since time.Duration) bool { return n <= 24 && between(since, wave(n)+from, wave(n)+to) }
	}
	return event{
		away: func(n int, since time.Duration) bool { return in(n, 2, 10)(since) },
		lost: func(n int, _ string, since time.Duration) bool { return in(n, 10, 11)(since) },
		start: func(n int, since time.Duration) time.Duration {
			if in(n, 10, 1000)(since) {
				return minutes(wave(n) + 9)
			}
			return 0
		},
		is: func(n int, l labels.Labels) fleetgen.Change {
			name := l.Get(model.MetricNameLabel)
			return func(since time.Duration, v float64) (float64, bool) {
				switch after := in(n, 10, 1000)(since); {
				case name == "railscope_maintenance" && in(n, 0, 2)(since):
					return 1, true
				case name == "railscope_gid_changes_total" && after:
					return min(since-minutes(wave(n)+10), minutes(5)).Minutes(), true
				case name == "railscope_rail_capacity_bytes_per_second" && after && n == 7 && l.Get("rail") == "2":
					return min(v, 31.5e9), true
				}
				return v, true
			}
		},
	}
}

// drain: node 9 is cordoned for 50 minutes, and away from the 10th to the 40th.
func drain() event {
	return event{
		away: func(n int, since time.Duration) bool { return n == 9 && between(since, 10, 40) },
		start: func(n int, since time.Duration) time.Duration {
			if n == 9 && since >= minutes(40) {
				return minutes(40)
			}
			return 0
		},
		is: func(n int, l labels.Labels) fleetgen.Change {
			if n != 9 || l.Get(model.MetricNameLabel) != "kube_node_spec_unschedulable" {
				return nil
			}
			return func(since time.Duration, v float64) (float64, bool) {
				if between(since, 0, 50) {
					v = 1
				}
				return v, true
			}
		},
	}
}

// rolled: every pod of the DaemonSet is replaced and misses two scrapes; in a large fleet within 30 minutes, in a
// small one faster, so that more than 10 are always away.
func rolled(nodes int) event {
	at := func(n int) int { return min(nodes/10, 30) * n / (nodes + 1) }
	return event{
		away: func(n int, since time.Duration) bool { return between(since, at(n), at(n)+2) },
		start: func(n int, since time.Duration) time.Duration {
			if since >= minutes(at(n)+2) {
				return minutes(at(n) + 1)
			}
			return 0
		},
	}
}

// standing: rail 3 of node 17 is down from now on.
func standing() event {
	return event{lost: func(n int, rail string, since time.Duration) bool {
		return n == 17 && rail == "3" &&
			since >= 0
	}}
}

// power: nodes 1 to 40 have no power from now on.
func power() event {
	return event{away: func(n int, since time.Duration) bool { return n <= 40 && since >= 0 }}
}

// cache: GPU 3 of node 17 has 300 MB free from now on.
func cache() event {
	return event{is: func(n int, l labels.Labels) fleetgen.Change {
		if n != 17 || l.Get("gpu") != "3" || l.Get(model.MetricNameLabel) != "railscope_gpu_memory_free_bytes" {
			return nil
		}
		return func(since time.Duration, v float64) (float64, bool) {
			if since >= 0 {
				v = 300e6
			}
			return v, true
		}
	}}
}

func incidents(nodes int) []incident {
	var job []string
	for n := 21; n <= 24; n++ {
		job = append(job, fmt.Sprintf("warning RailscopeFallback %s:10091: 10-44", fleetgen.Name(n)))
	}
	return []incident{
		{name: "a rail is down", event: oneRail(), lasts: minutes(45), seen: 29, told: []string{
			"critical RailscopeRailDown node-00017:10091 3: 2-34"},
			first: []string{"critical RailDown node-00017:10091 3"}},
		{name: "a leaf switch is down", event: leaf(), lasts: minutes(45), seen: 29, told: []string{
			"critical RailscopeManyNodes RailDown: 2-39"}, first: []string{"critical ManyNodes RailDown 5"}},
		{name: "PFC storm", event: storm(), lasts: minutes(50), seen: 29, told: []string{
			"critical RailscopePFC node-00017:10091 3: 6-44",
			"warning RailscopeManyNodes PFC: 5-44"},
			first: []string{"critical PFC node-00017:10091 3", "warning ManyNodes PFC"}},
		{name: "sockets instead of RDMA", event: sockets(), lasts: minutes(50), seen: 29, told: job, first: []string{
			"warning Fallback node-00021:10091 node-00022:10091 node-00023:10091 node-00024:10091"}},
		{name: "firmware upgrade", event: firmware(), lasts: minutes(60), seen: 45, told: []string{
			"warning RailscopeRailDegraded node-00007:10091 2: 29-60"},
			first: []string{"warning RailDegraded node-00007:10091 2"}},
		{name: "drain", event: drain(), lasts: minutes(75), kube: true, seen: 25, first: []string{"none"}},
		{name: "probes rolled", event: rolled(nodes), lasts: minutes(50), seen: 15, first: []string{"none"}},
		{name: "Prometheus restarted", event: standing(), lasts: minutes(50),
			off: func(since time.Duration) bool { return between(since, 15, 25) }, told: []string{
				"critical RailscopeRailDown node-00017:10091 3: 2-14,29-50"},
			seen: 35, first: []string{"critical RailDown node-00017:10091 3"}},
		{name: "power", event: power(), lasts: minutes(30), seen: 20, told: []string{
			"critical RailscopeManyNodes ExporterDown: 5-30"}, first: []string{"critical ManyNodes ExporterDown down"}},
		{name: "a KV cache fills a GPU", event: cache(), lasts: minutes(30), gpus: true, told: []string{
			"info RailscopeGPUMemoryFull node-00017:10091: 23-30"},
			seen: 29, first: []string{"info GPUMemoryFull node-00017:10091 3"}},
	}
}
