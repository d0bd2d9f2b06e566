//go:build lab

package lab

import (
	"slices"
	"strings"
	"testing"

	"github.com/railscope/railscope/test/faults"
)

// named reports whether a round has a finding of a check about a subject. It must have no critical finding, and
// none of the checks in not.
func (r report) named(t *testing.T, check, subject string, not ...string) (found bool) {
	t.Helper()
	for _, f := range r.Findings {
		found = found || f.Check == check && f.Subject == subject
		if f.Severity == "critical" || slices.Contains(not, f.Check) {
			t.Errorf("also %s of %s: %s", f.Check, f.Subject, f.Evidence)
		}
	}
	return found
}

// benchLogged makes one round, and logs the data on which findings are based.
func benchLogged(t *testing.T) report {
	t.Helper()
	r := bench(t)
	for _, one := range r.Rails {
		t.Logf("rail %s: loss %+v, latency %+v, solo %.3f, striped %.3f MB/s", one.Rail, one.Loss, one.Latency,
			one.Solo/1e6, one.Striped/1e6)
	}
	t.Logf("scaling %.3f, TCP %.3f of %.3f MB/s, %.1f s, findings %+v", r.Scaling, r.TCP/1e6, r.Striped/1e6, r.Duration,
		r.Findings)
	return r
}

// TestProbeNames plants faults of the matrix on the paths of node 1. A manual round must name each by its cause,
// and no round of a healthy pair may have a finding. If two processors are starved, a healthy rail can be as slow
// in one round, so the faulty one gets three rounds.
func TestProbeNames(t *testing.T) {
	for _, f := range faults.List() {
		if !f.Lab.Bench {
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			if !f.Lab.CI {
				onlyLong(t) // a fake fabric covers the same list
			}
			freshRails(t, 2)
			meet(t, 0, 1)
			if f.Lab.Shell != faults.OneShaper {
				limit(t, 0, shape)
				limit(t, 1, shape)
			} else {
				t.Cleanup(func() {
					node(1).Shell(t, "for i in 0 1; do tc qdisc del dev eth$i clsact; done; ip link delete ifb0")
				})
			}
			plantFault(t, f)
			answer(t)
			if f.Want == "" {
				healthyRounds(t)
				return
			}
			_, what, _ := strings.Cut(wanted(f), " ")
			check, subject, _ := strings.Cut(what, ", ")
			for range 3 {
				if r := benchLogged(t); r.named(t, check, subject, f.Lab.Not...) {
					return
				}
			}
			t.Fatalf("no round of three has %s of %s", check, subject)
		})
	}
}

// healthyRounds requires rounds without faults. A running node reports a finding of one round only if the next one
// confirms it.
func healthyRounds(t *testing.T) {
	t.Helper()
	seen := map[string]int{}
	for range 2 {
		for _, f := range benchLogged(t).Findings {
			if f.Severity != "info" || f.Check == "shared_bottleneck" || f.Check == "slower_than_tcp" {
				seen[f.Check+" of "+f.Subject]++
			}
		}
		if len(seen) == 0 {
			return
		}
	}
	for what, n := range seen {
		if n > 1 {
			t.Errorf("two rounds of a healthy pair have %s", what)
		}
	}
}
