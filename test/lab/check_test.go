//go:build lab

package lab

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// hardFault is a fault that does not fluctuate; the time until it is reported is measured.
type hardFault struct {
	name, fault, repair string // shell scripts; empty: the cable
	finding             string
	line                string   // line that check prints
	events              []string // events of rail 1 that the kernel announces
}

func hardFaults() []hardFault {
	address := node(1).address(1) + "/24"
	return []hardFault{
		{"port down", "", "", "critical port_down, rail 1", "railscope: critical: rail 1: port down",
			[]string{"link_down", "port_error"}},
		{"device removed", "rdma link delete rxe1", "rdma link add rxe1 type rxe netdev eth1",
			"critical rail_missing, rail 1", "railscope: critical: rail 1: rail missing",
			[]string{"device_removed"}},
		{"GID removed", "ip address del " + address + " dev eth1", "ip address add " + address + " dev eth1",
			"critical gid_link_local, rail 1", "railscope: critical: rail 1: gid link local",
			[]string{"address_removed", "gid_changed"}},
	}
}

// set breaks rail 1 of node 1, or repairs it.
func (f hardFault) set(t *testing.T, broken bool) {
	t.Helper()
	switch {
	case f.fault == "":
		if err := node(1).cable(1, !broken); err != nil {
			t.Fatal(err)
		}
	case broken:
		node(1).Shell(t, f.fault)
	default:
		node(1).Shell(t, f.repair)
	}
}

// checked returns check's output on node 1, and its exit code.
func checked(t *testing.T, state string) (line string, exit int) {
	t.Helper()
	res, err := node(1).Try(railscope, "check", "--state.dir="+state)
	if err != nil && res.RC == 0 {
		t.Fatal(err)
	}
	return strings.TrimSpace(res.Stdout), res.RC
}

// until waits until check has an exit code, and returns its line, and how long that took.
func until(t *testing.T, state string, exit int, from time.Time) (line string, took time.Duration) {
	t.Helper()
	for {
		got, is := checked(t, state)
		took = time.Since(from)
		if is == exit {
			return got, took
		}
		if took > commandTime {
			t.Fatalf("check says %q, exit code %d, after %v", got, is, took)
		}
	}
}

// TestCheckAtOnce measures how long check still reports a healthy node after a hard fault, and the fault after its
// repair. Starting a process on an emulated node takes at least 0.1 s. Metrics show it without a query: the kernel
// reports it.
func TestCheckAtOnce(t *testing.T) {
	const most = 2 * time.Second
	times := 5
	if *long {
		times = 20
	}
	for _, f := range hardFaults() {
		t.Run(f.name, func(t *testing.T) {
			freshRails(t, 2)
			state := strings.TrimSpace(node(1).Run(t, "mktemp", "-d"))
			e := serve(t, 1, "--state.dir="+state)
			eventually(t, commandTime, func() error { // after two examinations the rail is known
				if line, exit := checked(t, state); exit != 0 || !strings.HasPrefix(line, "railscope: ok: 2 rails up") {
					return fmt.Errorf("%s, exit code %d", line, exit)
				}
				return nil
			})
			time.Sleep(15 * time.Second)
			t.Cleanup(func() {
				if f.fault == "" {
					_ = node(1).cable(1, true) // already plugged in, unless the test failed
				}
			})
			f.set(t, true)
			start := time.Now()
			for !slices.Contains(e.found(t), f.finding) {
				if time.Since(start) > commandTime {
					t.Fatalf("metrics: %q", e.found(t))
				}
			}
			unasked := time.Since(start)
			f.set(t, false)
			until(t, state, 0, start)
			var broken, repaired []time.Duration
			for range times {
				start := time.Now()
				f.set(t, true)
				line, took := until(t, state, 1, start)
				broken = append(broken, took)
				if line != f.line {
					t.Errorf("%q, want %q", line, f.line)
				}
				start = time.Now()
				f.set(t, false)
				line, took = until(t, state, 0, start)
				repaired = append(repaired, took)
				if !strings.HasPrefix(line, "railscope: ok: 2 rails up, ") || !strings.HasSuffix(line, "1 recovering") {
					t.Errorf("repaired: %q", line)
				}
			}
			slices.Sort(broken)
			slices.Sort(repaired)
			t.Logf("%d times: exit code 1 after %v, at worst %v; 0 again after %v, at worst %v; in metrics unasked after %v",
				times, broken[times/2], broken[times-1], repaired[times/2], repaired[times-1], unasked)
			if broken[times/2] > most {
				t.Errorf("exit code 1 after %v, want at most %v", broken[times/2], most)
			}
		})
	}
}
