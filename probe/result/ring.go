package result

import (
	"time"
)

// RingWindow is how long all members of a ring stream at once. A member alone, with both TCP baselines, then fits
// into a lease of the default budget (TestBudgetOfLease).
const RingWindow = 50 * time.Millisecond

// RingMember is one node of a ring and what it carried to its successor, in bytes per second. Figures that were not
// measured are nil.
type RingMember struct {
	Node, Successor string // host:port
	Rails, AllRails int    // working rails, and all rails of the node
	Alone, Together *float64
	TCP             *float64 // TCP goodput of the member alone
	RailFailure     *Failure // first failure of a rail; nil: none
	Failure         *Failure // first failure of the member; nil: none
}

// RingResult is the result of a ring, with its members in order.
type RingResult struct {
	Members []RingMember
}

// slowest returns the least value of a figure over all members. known is false if a member has none.
func (r RingResult) slowest(of func(RingMember) *float64) (least float64, known bool) {
	for i, m := range r.Members {
		v := of(m)
		if v == nil || *v <= 0 {
			return 0, false
		}
		if i == 0 || *v < least {
			least = *v
		}
	}
	return least, len(r.Members) > 0
}

// Seconds returns the times of an all-reduce of bytes: 2(n−1)/n of them cross each link, and the slowest node
// counts (Patarasuk and Yuan, 2009). predicted is derived from what each member carries alone, tcp from TCP; nil is
// unknown. All are derived from the rates of a short burst.
func (r RingResult) Seconds(bytes int64) (measured, predicted, tcp *float64) {
	n := float64(len(r.Members))
	each := 2 * (n - 1) / n * float64(bytes)
	of := func(rate func(RingMember) *float64) *float64 {
		if least, known := r.slowest(rate); known {
			return new(each / least)
		}
		return nil
	}
	return of(func(m RingMember) *float64 { return m.Together }), of(func(m RingMember) *float64 { return m.Alone }),
		of(func(m RingMember) *float64 { return m.TCP })
}
