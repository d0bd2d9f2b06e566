package demo

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"

	ours "github.com/railscope/railscope/deploy/rules"
)

// Time between two samples and two evaluations, and the duration of a state: a healthy one before something fails,
// and any state until alerts are counted. The longest wait of our alerts is an hour.
const (
	every   = 15 * time.Second
	healthy = 20 * time.Minute
	lasting = 80 * time.Minute
)

// Duration for which the demo is watched. Between two scrapes that are stretched, each node probes the other at
// least once.
const (
	measuring = 30 * time.Second // time without a change
	failAfter = 25 * time.Second // after 20 s the sampler has seen that the rails were balanced
	failing   = 15 * time.Second // time after the failure
	patience  = 2 * time.Minute  // limit on a busy machine
)

// trouble is a set of the demo's flags, with the expected results.
type trouble struct {
	name    string
	flags   []string
	suspect string // reason of the fallback that both nodes suspect
	solos   bool   // rails are also judged alone, so solo bursts are needed
	fails   bool
	want    []string // alerts that must fire, with their distinguishing labels, on nodes 1 and 2
}

var troubles = []trouble{
	{"healthy", nil, "", true, false, nil},
	{"degrade", []string{"--degrade=rail1=0.3"}, "", true, false, []string{
		"RailscopeGoodputLow 1 rail=1", "RailscopeGoodputLow 2 rail=1"}},
	{"fallback", []string{"--fallback"}, "rdma_idle_tcp_busy", false, false, []string{
		"RailscopeFallback 1 reason=traffic", "RailscopeFallback 2 reason=traffic",
		"RailscopeProbeFallback 1 reason=fallback", "RailscopeProbeFallback 2 reason=fallback"}},
	{"fail", []string{"--fail=rail0", fmt.Sprint("--fail-after=", failAfter)}, "single_rail", false, true, []string{
		"RailscopeRailDown 1 rail=0 reason=down"}},
}

// watched is the data that a demo served.
type watched struct {
	stretches [2][]stretch // stretches by node
	err       error
}

// TestAlerts runs the demo once for each trouble, all concurrently and for about a minute, stretches the served
// data to the time that alerts need, and checks that exactly the expected alerts fire. The demo measures what its
// rails carry, so they must be slow. Below this rate its TCP is too little for a suspicion.
func TestAlerts(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "railscope")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", binary, "./cmd/railscope")
	build.Dir = filepath.Join("..", "..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	results := make([]chan watched, len(troubles))
	for i, tc := range troubles {
		results[i] = make(chan watched, 1)
		nodes, end := start(t, binary, tc.flags)
		go func() {
			w := tc.watch(nodes)
			end()
			results[i] <- w
		}()
	}
	for i, tc := range troubles {
		t.Run(tc.name, func(t *testing.T) {
			w := <-results[i]
			got, err := w.alerts(t)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("these fire:\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(tc.want, "\n  "))
			}
		})
	}
}

// alerts returns the alerts that fire at the end of the watched time.
func (w watched) alerts(t *testing.T) ([]string, error) {
	t.Helper()
	if w.err != nil {
		return nil, w.err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "load %v\n", every)
	for i, stretches := range w.stretches {
		series(t, &b, fmt.Sprint(i+1), stretches)
	}
	total := 0
	for _, s := range w.stretches[0] {
		total += s.samples
	}
	return firing(t, b.String(), time.Duration(total)*every), nil
}

// watch scrapes two nodes until it has seen all that is stretched.
func (tc trouble) watch(nodes []string) watched {
	var stretches [2][]stretch
	var err error
	deadline := time.Now().Add(patience)
	until := func(what string, least time.Duration, seen func([]*scrape) bool) []*scrape {
		for from := time.Now(); err == nil; time.Sleep(250 * time.Millisecond) {
			var list []*scrape
			list, err = scrapeAll(nodes)
			switch {
			case time.Since(from) >= least && err == nil && seen(list):
				return list
			case time.Now().Before(deadline):
				err = nil // it may still be starting
			case err == nil:
				err = fmt.Errorf("after %v still not: %s", patience, what)
			}
		}
		return nil
	}
	more := func(counter string, from []*scrape) func([]*scrape) bool {
		return func(list []*scrape) bool {
			for i, s := range list {
				if n := s.sum(counter); n == 0 || from != nil && n <= from[i].sum(counter) {
					return false
				}
			}
			return true
		}
	}
	asked := func(from []*scrape) func([]*scrape) bool { return more("railscope_probe_rounds_total", from) }
	stretched := func(from, to []*scrape, samples time.Duration) {
		for i := range stretches {
			if err == nil {
				stretches[i] = append(stretches[i], stretch{from[i], to[i], int(samples / every)})
			}
		}
	}
	began := until("both serve", 0, func([]*scrape) bool { return true })
	from, lasts := until("both have asked", 0, asked(nil)), measuring
	if tc.fails {
		stretched(began, from, healthy)
		// Rounds that were running at the failure have ended two seconds later.
		down := until("the port is down", 0, func(list []*scrape) bool {
			return list[0].least("railscope_port_up") == 0
		})
		from, lasts = until("a moment passes", 2*time.Second, func([]*scrape) bool { return down != nil }), failing
	}
	to := until("both have asked, and suspect what they should", lasts, func(list []*scrape) bool {
		ready := asked(from)(list) && (!tc.solos || more("railscope_probe_solo_rounds_total", from)(list))
		for _, s := range list {
			ready = ready && (tc.suspect == "" || s.values[fmt.Sprintf("railscope_fallback_suspected{reason=%q}",
				tc.suspect)] == 1)
		}
		return ready
	})
	stretched(from, to, lasting)
	return watched{stretches, err}
}

// start starts the demo on free ports. It returns the addresses of its nodes, and a function that ends it before
// the test does.
func start(t *testing.T, binary string, flags []string) (nodes []string, end func()) {
	t.Helper()
	port := 20000 + 4*rand.IntN(3000) // below the ports that Linux assigns to connections
	for !free(port) {
		port = 20000 + 4*rand.IntN(3000)
	}
	cmd := exec.Command(binary,
		append([]string{"demo", "--rate=0.25", fmt.Sprintf("--web.listen-address=127.0.0.1:%d", port)}, flags...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v\n%s", err, said.String())
		}
	})
	t.Cleanup(func() {
		end()
		if t.Failed() {
			t.Logf("%q said:\n%s", flags, said.String())
		}
	})
	return []string{fmt.Sprintf("http://127.0.0.1:%d", port), fmt.Sprintf("http://127.0.0.1:%d", port+1)}, end
}

// free reports whether a port and the three ports above it, which the demo uses, are free.
func free(port int) bool {
	for i := range 4 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+i))
		if err != nil {
			return false
		}
		_ = l.Close()
	}
	return true
}

func scrapeAll(nodes []string) (list []*scrape, err error) {
	for _, url := range nodes {
		s, err := get(url)
		if err != nil {
			return nil, err
		}
		if s.values["railscope_demo"] != 1 {
			return nil, fmt.Errorf("%s does not say that it is a demo", url)
		}
		list = append(list, s)
	}
	return list, nil
}

// firing evaluates our rules over samples until end, and returns the alerts that fire then.
func firing(t *testing.T, samples string, end time.Duration) (list []string) {
	t.Helper()
	storage := promqltest.LoadedStorage(t, samples)
	defer storage.Close()
	p := parser.NewParser(parser.Options{})
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e7, Timeout: time.Minute, LookbackDelta: 5 * time.Minute,
		Parser: p})
	defer engine.Close()
	m := rules.NewManager(&rules.ManagerOptions{
		QueryFunc: rules.EngineQueryFunc(engine, storage), Appendable: storage, Queryable: storage,
		Context: t.Context(), Parser: p,
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {}, Logger: promslog.NewNopLogger(),
	})
	var files []string
	for _, name := range ours.Sources() {
		files = append(files, filepath.Join("..", "..", "..", "deploy", "rules", name))
	}
	groups, errs := m.LoadGroups(2*every, labels.EmptyLabels(), "", nil, false, files...)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, g := range groups {
		for _, r := range g.Rules() {
			if a, ok := r.(*rules.AlertingRule); ok {
				a.SetRestored(true)
			}
		}
	}
	for at := time.Duration(0); at < end; at += every {
		for _, recorded := range []bool{true,
			false} { // groups that record come first; in Prometheus their results exist by the next evaluation
			for _, g := range groups {
				if at%g.Interval() == 0 && records(g) == recorded {
					g.Eval(t.Context(), time.Unix(0, 0).Add(at))
				}
			}
		}
	}
	for _, g := range groups {
		for _, r := range g.Rules() {
			if r.LastError() != nil {
				t.Errorf("%s: %v", r.Name(), r.LastError())
			}
			a, ok := r.(*rules.AlertingRule)
			if !ok {
				continue
			}
			for _, alert := range a.ActiveAlerts() {
				if alert.State == rules.StateFiring {
					list = append(list, describe(alert.Labels))
				}
			}
		}
	}
	slices.Sort(list)
	return list
}

func records(g *rules.Group) bool {
	return slices.ContainsFunc(g.Rules(), func(r rules.Rule) bool { _, ok := r.(*rules.RecordingRule); return ok })
}

// describe returns an alert with the labels that distinguish it from others with its name.
func describe(l labels.Labels) string {
	s := l.Get("alertname") + " " + l.Get("instance")
	for _, name := range []string{"rail", "reason", "direction"} {
		if v := l.Get(name); v != "" {
			s += " " + name + "=" + v
		}
	}
	return s
}
