//go:build lab

package lab

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// quick are the settings of rounds in tests that do not measure speed.
var quick = []string{withToken, "latency_samples: 50", "interval: 10s",
	"solo_every: 2"}

// ask makes node 1 probe node 2 repeatedly.
func ask(t *testing.T, keys ...string) *exporter {
	t.Helper()
	return serve(t, 1, config(t, 1, append(append([]string{"peers: [192.168.200.2]"}, quick...), keys...)...),
		"--log.level=debug")
}

// TestProbeMetrics checks the metrics of successful rounds, and of a peer that was removed.
func TestProbeMetrics(t *testing.T) {
	freshRails(t, 2)
	answer(t)
	e := ask(t)
	ok := want{
		`probe_rounds_total{peer="` + target + `",result="fallback"}`: 0, `probe_rounds_total{result="failed"}`: 0,
		`probe_failures_total`:              gone,
		`probe_transport{transport="rdma"}`: 1, `probe_transport{transport="tcp"}`: 0,
		`probe_transport{transport="none"}`: 0,
		`probe_fallback_info`:               gone, `probe_component_mismatch`: gone,
		`probe_verification_failures_total`: 0,
		`probe_rail_up{rail="0"}`:           1, `probe_rail_up{rail="1"}`: 1, `probe_path_mtu_bytes{rail="0"}`: pathMTU,
		`probe_path_mtu_bytes{rail="1"}`: pathMTU,
		`probe_leases`:                   0, `probe_worker_restarts_total`: 0,
		// the expected value of a software device
		`probe_rail_expected_bytes_per_second`:                             gone,
		fmt.Sprintf(`probe_gid_info{rail="1",gid=%q}`, node(1).address(1)): 1, `source_success{source="probe"}`: 1,
		`port_mtu_bytes{rail="0",kind="max"}`: 4096, `port_mtu_bytes{rail="1",kind="max"}`: 4096,
	}
	first := e.probed(t, 1, ok)
	const samples = `probe_latency_seconds_count` // round trips of both rails at random times: a quarter of 50 each
	next := e.probed(t, 1, ok)
	was, is, rounds := first.must(t, samples), next.must(t, samples), next.rounds()-first.rounds()
	if is != was+float64(rounds*2*12) {
		t.Errorf("%s grew from %v to %v in %d rounds, want 24 more in each", samples, was, is, rounds)
	}
	figures := want{}
	for _, series := range []string{
		`probe_goodput_bytes_per_second{mode="stealing"}`, `probe_goodput_bytes_per_second{mode="static"}`,
		`probe_rail_goodput_bytes_per_second{rail="1",mode="solo"}`,
		`probe_rail_goodput_bytes_per_second{rail="1",mode="stealing"}`, `probe_rail_bytes_total{rail="1"}`,
		`probe_scaling_ratio`, `probe_speedup_ratio`, `probe_tcp_goodput_bytes_per_second{streams="1"}`,
		`probe_tcp_goodput_bytes_per_second{streams="4"}`,
		`probe_tcp_path_mtu_bytes`, `probe_duration_seconds`, `probe_last_round_timestamp_seconds`,
		`probe_budget_seconds`,
	} {
		figures[series] = some
	}
	next = e.probed(t, 0, figures) // a round on busy processors may omit one
	for series := range figures {
		if v := next.must(t, series); v <= 0 {
			t.Errorf("%s is %v after a round that went well", series, v)
		}
	}
	checkFormat(t, e)

	config(t, 1, listens, withToken) // no peers any more
	e.process.node.Run(t, "kill", "-HUP", fmt.Sprint(e.process.PID))
	m := e.shows(t, want{`probe_rounds_total`: gone, `probe_transport`: gone, `probe_latency_seconds_count`: gone,
		`probe_latency_seconds_bucket`: gone,
		`probe_rail_up`:                gone, `probe_gid_info`: gone, `probe_last_result_timestamp_seconds`: gone,
		`probe_leases`: 0})
	for _, s := range m {
		if s.labels["peer"] != "" {
			t.Errorf("%s{peer=%q} is left of a peer that is none any more", s.name, s.labels["peer"])
		}
	}
}

// TestProbeDeviceGone deletes the peer's RDMA devices, then its own, and recreates them: the next round uses TCP
// and reports why, and the round after it uses RDMA again.
func TestProbeDeviceGone(t *testing.T) {
	onlyLong(t) // the fake library's tests delete devices at either end
	freshRails(t, 2)
	target := answer(t)
	e := ask(t)
	e.probed(t, 1, want{`probe_transport{transport="rdma"}`: 1})
	asked := []node{2, 1}
	for _, n := range asked {
		n.Shell(t, "for i in 0 1; do rdma link delete rxe$i; done")
		within(t, e, want{`probe_transport{transport="tcp"}`: 1, `probe_transport{transport="rdma"}`: 0,
			`probe_fallback_info{reason="no_device"}`: 1,
			`probe_goodput_bytes_per_second`:          gone, `probe_tcp_goodput_bytes_per_second{streams="1"}`: some,
			`source_success{source="probe"}`: 1})
		n.Shell(t, "for i in 0 1; do rdma link add rxe$i type rxe netdev eth$i; done")
		eventually(t, linkTime, func() error { return portState(t, n, 1, "4: ACTIVE") })
		within(t, e, want{`probe_transport{transport="rdma"}`: 1, `probe_fallback_info`: gone,
			`probe_rail_up{rail="0"}`: 1, `probe_rail_up{rail="1"}`: 1})
	}
	m := e.scrape(t)
	least := float64(len(asked))
	for _, series := range []string{`probe_failures_total{stage="open",reason="no_device"}`,
		`probe_rounds_total{result="fallback"}`} {
		if v := m.must(t, series); v < least {
			t.Errorf("%s is %v, want %v", series, v, least)
		}
	}
	if n := m.must(t, `probe_rounds_total{result="ok"}`) + m.must(t, `probe_rounds_total{result="degraded"}`); n < 1+least {
		t.Errorf("%v rounds were by RDMA, want %v", n, 1+least)
	}
	target.shows(t, want{`probe_worker_restarts_total`: 0})
}

// within waits for the first round that began after now, and for the expected metrics.
func within(t *testing.T, e *exporter, w want) {
	t.Helper()
	start := time.Now()
	before := e.rounds(t)
	var made int
	eventually(t, roundTime, func() error {
		m := e.scrape(t)
		made = e.rounds(t) - before
		if made > 2 {
			t.Fatalf("after %d rounds: %v", made, w.check(m))
		}
		return w.check(m)
	})
	t.Logf("%d rounds, %.1f s", made, time.Since(start).Seconds())
}

// TestProbeBondMovesGIDs moves the GIDs of both rails to a bond, between two rounds. No round may use a GID that no
// longer belongs to the rail.
func TestProbeBondMovesGIDs(t *testing.T) {
	freshRails(t, 2)
	answer(t)
	e := ask(t)
	e.probed(t, 1, want{`probe_transport{transport="rdma"}`: 1})
	bond(t, 1, "balance-xor", "xmit_hash_policy", "layer3+4")
	m := e.probed(t, 2, want{`probe_gid_info{rail="0",gid="192.168.101.1"}`: gone,
		`probe_gid_info{rail="1",gid="192.168.101.1"}`: gone})
	for _, name := range []string{"probe_rounds_total", "probe_transport", "probe_fallback_info",
		"probe_failures_total", "probe_rail_up", "probe_gid_info", "gid_misbound"} {
		for _, s := range m.find(name) {
			if s.value != 0 {
				t.Logf("%s %v %v", name, s.labels, s.value)
			}
		}
	}
}

// TestProbeRefused probes an address without a server, one with another server, and one with a wrong token, and
// uses invalid addresses.
func TestProbeRefused(t *testing.T) {
	freshRails(t, 2)
	answer(t)
	if err := os.WriteFile("/out/wrong", []byte("open, sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ peer, token, reason, stage string }{
		{"192.168.200.2:1", "/out/token", "peer_unreachable", "hello"},
		{"192.168.200.2:10091", "/out/token", "protocol", "hello"}, // the metrics port
		{"192.168.200.2", "/out/wrong", "unauthorized", "hello"},
	} {
		p := node(1).Start(t, railscope, "bench", c.peer, "--token-file="+c.token, "--format=json")
		r := ended(t, p)
		r.is(t, "failed", "none", c.reason)
		r.has(t, "", c.stage, c.reason)
	}
	for _, c := range []struct{ flags, says string }{
		{"192.168.200.2 --token-file=/no/such/file", "--token-file"},
		{"192.168.200.2 --transfer=12XiB", "--transfer"},
		{"a:b:c", "PEER must be host or host:port"},
		{"192.168.200.2 --config.file=/no/such/file", "/no/such/file"},
		{"", "peer"},
	} {
		res, _ := node(1).Try(append([]string{railscope, "bench"}, strings.Fields(c.flags)...)...)
		if res.RC != 2 || !strings.Contains(res.Stderr, c.says) {
			t.Errorf("bench %s: exit code %d, %q, want 2 and something of %q", c.flags, res.RC, res.Stderr, c.says)
		}
	}
}

// TestProbeBusy: the probe stays away from rails with other traffic: the prober from its own, the target from its
// own, and both if other traffic starts in the middle of a burst.
func TestProbeBusy(t *testing.T) {
	freshRails(t, 2)
	meet(t, 0, 1)
	// Unshaped, other traffic loses packets on busy CPUs, and stalls for seconds.
	limit(t, 1, shape)
	const shy = "busy_above: 0.0005" // share of 10 Gb/s: 0.6 MB/s
	for _, c := range []struct {
		name          string
		asker, target string
	}{
		{"the asker sees it", shy, "busy_above: 1"},
		{"the target sees it", "busy_above: 1", shy},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.asker == shy {
				onlyLong(t) // the target reads the same counters, and must report their values
			}
			answer(t, c.target)
			flags := append([]string{config(t, 1, withToken, "peers: ["+target+"]", c.asker)}, small...)
			others := startFlow(t, 1)
			defer others.stop()
			eventually(t, commandTime, func() error { return moves(t, 1) })
			r := bench(t, flags...)
			if err := moves(t, 1); err != nil {
				t.Errorf("the others went before the probe had its answer: %v", err)
			}
			quiet, busy := r.Rails[0], r.Rails[1]
			if r.Outcome != "ok" || r.code != 3 || quiet.Striped == 0 || quiet.Solo == 0 ||
				busy.Striped != 0 || busy.Latency.Samples == 0 || busy.NotStriped == nil ||
				busy.NotStriped.Reason != "no_gap" {
				t.Errorf("others use rail 1: exit code %d, %+v, %v", r.code, r.Rails, r)
			}
			others.stop()
			eventually(t, commandTime, func() error { // data that the shaper still had
				if moves(t, 1) == nil {
					return fmt.Errorf("the others do not go")
				}
				return nil
			})
			eventually(t, roundTime, func() error { // the last seconds count
				if r := bench(t, flags...); !r.byRDMA() {
					return fmt.Errorf("the others are gone, and yet: %v", r)
				}
				return nil
			})
		})
	}
}

// moves returns an error if a rail of node 1 carries no traffic.
func moves(t *testing.T, rail int) error {
	t.Helper()
	before := node(1).sent(t, rail)
	time.Sleep(poll)
	if sent := node(1).sent(t, rail) - before; sent < 100<<10 {
		return fmt.Errorf("rail %d carries %d bytes in a moment", rail, sent)
	}
	return nil
}
