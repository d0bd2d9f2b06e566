package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/internal/units"
	"github.com/railscope/railscope/probe/result"
)

// Thresholds for counters over the last 10 minutes.
const (
	flapChanges = 6   // carrier changes: 3 times down and up
	minEvents   = 10  // retransmission events
	minPackets  = 1e5 // packets sent below which the ratio is meaningless
)

// liveChecks returns the checks that need a running railscope and find nothing without one.
func liveChecks() []Check {
	var list []Check
	for _, c := range counterChecks() {
		list = append(list, c.check())
	}
	return append([]Check{
		{"link_flapping", warning, "the rail's link changed 6 times or more within 10 minutes",
			live(checkLinkFlapping)},
		{"lossy_rail", warning, "the rail retransmits: 1 of 10,000 packets, or more",
			live(checkLossyTraffic)},
		{"hardware_event", warning, "the kernel log or NVML reports an error of a rail, GPU or PCIe link",
			live(checkHardwareEvents)},
		{"temperature_critical", warning, "a rail's adapter or module is at or above its critical temperature",
			live(checkTemperature)},
		{"traffic_uneven", warning, "a rail carries less than 75 % of the others' real traffic",
			live(checkTrafficUneven)},
		{"rail_lags", warning, "a rail carries as much as its equals for the same jobs, but at most half as fast",
			live(checkRailLags)},
		{"rdma_idle_tcp_busy", warning, "GPUs are busy, the rails carry no RDMA, and their interfaces carry other " +
			"traffic", live(checkSuspected("rdma_idle_tcp_busy", "the traffic looks like a fallback to TCP: GPUs are "+
			"busy, the rails carry no RDMA, and their interfaces carry other traffic"))},
		{"single_rail", warning, "traffic was even, and now one rail carries nearly all of it",
			live(checkSuspected("single_rail", "traffic was even, and now one rail carries nearly all of it"))},
		{"nccl_fallback", critical, "the log of an NCCL job says that it uses sockets",
			live(checkNCCLFallback)},
		{"source_failed", warning, "a source of metrics could not be read completely",
			live(checkSourceFailed)},
		{"rdma_on_lossy_priority", warning, "more than 10 % of the RDMA bytes that the rail sends are on priorities " +
			"without PFC, while another has it; an information if no rail has PFC", live(checkLossyPriority)},
		{"queue_pairs_failed", info, "queue pairs of the rail failed: what its error counters show",
			live(checkFailedPairs)},
		{"config_refused", warning, "the last configuration was refused, the previous one is active",
			live(checkConfigRefused)},
	}, list...)
}

func live(check func(*facts.Facts, reporter)) func(*facts.Facts, reporter) {
	return func(f *facts.Facts, report reporter) {
		if f.Live != nil {
			check(f, report)
		}
	}
}

func minutes(d time.Duration) string { return fmt.Sprintf("%.0f min", d.Minutes()) }

func checkLinkFlapping(f *facts.Facts, report reporter) {
	for _, r := range f.Judged() {
		n := f.Live.Increased(r.Name, "netdev_carrier_changes_total")
		if n < flapChanges {
			continue
		}
		report(finding.Finding{Subject: r.Subject(), Where: r.Where(),
			Evidence: fmt.Sprintf("the link of %s changed %.0f times in %s", r.Netdev, n, minutes(f.Live.Over)),
			Why:      "Each time costs seconds of retransmission, and a queue pair that times out ends its job.",
			Fix: hands(f, note("clean or replace the cable or its transceiver, at both ends: ethtool -m %s",
				shellWord(r.Netdev)))})
	}
}

func checkLossyTraffic(f *facts.Facts, report reporter) {
	for _, r := range f.Judged() {
		events, packets := retransmitted(f.Live, r.Name)
		if !lossyTraffic(f.Live, r) {
			continue
		}
		report(finding.Finding{Subject: r.Subject(), Where: r.Where(),
			Evidence: fmt.Sprintf("%.0f retransmissions and sequence errors in %.3g packets (%.3g %%) in %s", events,
				packets, 100*events/packets, minutes(f.Live.Over)),
			Why: "RoCE sends everything again from the lost packet on: 0.1 % of loss costs most of the goodput.",
			Fix: []string{note("find where packets are dropped: ethtool -S %s (discards, CRC and FEC errors), the "+
				"switch port's counters, and PFC on the whole path", shellWord(r.Netdev))}})
	}
}

// retransmitted returns how often the rail retransmitted and how many packets it sent.
func retransmitted(l *facts.Live, rail string) (events, packets float64) {
	return l.Increased(rail, "port_packet_sequence_errors_total", "port_retransmitted_packets_total",
		"port_adaptive_retransmits_total"), l.Increased(rail, "port_transmit_packets_total")
}

// lossyTraffic reports whether the rail retransmits because packets are lost rather than reordered.
func lossyTraffic(l *facts.Live, r *facts.Rail) bool {
	events, packets := retransmitted(l, r.Name)
	return events >= minEvents && packets >= minPackets && events >= result.LossAbove*packets && !reordered(l, r)
}

// roundTrip is longer than in most fabrics, in seconds. After one loss, all packets in flight arrive out of sequence.
const roundTrip = 20e-6

// reordered reports whether packets are reordered on the way to the rail: far more arrive out of sequence than the
// rail, which also sends, retransmits.
func reordered(l *facts.Live, r *facts.Rail) bool {
	events, sent := retransmitted(l, r.Name)
	both := sent >= minPackets && sent >= l.Increased(r.Name, "port_receive_packets_total")/2
	return both && result.Reordered(l.Increased(r.Name, "port_out_of_sequence_packets_total"), events,
		r.Rate*roundTrip/minMTU)
}

// fatal reports whether the device works again only after a reset or replacement. No event reports that reset, so the
// finding stands until railscope restarts.
func fatal(event string) bool {
	return slices.Contains([]string{"health_compromised", "aer_fatal", "xid_79", "xid_74", "xid_119", "xid_120",
		"xid_95", "xid_64"}, event)
}

// benign reports whether another check judges the event, or no action is needed. The XIDs are application errors that
// the GPU survives; NVIDIA's device plugin for Kubernetes also ignores them (internal/rm/health.go).
func benign(event string) bool {
	return slices.Contains([]string{"insufficient_power", "aer_correctable", "link_down", "bond_member_down", "xid_13",
		"xid_31", "xid_43", "xid_45", "xid_68", "xid_109"}, event)
}

// hardwareEvents counts the events of one subject by name.
type hardwareEvents struct{ fatal, lately map[string]float64 }

// checkHardwareEvents judges events of the kernel log and of NVML. Both report XIDs: the higher count applies.
func checkHardwareEvents(f *facts.Facts, report reporter) {
	subjects := map[string]hardwareEvents{}
	for _, i := range f.Live.Increases {
		if !slices.Contains([]string{"kernel_events_total", "gpu_xid_events_total"}, i.Row) || benign(i.Labels[1]) {
			continue
		}
		subject, event := i.Labels[0], i.Labels[1]
		if subjects[subject].fatal == nil {
			subjects[subject] = hardwareEvents{map[string]float64{}, map[string]float64{}}
		}
		if of := subjects[subject]; fatal(event) {
			of.fatal[event] = max(of.fatal[event], i.Ever)
		} else if i.By > 0 {
			of.lately[event] = max(of.lately[event], i.By)
		}
	}
	for _, subject := range slices.Sorted(maps.Keys(subjects)) {
		subjects[subject].report(f, report.about(subject, ""))
	}
}

func (e hardwareEvents) report(f *facts.Facts, report reporter) {
	counted := func(events map[string]float64) string {
		var list []string
		for _, event := range slices.Sorted(maps.Keys(events)) {
			list = append(list, fmt.Sprintf("%.0f × %s", events[event], event))
		}
		return listed(list)
	}
	out := finding.Finding{Why: "The driver reports a fault that counters do not show.",
		Fix: []string{"dmesg | grep -iE 'mlx5|bnxt|irdma|NVRM|amdgpu|AER|PCIe Bus Error' | tail -50"}}
	var evidence []string
	if len(e.fatal) > 0 {
		out.Severity = critical
		out.Fix = append(out.Fix, append(hands(f, "# reset or replace the device, or boot the node"),
			"# restart railscope afterwards: this finding stands until then")...)
		evidence = append(evidence, counted(e.fatal)+" since railscope started")
	}
	if len(e.lately) > 0 {
		evidence = append(evidence, fmt.Sprintf("%s in %s", counted(e.lately), minutes(f.Live.Over)))
	}
	out.Evidence = strings.Join(evidence, "; ")
	if out.Evidence != "" {
		report(out)
	}
}

func checkTemperature(f *facts.Facts, report reporter) {
	for _, r := range f.Judged() {
		var list []string
		for _, h := range f.Live.Hot {
			if h.Rail == r.Name {
				list = append(list, fmt.Sprintf("%s by %.1f °C", h.Sensor, h.Excess))
			}
		}
		if len(list) > 0 {
			report(finding.Finding{Subject: r.Subject(), Where: r.Where(),
				Evidence: "sensors are above their critical temperature: " + listed(list),
				Why:      "The adapter throttles or shuts down, and a module that is too hot loses its link.",
				Fix: append(hands(f, "# check fans, airflow and inlet temperature, and for a module its cage and its "+
					"seat"), sh("grep . /sys/bus/pci/devices/%s/hwmon/hwmon*/temp*", r.PCIAddress))})
		}
	}
}

// checkTrafficUneven finds rails that carry less than the others, where their shares are known.
func checkTrafficUneven(f *facts.Facts, report reporter) {
	const why = "A job is as fast as its slowest rail, unless it does not use all of them."
	for _, r := range f.Judged() {
		var text []string
		for _, s := range f.Live.Shares {
			if s.Rail == r.Name && s.Value < 1-rail.ImbalancedAbove {
				text = append(text, fmt.Sprintf("%s of the best rail's share, %s", terminal.Percent(s.Value),
					s.Direction))
			}
		}
		slices.Sort(text)
		if len(text) > 0 {
			report(finding.Finding{Subject: r.Subject(), Where: r.Where(),
				Evidence: "real traffic of the last 10 s: it carries " + strings.Join(text, "; "), Why: why,
				Fix: []string{note("compare what it carries alone with what the job sends over it: railscope bench " +
					"PEER")}})
		}
	}
	if len(f.Live.Shares) > 0 {
		return
	}
	var text []string
	for _, direction := range slices.Sorted(maps.Keys(f.Live.Imbalance)) {
		if v := f.Live.Imbalance[direction]; v > rail.ImbalancedAbove {
			text = append(text, fmt.Sprintf("a rail carries %s of the best one's share, %s", terminal.Percent(1-v),
				direction))
		}
	}
	if len(text) > 0 {
		report(finding.Finding{Evidence: strings.Join(text, "; "),
			Why: why,
			Fix: []string{"# the live page and rail_utilization_ratio show which rail; railscope bench PEER shows " +
				"whether it can carry more"}})
	}
}

// checkRailLags finds rails that something limits while jobs use them. Jobs give every rail the same bytes and wait for
// the last one, so that the shares of traffic do not show it.
func checkRailLags(f *facts.Facts, report reporter) {
	for _, r := range f.Judged() {
		var text []string
		for _, l := range f.Live.Lags {
			if l.Rail == r.Name {
				text = append(text, fmt.Sprintf("at most %s, where they reached %s (median), %s",
					units.Gigabits(l.Rate), units.Gigabits(l.Equals), l.Direction))
			}
		}
		if len(text) > 0 {
			report(finding.Finding{Subject: r.Subject(), Where: r.Where(),
				Evidence: "in the last hour it carried as much as its equals for the same jobs, but more slowly: " +
					strings.Join(text, "; "),
				Why: "The jobs wait for it. The limit is on its path: at this end, in the network, or at the nodes " +
					"to which it sends, which see the same.",
				Fix: []string{note("measure this rail when the jobs are over, and against another node: railscope " +
					"bench PEER"), "# if the other nodes of the job report it too, the cause is at one of them: " +
					"railscope fleet"}})
		}
	}
}

func checkSuspected(reason, text string) func(*facts.Facts, reporter) {
	return func(f *facts.Facts, report reporter) {
		if slices.Contains(f.Live.Suspected, reason) {
			report(finding.Finding{Evidence: text, Why: "The job uses a fraction of the network.",
				Fix: []string{"# start the job with NCCL_DEBUG=INFO or UCX_LOG_LEVEL=info: its log says which " +
					"network it chose, and why; then correct its NCCL_NET, NCCL_IB_HCA, UCX_TLS or UCX_NET_DEVICES"}})
		}
	}
}

func checkNCCLFallback(f *facts.Facts, report reporter) {
	for _, job := range f.Live.Sockets {
		report(finding.Finding{Subject: "job " + job, Evidence: "NCCL uses sockets instead of RDMA, according to its " +
			"log",
			Why: whyNCCL, Fix: []string{"# the job's log says why, from NET/IB on: no device in its container, " +
				"NCCL_IB_DISABLE, " +
				"NCCL_IB_HCA or NCCL_NET, or a plugin that was not found; correct that, and start the job again"}})
	}
}

func checkSourceFailed(f *facts.Facts, report reporter) {
	for _, source := range slices.Sorted(maps.Keys(f.Live.Failed)) {
		report(finding.Finding{Subject: "source " + source,
			Evidence: fmt.Sprintf("it could not be read completely: %s", f.Live.Failed[source]),
			Why:      "Its metrics are missing, and alerts on them cannot fire.",
			Fix: []string{"# see the log of railscope for the file and the reason; source_errors_total counts " +
				"them"}})
	}
}

func checkConfigRefused(f *facts.Facts, report reporter) {
	if f.Live.Refused {
		report(finding.Finding{Subject: "configuration", Evidence: "the last configuration was refused, the previous " +
			"one is still active", Why: "After a restart railscope would not start.",
			Fix: []string{"# the log of railscope has the line and what would be right"}})
	}
}
