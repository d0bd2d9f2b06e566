package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe/options"
	"github.com/railscope/railscope/probe/result"
)

// Thresholds for counters over the last 10 minutes. Faults with an alert use the alert's threshold ([Thresholds]).
const (
	pauseAbove    = 0.05  // share of the time in which pause frames blocked a priority
	stormAbove    = 0.5   // share of the time above which the pauses are a storm
	eventsAbove   = 0.001 // events ÷ packets
	packetsAbove  = 100   // packets per second below which the ratio is meaningless
	symbolErrors  = 10    // a healthy link of 100 Gb/s (error rate of at most 1e-15) has none
	recoveries    = 3     // link recoveries
	gpuLoadAbove  = 0.5   // utilisation above which a GPU does not lower its link speed
	transmitPause = "transmit"
)

// Thresholds returns the thresholds that checks share with alerts, by the names of their recording rules.
func Thresholds() map[string]float64 {
	return map[string]float64{"pfc_pause_ratio": pauseAbove, "pfc_storm_ratio": stormAbove,
		"out_of_sequence_ratio": eventsAbove, "retransmissions_ratio": result.LossAbove,
		"packets_per_second": packetsAbove, "goodput_ratio": options.DefaultOptions().MinOfExpected,
		"probe_imbalance_ratio": rail.ImbalancedAbove, "scaling_ratio": result.BottleneckBelow,
		"goodput_critical_ratio": result.CriticalBelow, "rail_degraded_critical_ratio": halfLost}
}

// counterCheck judges how the counters of one rail moved.
type counterCheck struct {
	id       string
	severity finding.Severity
	about    string
	evidence func(l *facts.Live, rail string) string // empty if nothing is wrong
	why      string
	fix      string                                                     // a note; %s is the interface
	more     func(f *facts.Facts, r *facts.Rail, fix []string) []string // the fix by what the others show; may be nil
}

func counterChecks() []counterCheck {
	const pausedFix = "transmit: find what slows this host (its PCIe links, netdev_pci_stalled_ratio, IOMMU, a hung " +
		"receiver); receive: find the node that sends pauses by the switch's PFC counters; ethtool -S %s | grep -E " +
		"'pause|discard|outbound_pci'"
	return []counterCheck{
		{"pfc_storm", critical, "pause frames of this node block others for more than 50 % of the time, or the " +
			"rail's adapter reports a pause storm", pfcStorm, "Pause spreads over the switches: jobs on other nodes " +
			"stop as well.", pausedFix, nil},
		{"pfc_pause", warning, "pause frames block the rail for more than 5 % of the time", pfcPause,
			"A paused priority carries nothing, and the pause spreads to other senders.", pausedFix, nil},
		{"out_of_sequence", warning, "more than 0.1 % of the packets that the rail receives are out of sequence",
			share("packets out of sequence", "port_receive_packets_total", "port_out_of_sequence_packets_total"),
			"Packets to this rail were lost or overtaken: without selective repeat, the sender starts again from " +
				"there.",
			"find where packets are dropped: counters of the switch ports, PFC on the whole path, and ethtool -S %s",
			fixSequence},
		{"receive_discards", warning, "the rail drops more than 0.1 % of the packets that it receives, for lack of " +
			"buffers", share("packets dropped", "port_receive_packets_total", "port_out_of_buffer_total",
			"port_receive_discards_total", "netdev_phy_discards_total receive"),
			"Each one costs RoCE a retransmission: this host receives too slowly, or PFC is off.",
			"out of buffer: more receive requests, or a larger ring (ethtool -G); discards: PFC, PCIe and memory of " +
				"this host; ethtool -S %s | grep -E 'out_of_buffer|discard'", nil},
		{"rnr_naks", warning, "peers were not ready to receive more than 0.1 % of the packets that the rail sends",
			share("receiver-not-ready NAKs", "port_transmit_packets_total", "port_rnr_naks_received_total"),
			"Each one stalls a connection for the receiver's timer, up to 655 ms: software at the peer posts " +
				"receives too late.",
			"on the peers of %s: processors that are busy or throttled, and receive queues that are too short", nil},
		{"link_errors", warning, "symbol errors that were not corrected, or recoveries, on a link that stays up",
			linkErrors, "The bit error rate is too high: packets are lost, and the link will fail.",
			"clean or replace the cable or its transceiver, at both ends: ethtool -m %s, on InfiniBand " +
				"ibdiagnet", func(f *facts.Facts, _ *facts.Rail, fix []string) []string { return hands(f, fix...) }},
	}
}

// fixSequence leaves loss that this node sees as well to lossy_rail. Packets that overtake each other need no cable.
func fixSequence(f *facts.Facts, r *facts.Rail, drops []string) []string {
	l := f.Live
	switch {
	case lossyTraffic(l, r):
		return nil
	case reordered(l, r):
		return unspray()
	}
	return append(append(drops, "# if the senders retransmit far less than that, packets overtake each other:"),
		unspray()...)
}

// check returns c as a row of the table of checks.
func (c counterCheck) check() Check {
	return Check{c.id, c.severity, c.about, live(eachRail(func(f *facts.Facts, r *facts.Rail, report reporter) {
		if evidence := c.evidence(f.Live, r.Name); evidence != "" {
			of := r.Netdev
			if of == "" {
				of = r.Device
			}
			fix := []string{note(c.fix, shellWord(of))}
			if c.more != nil {
				fix = c.more(f, r, fix)
				if fix == nil {
					return
				}
			}
			report(finding.Finding{Evidence: evidence, Why: c.why, Fix: fix})
		}
	}))}
}

// counted returns how much the counters of a row rose for a rail; "row value" selects the series whose last label has
// that value.
func counted(l *facts.Live, rail, row string) (sum float64) {
	row, last, _ := strings.Cut(row, " ")
	for _, i := range l.Increases {
		if i.Row == row && i.Labels[0] == rail && (last == "" || i.Labels[len(i.Labels)-1] == last) {
			sum += i.By
		}
	}
	return sum
}

// most returns the largest increase among rows that count the same events.
func most(l *facts.Live, rail string, rows ...string) (events float64) {
	for _, row := range rows {
		events = max(events, counted(l, rail, row))
	}
	return events
}

// share returns a function that judges the ratio of events to packets.
func share(what, packetsRow string, rows ...string) func(*facts.Live, string) string {
	return func(l *facts.Live, rail string) string {
		events, packets := most(l, rail, rows...), counted(l, rail, packetsRow)
		if events < minEvents || packets <= packetsAbove*l.Over.Seconds() || events <= eventsAbove*packets {
			return ""
		}
		return fmt.Sprintf("%.0f %s for %.3g packets (%.3g %%) in %s", events, what, packets, 100*events/packets,
			minutes(l.Over))
	}
}

// paused returns the largest share of the time in which a priority, or the whole port, was paused. With direction
// transmitPause only pauses by this node count, else those by either end.
func paused(l *facts.Live, rail, direction string) (part float64, evidence string) {
	var longest facts.Increase
	for _, i := range l.Increases {
		if i.Labels[0] == rail && i.By > longest.By && (direction == "" || direction == i.Labels[len(i.Labels)-1]) &&
			slices.Contains([]string{"port_pause_seconds_total", "port_global_pause_seconds_total"}, i.Row) {
			longest = i
		}
	}
	if longest.By == 0 {
		return 0, ""
	}
	part = min(longest.By/l.Over.Seconds(), 1)
	labels := longest.Labels
	what := labels[1]
	if len(labels) > 3 {
		what = "priority " + labels[2] + " of " + what
	}
	by := "received: the network blocks this rail"
	if labels[len(labels)-1] == transmitPause {
		by = "sent: this node blocks others"
	}
	return part, fmt.Sprintf("pause frames blocked %s for %s of %s (%s)", what, terminal.Percent(part),
		minutes(l.Over), by)
}

// pfcStorm judges the pauses that this node sends, as its alert does. Pauses that it receives are another node's storm.
func pfcStorm(l *facts.Live, rail string) string {
	part, evidence := paused(l, rail, transmitPause)
	if part > stormAbove {
		return evidence
	}
	if n := counted(l, rail, "port_pause_storm_events_total error"); n > 0 {
		return fmt.Sprintf("the adapter paused the network for too long and then dropped packets, %.0f times in %s", n,
			minutes(l.Over))
	}
	return ""
}

// pfcPause leaves storms to pfc_storm.
func pfcPause(l *facts.Live, rail string) string {
	if part, evidence := paused(l, rail, ""); part > pauseAbove && pfcStorm(l, rail) == "" {
		return evidence
	}
	return ""
}

// linkErrors leaves links that went down to link_flapping: link training also counts these errors.
func linkErrors(l *facts.Live, rail string) string {
	if counted(l, rail, "port_link_downed_total")+counted(l, rail, "netdev_carrier_changes_total") > 0 {
		return ""
	}
	symbols := most(l, rail, "port_symbol_errors_total", "netdev_phy_symbol_errors_total",
		"netdev_fec_uncorrectable_blocks_total")
	recovered := counted(l, rail, "port_link_error_recovery_total")
	if symbols < symbolErrors && recovered < recoveries {
		return ""
	}
	return fmt.Sprintf("%.0f symbol errors and %.0f recoveries of the link in %s", symbols, recovered, minutes(l.Over))
}

// checkGPULink compares the link of a GPU with what both ends support: its width always, its speed only under load,
// because an idle GPU lowers it. The GPU of a GB10 is not in a slot.
func checkGPULink(f *facts.Facts, report reporter) {
	for _, g := range f.GPUs {
		if g.Link == nil || g.Slot == nil || f.GPUDirect.Mode == "unsupported" {
			continue
		}
		width, speed := min(g.Link.MaxWidth, g.Slot.MaxWidth), min(g.Link.MaxSpeed, g.Slot.MaxSpeed)
		busy := f.Live != nil && f.Live.GPULoad[g.Address] >= gpuLoadAbove
		if g.Link.Width >= width && (!busy || g.Link.Speed >= speed) {
			continue
		}
		evidence := fmt.Sprintf("its PCIe link runs at %s, both ends support %s",
			generation(g.Link.Speed, g.Link.Width), generation(speed, width))
		if g.Link.Width >= width {
			evidence += ", and the GPU is busy"
		}
		report(finding.Finding{Subject: "gpu " + g.Address, Evidence: evidence,
			Why: "Copies between the GPU and rails, other GPUs or host memory get what the link carries.",
			Fix: hands(f, note("check AER and XID errors (dmesg), then %s; the BIOS may limit the slot",
				reseat(f, "the GPU")))})
	}
}
