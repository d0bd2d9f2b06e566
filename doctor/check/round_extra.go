package check

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/internal/units"
	"github.com/railscope/railscope/probe/result"
)

// checkHostBottleneck finds the rails that carry too little both to the peer and in loopback.
func checkHostBottleneck(r *result.Result, report reporter) {
	for _, s := range r.Shortfalls() {
		home := r.LoopbackOf(s.Rail)
		if s.Rail == "" || home == nil || *home >= r.MinOfExpected*s.Expected {
			continue
		}
		report(finding.Finding{Severity: ofGoodput(s.Goodput / s.Expected), Subject: "rail " + s.Rail,
			Evidence: fmt.Sprintf("rail %s carries %s to the peer, and to itself %s of the %s expected: its PCIe "+
				"link, memory or adapter limits it, not the wire", s.Rail, units.Gigabits(s.Goodput),
				units.Gigabits(*home), units.Gigabits(s.Expected)),
			Fix: limitsOfHost(railNamed(r, s.Rail))})
	}
}

// limitsOfHost returns what to examine where the host limits a rail.
func limitsOfHost(one *result.RailResult) []string {
	fix := []string{note("compare its PCIe link with what both ends support (LnkSta, LnkCap, MaxReadReq), and set " +
		"relaxed ordering, the IOMMU to pass-through, and the processors to performance")}
	if one.PCIAddress != "" {
		fix = append(fix, sh("lspci -vv -s %s", one.PCIAddress))
	}
	return fix
}

// checkLossyPath identifies paths by their UDP source ports, by which switches choose among equal paths.
func checkLossyPath(r *result.Result, report reporter) {
	for _, rail := range r.Rails {
		lossy, all := r.LossyPaths(rail.Rail)
		if len(lossy) == 0 {
			continue
		}
		worst, ports := 0.0, []string{}
		for _, f := range lossy {
			name := "label " + strconv.Itoa(f.Path)
			if f.UDPPort > 0 {
				name = strconv.Itoa(int(f.UDPPort))
			}
			ports = append(ports, name)
			worst = max(worst, f.PathLoss())
		}
		report(finding.Finding{Subject: "rail " + rail.Rail,
			Evidence: fmt.Sprintf("%d of %d paths of rail %s lose packets, up to %s: UDP source ports %s", len(lossy),
				all, rail.Rail, terminal.Percent(worst), listed(ports)),
			Fix: []string{note("find the link or switch that these paths share: trace packets to UDP port 4791 with " +
				"these source ports, and read the counters of drops and CRC errors of the switches between")}})
	}
}

// checkGPUStaged finds a node, or its peer, whose adapters cannot access GPU memory directly. GPUs that use the host's
// memory are not a fault.
func checkGPUStaged(r *result.Result, report reporter) {
	var why, fix []string
	carried := false
	for _, m := range r.Extras {
		switch {
		case m.Kind != result.GPU, m.Memory == "cuda_staged":
		case m.Failure == nil:
			carried = carried || m.Memory == "cuda_host" || m.Memory == "rocm_host"
		case slices.Contains([]result.Reason{"no_dmabuf", "no_peermem"}, m.Failure.Reason):
			why = append(why, Reason(m.Failure.Reason, m.Failure.Detail))
			fix = append(fix, cure(m.Failure.Reason, "")...)
		default:
			return // the failure is unrelated to the adapters
		}
	}
	if carried && len(why) > 0 {
		report(finding.Finding{Evidence: "adapters do not reach the memory of GPUs, only pinned memory of the hosts: " +
			strings.Join(why, "; "), Fix: fix})
	}
}

// contending returns the pairs of rails that carry less together than each alone.
func contending(r *result.Result) (pairs []result.Pair) {
	return slices.DeleteFunc(result.Contended(r.Extras),
		func(p result.Pair) bool { return p.Ratio >= result.SharedBelow })
}
