package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/railscope/railscope/demo"
)

// fourPorts returns the first of four consecutive free ports. They are below the ephemeral ports of Linux, which
// another connection could occupy before the demo does.
func fourPorts(t *testing.T) string {
	t.Helper()
	for range 100 {
		port := 20000 + 4*rand.IntN(3000)
		free := 0
		for i := range 4 {
			if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+i)); err == nil {
				free++
				_ = l.Close()
			}
		}
		if free == 4 {
			return fmt.Sprintf("127.0.0.1:%d", port)
		}
	}
	t.Fatal("no four ports in a row are free")
	return ""
}

// shown is one node of a demo, as a scraper sees it.
type shown struct {
	url  string
	last map[string]float64 // counters, by series
	text string
}

// scrape reads the metrics, and fails if a counter went back. It returns false without an answer.
func (n *shown) scrape(t *testing.T) bool {
	t.Helper()
	resp, err := http.Get(n.url + "/metrics")
	if err != nil {
		return false // not serving yet
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	n.text = string(body)
	counters := map[string]bool{}
	for line := range strings.Lines(n.text) {
		if name, kind, _ := strings.Cut(strings.TrimPrefix(line, "# TYPE "), " "); strings.HasPrefix(line, "#") {
			counters[name] = counters[name] || kind == "counter\n"
			continue
		}
		series, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if i := strings.LastIndex(line, " "); strings.Contains(line, "{") && i > 0 {
			series, value = line[:i], strings.TrimSpace(line[i:])
		}
		if name, _, _ := strings.Cut(series, "{"); !ok || !counters[name] {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if v < n.last[series] {
			t.Errorf("%s went from %v to %v", series, n.last[series], v)
		}
		n.last[series] = v
	}
	return true
}

// value returns the value of the first series with this prefix; -1 without one.
func (n *shown) value(series string) float64 {
	_, rest, found := strings.Cut(n.text, "\nrailscope_"+series)
	if !found {
		return -1
	}
	line, _, _ := strings.Cut(rest, "\n")
	v, _ := strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:], 64)
	return v
}

// between reports whether a series exists and is within bounds.
func (n *shown) between(least, most float64, series string) bool {
	v := n.value(series)
	return v >= least && v <= most
}

// TestDemo runs the demo's two nodes, healthy and with each fault: both show it, and their metrics are well-formed.
func TestDemo(t *testing.T) {
	const rdma = `transport="simulated"} 1`
	degraded := regexp.MustCompile(`(?m)^railscope_probe_rounds_total\{.*result="degraded"\} [1-9]`)
	well := func(n *shown) bool {
		return strings.Contains(n.text, rdma) && n.value("probe_scaling_ratio") > 0 && strings.Count(n.text,
			"\nrailscope_probe_rail_up{") == 2
	}
	for name, tc := range map[string]struct {
		rate string // Gb/s: low, because the race detector and other tests need most of this machine
		args []string
		seen func(node int, n *shown) bool
	}{
		"healthy": {"0.2", nil, func(_ int, n *shown) bool {
			return well(n) && n.between(0, 0.3, "probe_imbalance_ratio") && n.between(0, 0.1,
				`rails_imbalance_ratio{direction="transmit",role="compute"}`) &&
				n.between(0, 0, `fallback_suspected{reason="rdma_idle_tcp_busy"}`) &&
				n.value("gpu_memory_used_bytes") > 10e9
		}},
		"degraded": {"0.2", []string{"--degrade=rail1=0.3"}, func(_ int, n *shown) bool {
			return strings.Contains(n.text, rdma) && n.between(0.55, 0.85, "probe_imbalance_ratio") && n.between(0.55,
				0.85, `rails_imbalance_ratio{direction="transmit",role="compute"}`) && degraded.MatchString(n.text)
		}},
		"fallback": {"1", []string{"--fallback"}, func(_ int, n *shown) bool {
			return strings.Contains(n.text, `transport="tcp"} 1`) && strings.Contains(n.text,
				`probe_fallback_info{`) && strings.Contains(n.text, `reason="retry_exceeded"} 1`) &&
				n.between(0, 0,
					`rails_busy_seconds_total{direction="transmit"}`) &&
				n.value(`rail_tcp_bytes_total{direction="transmit",rail="1"}`) > 1e6 &&
				n.between(1, 1, `fallback_suspected{reason="rdma_idle_tcp_busy"}`)
		}},
		"failed": {"0.2", []string{"--fail=0", "--fail-after=4s"}, func(node int, n *shown) bool {
			return strings.Contains(n.text, rdma) && n.between(float64(node), float64(node),
				`port_up{device="demo0"`) && n.between(1, 1, `port_up{device="demo1"`) &&
				strings.Contains(n.text, `rail="0"} 0`) && degraded.MatchString(n.text) && n.between(1, 1,
				"probe_imbalance_ratio") && n.between(1, 1, `rails_imbalance_ratio{direction="receive",role="compute"}`)
		}},
	} {
		// All start now: subtests run only as many at a time as there are processors, and mostly wait.
		nodes, fail, end := showAll(t, append([]string{"--rate=" + tc.rate}, tc.args...)...)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "failed" { // a rail that never carried traffic does not count as lost
				watch(t, nodes, func(_ int, n *shown) bool {
					return n.between(2, 2, `rails_active{direction="receive"`)
				})
			}
			fail()
			watch(t, nodes, func(i int, n *shown) bool {
				// A round learns the maximum MTU when it opens a port, so a port that never fails shows it in
				// another source.
				return tc.seen(i, n) && n.value(`port_mtu_bytes{device="demo1",kind="max"`) == 4096
			})
			for i, n := range nodes {
				if problems, err := promlint.New(bytes.NewReader([]byte(n.text))).
					Lint(); err != nil || len(problems) > 0 {
					t.Errorf("promlint: %v %v", problems, err)
				}
				for _, e := range regexp.MustCompile(`(?m)^railscope_source_errors_total.*$`).FindAllString(n.text,
					-1) {
					if !strings.Contains(e, `reason="timeout"`) { // timeouts are caused by this machine
						t.Error(e)
					}
				}
				if n.value("demo") != 1 {
					t.Error("it does not say that it is a demo")
				}
				if _, page := httpGet(t, n.url+"/"); !strings.Contains(page, demo.Notice) || !strings.Contains(page,
					fmt.Sprintf("<span>demo-%d</span>", i+1)) {
					t.Errorf("the page does not say that it is node %d of a demo", i+1)
				}
			}
			if err := end(); err != nil {
				t.Error(err)
			}
		})
	}
}

// showAll starts a demo, and returns its nodes, a function that takes the ports of --fail down, and one that ends
// it.
func showAll(t *testing.T, args ...string) (nodes [demo.Nodes]*shown, fail func(), end func() error) {
	t.Helper()
	app := kingpin.New("railscope", "")
	s := &demoSettings{common: &common{}}
	s.common.define(app)
	s.define(app)
	if _, err := app.Parse(append([]string{"demo", "--log.level=error", "--web.listen-address=" + fourPorts(t)},
		args...)); err != nil {
		t.Fatal(err)
	}
	opts, err := s.options()
	if err != nil {
		t.Fatal(err)
	}
	hold := make(chan struct{})
	opts.FailHold = hold
	at, err := demoAddresses(s.listen)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	rounds := demoProbe(opts.Rate)
	rounds.Interval = 6 * time.Second
	go func() { ended <- s.show(ctx, opts, at, rounds) }()
	for i := range nodes {
		nodes[i] = &shown{url: "http://" + at.web[i], last: map[string]float64{}}
	}
	return nodes, func() { close(hold) }, func() error { cancel(); return <-ended }
}

// watch scrapes until each node has shown everything. The number of rounds is not limited: on a busy machine some are
// disturbed.
func watch(t *testing.T, nodes [demo.Nodes]*shown, seen func(int, *shown) bool) {
	t.Helper()
	var done [demo.Nodes]bool
	for deadline := time.Now().Add(4 * time.Minute); done != [demo.Nodes]bool{true,
		true}; time.Sleep(250 * time.Millisecond) {
		for i, n := range nodes {
			done[i] = n.scrape(t) && (done[i] || seen(i, n))
		}
		if time.Now().After(deadline) {
			for i, n := range nodes {
				t.Errorf("node %d, all was there: %v\n%s", i+1, done[i],
					strings.Join(regexp.MustCompile(`(?m)^railscope_(?:probe_[^l]|rails|fallback|port_up|port_mtu|rail_tcp).*$`).FindAllString(n.text, -1),
						"\n"))
			}
			return
		}
	}
}

// TestDemoEnds: the first line is the notice, every signal ends the demo with exit code 0, and no file is left
// behind, even when its terminal or the reader of its output is gone.
func TestDemoEnds(t *testing.T) {
	// Under nohup SIGHUP is ignored. Children inherit that, but not a handler.
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(hup) })
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel() // mostly waits for the first round
			testDemoEnds(t, sig)
		})
	}
}

func testDemoEnds(t *testing.T, sig os.Signal) {
	tmp := t.TempDir()
	address := fourPorts(t)
	cmd := command(t, []string{"TMPDIR=" + tmp}, "demo", "--web.listen-address="+address, "--log.format=json")
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	cmd.Stdout = write
	r := follow(t, cmd)
	write.Close()
	r.line(t, `"msg":"(Probe (?:finished|skipped))"`)
	first, err := bufio.NewReader(read).ReadString('\n')
	if err != nil || strings.TrimSpace(first) != demo.Notice {
		t.Errorf("the first line is %q: %v", first, err)
	}
	if sig == syscall.SIGPIPE {
		if err := r.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // a connection that a peer has closed is no reason to end
		if code, _ := httpGet(t, "http://"+address+"/-/healthy"); code != 200 {
			t.Errorf("%d after a broken connection", code)
		}
		read.Close()
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) != 1 {
		t.Errorf("while it runs: %v %v", left, err)
	}
	asked := time.Now()
	if code := r.stop(t, sig); code != 0 {
		t.Errorf("exit %d after %v", code, sig)
	}
	t.Logf("%v ended it after %v", sig, time.Since(asked))
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left after %v: %v %v", sig, left, err)
	}
}
