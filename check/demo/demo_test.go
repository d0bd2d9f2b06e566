package demo

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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

// Time between two samples and two evaluations, and how long a state lasts: a
// healthy one before something fails, and any until alerts are counted. The
// longest time that one of ours waits is an hour.
const (
	every   = 15 * time.Second
	healthy = 20 * time.Minute
	lasting = 80 * time.Minute
)

// Time between two scrapes that are stretched: a multiple of that between rounds,
// and where rails alone are judged of that between full ones, too.
const (
	rounds     = 30 * time.Second
	fullRounds = 75 * time.Second
)

// troubles are the demo's flags, and the alerts that must fire for them, with
// what tells them apart, on the nodes 1 and 2.
var troubles = []struct {
	name  string
	flags []string
	fails bool
	want  []string
}{
	{"healthy", nil, false, nil},
	{"degrade", []string{"--degrade=rail1=0.3"}, false, []string{
		"RailscopeGoodputBelowExpected 1 rail=1", "RailscopeGoodputBelowExpected 2 rail=1", "RailscopeProbeImbalance 1", "RailscopeProbeImbalance 2",
		"RailscopeRailImbalance 1 direction=receive", "RailscopeRailImbalance 1 direction=transmit", "RailscopeRailImbalance 2 direction=receive", "RailscopeRailImbalance 2 direction=transmit"}},
	{"fallback", []string{"--fallback"}, false, []string{
		"RailscopeFallbackSuspected 1 reason=rdma_idle_tcp_busy", "RailscopeFallbackSuspected 2 reason=rdma_idle_tcp_busy", "RailscopeProbeFallback 1", "RailscopeProbeFallback 2"}},
	{"fail", []string{"--fail=rail0", "--fail-after=60s"}, true, []string{
		"RailscopeFallbackSuspected 1 reason=single_rail", "RailscopeFallbackSuspected 2 reason=single_rail", "RailscopeProbeRailFailing 2 rail=0", "RailscopeRailDown 1 rail=0",
		"RailscopeRailImbalance 1 direction=receive", "RailscopeRailImbalance 1 direction=transmit", "RailscopeRailImbalance 2 direction=receive", "RailscopeRailImbalance 2 direction=transmit"}},
}

// TestAlerts runs the demo once for each trouble, two minutes or three, stretches what
// it served to the time that alerts take, and holds that those fire that should,
// and no other.
func TestAlerts(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "railscope")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", binary, "./cmd/railscope")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, tc := range troubles {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			nodes := start(t, binary, tc.flags)
			stretches := make([][]stretch, len(nodes))
			measure := func(measuring, samples time.Duration) {
				from := scrapeAll(t, nodes)
				time.Sleep(measuring)
				for i, to := range scrapeAll(t, nodes) {
					stretches[i] = append(stretches[i], stretch{from[i], to, int(samples / every)})
				}
			}
			time.Sleep(25 * time.Second) // both have asked, and suspicions have come up
			if tc.fails {
				measure(rounds, healthy)
				time.Sleep(30 * time.Second)
			}
			measure(fullRounds, lasting)
			var b strings.Builder
			fmt.Fprintf(&b, "load %v\n", every)
			total := 0
			for i := range nodes {
				series(t, &b, fmt.Sprint(i+1), stretches[i])
			}
			for _, s := range stretches[0] {
				total += s.samples
			}
			got := firing(t, b.String(), time.Duration(total)*every)
			if !slices.Equal(got, tc.want) {
				t.Errorf("these fire:\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(tc.want, "\n  "))
			}
		})
	}
}

// start starts the demo on free ports and returns where its nodes serve.
func start(t *testing.T, binary string, flags []string) []string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := net.SplitHostPort(l.Addr().String())
	_ = l.Close()
	port, _ := strconv.Atoi(text)
	// Rails that a machine at work with three other demos carries, too.
	cmd := exec.Command(binary, append([]string{"demo", "--rate=0.25", fmt.Sprintf("--web.listen-address=127.0.0.1:%d", port)}, flags...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Errorf("%v\n%s", err, said.String())
		}
	})
	return []string{fmt.Sprintf("http://127.0.0.1:%d", port), fmt.Sprintf("http://127.0.0.1:%d", port+1)}
}

func scrapeAll(t *testing.T, nodes []string) (list []*scrape) {
	t.Helper()
	for _, url := range nodes {
		s, err := get(url)
		if err != nil {
			t.Fatal(err)
		}
		if s.values["railscope_demo"] != 1 {
			t.Errorf("%s does not say that it is a demo", url)
		}
		list = append(list, s)
	}
	return list
}

// firing evaluates our rules over samples until end, and returns the alerts that
// fire then.
func firing(t *testing.T, samples string, end time.Duration) (list []string) {
	t.Helper()
	storage := promqltest.LoadedStorage(t, samples)
	defer storage.Close()
	p := parser.NewParser(parser.Options{})
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e7, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, Parser: p})
	defer engine.Close()
	m := rules.NewManager(&rules.ManagerOptions{
		QueryFunc: rules.EngineQueryFunc(engine, storage), Appendable: storage, Queryable: storage, Context: t.Context(), Parser: p,
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {}, Logger: promslog.NewNopLogger(),
	})
	var files []string
	for _, name := range ours.Sources() {
		files = append(files, filepath.Join("..", "..", "deploy", "rules", name))
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
		for _, recorded := range []bool{true, false} { // groups that record come first, as Prometheus has it done by their next turn
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

// describe is an alert with what tells it from others of its name.
func describe(l labels.Labels) string {
	s := l.Get("alertname") + " " + l.Get("instance")
	for _, name := range []string{"rail", "reason", "direction"} {
		if v := l.Get(name); v != "" {
			s += " " + name + "=" + v
		}
	}
	return s
}
