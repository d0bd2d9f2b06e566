package main

import (
	"slices"
	"sync"
	"testing"

	"github.com/railscope/railscope/doctor/check"
	"github.com/railscope/railscope/doctor/facts"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/test/faults"
)

// TestFaultsSilent fails one reader after another on each machine with a fault. Its findings are found again, or not
// judged: a reader that does not answer in time clears none.
func TestFaultsSilent(t *testing.T) {
	for _, fault := range faults.List() {
		if fault.Machine == "" || fault.Far != "" || fault.Later {
			continue
		}
		t.Run(fault.Name, func(t *testing.T) {
			t.Parallel()
			o := capturedBy(t, fault.Machine, joined(fault.Before, fault.Change))
			var mu sync.Mutex // protects readers
			var readers []string
			o.Fails = func(reader string) bool {
				mu.Lock()
				defer mu.Unlock()
				readers = append(readers, reader)
				return false
			}
			found := check.Node(facts.New(o).Gather(t.Context(), facts.ByHand), nil)
			for _, reader := range readers {
				o.Fails = func(r string) bool { return r == reader }
				f := facts.New(o).Gather(t.Context(), facts.ByHand)
				again := check.Node(f, nil)
				for _, one := range found {
					same := func(o finding.Finding) bool { return o.Check == one.Check && o.Subject == one.Subject }
					if !slices.ContainsFunc(again, same) && check.Judges(f, one) {
						t.Errorf("%s of %s is cleared without %q", one.Check, one.Subject, reader)
					}
				}
			}
		})
	}
}
