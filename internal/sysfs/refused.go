package sysfs

import "time"

// RefusedFor is how long a counter that the driver refused is left alone: each attempt is a firmware command, and on
// some adapters a line in the kernel's log (node_exporter issue 3434).
const RefusedFor = time.Minute

// Refusal remembers when a counter was last refused. The zero value was never refused.
type Refusal struct {
	until time.Time
}

// Note records the outcome of a read. Only [ReasonUnsupported] is a refusal; anything else changes nothing.
func (r *Refusal) Note(err error, now time.Time) {
	if err != nil && Reason(err) == ReasonUnsupported {
		r.until = now.Add(RefusedFor)
	}
}

// Active reports whether the counter is to be left alone.
func (r *Refusal) Active(now time.Time) bool { return now.Before(r.until) }
