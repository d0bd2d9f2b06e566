//go:build lab

package lab

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestProbeGoodput compares the probe with ib_write_bw, on links that limit both. Other load on the machine can
// only make either slower, so each gets up to three tries, and the best of them count.
func TestProbeGoodput(t *testing.T) {
	for _, c := range []struct {
		name    string
		rates   []string
		striped float64 // minimum, for the sum of both rails
		outcome string
		wrong   func(r report, sum float64) bool
	}{
		{"alike", []string{shape, shape}, 0.97, "ok", func(r report, sum float64) bool {
			return r.Imbalance >= 0.1 || r.Static/sum < 0.95 || r.Scaling < 0.95 || r.Skew > 0.1
		}},
		{"one at a third", []string{shape, "10mbit"}, 0.95, "degraded", func(r report, sum float64) bool {
			return r.Imbalance <= 0.5 || r.Static/sum < 0.45 || r.Static/sum > 0.55 || r.Scaling < 0.93 || r.Skew < 0.5
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.outcome == "ok" {
				onlyLong(t) // the other case compares with ib_write_bw, too
			}
			freshRails(t, 2)
			meet(t, 0, 1)
			for i, rate := range c.rates {
				limit(t, i, rate)
			}
			answer(t)
			var theirs, solo [2]float64
			var stealing float64
			for try := 1; ; try++ {
				for i := range theirs {
					theirs[i] = max(theirs[i], threeSeconds(i, c.rates[i]).send(t))
				}
				r := bench(t, longBursts)
				r.is(t, c.outcome, "rdma", "")
				if c.outcome == "degraded" {
					r.found(t, "imbalance", "rail 1")
				}
				all := theirs[0] + theirs[1]
				stealing = max(stealing, r.Striped)
				poor := stealing/all < c.striped || c.wrong(r, all)
				for i := range solo {
					solo[i] = max(solo[i], r.Rails[i].Solo)
					poor = poor || solo[i]/theirs[i] < 0.98
					t.Logf("rail %d at %s: solo %.4f MB/s, ib_write_bw %.4f: %.4f", i, c.rates[i], solo[i]/1e6,
						theirs[i]/1e6, solo[i]/theirs[i])
				}
				t.Logf("striped %.4f MB/s, both ib_write_bw %.4f: stealing %.4f, static %.4f; imbalance %.4f, "+
					"scaling %.3f, skew %.3f",
					stealing/1e6, all/1e6, stealing/all, r.Static/all, r.Imbalance, r.Scaling, r.Skew)
				switch {
				case !poor:
					return
				case try == 3:
					t.Fatalf("want 0.98 of ib_write_bw on each rail, stealing %v of both, and: %s", c.striped, c.name)
				}
			}
		})
	}
}

// threeSeconds returns a burst of about 3 s at a rate.
func threeSeconds(rail int, rate string) burst {
	messages := 180
	if rate != shape {
		messages = 60
	}
	return burst{rail: rail, messages: messages, size: 64 << 10}
}

// TestProbeNamesTheSlowRail checks the text output. 1/3 of a rail's share is the rate without loss; retransmissions
// reduce it.
func TestProbeNamesTheSlowRail(t *testing.T) {
	onlyLong(t) // TestProbeGoodput has the same finding as JSON
	freshRails(t, 2)
	meet(t, 0, 1)
	limit(t, 0, shape)
	limit(t, 1, "10mbit")
	answer(t)
	p := startBench(t, "--format=table")
	p.end(t, roundTime)
	text := p.Stdout
	t.Logf("exit code %d, %s%s", p.RC, p.Stderr, text)
	if p.RC != 1 {
		t.Errorf("exit code %d, want 1: the round is degraded", p.RC)
	}
	for _, want := range []string{`is degraded: 2 rails carry`,
		`(?m)^  - rail 1 carries [23]\d % of its share \(imbalance 0\.[678]\d\)$`, `verified`} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("the report does not say %q", want)
		}
	}
	for _, no := range []string{"rail 0 carries", "bottleneck"} {
		if strings.Contains(text, no) {
			t.Errorf("the report says %q", no)
		}
	}
}

// TestProbeFourRails stripes over four equal rails, shaped so that together they do not exceed the nodes' capacity.
func TestProbeFourRails(t *testing.T) {
	onlyLong(t) // TestLineRate has up to 16 rails
	freshRails(t, 4)
	meet(t, 0, 1, 2, 3)
	for i := range 4 {
		limit(t, i, "12mbit")
	}
	answer(t)
	r := bench(t)
	r.is(t, "ok", "rdma", "")
	var solos float64
	for _, rail := range r.Rails {
		solos += rail.Solo
		if rail.Failure != nil || rail.PathMTU != pathMTU || rail.Latency.Samples != 200 || rail.StripedBytes == 0 {
			t.Errorf("rail %+v", rail)
		}
		if off := float64(rail.CounterBytes)/float64(rail.StripedBytes)/
			(1+float64(packetExtra)/pathMTU) - 1; off < -0.02 || off > 0.02 {
			t.Errorf("rail %s: the port counted %d bytes, %d were written: %+.3f", rail.Rail, rail.CounterBytes,
				rail.StripedBytes, off)
		}
	}
	t.Logf("stealing %.4f MB/s, %.4f of four solos; static %.4f; imbalance %.4f", r.Striped/1e6, r.Striped/solos,
		r.Static/solos, r.Imbalance)
	if len(r.Rails) != 4 || r.Imbalance >= 0.1 || r.Striped/solos < 0.95 {
		t.Errorf("four rails alike: %v, %+v", r, r.Rails)
	}
}

// TestProbeLatency compares the probe's writes with the reads of ib_read_lat: the same round trip. The emulated
// CPUs are sometimes late for seconds, so both take turns, and the second smallest of the medians counts.
func TestProbeLatency(t *testing.T) {
	onlyLong(t) // ten seconds for each pair of samples
	freshRails(t, 1)
	meet(t, 0)
	answer(t)
	var ours, theirs []float64
	for range 7 {
		theirs = append(theirs, readLatency(t, 0))
		r := bench(t, "--latency-samples=1000")
		r.is(t, "ok", "rdma", "")
		ours = append(ours, r.Rails[0].Latency.P50*1e6)
	}
	ratio := quiet(ours) / quiet(theirs)
	t.Logf("8 B writes %.0f µs, ib_read_lat %.0f µs: %.3f when it is quiet, %.3f by the median", ours, theirs, ratio,
		median(ours)/median(theirs))
	if ratio > 1.1 {
		t.Errorf("median latency %.1f µs is %.3f of ib_read_lat's %.1f µs, want no more, give or take a tenth",
			quiet(ours), ratio, quiet(theirs))
	}
}

// readLatency returns the median of ib_read_lat -s 8 from node 1 to node 2, in µs.
func readLatency(t *testing.T, rail int) float64 {
	t.Helper()
	device := fmt.Sprintf("rxe%d", rail)
	argv := func(n node) []string {
		g, _ := gidOf(gids(t, n, device), n.address(rail))
		return []string{"ib_read_lat", "-d", device, "-x", g.index, "-m", strconv.Itoa(pathMTU), "-F", "-s", "8", "-n",
			"1000", "-u", strconv.Itoa(patientTimeout)}
	}
	server := node(2).Start(t, argv(2)...)
	eventually(t, commandTime, func() error {
		if node(2).Run(t, "ss", "-Hltn", "sport = :18515") == "" {
			return fmt.Errorf("ib_read_lat does not listen")
		}
		return nil
	})
	out := node(1).Start(t, append(argv(1), node(2).control())...).Wait(t, time.Minute)
	server.Wait(t, commandTime)
	for _, line := range lines(out) { // bytes, iterations, min, max, typical (the median), average, …
		if f := strings.Fields(line); len(f) >= 6 && f[0] == "8" {
			if us, err := strconv.ParseFloat(f[4], 64); err == nil {
				return us
			}
		}
	}
	t.Fatalf("no result in what ib_read_lat said:\n%s", out)
	return 0
}

// TestProbeMemory checks the memory of an exporter and its worker after a round, at both ends. They share the pages of
// the program, which are counted once.
func TestProbeMemory(t *testing.T) {
	freshRails(t, 2)
	e := serve(t, 2, config(t, 2, listens, withToken, "events: true"))
	asker := serve(t, 1, config(t, 1, withToken, "peers: ["+target+"]", "interval: 20s", "events: true"))
	asker.probed(t, 1, want{`probe_transport{transport="rdma"}`: 1})
	e.shows(t, want{"probe_leases": 0})
	for _, p := range []*process{e.process, asker.process} {
		var all float64
		var processes int
		eventually(t, commandTime, func() error { // garbage is released gradually
			all, processes = 0, 0
			pids := append(strings.Fields(p.node.Run(t, "pgrep", "-P", strconv.Itoa(p.PID))), strconv.Itoa(p.PID))
			for _, pid := range pids {
				one, err := proportional(p.node, pid)
				if err != nil {
					return err // a worker that rests has ended
				}
				all, processes = all+one, processes+1
			}
			if all > 48 || processes < 2 {
				return fmt.Errorf("node %d: %d processes hold %.1f MB, want 48 at most", p.node, processes, all)
			}
			return nil
		})
		t.Logf("node %d: exporter, worker and the process of the open devices, %d processes, hold %.1f MB", p.node,
			processes, all)
	}
}

// proportional returns the memory of a process in MB, with its part of the pages that processes share.
func proportional(n node, pid string) (float64, error) {
	res, err := n.Try("grep", "^Pss:", "/proc/"+pid+"/smaps_rollup")
	if err != nil {
		return 0, err
	}
	var kib float64
	_, err = fmt.Sscanf(res.Stdout, "Pss: %f", &kib)
	return kib * 1024 / 1e6, err
}
