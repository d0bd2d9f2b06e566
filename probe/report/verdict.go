package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe"
)

// verdict is the round in one sentence, its colour, and what is to be listed below it.
func verdict(r probe.Result) (text, colour string, found []finding.Finding) {
	found = slices.DeleteFunc(Findings(r), headline)
	reason := strings.TrimRight(why(r.Reason, r.Detail), ". ")
	switch r.Outcome {
	case probe.Skipped:
		return fmt.Sprintf("%s was not probed: %s Nothing is wrong.", r.Peer, sentence(reason)), "", found
	case probe.Fallback:
		text = fmt.Sprintf("RDMA to %s failed: %s; ", r.Peer, reason)
		if best := bestTCP(r); best != nil {
			return text + fmt.Sprintf("the same transfer over TCP: %s Gb/s.", gigabits(best.BytesPerSecond)),
				terminal.Red, found
		}
		return text + "the peer can be reached by TCP.", terminal.Red, found
	case probe.Failed:
		return fmt.Sprintf("The probe of %s failed: %s", r.Peer, sentence(reason)), terminal.Red, found
	case probe.Degraded:
		return fmt.Sprintf("RDMA to %s is degraded%s:", r.Peer, throughput(r)), terminal.Yellow, found
	}
	text = fmt.Sprintf("RDMA to %s works%s", r.Peer, throughput(r))
	switch {
	case len(found) > 0:
		return text + ", but:", terminal.Yellow, found
	case activeRails(r) > 1 && r.Imbalance != nil && *r.Imbalance <= unevenAbove:
		text += ", evenly"
	}
	return text + ".", terminal.Green, found
}

// carries is how much the rails carried together; empty where that is not known.
func throughput(r probe.Result) string {
	used := activeRails(r)
	if used == 0 || r.Stealing == nil {
		return ""
	}
	who, verb := fmt.Sprintf("%d rails", used), "carry"
	switch {
	case used < len(r.Rails):
		who = fmt.Sprintf("%d of %d rails", used, len(r.Rails))
	case used == 1:
		who = "1 rail"
	}
	if used == 1 {
		verb = "carries"
	}
	return fmt.Sprintf(": %s %s %s Gb/s", who, verb, gigabits(*r.Stealing))
}

// ended is a sentence with its end.
func sentence(s string) string {
	if strings.HasSuffix(s, "?") || strings.HasSuffix(s, "!") {
		return s
	}
	return s + "."
}
