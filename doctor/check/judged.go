package check

import (
	"slices"
	"strings"

	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/probe/result"
)

// Judges reports whether these facts can confirm or clear a finding that this examination did not make. A subject that
// could not be read does neither.
func Judges(f *facts.Facts, one finding.Finding) bool {
	if one.Check == "gpu_missing" {
		return f.GPUsRead
	}
	rail := one.Rail()
	i := slices.IndexFunc(f.Rails, func(r facts.Rail) bool { return r.Name == rail })
	if rail == "" || i < 0 {
		return true
	}
	r := &f.Rails[i]
	return r.StateID != 0 && (r.GIDsRead || !r.Active() || !strings.HasPrefix(one.Check, "gid_"))
}

// RoundJudges reports whether a round can clear a finding that it did not make. Only some rounds have a TCP baseline,
// without a burst nothing was measured of a rail, or of all together, and latency beside the traffic of others says
// nothing of the path. A round without RDMA contradicts earlier measurements.
func RoundJudges(r *result.Result, one finding.Finding) bool {
	rail := one.Rail()
	i := slices.IndexFunc(r.Rails, func(of result.RailResult) bool { return of.Rail == rail })
	switch {
	case r.Transport != result.RDMA:
		return r.Outcome != result.Skipped
	case one.Check == "slower_than_tcp":
		return r.Speedup != nil
	case one.Check == "latency_uneven":
		return i < 0 || !r.Rails[i].Busy
	}
	figures := []string{"goodput_below_expected", "goodput_degraded", "host_bottleneck", "imbalance",
		"shared_bottleneck", "lossy_rail", "lossy_path", "counter_mismatch", "other_traffic", "scaling_high"}
	switch {
	case !slices.Contains(figures, one.Check):
		return true
	case i >= 0:
		return r.Rails[i].Failure != nil || r.Rails[i].Measured()
	}
	return r.Striped != nil && r.BurstSkipped == nil
}

// Hard reports whether a check is about a hard fact: a device, port, bond member, GPU, GID or link that is gone, down
// or slower than before. It does not fluctuate and needs only the facts of [facts.Hard], so it is read on every request
// and raised at once.
func Hard(id string) bool {
	return slices.Contains([]string{"no_rails", "adapter_without_rdma", "rail_missing", "gpu_missing", "netdev_down",
		"port_down", "half_unused", "bond_member_down", "gid_missing", "gid_link_local", "gid_misbound", "rate_lost",
		"pcie_lost", "pcie_link_low"}, id)
}
