package check

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/internal/terminal"
	"github.com/railscope/railscope/probe"
)

// checkHostBottleneck finds the rails that carry too little to the peer, and to themselves as well.
func checkHostBottleneck(r *probe.Result, report reporter) {
	for _, s := range r.Shortfalls() {
		home := r.LoopbackOf(s.Rail)
		if s.Rail == "" || home == nil || *home >= r.MinOfExpected*s.Expected {
			continue
		}
		report(finding.Finding{Subject: "rail " + s.Rail,
			Evidence: fmt.Sprintf("rail %s carries %s to the peer, and to itself %s of the %s expected: its PCIe link, memory "+
				"or adapter limits it, not the wire", s.Rail, gigabits(s.Goodput), gigabits(*home), gigabits(s.Expected)),
			Fix: []string{"railscope doctor",
				note("look at its PCIe link, the IOMMU, the adapter's NUMA node and relaxed ordering")}})
	}
}

// checkLossyPath names the paths by their UDP source ports: switches choose among equal paths by these.
func checkLossyPath(r *probe.Result, report reporter) {
	for _, one := range r.Rails {
		lossy, all := r.LossyPaths(one.Rail)
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
		report(finding.Finding{Subject: "rail " + one.Rail, Evidence: fmt.Sprintf("%d of %d paths of rail %s lose packets, "+
			"up to %s: UDP source ports %s", len(lossy), all, one.Rail, terminal.Percent(worst), listed(ports)),
			Fix: []string{note("find the link or switch that these paths share: trace packets to UDP port 4791 with these " +
				"source ports, and read the counters of drops and CRC errors of the switches between")}})
	}
}

// checkGPUStaged finds a node, or its peer, whose adapters do not reach the memory of GPUs. Where a GPU uses the memory
// of the host, nothing is wrong.
func checkGPUStaged(r *probe.Result, report reporter) {
	var why []string
	carried := false
	for _, m := range r.Extras {
		switch {
		case m.Kind != probe.GPU:
		case m.Failure == nil:
			carried = carried || m.Memory == "cuda_host"
		case slices.Contains([]probe.Reason{"no_dmabuf", "no_peermem"}, m.Failure.Reason):
			why = append(why, Reason(m.Failure.Reason, m.Failure.Detail))
		default:
			return // it says nothing of the adapters
		}
	}
	if carried && len(why) > 0 {
		report(finding.Finding{Evidence: "adapters do not reach the memory of GPUs, only pinned memory of the hosts: " +
			strings.Join(why, "; "), Fix: []string{"modprobe nvidia-peermem",
			note("or the open kernel modules of the NVIDIA driver, Linux 5.12 and rdma-core 34, at both ends: dma-buf")}})
	}
}

// contendedBelow is the ratio of a pair of rails below which they share something.
const contendedBelow = SharedBelow

// contending are the pairs of rails that carry less together than each alone.
func contending(r *probe.Result) (pairs []probe.Pair) {
	return slices.DeleteFunc(probe.Contended(r.Extras), func(p probe.Pair) bool { return p.Ratio >= contendedBelow })
}
