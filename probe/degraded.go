package probe

import "github.com/railscope/railscope/internal/rail"

// Shortfall is goodput below what was expected.
type Shortfall struct {
	Rail              string // empty: all rails together
	Goodput, Expected float64
}

// Degraded reports whether a round by RDMA found a rail dead or slow: one failed,
// goodput is below what was expected, or the rails are imbalanced.
func (r Result) Degraded() bool {
	for i := range r.Rails {
		if r.Rails[i].Failure != nil {
			return true
		}
	}
	return r.Imbalanced() || len(r.Shortfalls()) > 0
}

// Imbalanced reports whether some rail carried too little beside the best one.
func (r Result) Imbalanced() bool {
	return r.MinOfExpected > 0 && r.Imbalance != nil && *r.Imbalance > rail.ImbalancedAbove
}

// Shortfalls are where goodput was below the part MinOfExpected of what was expected: of all rails together first, then
// of each rail. A rail is judged by the better of its solo and its part of the stealing burst: what it can do is
// judged, and what it lost to others shows in the sum.
func (r Result) Shortfalls() []Shortfall {
	if r.Transport != RDMA || r.MinOfExpected <= 0 {
		return nil
	}
	var list []Shortfall
	var sum float64
	all := r.Stealing != nil // that carried have an expectation
	for i := range r.Rails {
		one := &r.Rails[i]
		if one.Expected == nil {
			all = all && one.Stealing == nil
			continue
		}
		sum += *one.Expected
		if s, ok := one.goodput(); ok && s < r.MinOfExpected**one.Expected {
			list = append(list, Shortfall{one.Rail, s, *one.Expected})
		}
	}
	said := len(r.Rails) == 1 && len(list) == 1
	if all && !said && *r.Stealing < r.MinOfExpected*sum {
		list = append([]Shortfall{{"", *r.Stealing, sum}}, list...)
	}
	return list
}

// software reports whether the rail's device is no adapter (rxe, siw): its rate
// is a number that somebody wrote, and nothing can be expected of it.
func (r localRail) software() bool { return r.Software || r.PCIAddress == "" }

// expectations are what the rails could carry, in bytes per second, if every port
// had this rate: PCIe links and what rails share bound them as ever.
func expectations(rails []localRail, rate float64) []float64 {
	limits := make([]rail.Limits, len(rails))
	for i, r := range rails {
		limits[i] = r.status.Limits
		limits[i].Rate = rate
	}
	return rail.Capacities(limits)
}

// goodput is the best that the rail did by RDMA; not known of one that failed, which says so itself.
func (r *RailResult) goodput() (best float64, known bool) {
	if r.Failure != nil {
		return 0, false
	}
	for _, f := range []*Flow{r.Solo, r.Stealing} {
		if f != nil {
			best, known = max(best, f.BytesPerSecond()), true
		}
	}
	return best, known
}
