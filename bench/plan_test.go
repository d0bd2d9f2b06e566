package bench

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/railscope/railscope/bench/steps"
	"github.com/railscope/railscope/probe/result"
)

// TestPlan: the plan names each step, how long all take, and what the peer's budget leaves out.
func TestPlan(t *testing.T) {
	all := steps.Of([]string{steps.Host}, steps.Sizes{Sweep: []int{65536}, Pages: []int{4096}})
	first := steps.Done{Name: steps.First}
	first.Add(result.Result{Duration: 2 * time.Second})
	plans := result.Plans{Needs: []result.Need{{RailTime: 300 * time.Millisecond, Bursts: 6},
		{RailTime: 900 * time.Millisecond, Bursts: 12}, {RailTime: 2346 * time.Millisecond, Bursts: 11, Budget: 0.006},
		{RailTime: 600 * time.Millisecond, Bursts: 9}}}
	bursts := map[string]int{}
	for i, s := range all {
		bursts[s.Name] = plans.Needs[i].Bursts
	}
	const steps4 = "  round     each rail alone, all rails at once, messages of 8 B, TCP\n" +
		"  read      READ, both directions at once, messages of 4 KiB\n" +
		"  sweep     transfers of many sizes%\n" +
		"  kv-cache  pages of KV caches\n"
	for _, tc := range []struct {
		why         string
		grants      *result.Grants
		sweep, last string
	}{
		{"an older peer", nil, "", ""},
		{"enough", &result.Grants{Lease: 3 * time.Second, Left: 18 * time.Second}, "", ""},
		{"small leases", &result.Grants{Lease: 2250 * time.Millisecond, Left: 18 * time.Second}, "; LEFT OUT: it needs up " +
			"to 2.35 s of the rails' time, and the peer grants 2.25 s to one lease: raise probe.budget there to 0.6%", ""},
		{"little left", &result.Grants{Lease: 3 * time.Second, Left: 12 * time.Second}, "", "All rounds need at most " +
			"12.44 s of the rails' time, and the peer's budget has 12 s left: it may refuse the last ones (probe.budget " +
			"there)\n"},
	} {
		var got bytes.Buffer
		plans.Grants = tc.grants
		WritePlan(&got, all, []steps.Done{first}, bursts, plans)
		// The first round has made 6 of 3 × 38 bursts in 2 s.
		want := "4 steps of 3 rounds each, about 36 s from here:\n" + strings.Replace(steps4, "%", tc.sweep, 1) + tc.last
		if diff := cmp.Diff(want, got.String()); diff != "" {
			t.Errorf("%s:\n%s", tc.why, diff)
		}
	}
}
