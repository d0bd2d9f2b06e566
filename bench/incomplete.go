package bench

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/railscope/railscope/bench/suite"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe/result"
)

// gap is a figure that a round lacks, and the reason.
type gap struct {
	name, reason, why string
	asked             bool // the figure was requested; otherwise nothing is missing
}

// incomplete returns what was requested and not measured, and notes with the reason of each gap, also of what
// another measurement replaced.
func incomplete(s suite.Suite, r result.Result, o Options) (notes []string, in suite.Incomplete) {
	gaps, figures := rowGaps(s, r)
	for _, m := range r.Extras {
		if one := measurementOf(m.Kind); one.gaps != nil {
			more, n := one.gaps(m)
			gaps, figures = append(gaps, more...), figures+n
		}
	}
	more, n := memoryGaps(r, o)
	gaps, in.Figures, in.Unmeasured = append(gaps, more...), figures+n, []suite.Unmeasured{}
	for _, g := range gaps {
		if g.asked {
			in.Unmeasured = append(in.Unmeasured, suite.Unmeasured{Name: g.name, Reason: g.reason, Why: g.why})
		}
	}
	return gapNotes(gaps), in
}

// rowGaps returns the rows and KV caches without a figure, and the number of all. A failed rail is not a gap: the
// findings report it.
func rowGaps(s suite.Suite, r result.Result) (gaps []gap, figures int) {
	known := map[string]bool{}
	for i := range r.Rails {
		if f := r.Rails[i].Failure; f != nil {
			known[terminal.Plain(f.Error())] = true
		}
	}
	for _, row := range slices.Concat(s.Rows, s.Sweep) {
		if row.Memory != host && len(row.Rails) == 0 {
			continue // see memoryGaps
		}
		figures++
		if row.Goodput == nil && len(row.Runs) == 0 && !known[row.Failure] {
			gaps = append(gaps, gap{row.Name, row.Reason, row.Failure, true})
		}
	}
	for _, c := range s.KVCache {
		figures++
		if c.Goodput == nil {
			name := "KV cache " + c.Model
			if c.Tokens > 0 {
				name += fmt.Sprintf(" of %d tokens", c.Tokens)
			}
			gaps = append(gaps, gap{name + " by " + c.Row, c.Reason, c.Failure, true})
		}
	}
	return gaps, figures
}

// memoryGaps returns the kinds of GPU memory that were not measured. A kind that another one replaced was not
// requested. On a node without a GPU, only kinds requested by name are gaps.
func memoryGaps(r result.Result, o Options) (gaps []gap, figures int) {
	carried := map[string]bool{}
	for _, m := range r.Extras {
		if m.Kind == result.GPU && m.Failure == nil {
			carried[m.Memory] = true
		}
	}
	tried := false
	for _, m := range r.Extras {
		if m.Kind != result.GPU || m.Failure == nil {
			continue
		}
		f := m.Failure
		none := o.GPUsIfAny && !f.AtPeer() &&
			slices.Contains([]result.Reason{"no_gpu", "no_libcuda", "no_libhsa"}, f.Reason)
		asked := !none && (len(carried) == 0 && !tried || m.Memory == "" || m.Memory == "cuda_staged" &&
			carried["cuda_host"])
		if asked {
			figures, tried = figures+1, true
		}
		gaps = append(gaps, gap{cmp.Or(m.Memory, "gpu") + " memory", string(f.Reason), terminal.Plain(f.Error()),
			asked})
	}
	return gaps, figures
}

// maxNames is the largest number of figures that a note names.
const maxNames = 8

// gapNotes returns one note per reason.
func gapNotes(gaps []gap) []string {
	type note struct {
		names []string
		why   string
	}
	var list []*note
	byWhy := map[string]*note{}
	for _, g := range gaps {
		key := g.why
		if result.Reason(g.reason).Skips() { // the details of skips differ
			key = g.reason
		}
		if byWhy[key] == nil {
			byWhy[key] = &note{why: g.why}
			list = append(list, byWhy[key])
		}
		if n := byWhy[key]; !slices.Contains(n.names, g.name) {
			n.names = append(n.names, g.name)
		}
	}
	notes := []string{}
	for _, n := range list {
		names := strings.Join(n.names[:min(len(n.names), maxNames)], "; ")
		if more := len(n.names) - maxNames; more > 0 {
			names += fmt.Sprintf("; and %d more", more)
		}
		notes = append(notes, names+": not measured: "+n.why)
	}
	return notes
}

// incompleteLine counts what was requested and not measured, by reason; empty: all was measured.
func incompleteLine(in suite.Incomplete) string {
	if len(in.Unmeasured) == 0 {
		return ""
	}
	var reasons []string
	counts := map[string]int{}
	for _, u := range in.Unmeasured {
		if counts[u.Reason] == 0 {
			reasons = append(reasons, u.Reason)
		}
		counts[u.Reason]++
	}
	for i, reason := range reasons {
		reasons[i] = fmt.Sprintf("%d %s", counts[reason], reason)
	}
	return fmt.Sprintf("Incomplete: %d of %s that were asked for were not measured: %s.", len(in.Unmeasured),
		terminal.Count(in.Figures, "figure"), strings.Join(reasons, ", "))
}
