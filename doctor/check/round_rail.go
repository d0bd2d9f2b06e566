package check

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/railscope/railscope/internal/expect"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/internal/units"
	"github.com/railscope/railscope/probe/result"
)

// noDevice is the reason of a round in which this node or the peer has no rail.
const noDevice result.Reason = "no_device"

// ownName lists the reasons that have their own check: their cause is known, and so is the node to fix.
var ownName = []result.Reason{"peer_gid", "gid_misbound"}

// railNamed returns the result of a rail of the round.
func railNamed(r *result.Result, name string) *result.RailResult {
	return railOf(r, result.Failure{Rail: name})
}

// railFailures groups the failures of rails by stage and reason. It skips those that the outcome reports.
func railFailures(r *result.Result) (groups [][]result.Failure) {
	for _, f := range otherFailures(r) {
		if one := railOf(r, f); one == nil || one.Failure == nil {
			continue
		}
		i := slices.IndexFunc(groups, func(g []result.Failure) bool {
			return g[0].Stage == f.Stage && g[0].Reason == f.Reason && g[0].AtPeer() == f.AtPeer()
		})
		if i < 0 {
			i, groups = len(groups), append(groups, nil)
		}
		groups[i] = append(groups[i], f)
	}
	return groups
}

// checkRailFailed finds rails that failed for a reason without its own check, and that are not missing.
func checkRailFailed(r *result.Result, report reporter) {
	for _, group := range railFailures(r) {
		group = slices.DeleteFunc(group, func(f result.Failure) bool {
			return slices.ContainsFunc(r.Missing, func(m result.MissingRail) bool { return m.Rail == f.Rail })
		})
		if len(group) == 0 || slices.Contains(ownName, group[0].Reason) {
			continue
		}
		// The outcome reports a round without any rail.
		if r.Outcome != result.Fallback || r.Reason != noDevice || group[0].Reason != "no_peer_rail" {
			reportFailed(r, group, report)
		}
	}
}

// checkReason returns the check of rail failures with this reason. It has the reason's name.
func checkReason(reason result.Reason) func(*result.Result, reporter) {
	return func(r *result.Result, report reporter) {
		if r.Transport != result.RDMA && r.Reason == reason {
			return // the outcome reports it
		}
		for _, atPeer := range []bool{false, true} {
			var group []result.Failure
			for _, rail := range r.Rails {
				if rail.Failure != nil && rail.Failure.Reason == reason && rail.Failure.AtPeer() == atPeer {
					group = append(group, *rail.Failure)
				}
			}
			if len(group) > 0 {
				reportFailed(r, group, report)
			}
		}
	}
}

// reportFailed reports rails that failed for the same reason, with the detail of the first.
func reportFailed(r *result.Result, group []result.Failure, report reporter) {
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
	if r.Transport == result.RDMA && !carried {
		what = "was not used"
		if len(names) > 1 {
			what = "were not used"
		}
	}
	subject := namedRails(names)
	if first.Reason == "gid_misbound" && first.AtPeer() {
		subject = "" // the peer
	}
	report(finding.Finding{Subject: subject, Fix: cureOf(r, first),
		Evidence: fmt.Sprintf("%s %s: %s", namedRails(names), what, Reason(first.Reason, first.Detail))})
}

func checkPeerWorker(r *result.Result, report reporter) {
	if r.Outcome != result.OK && r.Reason == PeerWorker {
		report(finding.Finding{Evidence: fmt.Sprintf("RDMA to %s was not measured: %s", r.Peer, r.Detail),
			Fix: cure(PeerWorker, r.Peer)})
	}
}

// checkRoundRailMissing reports each rail that is missing here, and those of the peer as one fault of the peer. A peer
// without any rail is the finding of the outcome.
func checkRoundRailMissing(r *result.Result, report reporter) {
	peer := finding.Finding{Severity: warning, Fix: []string{note("on %s: check that its device exists: "+
		"rdma link; and see dmesg", r.Peer)}}
	for _, m := range r.Missing {
		evidence := fmt.Sprintf("%s is missing: %s", m, m.Detail)
		if m.Peer && r.Outcome == result.Fallback && r.Reason == noDevice {
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
			out.Severity = info // may be an ordinary interface
		}
		report(out)
	}
	if peer.Evidence != "" {
		peer.Evidence = strings.TrimPrefix(peer.Evidence, "; ")
		report(peer)
	}
}

// checkLossyRail finds rails that lose packets. Rails with few losses, or with losses like their siblings', are info.
func checkLossyRail(r *result.Result, report reporter) {
	for i := range r.Rails {
		rail := &r.Rails[i]
		if rail.Loss == nil || rail.Reordered() {
			continue
		}
		out := finding.Finding{Subject: "rail " + rail.Rail, Fix: []string{
			sh("ethtool -S %s | grep -i -e err -e discard -e drop", rail.Netdev),
			note("the same on %s and on the switch ports between, if any: where errors rise, clean or replace "+
				"cable and module; where discards do, check PFC or ECN of the traffic class", r.Peer)}}
		switch {
		case rail.Lossy:
			out.Evidence = fmt.Sprintf("rail %s loses packets: %d retransmissions in %d packets of the last rounds, "+
				"%d of them in this one", rail.Rail, rail.LossEvents, rail.LossPackets, rail.Loss.Retransmits)
		case rail.Loss.Retransmits < someLosses || rail.Loss.Rate() < result.LossAbove || rail.OthersSeen() != nil,
			rail.Loss.PeerEvents != nil && *rail.Loss.PeerEvents == 0: // the losses are on other connections
			continue
		default:
			out.Severity = info
			out.Evidence = fmt.Sprintf("rail %s lost packets: %d retransmissions in %d packets (%.2g %%)", rail.Rail,
				rail.Loss.Retransmits, rail.Loss.Packets, 100*rail.Loss.Rate())
		}
		out.Evidence += atPeer(rail)
		report(out)
	}
}

// someLosses is the number of retransmissions of a round that is worth a finding: a single one may have any cause.
const someLosses = 2

// atPeer describes the losses of a rail that the peer saw, and their cost.
func atPeer(one *result.RailResult) string {
	text := "; packets out of sequence or twice: not reported by the peer"
	if one.Loss.PeerEvents != nil {
		text = fmt.Sprintf("; packets out of sequence or twice: %d at the peer", *one.Loss.PeerEvents)
	}
	if one.Share != nil && *one.Share < 1-result.UnevenAbove {
		text += fmt.Sprintf("; it carries %s of its share", terminal.Percent(*one.Share))
	}
	return text
}

// checkReordered finds rails whose packets are reordered, so that they retransmit like lossy ones.
func checkReordered(r *result.Result, report reporter) {
	for i := range r.Rails {
		if one := &r.Rails[i]; one.Lossy && one.Loss != nil && one.Reordered() {
			report(finding.Finding{Subject: "rail " + one.Rail, Fix: unspray(),
				Evidence: fmt.Sprintf("packets over rail %s overtake each other: %d out of sequence or twice at the "+
					"peer, for %d retransmissions in %d packets", one.Rail, *one.Loss.PeerEvents, one.Loss.Retransmits,
					one.Loss.Packets)})
		}
	}
}

// unspray returns the fix for reordered packets.
func unspray() []string {
	return []string{"# no cable: where adaptive routing is meant, both adapters must accept packets out of order " +
		"(on mlx5 ROCE_ADAPTIVE_ROUTING_EN=1 of mlxconfig); else turn it off on the switches for RoCE",
		"# a LAG or ECMP must choose its link by the connection (addresses and UDP ports), not for each packet: no " +
			"balance-rr, no packet spraying"}
}

func checkLatencyUneven(r *result.Result, report reporter) {
	round := func(d time.Duration) time.Duration { return d.Round(max(d/1000, 10*time.Nanosecond)) }
	for _, rail := range r.Rails {
		u := rail.Uneven
		if u == nil {
			continue
		}
		text := fmt.Sprintf("the fastest small write over rail %s took %v", rail.Rail, round(u.Latency))
		if u.Siblings > 0 {
			text += fmt.Sprintf(", over its siblings %v", round(u.Siblings))
		}
		if u.Before > 0 {
			text += fmt.Sprintf(", before %v", round(u.Before))
		}
		report(finding.Finding{Subject: "rail " + rail.Rail, Evidence: text,
			Fix: []string{note("look for what makes this path longer than its siblings': a detour over other "+
				"switches, a queue that traffic fills, another FEC, power saving: ethtool --show-fec %[1]s; ethtool "+
				"-S %[1]s | grep -i pause", shellWord(rail.Netdev))}})
	}
}

func checkOtherTraffic(r *result.Result, report reporter) {
	for _, rail := range r.Rails {
		if others := rail.OthersSeen(); others != nil {
			report(finding.Finding{Subject: "rail " + rail.Rail,
				Fix: []string{note("none: it is not held against the rail")},
				Evidence: fmt.Sprintf("other traffic took %s of rail %s during the burst", units.Gigabits(*others),
					rail.Rail)})
		}
	}
}
