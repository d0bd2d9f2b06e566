package check

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/railscope/railscope/internal/expect"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe"
)

// noDevice is the reason of a round with a peer that has no rail, or of a node that has none.
const noDevice probe.Reason = "no_device"

// ownName are the reasons of failures that are checks of their own: the cause is known, and who has to fix it.
var ownName = []probe.Reason{"peer_gid", "gid_misbound"}

// railFailures are the failures of rails, without those that the outcome names, those of one stage and reason together.
func railFailures(r *probe.Result) (groups [][]probe.Failure) {
	for _, f := range otherFailures(r) {
		if one := railOf(r, f); one == nil || one.Failure == nil {
			continue
		}
		i := slices.IndexFunc(groups, func(g []probe.Failure) bool {
			return g[0].Stage == f.Stage && g[0].Reason == f.Reason
		})
		if i < 0 {
			i, groups = len(groups), append(groups, nil)
		}
		groups[i] = append(groups[i], f)
	}
	return groups
}

// checkRailFailed finds the rails that failed for a reason that is no check of its own, and are not missing.
func checkRailFailed(r *probe.Result, report reporter) {
	for _, group := range railFailures(r) {
		group = slices.DeleteFunc(group, func(f probe.Failure) bool {
			return slices.ContainsFunc(r.Missing, func(m probe.MissingRail) bool { return m.Rail == f.Rail })
		})
		if len(group) == 0 || slices.Contains(ownName, group[0].Reason) {
			continue
		}
		reportFailed(r, group, report)
	}
}

// checkReason is the check of failures of rails with the reason that it is named after, also where no rail is left.
func checkReason(reason probe.Reason) func(*probe.Result, reporter) {
	return func(r *probe.Result, report reporter) {
		for _, atPeer := range []bool{false, true} {
			var group []probe.Failure
			for _, one := range r.Rails {
				if one.Failure != nil && one.Failure.Reason == reason && one.Failure.AtPeer() == atPeer {
					group = append(group, *one.Failure)
				}
			}
			if len(group) > 0 {
				reportFailed(r, group, report)
			}
		}
	}
}

// reportFailed reports rails that failed alike, with the detail of the first.
func reportFailed(r *probe.Result, group []probe.Failure, report reporter) {
	var names []string
	carried := false
	for _, f := range group {
		names = append(names, f.Rail)
		if one := railOf(r, f); one != nil {
			carried = carried || Carried(*one)
		}
	}
	first := group[0]
	what := "failed at " + string(first.Stage)
	if r.Transport == probe.RDMA && !carried {
		what = "was not used"
		if len(names) > 1 {
			what = "were not used"
		}
	}
	subject := namedRails(names)
	if first.Reason == "gid_misbound" && first.AtPeer() {
		subject = "" // the peer
	}
	report(finding.Finding{Subject: subject,
		Evidence: fmt.Sprintf("%s %s: %s", namedRails(names), what, Reason(first.Reason, first.Detail))})
}

func checkPeerWorker(r *probe.Result, report reporter) {
	if r.Outcome != probe.OK && r.Reason == PeerWorker {
		report(finding.Finding{Evidence: fmt.Sprintf("RDMA to %s was not measured: %s", r.Peer, r.Detail),
			Fix: []string{note("on %s: look for railscope-probe in the log of railscope and of the kernel (journalctl -k): "+
				"a fault of the provider's library, or the OOM killer", r.Peer)}})
	}
}

// checkRoundRailMissing reports each rail that is missing here, and those of the peer as one fault of the peer. That it
// has none at all is the finding of the outcome.
func checkRoundRailMissing(r *probe.Result, report reporter) {
	peer := finding.Finding{Severity: warning, Fix: []string{note("on %s: railscope doctor", r.Peer)}}
	for _, m := range r.Missing {
		evidence := fmt.Sprintf("%s is missing: %s", m, m.Detail)
		if m.Peer && r.Outcome == probe.Fallback && r.Reason == noDevice {
			continue
		}
		if m.Peer {
			peer.Evidence += "; " + evidence
			if m.Known {
				peer.Severity = critical
			}
			continue
		}
		out := finding.Finding{Subject: "rail " + m.Rail, Evidence: evidence,
			Fix: []string{"# check that its device exists: rdma link; and see dmesg"}}
		switch {
		case m.Known:
			out.Fix = append(out.Fix, afterChange(expect.BestSeen, "", m.Rail))
		case m.Certain():
			out.Severity = warning
		default:
			out.Severity = info // it may be an ordinary interface
		}
		report(out)
	}
	if peer.Evidence != "" {
		peer.Evidence = strings.TrimPrefix(peer.Evidence, "; ")
		report(peer)
	}
}

func checkLossyRail(r *probe.Result, report reporter) {
	for _, one := range r.Rails {
		if !one.Lossy || one.Loss == nil {
			continue
		}
		there := "not reported by the peer"
		if one.Loss.PeerEvents != nil {
			there = fmt.Sprintf("%d at the peer", *one.Loss.PeerEvents)
		}
		text := fmt.Sprintf("rail %s loses packets: %d retransmissions in %d packets of the last rounds, %d of them in this "+
			"one; packets out of sequence or twice: %s", one.Rail, one.LossEvents, one.LossPackets, one.Loss.Retransmits,
			there)
		if one.Share != nil && *one.Share < 1-UnevenAbove {
			text += fmt.Sprintf("; it carries %s of its share", terminal.Percent(*one.Share))
		}
		report(finding.Finding{Subject: "rail " + one.Rail, Evidence: text, Fix: []string{
			sh("ethtool -S %s | grep -i -e err -e discard -e drop", one.Netdev),
			note("the same on the peer and on the switch ports between: clean or replace cable and module, and check PFC " +
				"or ECN of the traffic class")}})
	}
}

func checkLatencyUneven(r *probe.Result, report reporter) {
	round := func(d time.Duration) time.Duration { return d.Round(max(d/1000, 10*time.Nanosecond)) }
	for _, one := range r.Rails {
		u := one.Uneven
		if u == nil {
			continue
		}
		text := fmt.Sprintf("the fastest small write over rail %s took %v", one.Rail, round(u.Latency))
		if u.Siblings > 0 {
			text += fmt.Sprintf(", over its siblings %v", round(u.Siblings))
		}
		if u.Before > 0 {
			text += fmt.Sprintf(", before %v", round(u.Before))
		}
		report(finding.Finding{Subject: "rail " + one.Rail, Evidence: text})
	}
}

func checkOtherTraffic(r *probe.Result, report reporter) {
	for _, one := range r.Rails {
		if one.Others != nil {
			report(finding.Finding{Subject: "rail " + one.Rail, Fix: []string{note("none: it is not held against the rail")},
				Evidence: fmt.Sprintf("other traffic took %s of rail %s during the burst", gigabits(*one.Others), one.Rail)})
		}
	}
}
