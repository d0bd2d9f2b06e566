//go:build lab

package lab

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestProbeRailDown breaks one of two rails before the round, in several ways. The round uses the other, and
// reports the fault of this one.
func TestProbeRailDown(t *testing.T) {
	for _, c := range []struct {
		name   string
		down   func(t *testing.T)
		stage  string
		reason string
	}{
		{"own link taken down", func(t *testing.T) {
			node(1).Run(t, "ip", "link", "set", "eth1", "down")
		}, "open", "port_down"},
		{"the peer's cable pulled", func(t *testing.T) { node(2).Cable(t, 1, false) }, "open", "port_down"},
		{"nobody answers ARP", func(t *testing.T) { silence(t, 1) }, "connect", "rtr_unreachable"},
		{"packets are lost", func(t *testing.T) { meet(t, 1); silence(t, 1) }, "reach", "retry_exceeded"},
		{"full packets are lost", func(t *testing.T) { meet(t, 1); blackHole(t, 1) }, "mtu", "mtu_black_hole"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.reason != "mtu_black_hole" {
				onlyLong(t) // TestFindings, TestDoctorPeer and TestProbeRailDies cover much of this
			}
			freshRails(t, 2)
			answer(t)
			c.down(t)
			if c.stage == "open" {
				for _, n := range []node{1, 2} { // until the nodes have noticed that the port is down
					if n == 1 == (c.name == "own link taken down") {
						eventually(t, linkTime, func() error { return portState(t, n, 1, "1: DOWN") })
					}
				}
			}
			r := bench(t, small...)
			r.is(t, "degraded", "rdma", "")
			r.has(t, "1", c.stage, strings.Fields(c.reason)...)
			r.found(t, "rail_failed", "rail 1")
			if r.Imbalance != 1 || r.Rails[0].Failure != nil || r.Rails[1].Failure == nil || r.Striped == 0 {
				t.Errorf("one of two rails works: %v, imbalance %v, stealing %v", r, r.Imbalance, r.Striped)
			}
		})
	}
}

func portState(t *testing.T, n node, rail int, want string) error {
	t.Helper()
	if got := strings.TrimSpace(n.Run(t, "cat", fmt.Sprintf("/sys/class/infiniband/rxe%d/ports/1/state",
		rail))); got != want {
		return fmt.Errorf("node %d: rail %d is %s, want %s", n, rail, got, want)
	}
	return nil
}

// silence drops everything that the peer sends over a rail; both ports stay active.
func silence(t *testing.T, rail int) {
	t.Helper()
	node(2).Run(t, "tc", "qdisc", "replace", "dev", fmt.Sprintf("eth%d", rail), "root", "netem", "loss", "100%")
}

// blackHole drops packets of 4096 to 8191 bytes that arrive at the peer, like a switch with a smaller MTU.
func blackHole(t *testing.T, rail int) {
	t.Helper()
	dev := fmt.Sprintf("eth%d", rail)
	node(2).Shell(t, fmt.Sprintf(`tc qdisc add dev %[1]s clsact
tc filter add dev %[1]s ingress protocol ip u32 match u16 0x1000 0xf000 at 2 action drop`, dev))
	t.Cleanup(func() { node(2).Run(t, "tc", "qdisc", "del", "dev", dev, "clsact") })
}

// TestProbeRailDies breaks one of two rails in the middle of a burst.
func TestProbeRailDies(t *testing.T) {
	const striped = 9 << 20 // bytes that rail 0 has sent half a second after the striped burst began, at 20 Mb/s
	for _, c := range []struct {
		name, reason string
		die          func(t *testing.T)
	}{
		// rxe does not count retries that do not leave the machine: in Linux 6.1 the deadline of the burst ends
		// them. 6.12 flushes them.
		{"link taken down", "timeout flush", func(t *testing.T) {
			node(1).Run(t, "ip", "link", "set", "eth1", "down")
		}},
		{"silence", "retry_exceeded", func(t *testing.T) { silence(t, 1) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name != "silence" {
				onlyLong(t)
			}
			freshRails(t, 2)
			meet(t, 0, 1)
			limit(t, 0, "20mbit")
			limit(t, 1, "20mbit")
			answer(t)
			before := node(1).sent(t, 0)
			p := startBench(t, longBursts, "--latency-samples=20")
			carries(t, p, 0, before, striped)
			c.die(t)
			r := ended(t, p)
			r.is(t, "degraded", "rdma", "")
			r.has(t, "1", "striped", strings.Fields(c.reason)...)
			r.found(t, "rail_failed", "rail 1")
			if r.Striped == 0 || r.Rails[0].Failure != nil || r.Imbalance != 1 {
				t.Errorf("the other rail went on: %v, %+v", r, r.Rails)
			}
		})
	}
}

// TestProbeLoss drops 1 % of the packets on one rail: RC retransmits, so all data arrives, and the rail is slow.
func TestProbeLoss(t *testing.T) {
	onlyLong(t) // TestProbeNames has the same loss
	freshRails(t, 2)
	meet(t, 0, 1)
	limit(t, 0, shape)
	node(1).Run(t, "tc", "qdisc", "replace", "dev", "eth1", "root", "netem", "loss", "1%")
	answer(t)
	r := bench(t)
	if !r.byRDMA() || r.Rails[0].Failure != nil || r.Rails[1].Failure != nil {
		t.Errorf("want a round by RDMA over both rails, however uneven; got: %v", r)
	}
	t.Logf("solo %.2f and %.2f MB/s, striped %.2f; imbalance %.2f; rail 1 wrote %d bytes, the port counted %d",
		r.Rails[0].Solo/1e6, r.Rails[1].Solo/1e6, r.Striped/1e6, r.Imbalance, r.Rails[1].StripedBytes,
		r.Rails[1].CounterBytes)
	if lossy := r.Rails[1]; float64(lossy.CounterBytes) < 1.01*float64(lossy.StripedBytes)*
		(1+float64(packetExtra)/pathMTU) {
		t.Errorf("nothing was sent again: %+v", lossy)
	}
	if r.Striped < 0.8*r.Rails[0].Solo {
		t.Errorf("a rail with loss holds the other up: %.2f MB/s together, the other alone %.2f", r.Striped/1e6,
			r.Rails[0].Solo/1e6)
	}
}

// TestProbeMTU sets the MTU of one end to 1500: RDMA continues with packets of 1024, and the report says so.
func TestProbeMTU(t *testing.T) {
	freshRails(t, 2)
	node(2).Run(t, "ip", "link", "set", "eth1", "mtu", "1500")
	answer(t)
	r := bench(t, small...)
	r.worked(t)
	if r.Rails[0].PathMTU != pathMTU || r.Rails[1].PathMTU != 1024 || len(r.Failures) > 0 {
		t.Errorf("path MTU %d and %d, want %d and 1024; %v", r.Rails[0].PathMTU, r.Rails[1].PathMTU, pathMTU, r)
	}
	if !slices.ContainsFunc(r.Findings, func(f finding) bool {
		return f.Check == "path_mtu_small" && f.Subject == "rail 1"
	}) {
		t.Errorf("the report does not say that rail 1 uses small packets: %+v", r.Findings)
	}
}

// TestProbePeerDies kills the peer in the middle of a burst, restarts it in another, and probes again.
func TestProbePeerDies(t *testing.T) {
	onlyLong(t) // tests of the probe end a peer at each stage
	freshRails(t, 2)
	meet(t, 0, 1)
	for rail := range 2 {
		limit(t, rail, "20mbit")
	}
	flags := []string{config(t, 2, listens, withToken), "--log.level=debug"}
	during := []string{longBursts, "--latency-samples=20"}
	within := func(signal string, e *exporter) report {
		t.Helper()
		before := node(1).sent(t, 0)
		p := startBench(t, during...)
		carries(t, p, 0, before, 5<<20)
		start := time.Now()
		node(2).Run(t, "kill", signal, fmt.Sprint(e.process.PID))
		r := ended(t, p)
		t.Logf("noticed after %.1f s", time.Since(start).Seconds())
		if took := time.Since(start); took > 15*time.Second {
			t.Errorf("a round whose peer is gone goes on for %v", took)
		}
		return r
	}
	within("-KILL", launch(t, 2, flags...)).is(t, "failed", "none", "peer_lost")
	e := launch(t, 2, flags...)
	leavesNothing(t, e)
	within("-TERM", e).is(t, "skipped", "none", "draining")
	e = answer(t)
	leavesNothing(t, e)
	bench(t, small...).worked(t)
}

// TestProbeWorkerDies kills the process that uses libibverbs in the middle of a burst. The round continues by TCP,
// and the next uses RDMA.
func TestProbeWorkerDies(t *testing.T) {
	for _, c := range []struct {
		name, stage, reason, detail string
	}{
		{"the asker's", "striped", "worker_crashed", "the worker process ended"},
		{"the target's", "verify", "peer_worker", "on the peer: the worker process ended"},
	} {
		t.Run(c.name, func(t *testing.T) {
			onlyLong(t) // the fake library's tests kill the same process
			freshRails(t, 2)
			meet(t, 0, 1)
			for rail := range 2 {
				limit(t, rail, "20mbit")
			}
			e := answer(t)
			before := node(1).sent(t, 0)
			// At 20 Mb/s the burst over rail 0 alone and the striped one take 3 s each, so there are more than 2 s
			// for the kill during the second.
			p := startBench(t, longBursts, "--latency-samples=20")
			carries(t, p, 0, before, 9<<20)
			victim := p
			if c.name == "the target's" {
				victim = e.process
			}
			victim.node.Run(t, "kill", "-KILL", workerOf(t, victim))
			r := ended(t, p)
			r.is(t, "fallback", "tcp", c.reason)
			r.has(t, "", c.stage, c.reason)
			if !strings.HasPrefix(r.Detail, c.detail) {
				t.Errorf("%q: want %q", r.Detail, c.detail)
			}
			eventually(t, roundTime, func() error { // RDMA is paused for a moment after a crash
				if r := bench(t, small...); !r.byRDMA() {
					return fmt.Errorf("the next round: %v", r)
				}
				return nil
			})
			if restarts := e.scrape(t).must(t, "probe_worker_restarts_total"); victim == e.process && restarts != 1 {
				t.Errorf("probe_worker_restarts_total is %v, want 1", restarts)
			}
		})
	}
}

// TestProbeTwoAskers probes twice concurrently, then interrupts a round: the second prober waits, then reports that
// the peer is busy; the next one does not.
func TestProbeTwoAskers(t *testing.T) {
	onlyLong(t) // TestOverdueRound and the tests of leases cover it, in virtual time
	freshRails(t, 2)
	meet(t, 0, 1)
	limit(t, 0, "4mbit") // the second prober waits for 10 s
	limit(t, 1, "4mbit")
	e := answer(t)
	before := node(1).sent(t, 0)
	first := startBench(t, longBursts)
	carries(t, first, 0, before, 1<<20)
	e.shows(t, want{"probe_leases": 1})
	second := bench(t)
	second.is(t, "skipped", "none", "busy")
	if !strings.Contains(second.Detail, "answering node1") {
		t.Errorf("the second report does not name the first asker: %v", second)
	}
	if !first.Running() {
		t.Fatal("the first round did not last")
	}
	node(1).Run(t, "kill", fmt.Sprintf("-%d", syscall.SIGINT), fmt.Sprint(first.PID))
	stopped := time.Now()
	ended(t, first).is(t, "skipped", "none", "canceled")
	t.Logf("an interrupted round ends after %.1f s", time.Since(stopped).Seconds())
	limit(t, 0, shape)
	limit(t, 1, shape)
	bench(t, small...).worked(t)
}
