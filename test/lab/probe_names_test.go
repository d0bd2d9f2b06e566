//go:build lab

package lab

import (
	"slices"
	"testing"
)

// named reports whether a round has a finding of a check about a subject; it must have none critical, and none of
// others.
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

// oneShaper sends what leaves node 1 over both rails through one shaper.
const oneShaper = `modprobe -a ifb act_mirred cls_matchall
ip link add ifb0 type ifb
ip link set ifb0 mtu 16000 up
tc qdisc add dev ifb0 root tbf rate ` + shape + ` burst 64kb limit 8mb
for i in 0 1; do
	tc qdisc add dev eth$i clsact
	tc filter add dev eth$i egress matchall action mirred egress redirect dev ifb0
done`

// benchLogged makes one round, and logs what findings are made of.
func benchLogged(t *testing.T) report {
	t.Helper()
	r := bench(t)
	for _, one := range r.Rails {
		t.Logf("rail %s: loss %+v, latency %+v, solo %.3f, striped %.3f MB/s", one.Rail, one.Loss, one.Latency,
			one.Solo/1e6, one.Stealing/1e6)
	}
	t.Logf("scaling %.3f, TCP %.3f of %.3f MB/s, %.1f s, findings %+v", r.Scaling, r.TCP/1e6, r.Stealing/1e6, r.Duration,
		r.Findings)
	return r
}

// TestProbeNames plants a fault on the paths of node 1, which a round by hand names by its cause, and no round of a
// healthy pair has. Where two processors are starved, a healthy rail can be as slow in one round: the faulty one has
// three.
func TestProbeNames(t *testing.T) {
	const onRail1 = "tc qdisc replace dev eth1 root netem rate " + shape
	for _, c := range []struct {
		name, plant, check, subject string
		not                         []string
	}{
		{"healthy", "", "", "", nil},
		{"2 ms more", onRail1 + " delay 2ms", "latency_uneven", "rail 1", []string{"shared_bottleneck", "lossy_rail"}},
		{"4 ms more, and jitter", onRail1 + " delay 4ms 1ms", "latency_uneven", "rail 1", []string{"shared_bottleneck"}},
		{"1 % loss", onRail1 + " loss 1%", "lossy_rail", "rail 1",
			[]string{"shared_bottleneck", "imbalance", "latency_uneven"}},
		{"one shaper for both", oneShaper, "shared_bottleneck", "peer " + target, []string{"imbalance", "lossy_rail"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.check != "lossy_rail" {
				onlyLong(t) // tests of the probe and of the checks have them, too
			}
			freshRails(t, 2)
			meet(t, 0, 1)
			if c.plant != oneShaper {
				limit(t, 0, shape)
				limit(t, 1, shape)
			} else {
				t.Cleanup(func() {
					node(1).Shell(t, "for i in 0 1; do tc qdisc del dev eth$i clsact; done; ip link delete ifb0")
				})
			}
			if c.plant != "" {
				node(1).Shell(t, c.plant)
			}
			answer(t)
			for try := 1; c.check != "" && try <= 3; try++ {
				if r := benchLogged(t); r.named(t, c.check, c.subject, c.not...) {
					return
				}
			}
			if c.check != "" {
				t.Fatalf("no round of three has %s of %s", c.check, c.subject)
			}
			seen := map[string]int{}
			for range 2 { // what one round finds, a running node says only if the next one agrees
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
		})
	}
}
