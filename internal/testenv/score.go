package testenv

import (
	"fmt"
	"testing"
	"time"
)

// Score is what planted faults of one kind came to.
type Score struct {
	What             string // kind of fault
	Named, Planted   int
	Accused, Healthy int           // parts without a fault
	Took             time.Duration // virtual time; 0: not measured
}

// Log logs the score in the form that test/score reads.
func (s Score) Log(t testing.TB) {
	t.Helper()
	took := ""
	if s.Took > 0 {
		took = fmt.Sprintf(", in %v", s.Took.Round(time.Second))
	}
	t.Logf("score: %s: %d of %d named, %d of %d healthy accused%s", s.What, s.Named, s.Planted, s.Accused, s.Healthy,
		took)
}
