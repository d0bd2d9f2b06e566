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
	for _, reader := range needs(one.Check) {
		if slices.ContainsFunc(f.Silent, func(silent string) bool { return strings.HasPrefix(silent, reader) }) {
			return false
		}
	}
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

// needs returns the readers of the facts of a check, and all rails' of one that compares rails. A reader stands for all
// whose names begin with its own.
func needs(id string) []string {
	const rails = "rail "
	switch id {
	case "bond_mode", "bond_no_lag", "bond_empty", "bond_member_down", "bond_lacp", "gid_misbound", "rate_lost":
		return []string{facts.ReaderBonds}
	case "no_rails", "adapter_without_rdma":
		return []string{facts.ReaderAdapters}
	case "same_subnet", "mtu_unlike", "gid_index_unlike":
		return []string{rails, facts.ReaderBonds, facts.ReaderAddresses}
	case "gid_link_local", "gid_missing", "mtu_low", "netdev_down":
		return []string{facts.ReaderBonds, facts.ReaderAddresses}
	case "pcie_shared", "half_unused":
		return []string{rails}
	case "carrier_flapping":
		return []string{facts.ReaderUptime}
	case "gpudirect", "peermem_legacy":
		return []string{facts.ReaderGPUDirect, facts.ReaderGPUs, facts.ReaderAMD}
	case "numa_far":
		return []string{rails, facts.ReaderNUMA, facts.ReaderGPUs, facts.ReaderAMD}
	case "memlock":
		return []string{facts.ReaderMemlock}
	case "uverbs_module", "uverbs_missing", "uverbs_permission", "uverbs_device_rules", "rdma_cm":
		return []string{facts.ReaderDevices}
	case "libibverbs", "provider":
		return []string{facts.ReaderVerbs}
	case "acs_enabled", "relaxed_ordering_off":
		return []string{facts.ReaderPCI, facts.ReaderGPUDirect, facts.ReaderGPUs, facts.ReaderAMD}
	case "gpu_missing", "gpu_pcie_low":
		return []string{facts.ReaderGPUs, facts.ReaderAMD}
	case "iommu_translates", "gpu_partition_unlike", "gpu_xgmi_lost":
		return []string{facts.ReaderPCI, facts.ReaderGPUs, facts.ReaderAMD, facts.ReaderGPU}
	case "pfc", "dcqcn", "traffic_class":
		return []string{rails, facts.ReaderQoS}
	case "ucx_no_transport":
		return []string{facts.ReaderUCX, facts.ReaderVerbs}
	}
	if slices.ContainsFunc(jobChecks(), func(c jobCheck) bool { return c.id == id }) || id == "job_uses_few_rails" ||
		id == "process_numa_far" {
		return []string{facts.UnreadJobs, facts.ReaderHolders, facts.ReaderNUMA, facts.ReaderQoS}
	}
	return nil
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
