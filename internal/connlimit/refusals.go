package connlimit

import (
	"sync"
	"time"
)

// Quiet is how long a reason must not have occurred before it is reported again.
const Quiet = 3 * time.Minute

// Refusals counts refusals by reason and reports the first of each. Safe for concurrent use.
type Refusals struct {
	report  func(reason, from string)
	reasons []string

	mu    sync.Mutex // protects all following fields
	count map[string]uint64
	last  map[string]time.Time
}

// NewRefusals returns counts of 0 for the reasons. report is called when a refusal follows [Quiet] without one of its
// reason, with the address; nil: it is not reported.
func NewRefusals(report func(reason, from string), reasons ...string) *Refusals {
	return &Refusals{report: report, reasons: reasons, count: map[string]uint64{}, last: map[string]time.Time{}}
}

// Count counts one refusal, by one of the reasons.
func (r *Refusals) Count(reason, from string) {
	r.mu.Lock()
	again := time.Since(r.last[reason]) > Quiet
	r.count[reason]++
	r.last[reason] = time.Now()
	r.mu.Unlock()
	if again && r.report != nil {
		r.report(reason, from)
	}
}

// Each calls fn with every reason and its count, in their order.
func (r *Refusals) Each(fn func(reason string, n uint64)) {
	for _, reason := range r.reasons {
		r.mu.Lock()
		n := r.count[reason]
		r.mu.Unlock()
		fn(reason, n)
	}
}
