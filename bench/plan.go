package bench

import (
	"fmt"
	"io"
	"math"
	"time"

	"github.com/railscope/railscope/bench/steps"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe/result"
)

// WritePlan writes what a suite measures, how long it takes, and what the peer's budget leaves out. bursts are those of
// a round of each step by its name; plans are of all steps in order.
func WritePlan(w io.Writer, all []steps.Step, done []steps.Done, bursts map[string]int, plans result.Plans) {
	fmt.Fprintf(w, "%s of %d rounds each, %s from here:\n", terminal.Count(len(all), "step"), steps.Runs,
		about(steps.Left(done, all, bursts)))
	var sum time.Duration
	for i, step := range all {
		need := plans.Needs[i]
		sum += steps.Runs * need.RailTime
		left := ""
		if plans.Grants != nil && need.RailTime > plans.Grants.Lease {
			left = fmt.Sprintf("; LEFT OUT: it needs up to %s of the rails' time, and the peer grants %s to one "+
				"lease: raise probe.budget there to %.1f%%", rounded(need.RailTime), rounded(plans.Grants.Lease),
				100*need.Budget)
		}
		fmt.Fprintf(w, "  %-9s %s%s\n", step.Name, step.What, left)
	}
	if g := plans.Grants; g != nil && sum > g.Left {
		fmt.Fprintf(w, "All rounds need at most %s of the rails' time, and the peer's budget has %s left: it may "+
			"refuse the last ones (probe.budget there)\n", rounded(sum), rounded(g.Left))
	}
}

func rounded(d time.Duration) string {
	return fmt.Sprintf("%g s", math.Round(d.Seconds()*100)/100)
}
