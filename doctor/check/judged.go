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
// and without a burst over all rails nothing was measured. A round without RDMA contradicts earlier measurements.
func RoundJudges(r *result.Result, one finding.Finding) bool {
	switch {
	case r.Transport != result.RDMA:
		return r.Outcome != result.Skipped
	case one.Check == "slower_than_tcp":
		return r.Speedup != nil
	}
	figures := []string{"goodput_below_expected", "goodput_degraded", "host_bottleneck", "imbalance",
		"shared_bottleneck", "lossy_rail", "counter_mismatch", "other_traffic", "scaling_high"}
	return r.Striped != nil || !slices.Contains(figures, one.Check)
}
