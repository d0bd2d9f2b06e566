//go:build lab

package lab

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// findTime is within what a fault must be a finding: two examinations, a minute apart, or two rounds.
const findTime = 3 * time.Minute

// found are the findings that stand on a node, as "severity check, subject".
func (e *exporter) found(t testing.TB) (list []string) {
	t.Helper()
	for _, s := range e.scrape(t).find("finding") {
		list = append(list, fmt.Sprintf("%s %s, %s", s.labels["severity"], s.labels["check"], s.labels["subject"]))
	}
	slices.Sort(list)
	return list
}

// TestFindings plants a fault on a node that serves: it becomes a finding by its own name within three minutes, and no
// other critical one. may are others that it may be, too. A node that starts with the fault finds it within seconds.
func TestFindings(t *testing.T) {
	const flaps = `for i in 1 2 3 4 5; do ip link set eth1 down; sleep 1; ip link set eth1 up; sleep 1; done`
	for _, c := range []struct {
		name, plant, want, may string
		later                  bool // planted while railscope runs: the fault is what it saw
		peer                   bool // node 1 asks node 2
		ci                     bool
	}{
		{name: "a cable", plant: "cable", want: "critical port_down, rail 1", ci: true},
		{name: "an interface taken down", plant: "ip link set eth1 down", want: "critical netdev_down, rail 1"},
		{name: "MTU 1500", plant: "ip link set eth1 mtu 1500", want: "warning mtu_low, rail 1"},
		{name: "an address removed", plant: "ip address del 192.168.101.1/24 dev eth1",
			want: "critical gid_link_local, rail 1"},
		{name: "one subnet", plant: "ip address flush dev eth1 scope global; ip address add 192.168.100.11/24 dev eth1",
			want: "critical same_subnet, rails 0 and 1"},
		{name: "a rail deleted", plant: "rdma link delete rxe1", later: true, want: "critical rail_missing, rail 1"},
		{name: "five flaps", plant: flaps, later: true, want: "warning link_flapping, rail 1"},
		{name: "a rail that loses all", plant: "peer silent", peer: true, want: "warning rail_failed, rail 1"},
		{name: "the peer's devices gone", plant: "peer without devices", peer: true,
			want: "critical fallback, peer " + target},
		{name: "the peer's address gone", plant: "peer without address", peer: true, want: "peer_gid, rail 1",
			may: "critical gid_link_local"},
		{name: "healthy", peer: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !c.ci {
				onlyLong(t) // the checks themselves have their tests
			}
			freshRails(t, 2)
			var e *exporter
			start := func() {
				if c.peer {
					answer(t)
					e = ask(t)
				} else {
					e = serve(t, 1)
				}
			}
			if c.later || c.peer {
				start()
			}
			if c.later {
				time.Sleep(15 * time.Second) // two examinations: the rail is known, and counters have a past
			}
			plantFault(t, c.plant)
			if e == nil {
				start()
			}
			planted := time.Now()
			if c.want == "" {
				time.Sleep(findTime)
				t.Logf("of a healthy pair: %q", e.found(t))
			} else {
				eventually(t, findTime, func() error {
					if got := e.found(t); !slices.ContainsFunc(got, func(s string) bool { return strings.HasSuffix(s, c.want) }) {
						return fmt.Errorf("found %q, want %s", got, c.want)
					}
					return nil
				})
				t.Logf("found after %.0f s: %q", time.Since(planted).Seconds(), e.found(t))
			}
			for _, f := range e.found(t) {
				other := !strings.HasSuffix(f, c.want) || c.want == ""
				if other && strings.HasPrefix(f, "critical ") && (c.may == "" || !strings.HasPrefix(f, c.may)) {
					t.Errorf("also %s", f)
				}
				if c.want == "" && strings.HasPrefix(f, "warning ") {
					t.Errorf("of a healthy pair: %s", f)
				}
			}
		})
	}
}

// plantFault does what a name says, or a shell on node 1.
func plantFault(t *testing.T, plant string) {
	t.Helper()
	switch plant {
	case "":
	case "cable":
		node(1).Cable(t, 1, false)
	case "peer silent":
		silence(t, 1)
	case "peer without devices":
		node(2).Shell(t, "for i in 0 1; do rdma link delete rxe$i; done")
	case "peer without address":
		node(2).Shell(t, "ip address del 192.168.101.2/24 dev eth1")
	default:
		node(1).Shell(t, plant)
	}
}
