package bench

import (
	"fmt"
	"slices"
	"strings"

	"github.com/railscope/railscope/bench/grid"
	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe/result"
)

// verdict returns the round in one sentence, its colour, and the findings to list below it.
func verdict(r result.Result) (text, colour string, found []finding.Finding) {
	found = slices.DeleteFunc(check.Round(r), func(f finding.Finding) bool {
		verdicts := []string{check.Fallback, check.PeerWorker, check.Corrupted, check.ProbeFailed}
		return slices.Contains(verdicts, f.Check) // the sentence contains it
	})
	reason := strings.TrimRight(check.Reason(r.Reason, r.Detail), ". ")
	stop := "."
	if strings.HasSuffix(reason, "?") || strings.HasSuffix(reason, "!") {
		stop = ""
	}
	switch r.Outcome {
	case result.Reached:
		return fmt.Sprintf("RDMA to %s works, but what it carries was not measured: %s%s", r.Peer, reason, stop),
			terminal.Yellow, found
	case result.Skipped:
		return fmt.Sprintf("%s was not probed: %s%s Nothing is wrong.", r.Peer, reason, stop), "", found
	case result.Fallback:
		text = fmt.Sprintf("RDMA to %s failed: %s; ", r.Peer, reason)
		if best := bestTCP(r); best != nil {
			text += fmt.Sprintf("the same transfer over TCP: %s Gb/s.", grid.Gigabits(best.BytesPerSecond))
		} else {
			text += "the peer is reachable over TCP."
		}
		return text, terminal.Red, found
	case result.Failed:
		return fmt.Sprintf("The probe of %s failed: %s%s", r.Peer, reason, stop), terminal.Red, found
	}
	used := 0
	for _, rail := range r.Rails {
		if check.Carried(rail) {
			used++
		}
	}
	carry := ""
	if used > 0 && r.Striped != nil {
		carry = throughput(used, len(r.Rails), *r.Striped)
	}
	text = fmt.Sprintf("RDMA to %s works%s", r.Peer, carry)
	switch f := r.BurstSkipped; {
	case f != nil && r.Outcome == result.OK:
		return fmt.Sprintf("%s; rail %s was not measured: %s.", text, f.Rail,
			strings.TrimRight(check.Reason(f.Reason, f.Detail), ". ")), terminal.Yellow, found
	case r.Outcome == result.Degraded:
		return fmt.Sprintf("RDMA to %s is degraded%s:", r.Peer, carry), terminal.Yellow, found
	case len(found) > 0:
		return text + ", but:", terminal.Yellow, found
	case used > 1 && r.Imbalance != nil && *r.Imbalance <= result.UnevenAbove:
		text += ", evenly"
	}
	return text + ".", terminal.Green, found
}

// throughput returns the text for the goodput of used of all rails.
func throughput(used, all int, bytesPerSecond float64) string {
	verb, who := "carry", terminal.Count(all, "rail")
	if used == 1 {
		verb = "carries"
	}
	if used < all {
		who = fmt.Sprintf("%d of %s", used, who)
	}
	return fmt.Sprintf(": %s %s %s Gb/s", who, verb, grid.Gigabits(bytesPerSecond))
}
