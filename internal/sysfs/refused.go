package sysfs

import "time"

// Refusal remembers that a value was refused, for [RefusedFor]. It is the policy of [Attr] for what more than one file
// makes up. The zero value was never refused.
type Refusal struct {
	until time.Time
}

// Note records the outcome of a read. Only [ReasonUnsupported] is a refusal; anything else changes nothing.
func (r *Refusal) Note(err error, now time.Time) {
	if err != nil && Reason(err) == ReasonUnsupported {
		r.until = now.Add(RefusedFor)
	}
}

// Active reports whether the value is left alone at the moment.
func (r *Refusal) Active(now time.Time) bool { return now.Before(r.until) }
