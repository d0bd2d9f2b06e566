package check

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/railscope/railscope/internal/expect"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/rail"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe"
)

// Thresholds of findings that leave a round ok. The others of their kind are twice what healthy rails vary from one
// round to the next.
const (
	UnevenAbove   = 0.1  // imbalance; from [rail.ImbalancedAbove] on the round is degraded
	SharedBelow   = 0.9  // scaling
	SlowerBelow   = 0.95 // speed-up
	mismatchAbove = 0.05 // counter against bytes sent
	smallPathMTU  = 1024 // that an interface MTU of 1500 allows, of 4096
)

// The checks of a round's outcome, which the verdict of bench states.
const (
	Fallback    = "fallback"
	PeerWorker  = "peer_worker"
	Corrupted   = "data_mismatch"
	ProbeFailed = "probe_failed"
)

// RoundCheck is one row of the table of checks of a round of the probe.
type RoundCheck struct {
	ID       string
	Severity finding.Severity // of a finding, unless it has another
	About    string
	run      func(*probe.Result, reporter)
}

// RoundChecks are all checks of a round, in the order of their findings.
func RoundChecks() []RoundCheck {
	return []RoundCheck{
		{Fallback, critical, "the peer is reachable, but not by RDMA; a warning if only railscope lacks something",
			func(r *probe.Result, report reporter) { checkOutcome(r, probe.Fallback, false, report) }},
		{PeerWorker, warning, "the peer's worker process ended or hangs, so that RDMA was not measured", checkPeerWorker},
		{Corrupted, critical, "the target received other bytes than were sent",
			func(r *probe.Result, report reporter) { checkOutcome(r, probe.Failed, true, report) }},
		{ProbeFailed, warning, "the peer was not reached, or the round ended early",
			func(r *probe.Result, report reporter) { checkOutcome(r, probe.Failed, false, report) }},
		{"rail_missing", critical, "an end of the pair lacks a rail that it had; a warning if only its interface is there",
			checkRoundRailMissing},
		{"peer_gid", warning, "a rail failed because the peer's GID is gone, or of another kind", checkReason("peer_gid")},
		{"gid_misbound", critical, "a rail failed, and its IPv4 GIDs at one end are those of a bond or bridge",
			checkReason("gid_misbound")},
		{"rail_failed", warning, "a rail failed, or could not be used", checkRailFailed},
		{"lossy_rail", warning, "a rail loses packets, and its siblings do not", overRDMA(checkLossyRail)},
		{"latency_uneven", warning, "the shortest latency of a rail is more than twice that of its siblings",
			overRDMA(checkLatencyUneven)},
		{"step_failed", info, "a step of the round failed without an effect on its result", checkStepFailed},
		{"goodput_below_expected", warning, "a rail, or all together, carried less than `min_of_expected`",
			overRDMA(checkBelowExpected)},
		{"goodput_degraded", warning, "a rail carried, alone and twice in a row, less than 70 % of the best daily median " +
			"of its last week", overRDMA(checkDegraded)},
		{"host_bottleneck", warning, "a rail carries too little, and no more to itself: the host limits it, not the wire",
			overRDMA(checkHostBottleneck)},
		{"lossy_path", warning, "packets are lost on some of a rail's paths (flow labels), and not on others",
			overRDMA(checkLossyPath)},
		{"gpu_memory_staged", info, "memory of GPUs can be neither exported nor registered: it is copied through the host",
			overRDMA(checkGPUStaged)},
		{"imbalance", info, "a rail carried less than 90 % of its share; a warning below 70 %",
			overRDMA(checkImbalance)},
		{"shared_bottleneck", info, "all rails together reach less than 90 % of the sum of each alone, in 3 bursts in a " +
			"row; or two of them",
			overRDMA(checkSharedBottleneck)},
		{"slower_than_tcp", info, "each burst by RDMA carried less than 95 % of each TCP baseline",
			overRDMA(checkSlowerThanTCP)},
		{"other_traffic", info, "others used a rail during the burst", overRDMA(checkOtherTraffic)},
		{"counter_mismatch", info, "a rail's counter differs from the bytes sent by more than 5 %",
			overRDMA(checkCounters)},
		{"path_mtu_small", info, "a path MTU of 1024 B or less", checkPathMTU},
		{"version_mismatch", info, "a component has another version on the peer", checkVersions},
	}
}

// Round returns the findings of a round, the worst first. A round that is degraded, fallback or failed has one of
// severity warning or critical; one that is ok or skipped has none.
func Round(r probe.Result) (list []finding.Finding) {
	if r.Outcome == probe.Skipped {
		return nil
	}
	for _, c := range RoundChecks() {
		c.run(&r, collect(&list, finding.Finding{Check: c.ID, Severity: c.Severity, Subject: "peer " + r.Peer,
			Fix: []string{sh("railscope doctor --peer=%s", r.Peer)}}))
	}
	slices.SortStableFunc(list, func(a, b finding.Finding) int { return a.Severity.Compare(b.Severity) })
	return list
}

func overRDMA(check func(*probe.Result, reporter)) func(*probe.Result, reporter) {
	return func(r *probe.Result, report reporter) {
		if r.Transport == probe.RDMA {
			check(r, report)
		}
	}
}

// Reason is the reason of an outcome or failure for people.
func Reason(reason probe.Reason, detail string) string {
	if detail == "" {
		return string(reason)
	}
	return string(reason) + ": " + detail
}

func checkOutcome(r *probe.Result, outcome probe.Outcome, corrupted bool, report reporter) {
	if r.Outcome != outcome || r.Reason == PeerWorker || outcome == probe.Failed && r.Corrupted() != corrupted {
		return
	}
	out := finding.Finding{}
	what := "the probe of " + r.Peer
	if outcome == probe.Fallback {
		if what = "RDMA to " + r.Peer; r.OfRailscope() { // jobs may work
			out.Severity = warning
		}
	}
	out.Evidence = fmt.Sprintf("%s failed: %s", what, Reason(r.Reason, r.Detail))
	report(out)
}

// otherFailures are those that are not the reason of the outcome, which says how many rails have it.
func otherFailures(r *probe.Result) []probe.Failure {
	return slices.DeleteFunc(slices.Clone(r.Failures), func(f probe.Failure) bool {
		return r.Transport != probe.RDMA && f.Reason == r.Reason
	})
}

// railOf is the result of the rail of a failure; nil: of none.
func railOf(r *probe.Result, f probe.Failure) *probe.RailResult {
	i := slices.IndexFunc(r.Rails, func(x probe.RailResult) bool { return x.Rail == f.Rail })
	if f.Rail == "" || i < 0 {
		return nil
	}
	return &r.Rails[i]
}

func checkStepFailed(r *probe.Result, report reporter) {
	for _, f := range otherFailures(r) {
		one := railOf(r, f)
		switch {
		case one != nil && one.Failure != nil: // its finding is rail_failed
		case f.Rail == "":
			report(finding.Finding{Evidence: fmt.Sprintf("failed at %s: %s", f.Stage, Reason(f.Reason, f.Detail))})
		default:
			report(finding.Finding{Subject: "rail " + f.Rail,
				Evidence: fmt.Sprintf("rail %s failed at %s: %s", f.Rail, f.Stage, Reason(f.Reason, f.Detail))})
		}
	}
}

// Carried reports whether a rail carried something in the striped burst.
func Carried(r probe.RailResult) bool { return r.Stealing != nil && r.Stealing.Bytes > 0 }

func checkBelowExpected(r *probe.Result, report reporter) {
	for _, s := range r.Shortfalls() {
		who, subject := "all rails together carry", ""
		if s.Rail != "" {
			who, subject = "rail "+s.Rail+" carries", "rail "+s.Rail
		}
		report(finding.Finding{Subject: subject, Evidence: fmt.Sprintf("%s %s, %s of the %s expected", who,
			gigabits(s.Goodput), terminal.Percent(s.Goodput/s.Expected), gigabits(s.Expected)) + besidesWire(r, s)})
	}
}

// besidesWire says whether it is the wire that makes a rail slow, where the round measured the rail to itself.
func besidesWire(r *probe.Result, s probe.Shortfall) string {
	home := r.LoopbackOf(s.Rail)
	if home == nil || *home < r.MinOfExpected*s.Expected {
		return ""
	}
	return fmt.Sprintf("; to itself it carries %s: the wire or the peer limits it, not this host", gigabits(*home))
}

// checkDegraded compares rails with their own past, unless they are below what is expected anyway.
func checkDegraded(r *probe.Result, report reporter) {
	for i := range r.Rails {
		one := &r.Rails[i]
		below := func(s probe.Shortfall) bool { return s.Rail == one.Rail }
		if !one.Slowed() || slices.ContainsFunc(r.Shortfalls(), below) {
			continue
		}
		past := one.Past
		report(finding.Finding{Subject: "rail " + one.Rail, Evidence: fmt.Sprintf("rail %s carries %s alone, %s of the %s "+
			"on %s (median of its best day of the last 7)", one.Rail, gigabits(past.Latest),
			terminal.Percent(past.Latest/past.Best), gigabits(past.Best), past.On.Format(time.DateOnly)),
			Fix: []string{sh("railscope doctor --peer=%s", r.Peer), afterChange(expect.BestSeen, "", one.Rail)}})
	}
}

// checkImbalance finds the rails that carried too little beside the best one, did not fail and lose nothing. Behind a
// bottleneck that even rails share, which of them gets more of it says nothing of them.
func checkImbalance(r *probe.Result, report reporter) {
	if r.Imbalance == nil || *r.Imbalance <= UnevenAbove || r.EvenAlone {
		return
	}
	for _, one := range r.Rails {
		if one.Share == nil || one.Failure != nil || one.Lossy || *one.Share >= 1-UnevenAbove {
			continue
		}
		out := finding.Finding{Subject: "rail " + one.Rail,
			Evidence: fmt.Sprintf("rail %s carries %s of its share (imbalance %.2f)", one.Rail,
				terminal.Percent(*one.Share), 1-*one.Share)}
		if r.Imbalanced() && 1-*one.Share > rail.ImbalancedAbove {
			out.Severity = warning
		}
		report(out)
	}
}

func checkSharedBottleneck(r *probe.Result, report reporter) {
	pairs := contending(r)
	if !r.Bottleneck && len(pairs) == 0 {
		return
	}
	if !r.Bottleneck { // of more than two rails, those two do not make all of them slow
		report(finding.Finding{Evidence: strings.Join(pairTexts(r, pairs), "; ")})
		return
	}
	var alone []string
	for _, one := range r.Rails {
		if Carried(one) {
			alone = append(alone, one.Rail)
		}
	}
	part := "less than " + terminal.Percent(SharedBelow) // in a round without solo bursts
	if r.Scaling != nil {
		part = terminal.Percent(*r.Scaling)
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
	report(finding.Finding{Evidence: strings.Join(append(text, pairTexts(r, pairs)...), "; ")})
}

// pairTexts say which pairs of rails share something, and what, as far as this node knows.
func pairTexts(r *probe.Result, pairs []probe.Pair) (list []string) {
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

func checkSlowerThanTCP(r *probe.Result, report reporter) {
	if r.SlowerThanTCP && r.Speedup != nil {
		report(finding.Finding{Evidence: fmt.Sprintf("RDMA is slower than TCP here (speed-up %.2f)", *r.Speedup)})
	}
}

func checkCounters(r *probe.Result, report reporter) {
	for _, one := range r.Rails {
		if one.CounterMismatch != nil && *one.CounterMismatch > mismatchAbove && one.Others == nil && !one.Lossy {
			report(finding.Finding{Subject: "rail " + one.Rail,
				Evidence: fmt.Sprintf("the counter of rail %s differs from the bytes sent by %s: other traffic, "+
					"retransmissions, or bytes on another path", one.Rail, terminal.Percent(*one.CounterMismatch))})
		}
	}
}

func checkPathMTU(r *probe.Result, report reporter) {
	var small []string
	for _, one := range r.Rails {
		if one.PathMTU > 0 && one.PathMTU <= smallPathMTU {
			small = append(small, one.Rail)
		}
	}
	if len(small) > 0 {
		report(finding.Finding{Subject: namedRails(small),
			Evidence: fmt.Sprintf("small packets: a path MTU of %d B or less; 4096 B need an MTU of 4200 on both ends and "+
				"on the path", smallPathMTU),
			Fix: []string{"# set an MTU of 4200 or more on both ends and on the path"}})
	}
}

func checkVersions(r *probe.Result, report reporter) {
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
