package check

import (
	"fmt"
	"slices"

	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/terminal"
)

// farProcesses are processes of one name that may run on the same NUMA nodes, far from the rails that they use.
type farProcesses struct {
	comm  string
	nodes []int
	pids  []string
	rails []*facts.Rail
	near  []*facts.Rail // active rails on these nodes that no process uses
}

// checkProcessNUMA judges processes that use no rail of the NUMA nodes that they may run on. It skips those that use
// one near rail, which a library chose, and those that may run anywhere, which are near every rail.
func checkProcessNUMA(f *facts.Facts, report reporter) {
	var groups []*farProcesses
	for _, h := range f.Jobs.Holders {
		used, near, far := railsOfHolder(f, h)
		if !far || h.Comm == "railscope-probe" { // the probe's worker measures all rails
			continue
		}
		i := slices.IndexFunc(groups, func(g *farProcesses) bool {
			return g.comm == h.Comm && slices.Equal(g.nodes, h.Nodes)
		})
		if i < 0 {
			groups, i = append(groups, &farProcesses{comm: h.Comm, nodes: h.Nodes, near: near}), len(groups)
		}
		g := groups[i]
		g.pids = append(g.pids, fmt.Sprint("pid ", h.PID))
		for _, r := range used {
			if !slices.Contains(g.rails, r) {
				g.rails = append(g.rails, r)
			}
		}
	}
	for _, g := range groups {
		report(g.finding())
	}
}

// railsOfHolder returns the rails that a process uses, the active rails of its nodes, and whether all used rails are
// far. A distance of 20 or more is to another processor (REMOTE_DISTANCE of the kernel).
func railsOfHolder(f *facts.Facts, h facts.Holder) (used, near []*facts.Rail, far bool) {
	distance := func(node int) int {
		least := 0
		for _, own := range h.Nodes {
			for _, d := range f.NUMA {
				if d.From == own && d.To == node && (least == 0 || d.Value < least) {
					least = d.Value
				}
			}
		}
		return least // 0: unknown
	}
	far = len(h.Nodes) > 0
	for i := range f.Rails {
		r := &f.Rails[i]
		away := r.NUMANode >= 0 && distance(r.NUMANode) >= 20
		if slices.Contains(h.Rails, r.Name) {
			used, far = append(used, r), far && away
		} else if r.Active() && r.NUMANode >= 0 && !away {
			near = append(near, r)
		}
	}
	return used, near, far && len(used) > 0
}

func (g *farProcesses) finding() finding.Finding {
	var nodes []string
	for _, n := range g.nodes {
		nodes = append(nodes, fmt.Sprint(n))
	}
	where := listed(g.pids[:min(len(g.pids), facts.MaxNamed)])
	_, devices := subjects(g.rails)
	of := map[int]bool{}
	var railNodes []string
	for _, r := range g.rails {
		if !of[r.NUMANode] {
			of[r.NUMANode], railNodes = true, append(railNodes, fmt.Sprint(r.NUMANode))
		}
	}
	out := finding.Finding{Subject: "process " + terminal.PlainName(g.comm), Where: where,
		Evidence: fmt.Sprintf("Cpus_allowed_list of %s has processors of NUMA node %s alone, and all connected queue "+
			"pairs are on %s, in node %s", terminal.Count(len(g.pids), "process"), listed(nodes), devices,
			listed(railNodes)),
		Why: "What is sent from host memory crosses the link between the processors, which is slower and shared.",
		Fix: []string{note("bind the process to the processors of the rail's node where the job is started: numactl "+
			"--cpunodebind=%s --membind=%s, or the binding of Slurm or mpirun", railNodes[0], railNodes[0])}}
	if len(g.near) > 0 {
		names, _ := subjects(g.near)
		out.Severity = warning
		out.Evidence += "; near, and not used: " + names
		out.Fix = append(out.Fix, note("or select a rail of its own node: NCCL_IB_HCA or UCX_NET_DEVICES"))
	}
	return out
}
