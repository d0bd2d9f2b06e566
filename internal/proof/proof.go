// Package proof says what last showed how much a rail can carry: a burst of the probe, or the traffic of jobs.
package proof

import (
	"fmt"
	"time"

	"github.com/railscope/railscope/internal/units"
)

// Kinds of proofs.
const (
	ByBurst   = "burst"
	ByTraffic = "traffic"
)

// Proof is the last evidence of what a rail can carry.
type Proof struct {
	By   string    `json:"by"`               // burst or traffic
	Rate float64   `json:"bytes_per_second"` // goodput of a burst; traffic: highest rate over 1 s in the last hour
	At   time.Time `json:"at"`
}

// Traffic returns the proof by a peak of the traffic of jobs, or nil: a peak below this part of what is expected only
// says that the jobs needed no more. expected is 0 if nothing is.
func Traffic(peak float64, at time.Time, expected, part float64) *Proof {
	if expected <= 0 || part <= 0 || peak < part*expected {
		return nil
	}
	return &Proof{ByTraffic, peak, at}
}

// Later returns the later of two proofs, each of which may be nil.
func Later(a, b *Proof) *Proof {
	if a == nil || b != nil && b.At.After(a.At) {
		return b
	}
	return a
}

// Ago returns the age of the proof for people: "less than 1 min ago". It changes at most once a minute.
func (p *Proof) Ago(now time.Time) string {
	age := now.Sub(p.At)
	if age < time.Minute {
		return "less than 1 min ago"
	}
	return units.Span(age) + " ago"
}

// Text returns the proof for people: "371.2 Gb/s by traffic, 12 min ago". Empty for nil.
func (p *Proof) Text(now time.Time) string {
	if p == nil {
		return ""
	}
	return fmt.Sprintf("%s by %s, %s", units.Gigabits(p.Rate), p.By, p.Ago(now))
}
