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

// Shortfalls are where goodput was below MinOfExpected of what was expected: of all rails together first, then of each
// rail. A rail is judged by the better of its solo and its part of the stealing burst: what it can do is judged, and
// what it lost to others shows in the sum.
func (r Result) Shortfalls() []Shortfall {
	if r.Transport != RDMA || r.MinOfExpected <= 0 {
		return nil
	}
	var list []Shortfall
	var sum float64
	all := r.Stealing != nil // and every rail that carried has an expectation
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
	known := len(r.Rails) == 1 && len(list) == 1
	if all && !known && *r.Stealing < r.MinOfExpected*sum {
		list = append([]Shortfall{{"", *r.Stealing, sum}}, list...)
	}
	return list
}

// goodput is the best that the rail reached by RDMA; not known if it failed.
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
