package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe/result"
)

const (
	mismatchAbove = 0.05 // difference between counters and bytes sent, as a share
	smallPathMTU  = 1024 // largest RoCE MTU with an interface MTU of 1500, bytes
)

// Checks of a round's outcome, which the verdict of bench states.
const (
	Fallback    = "fallback"
	PeerWorker  = "peer_worker"
	Corrupted   = "data_mismatch"
	ProbeFailed = "probe_failed"
)

// RoundCheck is one row of the table of checks of a round of the probe.
type RoundCheck struct {
	ID       string
	Severity finding.Severity // default severity of the findings
	About    string
	Why      string // default Why of the findings
	run      func(*result.Result, reporter)
}

// RoundChecks returns all checks of a round, in the order of their findings.
func RoundChecks() []RoundCheck {
	return slices.Concat(outcomeChecks(), railChecksOfRounds(), goodputChecks(), besideChecks())
}

const (
	whyTCP  = "Jobs between these nodes fail, or use TCP: a fraction of the goodput, and load on the processors."
	whyRail = "The other rails do its work, or the job does not start."
	whySlow = "A job over all rails waits for the slowest."
)

func outcomeChecks() []RoundCheck {
	return []RoundCheck{
		{Fallback, critical, "the peer is reachable, but not by RDMA; a warning if only railscope lacks something",
			whyTCP, func(r *result.Result, report reporter) { checkOutcome(r, result.Fallback, false, report) }},
		{PeerWorker, warning, "the peer's worker process ended or hangs, so that RDMA was not measured",
			"Jobs may work, but nothing is known of their rails.", checkPeerWorker},
		{Corrupted, critical, "the target received other bytes than were sent",
			"Jobs compute with wrong data, and nothing else reports it.",
			func(r *result.Result, report reporter) { checkOutcome(r, result.Failed, true, report) }},
		{ProbeFailed, warning, "the peer was not reached, or the round ended early",
			"The peer may be down; until it answers, nothing is known of the rails to it.",
			func(r *result.Result, report reporter) { checkOutcome(r, result.Failed, false, report) }},
	}
}

func railChecksOfRounds() []RoundCheck {
	return []RoundCheck{
		{"rail_missing", critical, "an end of the pair lacks a rail that it had; a warning if only its interface is " +
			"there", whyRail, checkRoundRailMissing},
		{unpaired, info, "rails without a partner because the peer has fewer, or because they lead to a third " +
			"node", "", checkUnpaired},
		{"peer_gid", warning, "a rail failed because the peer's GID is gone, or of another kind", whyRail,
			checkReason("peer_gid")},
		{"gid_misbound", critical, "a rail failed, and its IPv4 GIDs at one end are those of a bond or bridge",
			"Packets leave by whichever interface the bond or bridge chooses, and connections over this rail time out.",
			checkReason("gid_misbound")},
		{"rail_failed", warning, "a rail failed, or could not be used", whyRail, checkRailFailed},
		{"lossy_rail", warning, "a rail loses packets, and its siblings do not; an information if few were lost, or " +
			"on all rails alike", "RoCE sends everything again from the lost packet on: 0.1 % of loss costs most of " +
			"the goodput.", overRDMA(checkLossyRail)},
		{"out_of_sequence", warning, "packets over a rail overtake each other, so that it retransmits",
			"Adaptive routing, or a LAG that sprays the packets of one connection over its links, reorders packets. " +
				"An adapter that does not accept that takes each one for a loss, and sends everything again from " +
				"there.",
			overRDMA(checkReordered)},
		{"latency_uneven", warning, "the shortest latency of a rail is more than twice that of its siblings",
			"Small messages wait that long, and a collective waits for the slowest rail.",
			overRDMA(checkLatencyUneven)},
		{"step_failed", info, "a step of the round failed without an effect on its result",
			"A figure is missing; the verdict does not depend on it.", checkStepFailed},
	}
}

func goodputChecks() []RoundCheck {
	return []RoundCheck{
		{"goodput_below_expected", warning, "a rail, or all together, carried less than `min_of_expected`; " +
			"critical below 35 % of what is expected", whySlow,
			overRDMA(checkBelowExpected)},
		{"goodput_degraded", warning, "a rail carried, alone and twice in a row, less than 70 % of the best daily " +
			"median of its last week; critical below 35 %", whySlow, overRDMA(checkDegraded)},
		{"host_bottleneck", warning, "a rail carries too little, and no more to itself: the host limits it, not the " +
			"wire", whySlow, overRDMA(checkHostBottleneck)},
		{"lossy_path", warning, "packets are lost on some of a rail's paths (flow labels), and not on others",
			"Connections that are hashed to these paths are slow or break, the others are good: jobs fail by chance.",
			overRDMA(checkLossyPath)},
		{"gpu_memory_staged", info, "memory of GPUs can be neither exported nor registered: it is copied through the " +
			"host", "Each transfer is copied once more at each end, and takes bandwidth of the host's memory.",
			overRDMA(checkGPUStaged)},
		{"imbalance", info, "a rail carried less than 90 % of its share; a warning below 75 %", whySlow,
			overRDMA(checkImbalance)},
		{"shared_bottleneck", info, "all rails together reach less than 90 % of the sum of each alone, in 3 bursts " +
			"in a row; or two of them; a warning if all reach less than 80 %, critical below 35 %, if more is expected",
			"A job over all rails gets what the bottleneck carries, not the sum of the rails.",
			overRDMA(checkSharedBottleneck)},
	}
}

func besideChecks() []RoundCheck {
	return []RoundCheck{
		{"slower_than_tcp", info, "each burst by RDMA carried less than 95 % of each TCP baseline",
			"RDMA saves processors and latency, but no time: with software devices (rxe, siw) that is normal.",
			overRDMA(checkSlowerThanTCP)},
		{"scaling_high", info, "all rails together carried more than 105 % of the sum of each alone",
			"One of the two measurements does not have what the rails can carry.", overRDMA(checkScalingHigh)},
		{"other_traffic", info, "others used a rail during the burst",
			"What others took is not held against the rail.", overRDMA(checkOtherTraffic)},
		{"counter_mismatch", info, "a rail's counter differs from the bytes sent by more than 5 %",
			"The counter is what dashboards show of the rail.", overRDMA(checkCounters)},
		{"path_mtu_small", info, "a path MTU of 1024 B or less",
			"Each packet has 58 bytes of headers, so small packets cost goodput: 1024: 5 %, 4096: 1 %.", checkPathMTU},
		{"version_mismatch", info, "a component has another version on the peer",
			"It breaks no connection, but the nodes may behave differently.", checkVersions},
	}
}

// Round returns the findings of a round, the worst first and without mere consequences of others. A degraded, fallback
// or failed round has one of severity warning or critical; an ok, reached or skipped one has none.
func Round(r result.Result) (list []finding.Finding) {
	if r.Outcome == result.Skipped {
		return nil
	}
	for _, c := range RoundChecks() {
		c.run(&r, collect(&list, finding.Finding{Check: c.ID, Severity: c.Severity, Subject: "peer " + r.Peer,
			Why: c.Why}))
	}
	list = finding.Causes(list)
	slices.SortStableFunc(list, func(a, b finding.Finding) int { return a.Severity.Compare(b.Severity) })
	return list
}

func overRDMA(check func(*result.Result, reporter)) func(*result.Result, reporter) {
	return func(r *result.Result, report reporter) {
		if r.Transport == result.RDMA {
			check(r, report)
		}
	}
}

// Reason returns the reason of an outcome or failure as text for people.
func Reason(reason result.Reason, detail string) string {
	if detail == "" {
		return string(reason)
	}
	return string(reason) + ": " + detail
}

func checkOutcome(r *result.Result, outcome result.Outcome, corrupted bool, report reporter) {
	if r.Outcome != outcome || r.Reason == PeerWorker || outcome == result.Failed && r.Corrupted() != corrupted {
		return
	}
	out := finding.Finding{}
	what := "the probe of " + r.Peer
	if outcome == result.Fallback {
		what = "RDMA to " + r.Peer
		if r.OfRailscope() { // jobs may work
			out.Severity = warning
		}
	}
	out.Evidence, out.Fix = fmt.Sprintf("%s failed: %s", what, Reason(r.Reason, r.Detail)), cureOf(r, outcomeFailure(r))
	report(out)
}

// outcomeFailure returns the failure that caused the outcome.
func outcomeFailure(r *result.Result) result.Failure {
	for _, rail := range r.Rails {
		if rail.Failure != nil && rail.Failure.Reason == r.Reason {
			return *rail.Failure
		}
	}
	i := slices.IndexFunc(r.Failures, func(f result.Failure) bool { return f.Reason == r.Reason })
	if corrupted := r.Corrupted() && r.Outcome == result.Failed; corrupted && (i < 0 || r.Reason != Corrupted) {
		return result.Failure{Reason: Corrupted}
	}
	if i < 0 {
		return result.Failure{Reason: r.Reason, Detail: r.Detail}
	}
	return r.Failures[i]
}

// otherFailures returns the failures that the outcome does not cover: all of an RDMA round, else those with another
// reason.
func otherFailures(r *result.Result) []result.Failure {
	return slices.DeleteFunc(slices.Clone(r.Failures), func(f result.Failure) bool {
		return r.Transport != result.RDMA && f.Reason == r.Reason
	})
}

// railOf returns the result of the rail that failed; nil if the failure has no rail.
func railOf(r *result.Result, f result.Failure) *result.RailResult {
	i := slices.IndexFunc(r.Rails, func(x result.RailResult) bool { return x.Rail == f.Rail })
	if f.Rail == "" || i < 0 {
		return nil
	}
	return &r.Rails[i]
}

func checkStepFailed(r *result.Result, report reporter) {
	for _, f := range otherFailures(r) {
		one := railOf(r, f)
		switch {
		case one != nil && one.Failure != nil: // rail_failed reports it
		case f.Reason == "timeout" && othersSeen(r): // other traffic explains the timeout
		case f.Rail == "":
			report(finding.Finding{Evidence: fmt.Sprintf("failed at %s: %s", f.Stage, Reason(f.Reason, f.Detail)),
				Fix: cureOf(r, f)})
		default:
			report(finding.Finding{Subject: "rail " + f.Rail, Fix: cureOf(r, f),
				Evidence: fmt.Sprintf("rail %s failed at %s: %s", f.Rail, f.Stage, Reason(f.Reason, f.Detail))})
		}
	}
}

// othersSeen reports whether other traffic used a rail during the round.
func othersSeen(r *result.Result) bool {
	return slices.ContainsFunc(r.Rails, func(one result.RailResult) bool { return one.OthersSeen() != nil })
}

// Carried reports whether a rail carried bytes in the striped burst.
func Carried(r result.RailResult) bool { return r.Striped != nil && r.Striped.Bytes > 0 }

func checkSharedBottleneck(r *result.Result, report reporter) {
	pairs := contending(r)
	if !r.Bottleneck && len(pairs) == 0 {
		return
	}
	fix := []string{note("where adapters can be moved, distribute them over PCIe links; else plan with what they " +
		"carry together; lspci -tv shows what they share. In the network: one uplink, or a port channel that hashes " +
		"all to one link")}
	if !r.Bottleneck { // with more than 2 rails, this pair does not slow all of them
		report(finding.Finding{Evidence: strings.Join(pairTexts(r, pairs), "; "), Fix: fix})
		return
	}
	var alone []string
	for _, rail := range r.Rails {
		if Carried(rail) {
			alone = append(alone, rail.Rail)
		}
	}
	part := "less than " + terminal.Percent(result.SharedBelow)
	if together := r.Together(); together != nil {
		part = terminal.Percent(*together)
	}
	text := []string{fmt.Sprintf("%s together reach %s of their sum: they share a bottleneck", namedRails(alone), part)}
	for _, s := range r.Shared {
		who := "all"
		switch {
		case len(s.Rails) == 0:
			continue
		case len(s.Rails) != len(alone):
			who = namedRails(s.Rails)
		case len(alone) == 2:
			who = "both"
		}
		text = append(text, who+" sit on "+s.What)
	}
	out := finding.Finding{Evidence: strings.Join(append(text, pairTexts(r, pairs)...), "; "), Fix: fix}
	if r.Throttled() {
		out.Severity = ofGoodput(*r.Together())
	}
	report(out)
}

// pairTexts describes which pairs of rails share hardware, and which hardware, as far as this node knows.
func pairTexts(r *result.Result, pairs []result.Pair) (list []string) {
	for _, p := range pairs {
		text := fmt.Sprintf("rails %s and %s together reach %s of what each carries alone", p.Rail, p.Other,
			terminal.Percent(p.Ratio))
		if s := r.Shares(p.Rail, p.Other); s != "" {
			text += ", and both sit on " + s
		}
		list = append(list, text)
	}
	return list
}

func namedRails(names []string) string {
	if len(names) == 1 {
		return "rail " + names[0]
	}
	return "rails " + listed(names)
}

func checkSlowerThanTCP(r *result.Result, report reporter) {
	if r.SlowerThanTCP && r.Speedup != nil {
		report(finding.Finding{Evidence: fmt.Sprintf("RDMA is slower than TCP here (speed-up %.2f)", *r.Speedup),
			Fix: []string{note("none for software devices; with adapters, look for retransmissions, a small MTU and " +
				"pause frames: railscope rails; ethtool -S of the interfaces")}})
	}
}

// checkScalingHigh skips software devices: their rate depends on how busy the processors are.
func checkScalingHigh(r *result.Result, report reporter) {
	software := slices.ContainsFunc(r.Rails, func(one result.RailResult) bool { return one.Expected == nil })
	if r.Scaling == nil || *r.Scaling <= result.ScalingAbove || software {
		return
	}
	report(finding.Finding{Evidence: fmt.Sprintf("all rails together carried %s of the sum of each alone",
		terminal.Percent(*r.Scaling)), Fix: []string{
		note("measure longer: a rail that starts slowly is measured too low alone: railscope bench %s --burst=50ms",
			shellWord(r.Peer))}})
}

func checkCounters(r *result.Result, report reporter) {
	for _, rail := range r.Rails {
		if rail.CounterMismatch != nil && *rail.CounterMismatch > mismatchAbove && rail.OthersSeen() == nil &&
			!rail.Lossy {
			report(finding.Finding{Subject: "rail " + rail.Rail,
				Evidence: fmt.Sprintf("the counter of rail %s differs from the bytes sent by %s: other traffic, "+
					"retransmissions, or bytes on another path", rail.Rail, terminal.Percent(*rail.CounterMismatch)),
				Fix: []string{note("see who else uses the rail, and whether it retransmits: ethtool -S %s; "+
					"rdma resource show qp", shellWord(rail.Netdev))}})
		}
	}
}

func checkPathMTU(r *result.Result, report reporter) {
	var small []string
	for _, rail := range r.Rails {
		if rail.PathMTU > 0 && rail.PathMTU <= smallPathMTU {
			small = append(small, rail.Rail)
		}
	}
	if len(small) > 0 {
		report(finding.Finding{Subject: namedRails(small),
			Evidence: fmt.Sprintf("small packets: a path MTU of %d B or less; 4096 B need an MTU of 4200 on both "+
				"ends and on the path", smallPathMTU),
			Fix: []string{"# set an MTU of 4200 or more on both ends and on the path"}})
	}
}

func checkVersions(r *result.Result, report reporter) {
	var components, differ []string
	for _, m := range r.Mismatches {
		components = append(components, m.Component)
		differ = append(differ, fmt.Sprintf("%s differs: %s here, %s there", m.Component, m.Here, m.There))
	}
	if len(differ) > 0 {
		report(finding.Finding{Evidence: strings.Join(differ, "; "),
			Fix: []string{note("run the same version of %s on both nodes", listed(components))}})
	}
}
