//go:build lab

package lab

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// slowRails gives both rails of node 1 a speed of 2.5 Gb/s. RDMA reports 10 Gb/s for it, and railscope the speed of
// the interface. An emulated CPU can then carry more than 1 % of the capacity, from which on a rail is busy.
func slowRails(t *testing.T) (capacity float64) {
	t.Helper()
	speed := func(mbit int) {
		node(1).Shell(t, fmt.Sprintf("for i in 0 1; do ethtool -s eth$i speed %d duplex full; done", mbit))
	}
	speed(2500)
	t.Cleanup(func() { speed(10000) })
	return 2.5e9 / 8
}

// sampling waits until the sampler of e knows both capacities, and returns a scrape.
func sampling(t *testing.T, e *exporter) metrics {
	t.Helper()
	var m metrics
	eventually(t, linkTime, func() error {
		m = e.scrape(t)
		for rail := range 2 {
			v, err := m.value(fmt.Sprintf(`rail_utilization_ratio_count{rail="%d",direction="transmit"}`, rail))
			if err == nil && v < 5 {
				err = fmt.Errorf("rail %d: %v samples", rail, v)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return m
}

// grew returns the increase of a series.
func grew(t *testing.T, from, to metrics, selector string) float64 {
	t.Helper()
	return to.must(t, selector) - from.must(t, selector)
}

// near checks a value against the truth, within 5 % and the error of edges.
func near(t *testing.T, what string, got, want, edges float64) {
	t.Helper()
	t.Logf("%s: %.4g, in truth %.4g: %+.1f %%", what, got, want, 100*(got-want)/want)
	if math.Abs(got-want) > 0.05*want+edges {
		t.Errorf("%s: %.4g, want %.4g within 5 %%", what, got, want)
	}
}

// TestSamplerBurst sends a burst of known size between two scrapes: histogram and busy seconds show its size and
// duration, on its rail alone.
func TestSamplerBurst(t *testing.T) {
	freshRails(t, 2)
	capacity := slowRails(t)
	meet(t, 0, 1)
	e := serve(t, 1)
	b := burst{rail: 0, messages: 3000, size: 64 << 10}
	before := sampling(t, e)
	rate := b.send(t)
	took := float64(b.messages*b.size) / rate
	e.shows(t, want{`rails_active{direction="transmit"}`: 1,
		`rails_imbalance_ratio{direction="transmit",role="compute"}`: some})
	time.Sleep(3 * time.Second) // the time in which any rail was busy is counted two seconds later
	after := e.scrape(t)

	sum := grew(t, before, after, `rail_utilization_ratio_sum{rail="0",direction="transmit"}`)
	count := grew(t, before, after, `rail_utilization_ratio_count{rail="0",direction="transmit"}`)
	late := grew(t, before, after, `sampler_overruns_total{device="rxe0"}`)
	t.Logf("%.1f MB/s for %.1f s; %v samples, %v late", rate/1e6, took, count, late)
	// A late sample counts once, but covers two intervals, or some more on a slow machine.
	near(t, "bytes by the histogram", sum/count*(count+late)*0.1*capacity, float64(b.wireBytes()), late*0.3*rate)
	const edges = 0.2 // the first and the last sample
	near(t, "busy seconds of the rail",
		grew(t, before, after, `rail_busy_seconds_total{rail="0",direction="transmit"}`), took, edges)
	near(t, "busy seconds of all", grew(t, before, after, `rails_busy_seconds_total{direction="transmit"}`),
		took, edges)
	near(t, "imbalanced seconds", grew(t, before, after, `rails_imbalanced_seconds_total{direction="transmit"}`),
		took, edges)
	if idle := grew(t, before, after, `rail_busy_seconds_total{rail="1",direction="transmit"}`); idle > 0.1 {
		t.Errorf("the other rail was busy for %v s", idle)
	}
	if v := after.must(t, `fallback_suspected{reason="rdma_idle_tcp_busy"}`); v != 0 {
		t.Error("RDMA is suspected to be TCP")
	}
	checkFormat(t, e)
}

// TestSamplerImbalance sends over both rails at once, one of them shaped to 1/3 of the other, and then over
// neither. The counters give the true ratio over the window of rails_imbalance_ratio.
func TestSamplerImbalance(t *testing.T) {
	const window = 10 * time.Second
	for _, c := range []struct {
		name   string
		shapes []string
		about  float64 // approximate expected value
	}{
		{"one at a third", []string{"42mbit", "14mbit"}, 2. / 3},
		{"alike", []string{shape, shape}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.about == 0 {
				onlyLong(t) // TestAlertsFaults begins with balanced rails
			}
			freshRails(t, 2)
			slowRails(t)
			meet(t, 0, 1)
			for rail, rate := range c.shapes {
				limit(t, rail, rate)
			}
			e := serve(t, 1)
			sampling(t, e)
			job := startFlow(t, 0, 1)
			carried := func(m metrics) (bytes [2]float64) {
				for rail := range bytes {
					bytes[rail] = m.must(t, fmt.Sprintf(`port_transmit_bytes_total{rail="%d"}`, rail))
				}
				return bytes
			}
			// A scrape of a slow node may lack a rail.
			both := want{`port_transmit_bytes_total{rail="0"}`: some, `port_transmit_bytes_total{rail="1"}`: some}
			begun := carried(e.shows(t, both))
			eventually(t, linkTime, func() error {
				if now := carried(e.shows(t, both)); now[0] < begun[0]+3e6 || now[1] < begun[1]+1e6 {
					return fmt.Errorf("not both rails carry anything")
				}
				return nil
			})
			time.Sleep(window + 2*
				time.Second) // the beginning, with one rail after the other, has left the window
			before := e.shows(t, both)
			from := carried(before)
			time.Sleep(window)
			m := e.shows(t, both)
			to := carried(m)
			job.stop()
			a, b := to[0]-from[0], to[1]-from[1]
			truth := 1 - min(a, b)/max(a, b) // imbalance of two equal rails
			got := m.must(t, `rails_imbalance_ratio{direction="transmit",role="compute"}`)
			t.Logf("%.1f and %.1f MB in %v: imbalance %.3f, in truth %.3f", a/1e6, b/1e6, window, got, truth)
			if math.Abs(got-truth) > 0.05 || math.Abs(truth-c.about) > 0.15 {
				t.Errorf("imbalance %.3f, want %.3f, about %v", got, truth, c.about)
			}
			busy, uneven := grew(t, before, m, `rails_busy_seconds_total{direction="transmit"}`),
				grew(t, before, m, `rails_imbalanced_seconds_total{direction="transmit"}`)
			t.Logf("%.1f s busy, %.1f s imbalanced", busy, uneven)
			if busy < 8 || c.about > 0 && uneven < 0.95*busy || c.about == 0 && uneven > 0.05*busy {
				t.Errorf("%.1f s busy, %.1f s imbalanced", busy, uneven)
			}
		})
	}
}

// decided is the maximum time until a fallback is suspected, or no longer: docs/sampler.md says 20 s; the rest is
// for the lab.
const decided = 30 * time.Second

// TestSamplerFallback: TCP over a rail while RDMA idles is suspected in time, and no longer when it ends; with
// -long, RDMA beside TCP is not suspected.
func TestSamplerFallback(t *testing.T) {
	freshRails(t, 2)
	slowRails(t)
	for _, n := range []node{1,
		2} { // large packets: with small ones, an emulated CPU may send too little for a suspicion
		n.Run(t, "ip", "link", "set", "eth0", "mtu", "16000")
	}
	meet(t, 0, 1)
	e := serve(t, 1)
	const suspected = `fallback_suspected{reason="rdma_idle_tcp_busy"}`
	sampling(t, e)
	eventually(t, decided, func() error { return want{suspected: 0}.check(e.scrape(t)) })

	node(2).Start(t, "iperf3", "-s", "-B", node(2).address(0))
	eventually(t, commandTime, func() error {
		if node(2).Run(t, "ss", "-Hltn", "sport = :5201") == "" {
			return fmt.Errorf("iperf3 does not listen")
		}
		return nil
	})
	tcp := func(flags string) *process {
		return node(1).Start(t, append([]string{"iperf3", "-c", node(2).address(0), "-t", "600", "-i", "0"},
			strings.Fields(flags)...)...)
	}
	alone := tcp("")
	before, start := e.scrape(t), time.Now()
	eventually(t, decided, func() error {
		m := e.scrape(t)
		if err := (want{suspected: 1}).check(m); err != nil {
			return fmt.Errorf("%w; TCP at %.1f MB/s", err,
				grew(t, before, m, `port_transmit_bytes_total{rail="0"}`)/time.Since(start).Seconds()/1e6)
		}
		return nil
	})
	took := time.Since(start).Seconds()
	t.Logf("suspected after %.1f s of TCP at %.1f MB/s", took,
		grew(t, before, e.scrape(t), `port_transmit_bytes_total{rail="0"}`)/took/1e6)
	e.shows(t, want{`rail_tcp_bytes_total`: gone}) // unknown on rxe, so nothing is exported
	alone.kill()
	start = time.Now()
	eventually(t, decided, func() error { return want{suspected: 0}.check(e.scrape(t)) })
	t.Logf("no longer suspected %.1f s after its end", time.Since(start).Seconds())

	if !*long {
		return // TestFallbackRxe of collector/sampler covers RDMA beside TCP
	}
	// Shaped, because packets for which emulated CPUs have no time are lost, and Soft-RoCE retransmits everything
	// in flight, seconds later.
	limit(t, 1, "80mbit")
	both, job := tcp("-b 110M"), startFlow(t, 1)
	from := e.scrape(t)
	for start = time.Now(); time.Since(start) < 22*time.Second; { // longer than a suspicion needs
		time.Sleep(time.Second)
		if err := (want{suspected: 0}).check(e.scrape(t)); err != nil {
			t.Fatalf("with RDMA beside it: %v", err)
		}
	}
	to, seconds := e.scrape(t), time.Since(start).Seconds()
	t.Logf("both at once: TCP %.1f MB/s, RDMA %.1f MB/s",
		grew(t, from, to, `port_transmit_bytes_total{rail="0"}`)/seconds/1e6,
		grew(t, from, to, `port_transmit_bytes_total{rail="1"}`)/seconds/1e6)
	if grew(t, from, to, `port_transmit_bytes_total{rail="1"}`) < 20e6 {
		t.Error("there was too little RDMA to prove anything")
	}
	both.kill()
	job.stop()
}
