package connlimit

import (
	"sync"
	"time"
)

// Quiet is how long no refusal of a reason must have occurred before the next is
// reported again.
const Quiet = 3 * time.Minute

// Refusals counts refusals by reason and reports the first of each. Safe for
// concurrent use.
type Refusals struct {
	report func(reason, from string)
	order  []string

	mu     sync.Mutex // protects all following fields
	counts map[string]uint64
	last   map[string]time.Time
}

// NewRefusals returns counts of 0 for the reasons. report is called when a
// refusal follows [Quiet] without one of its reason, with the address; nil: it is
// not reported.
func NewRefusals(report func(reason, from string), reasons ...string) *Refusals {
	if report == nil {
		report = func(string, string) {}
	}
	return &Refusals{report: report, order: reasons, counts: map[string]uint64{}, last: map[string]time.Time{}}
}

// Count counts one refusal, by a reason of those that were given.
func (r *Refusals) Count(reason, from string) {
	now := time.Now()
	r.mu.Lock()
	last, known := r.last[reason]
	r.counts[reason]++
	r.last[reason] = now
	r.mu.Unlock()
	if !known || now.Sub(last) > Quiet {
		r.report(reason, from)
	}
}

// Each calls fn with every reason and its count, in the order that was given.
func (r *Refusals) Each(fn func(reason string, n uint64)) {
	for _, reason := range r.order {
		r.mu.Lock()
		n := r.counts[reason]
		r.mu.Unlock()
		fn(reason, n)
	}
}
