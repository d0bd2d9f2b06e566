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
)

// Thresholds on what counters did within ten minutes.
const (
	flapChanges  = 6    // carrier changes: three times down and up
	lossAbove    = 1e-4 // retransmission events ÷ packets sent
	leastEvents  = 10   // retransmission events
	leastPackets = 1e5  // sent, so that the ratio means something
)

// liveChecks are checks of what a running railscope saw. Without one they find nothing.
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
		{"rdma_idle_tcp_busy", warning, "GPUs are busy, the rails carry no RDMA, and their interfaces " +
			"carry other traffic", live(checkSuspected("rdma_idle_tcp_busy", "the traffic looks like a fallback to TCP: "+
			"GPUs are busy, the rails carry no RDMA, and their interfaces carry other traffic"))},
		{"single_rail", warning, "traffic was even, and now one rail carries nearly all of it",
			live(checkSuspected("single_rail", "traffic was even, and now one rail carries nearly all of it"))},
		{"nccl_fallback", critical, "the log of an NCCL job says that it uses sockets",
			live(checkNCCLFallback)},
		{"source_failed", warning, "a source of metrics could not be read completely",
			live(checkSourceFailed)},
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
	for i := range f.Rails {
		r := &f.Rails[i]
		n := f.Live.Increased(r.Name, "netdev_carrier_changes_total")
		if n < flapChanges {
			continue
		}
		report(finding.Finding{Subject: r.Subject(), Where: r.Where(),
			Evidence: fmt.Sprintf("the link of %s changed %.0f times in %s", r.Netdev, n, minutes(f.Live.Over)),
			Why:      "Each time costs seconds of retransmission, and a queue pair that times out ends its job.",
			Fix: []string{note("clean or replace the cable or its transceiver, at both ends: ethtool -m %s",
				shellWord(r.Netdev))}})
	}
}

func checkLossyTraffic(f *facts.Facts, report reporter) {
	for i := range f.Rails {
		r := &f.Rails[i]
		events := f.Live.Increased(r.Name, "port_packet_sequence_errors_total", "port_retransmitted_packets_total",
			"port_adaptive_retransmits_total")
		packets := f.Live.Increased(r.Name, "port_transmit_packets_total")
		if events < leastEvents || packets < leastPackets || events < lossAbove*packets {
			continue
		}
		report(finding.Finding{Subject: r.Subject(), Where: r.Where(),
			Evidence: fmt.Sprintf("%.0f retransmissions and sequence errors in %.3g packets (%.3g %%) in %s", events, packets,
				100*events/packets, minutes(f.Live.Over)),
			Why: "RoCE sends everything again from the lost packet on: 0.1 % of loss costs most of the goodput.",
			Fix: []string{note("find where packets are dropped: ethtool -S %s (discards, CRC and FEC errors), the switch "+
				"port's counters, and PFC on the whole path", shellWord(r.Netdev))}})
	}
}

// fatal are events after which the device does not work until it is reset or replaced. Nothing reports that it was, so
// their finding stands until railscope starts again.
func fatal(event string) bool {
	return slices.Contains([]string{"health_compromised", "aer_fatal", "xid_79", "xid_74", "xid_119", "xid_120", "xid_95",
		"xid_64"}, event)
}

// benign are events that other checks judge, or that need no action. The XIDs are those of applications that the GPU
// survives; NVIDIA's device plugin for Kubernetes leaves them out as well (internal/rm/health.go).
func benign(event string) bool {
	return slices.Contains([]string{"insufficient_power", "aer_correctable", "link_down", "bond_member_down", "xid_13",
		"xid_31", "xid_43", "xid_45", "xid_68", "xid_109"}, event)
}

// hardwareEvents are the events of one subject by name: how often they occurred.
type hardwareEvents struct{ fatal, lately map[string]float64 }

// checkHardwareEvents judges events of the kernel log and of NVML. XIDs are in both: the higher count holds.
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
		subjects[subject].report(f.Live, report.about(subject, ""))
	}
}

func (e hardwareEvents) report(l *facts.Live, report reporter) {
	counted := func(events map[string]float64) string {
		var list []string
		for _, event := range slices.Sorted(maps.Keys(events)) {
			list = append(list, fmt.Sprintf("%.0f × %s", events[event], event))
		}
		return listed(list)
	}
	out := finding.Finding{Why: "The driver reports a fault that counters do not show.",
		Fix: []string{"journalctl -k -b | grep -iE 'mlx5|bnxt|ice|NVRM|AER|PCIe Bus Error' | tail -50"}}
	var evidence []string
	if len(e.fatal) > 0 {
		out.Severity = critical
		out.Fix = append(out.Fix, "# reset or replace the device, or boot the node; then restart railscope: this finding "+
			"stands until then")
		evidence = append(evidence, counted(e.fatal)+" since railscope started")
	}
	if len(e.lately) > 0 {
		evidence = append(evidence, fmt.Sprintf("%s in %s", counted(e.lately), minutes(l.Over)))
	}
	if out.Evidence = strings.Join(evidence, "; "); out.Evidence != "" {
		report(out)
	}
}

func checkTemperature(f *facts.Facts, report reporter) {
	for i := range f.Rails {
		r := &f.Rails[i]
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
				Fix: []string{"# check fans, airflow and inlet temperature, and for a module its cage and its seat",
					sh("grep . /sys/bus/pci/devices/%s/hwmon/hwmon*/temp*", r.PCIAddress)}})
		}
	}
}

func checkTrafficUneven(f *facts.Facts, report reporter) {
	var text []string
	for _, direction := range slices.Sorted(maps.Keys(f.Live.Imbalance)) {
		if v := f.Live.Imbalance[direction]; v > rail.ImbalancedAbove {
			text = append(text, fmt.Sprintf("a rail carries %s of the best one's share, %s", terminal.Percent(1-v),
				direction))
		}
	}
	if len(text) > 0 {
		report(finding.Finding{Evidence: strings.Join(text, "; "),
			Why: "A job is as fast as its slowest rail, unless it does not use all of them.",
			Fix: []string{"# the live page and rail_utilization_ratio show which rail; railscope bench PEER shows whether it " +
				"can carry more"}})
	}
}

func checkSuspected(reason, text string) func(*facts.Facts, reporter) {
	return func(f *facts.Facts, report reporter) {
		if slices.Contains(f.Live.Suspected, reason) {
			report(finding.Finding{Evidence: text, Why: "The job uses a fraction of the network.",
				Fix: []string{"railscope doctor", "# and the job's log: NCCL_DEBUG=INFO, UCX_LOG_LEVEL=info"}})
		}
	}
}

func checkNCCLFallback(f *facts.Facts, report reporter) {
	for _, job := range f.Live.Sockets {
		report(finding.Finding{Subject: "job " + job, Evidence: "NCCL uses sockets instead of RDMA, according to its log",
			Why: whyNCCL, Fix: []string{"railscope doctor", "# and the job's log, from NET/IB on"}})
	}
}

func checkSourceFailed(f *facts.Facts, report reporter) {
	for _, source := range slices.Sorted(maps.Keys(f.Live.Failed)) {
		report(finding.Finding{Subject: "source " + source,
			Evidence: fmt.Sprintf("it could not be read completely: %s", f.Live.Failed[source]),
			Why:      "Its metrics are missing, and alerts on them cannot fire.",
			Fix:      []string{"# the log of railscope has the file and the reason; source_errors_total counts them"}})
	}
}

func checkConfigRefused(f *facts.Facts, report reporter) {
	if f.Live.Refused {
		report(finding.Finding{Subject: "configuration", Evidence: "the last configuration was refused, the previous one " +
			"is still active", Why: "After a restart railscope would not start.",
			Fix: []string{"# the log of railscope has the line and what would be right"}})
	}
}
