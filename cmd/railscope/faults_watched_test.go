package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/railscope/railscope/doctor/doctortest"
	"github.com/railscope/railscope/internal/finding"
	"github.com/railscope/railscope/test/faults"
)

// TestFaultWatched: between two examinations a serving node reads error counters that no series has, and an examination
// after they have stood still reports what happened.
func TestFaultWatched(t *testing.T) {
	t.Parallel()
	refused := func(n string) string {
		return doctortest.File("sys/class/infiniband/mlx5_1/ports/1/hw_counters/local_protection_err", n)
	}
	n := serveCaptured(t, faults.Fault{Machine: "hgx"})
	doctortest.Apply(t, n.root, refused("7"))
	runTasks(t, n.Tasks(), "error counters")
	time.Sleep(6 * time.Second) // after a reading
	doctortest.Apply(t, n.root, refused("8"))
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Second) {
		n.examine(t)
		list, _ := n.Findings.List(time.Now())
		i := slices.IndexFunc(list, func(f finding.Raised) bool { return f.Check == "queue_pairs_failed" })
		if i >= 0 && strings.HasSuffix(list[i].Evidence, "1 request failed at this "+
			"end") && list[i].Subject == "rail 1" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("found %+v", list)
		}
	}
}
